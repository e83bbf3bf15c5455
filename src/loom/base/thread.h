// Threads: starting one may fail, as everything that the system gives.
#pragma once

#include <system_error>
#include <thread>
#include <utility>

#include "base/status.h"

namespace loom {

/// A thread that runs `body()`. Errors: system_error when the process may have no more.
template <typename Body>
Result<std::thread> start_thread(Body body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    return fail(Code::system_error,
                "cannot start a thread: {}; what limits threads may be ulimit -u or the control group's "
                "pids.max",
                error.code().message());
  }
}

}  // namespace loom
