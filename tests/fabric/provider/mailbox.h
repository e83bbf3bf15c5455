// Mailbox and Path: how packets get to an endpoint. A mailbox is a datagram socket with a random name; the
// kernel loses none of its packets, keeps their order, and forgets the name when the process ends. Its queue
// is short: a path to a mailbox that nobody empties is full.
//
// Thread safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/fd.h"

namespace weft::fake_efa {

/// The address of an endpoint, as long as EFA's.
struct Address {
  uint64_t id[2] = {};  // random
  uint64_t unused[2] = {};
};
static_assert(sizeof(Address) == 32);

inline constexpr size_t kPacketBytes = 8192;   // of a write's data in one packet
inline constexpr size_t kMessageBytes = 8760;  // longest message, as EFA's with a frame of 8,928 bytes
inline constexpr size_t kWriteBytes = size_t{1} << 30;  // longest write

/// The beginning of every packet.
struct PacketHeader {
  enum class Kind : uint32_t {
    message,
    write,
    probe
  };  // a probe only finds out whether the mailbox is there
  Kind kind = Kind::message;
  uint32_t bytes = 0;
  // Of a write:
  Address writer;
  uint32_t slot = 0, generation = 0;  // of the writer's board
  uint32_t packets = 1;               // of the whole write
  uint32_t has_data = 0;
  uint64_t write_bytes = 0;
  uint64_t data = 0;
  uint64_t address = 0, key = 0;  // of this packet's bytes
};

class Mailbox {
 public:
  /// An errno, or 0.
  int open(const Address& address);
  /// Peers find it gone.
  void close();
  /// The bytes of the next packet, or -1. `board`: what came with it, if anything did.
  ssize_t take(std::span<std::byte> into, UniqueFd& board);

 private:
  UniqueFd socket_;
};

class Path {
 public:
  enum class Sent : uint8_t {
    yes,
    full,
    gone,   // there is no such endpoint any more
    fault,  // the payload's memory is not there
  };

  explicit Path(const Address& to) : to_(to) {}
  /// `board`: the descriptor of the writer's board, which goes along with its first write.
  Sent send(const PacketHeader& header, const void* payload, size_t bytes, int board);

 private:
  bool connect();

  const Address to_;
  UniqueFd socket_;
  bool gone_ = false;
  bool has_board_ = false;
};

}  // namespace weft::fake_efa
