// Non-blocking reads and writes on a stream socket, with one way to say what became of them.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace weft::transport::tcp {

/// What a read or write did. `moved`: `bytes` were; fewer than asked for means that the kernel had no more
/// data or room.
struct Io {
  enum class Outcome : uint8_t { moved, blocked, closed, failed };
  Outcome outcome = Outcome::blocked;
  size_t bytes = 0;
  int error = 0;  // errno, if failed
};

/// Makes a connection fit for use: non-blocking, closed on exec, without Nagle's delay, and with at most
/// `unsent_bytes` waiting in the kernel (0 = its default), so that a message need not wait behind megabytes
/// of a put.
Status prepare_socket(int fd, size_t unsent_bytes);

Io write_some(int fd, const iovec* parts, size_t count);
Io read_some(int fd, iovec* parts, size_t count);

/// Why a connection with `peer` ended: remote_error that names the rank.
Status connection_lost(int peer, const Io& io);

}  // namespace weft::transport::tcp
