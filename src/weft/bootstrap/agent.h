// Agent: the one thread of a process that serves every bootstrap in it. It runs while anybody uses it, asleep
// when there is nothing to do, and is over when the last use is given up, or at the latest when the process
// exits.
//
// Thread safety: uses may be made and given up from any thread, the agent's own included.
#pragma once

#include <memory>

#include "bootstrap/event_loop.h"

namespace weft::bootstrap {

/// Keeps the agent running.
class AgentUse {
 public:
  /// Starts the thread if it does not run.
  static Result<AgentUse> begin();
  AgentUse() = default;
  AgentUse(AgentUse&&) = default;
  AgentUse& operator=(AgentUse&& other) noexcept {
    if (this != &other) end(), loop_ = std::move(other.loop_);
    return *this;
  }
  ~AgentUse() { end(); }

  EventLoop& loop() const { return *loop_; }

 private:
  void end();
  std::shared_ptr<EventLoop> loop_;
};

}  // namespace weft::bootstrap
