// Socket: one TCP connection, non-blocking. The transport's epoll instance is told of new room only after the
// kernel has refused some, and of bytes to read unless its owner looks for them by itself.
//
// Thread safety: none.
#pragma once

#include <sys/epoll.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "base/fd.h"
#include "base/status.h"

namespace weft::transport::tcp {

/// What a read or write did. `moved`: `bytes` were; fewer than asked for means that the kernel had no more
/// data or room.
struct Io {
  enum class Outcome : uint8_t { moved, blocked, closed, failed };
  Outcome outcome = Outcome::blocked;
  size_t bytes = 0;
  int error = 0;  // errno, if failed

  bool over() const { return outcome == Outcome::closed || outcome == Outcome::failed; }
};

class Socket {
 public:
  explicit Socket(UniqueFd fd) : fd_(std::move(fd)) {}
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  /// Makes it fit for use: without Nagle's delay, closed on exec, with at most `unsent_bytes` waiting in the
  /// kernel (0 = its default), so that a message need not wait behind megabytes of a put; and adds it to
  /// `epoll` under `key`.
  Status open(int epoll, uint64_t key, size_t unsent_bytes);

  Io write(const iovec* parts, size_t count);
  Io read(iovec* parts, size_t count);

  /// Whether the epoll instance is told of bytes to read; at first it is. Being watched costs whoever sends,
  /// at every arrival. False if the kernel has no memory for watching again; then nothing has changed.
  bool watch_news(bool on);
  bool news_watched() const { return (watched_ & EPOLLIN) != 0; }

  /// The last write took less than it was offered, and room() has not been called since. Where the kernel has
  /// no memory for telling of room it stays false: then one has to try.
  bool blocked() const { return blocked_; }
  /// The epoll instance reported room. Twice without a refusal in between: it need not any more.
  void room();

  /// Bounds what the kernel keeps of what was written until the peer's has it, in bytes of its own memory, of
  /// which data takes most. Nothing happens for 0, and where the host allows no buffer as large: then the
  /// kernel chooses.
  void bound_flight(size_t bytes);
  /// The largest bound that this host allows.
  static size_t largest_flight();
  /// Bytes that the peer's kernel has not acknowledged.
  size_t unacknowledged() const;
  int fd() const { return fd_.get(); }

 private:
  bool watch(uint32_t events);

  UniqueFd fd_;
  int epoll_ = -1;
  uint64_t key_ = 0;
  uint32_t watched_ = 0;  // events; 0: it is not in the epoll instance
  bool blocked_ = false;
};

/// Why a connection with `peer` ended: remote_error that names the rank, or what memory_is_gone() says.
Status connection_lost(int peer, const Io& io);

}  // namespace weft::transport::tcp
