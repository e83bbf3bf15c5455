// Inquiries: runs the inquiries of verdicts (verdict.h) one at a time, on a separate thread.
//
// Thread safety: under the context's lock, except close(), which takes it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <thread>

#include "engine/context/context_lock.h"

namespace weft::engine {

class Context;

class Inquiries {
 public:
  using Inquiry = std::function<void()>;

  explicit Inquiries(Context& context) : context_(context) {}

  /// Runs an inquiry. Errors: in_progress while another one runs; system_error if no thread can be started.
  Status ask(Inquiry inquiry) WEFT_REQUIRES(context_lock);
  /// Runs an inquiry after the running one. If an inquiry of the communicator waits already, drops the new
  /// one. Errors: system_error.
  Status ask_in_turn(uint32_t comm, Inquiry inquiry) WEFT_REQUIRES(context_lock);
  /// Drops the inquiries that wait, and returns when none runs.
  void close() WEFT_EXCLUDES(context_lock);

 private:
  Inquiry next();

  Context& context_;
  std::thread thread_;
  bool running_ WEFT_GUARDED_BY(context_lock) = false;
  std::map<uint32_t, Inquiry> waiting_ WEFT_GUARDED_BY(context_lock);  // by communicator
};

}  // namespace weft::engine
