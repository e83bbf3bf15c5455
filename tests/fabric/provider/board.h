// Board: shared memory in which peers note what has become of an endpoint's writes. It stands for the answers
// of a network card: they come although the writer's process does not poll.
//
// Thread safety: the owner's thread takes and reads slots; peers note from any process.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/fd.h"
#include "mailbox.h"

namespace weft::fake_efa {

/// How many of a write's packets have been placed, or refused.
struct BoardSlot {
  std::atomic<uint32_t> generation{0}, placed{0}, refused{0};
};
inline constexpr uint32_t kSlots = 1024;

class Board {
 public:
  /// An own one. An errno, or 0.
  int create();
  /// A peer's.
  bool open(UniqueFd fd) { return map(fd.get()); }
  ~Board();
  Board() = default;
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  int fd() const { return fd_.get(); }
  BoardSlot& slot(uint32_t number) { return memory_->slots[number]; }
  /// A slot for a write, with its new generation; kSlots if all are taken.
  uint32_t take(uint32_t& generation);
  void give_back(uint32_t slot) { free_.push_back(slot); }

 private:
  struct Memory {
    BoardSlot slots[kSlots];
  };
  bool map(int fd);

  UniqueFd fd_;
  Memory* memory_ = nullptr;
  std::vector<uint32_t> free_;
  uint32_t generation_ = 0;
};

/// The boards of peers that have written here.
class PeerBoards {
 public:
  /// The board of a writer, which comes before what it has written.
  void add(const Address& writer, UniqueFd board);
  /// Notes that a packet was placed, or refused.
  void note(const PacketHeader& packet, bool placed);

 private:
  std::unordered_map<uint64_t, std::unique_ptr<Board>> boards_;
};

}  // namespace weft::fake_efa
