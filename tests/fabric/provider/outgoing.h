// Outgoing: the messages and writes of an endpoint until their completion. Each write is cut into packets,
// which leave in any order and between the packets of other operations. The source is read when a packet
// leaves, not when the operation is posted.
//
// Thread safety: as its domain's.
#pragma once

#include <memory>
#include <vector>

#include "board.h"
#include "completions.h"
#include "domain.h"
#include "mailbox.h"

namespace weft::fake_efa {

/// A message or a write.
struct Transfer {
  Path* path = nullptr;
  const std::byte* source = nullptr;
  size_t bytes = 0;
  uint64_t registration = 0;
  void* context = nullptr;
  PacketHeader header;           // of a write, with its first address
  std::vector<uint32_t> unsent;  // packets, the next one last

  bool writes() const { return header.kind == PacketHeader::Kind::write; }
};

class Outgoing {
 public:
  Outgoing(Domain& domain, Chance& chance, CompletionQueue& queue, int slowness)
      : domain_(domain), chance_(chance), queue_(queue), slowness_(slowness) {}
  int open() { return board_.create(); }

  size_t size() const { return sending_.size() + waiting_.size(); }
  /// Takes a transfer whose packets are still to be counted. False if a write finds no slot.
  bool add(Transfer transfer, const Address& writer);
  /// Sends some packets, and completes what is over. `packets`: at most so many.
  void progress(int packets);
  /// Ends all transfers with an error.
  void fail_all(int error);

 private:
  using Transfers = std::vector<std::unique_ptr<Transfer>>;

  Path::Sent send_packet(Transfer& transfer);
  void send(int packets);
  void look_at_answers();
  void look_for_lost_peers();
  void end(std::unique_ptr<Transfer> transfer, int error);

  Domain& domain_;
  Chance& chance_;
  CompletionQueue& queue_;
  const int slowness_;
  Board board_;
  Transfers sending_;
  Transfers waiting_;  // writes, for their targets
  int64_t probed_us_ = 0;
};

}  // namespace weft::fake_efa
