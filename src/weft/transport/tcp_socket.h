// Socket: one TCP connection, non-blocking. It registers with the transport's epoll instance for room to
// write only after the kernel has refused a write, and for input unless its owner reads without being told.
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

/// The outcome of a read or write. `moved`: of `bytes`; fewer than asked for means that the kernel had no
/// more data or room.
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

  /// Prepares the connection, and adds it to `epoll` under `key`. It has no Nagle's delay, gives signs of
  /// life while it is idle, and is closed on exec. At most `unsent_bytes` wait in the kernel (0 = its
  /// default), so that a message does not wait behind megabytes of a put.
  Status open(int epoll, uint64_t key, size_t unsent_bytes);

  Io write(const iovec* parts, size_t count);
  Io read(iovec* parts, size_t count);

  /// Sets whether the epoll instance watches for input; at first it does. Watching costs the sender of each
  /// arrival. False if the kernel has no memory for watching again; then nothing has changed.
  bool watch_input(bool on);
  bool input_watched() const { return (watched_ & EPOLLIN) != 0; }

  /// The kernel took less of the last write than it was offered, and room() has not been called since. Where
  /// the kernel has no memory to watch for room, this stays false: then callers have to try.
  bool blocked() const { return blocked_; }
  /// The epoll instance reported room. The second time without a refusal in between ends the watch for it.
  void room();

  /// Bounds the written data that the kernel keeps until the peer's kernel has it, in bytes of the kernel's
  /// memory. 0, or more than the host allows, changes nothing: then the kernel chooses.
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
