// Acceptor: a listening socket on the agent. It accepts only processes that know the job's secret. From a
// new connection it reads exactly 32 bytes, and closes it if they are wrong or take longer than 2 s. Only
// then does it read a hello frame. A stranger that sends nothing, or garbage, costs a descriptor for that
// time, and delays no rank.
//
// Thread safety: the agent's thread only.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "base/fd.h"
#include "bootstrap/event_loop.h"
#include "bootstrap/wire.h"

namespace weft::bootstrap {

/// A connection whose other side knows the secret, and what it is for.
struct AuthenticatedPeer {
  UniqueFd connection;  // non-blocking, TCP_NODELAY; nothing beyond the hello has been read
  FrameKind purpose{};
  std::vector<std::byte> hello;  // the frame's body
};

class Acceptor {
 public:
  using OnPeer = std::function<void(AuthenticatedPeer)>;
  /// A connection that is not let in, and why: a clause, "another job's secret came".
  using OnRefused = std::function<void(int fd, const std::string& why)>;

  /// Serves `listener` until it is destroyed. An authenticated peer has got its proof, except for data
  /// connections. Who closes the connection before he has said anything is not refused.
  Acceptor(EventLoop& loop, UniqueFd listener, const Job& job, OnPeer on_peer, OnRefused on_refused = {});
  Acceptor(const Acceptor&) = delete;
  ~Acceptor();

 private:
  struct Guest {
    UniqueFd fd;
    EventLoop::Id watch = 0, timer = 0;
    bool trusted = false;
    std::vector<std::byte> have;  // the secret; then header and body of the hello
    size_t need = 0;
  };
  enum class Step { wait, close, enter };

  void accept_waiting();
  void admit(UniqueFd fd);
  void read(uint64_t number);
  Step advance(Guest& guest);
  void enter(uint64_t number);
  void refuse(uint64_t number, const char* why);
  void dismiss(uint64_t number);
  void limit(uint64_t number, double seconds);

  EventLoop& loop_;
  const UniqueFd listener_;
  const Job job_;
  const OnPeer on_peer_;
  const OnRefused on_refused_;
  EventLoop::Id watch_ = 0, pause_ = 0;
  uint64_t last_number_ = 0;
  std::map<uint64_t, Guest> guests_;  // by order of arrival
};

}  // namespace weft::bootstrap
