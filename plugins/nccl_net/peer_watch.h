// PeerWatch: what the socket of the handshake tells of the other side, once a connection is there. A side
// that closes its connection says so there, and how many messages it has sent; a process that dies says
// nothing. The socket carries a farewell whatever the network is at, and never blocks for one.
//
// Thread safety: none; the connection's lock guards it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/fd.h"

namespace weft::nccl_net {

class PeerWatch {
 public:
  enum class Peer : uint8_t { there, closed, gone };

  /// Takes the socket of the handshake.
  void begin(UniqueFd socket) { socket_ = std::move(socket); }
  /// Tells the other side that this one closes the connection and has sent so many messages on it.
  void say_farewell(uint64_t messages);
  /// Reads what the other side has said until now: a system call while it is `there`.
  Peer look();
  /// As the last look() found it.
  Peer last_seen() const { return peer_; }

  /// How many messages a side that is `closed` has sent.
  uint64_t messages() const { return farewell_.messages; }
  /// When look() first found that the other side was not `there` any more.
  int64_t left_ns() const { return left_ns_; }

 private:
  struct Farewell {
    uint64_t messages = 0;
  };

  UniqueFd socket_;
  Peer peer_ = Peer::there;
  Farewell farewell_;
  size_t heard_ = 0;  // bytes of it
  int64_t left_ns_ = 0;
};

}  // namespace weft::nccl_net
