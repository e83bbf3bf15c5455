// Connection: frames in both directions on the agent, between two ranks of a job.
//
// Thread safety: the agent's thread only. Held by shared_ptr; its callbacks may close it and let go of it.
// Invariant: after on_close, or close(), no callback comes any more.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/fd.h"
#include "bootstrap/event_loop.h"
#include "bootstrap/wire.h"

namespace weft::bootstrap {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  struct Events {
    std::function<void()> on_open = [] {};  // the other side has proved itself; of connections that we open
    std::function<void(const Frame&)> on_frame;
    std::function<void(const Status& why)> on_close;  // by the other side, or broken
  };

  /// Takes over a connection that somebody else opened and authenticated.
  static std::shared_ptr<Connection> adopt(EventLoop& loop, UniqueFd fd, Events events);
  /// Connects and greets, without blocking; frames may be sent at once. `within_s` bounds the way to on_open.
  static Result<std::shared_ptr<Connection>> open(EventLoop& loop, const SocketAddress& address,
                                                  const Job& job, std::vector<std::byte> hello,
                                                  double within_s, Events events);
  ~Connection() { close(); }

  /// Sends what the kernel takes at once and keeps the rest. A peer that has stopped reading loses frames
  /// beyond 4 MiB: the kernel's timeout is about to end it.
  void send(std::span<const std::byte> frame);
  void close();

 private:
  Connection(EventLoop& loop, UniqueFd fd, Events events);
  void begin(uint32_t events);
  void ready(uint32_t events);
  Status finish_connecting();
  bool flush();
  void read();
  bool parse();
  bool check_proof();
  void fail_with(const Status& why);

  EventLoop& loop_;
  UniqueFd fd_;
  Events events_;
  EventLoop::Id watch_ = 0, timer_ = 0;
  bool connecting_ = false, proving_ = false;
  Proof proof_{};
  SocketAddress address_;
  std::vector<std::byte> out_, in_;
};

}  // namespace weft::bootstrap
