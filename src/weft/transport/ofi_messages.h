// Messages: sends messages to peers through the bounce buffers of the rails, and greets peers before.
//
// Thread safety: none; as the transport's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>

#include "transport/ofi_peers.h"
#include "transport/ofi_protocol.h"
#include "transport/ofi_rails.h"

namespace weft::transport::ofi {

class Messages {
 public:
  /// `reap` lets completions take effect, and returns their number. `careful`: see OfiOptions.
  Messages(Rails& rails, Peers& peers, int rank, bool careful, std::function<Result<int>()> reap)
      : rails_(rails),
        peers_(peers),
        reap_(std::move(reap)),
        careful_(careful),
        next_rail_(static_cast<size_t>(rank)) {}

  /// Posts a message. If there is no room, looks once whether completions make some. A hard error loses the
  /// peer.
  Result<Progress> post(int peer, const Header& header, const void* payload, size_t bytes);
  /// Posts a message to a peer that has been met; without room it is busy. Loses no peer.
  Result<Progress> post_now(int peer, const Header& header, const void* payload, size_t bytes);
  /// Posts a message without payload over one rail.
  Result<Progress> post_short(MessageKind kind, int peer, size_t rail);
  /// Copies between a network buffer and memory of the program.
  Status copy(int peer, void* to, const void* from, size_t bytes) const;

  /// A message has left, by its number.
  void left(uint64_t number);
  /// The number of the last message.
  uint64_t last() const { return last_; }
  bool flushed(uint64_t number) const { return number <= last_ - out_.size(); }

  /// Notes that something found no room. It may be worth trying again soon, until forget_refusals().
  Progress refuse() {
    refused_ = true;
    return Progress::busy;
  }
  bool refused() const { return refused_; }
  void forget_refusals() { refused_ = false; }

 private:
  Status meet(int peer);
  Result<Progress> post_over(size_t index, int peer, Header header, const void* payload, size_t bytes);

  Rails& rails_;
  Peers& peers_;
  const std::function<Result<int>()> reap_;
  const bool careful_;
  // It begins elsewhere for each rank, so that those of a node do not all take the same.
  size_t next_rail_;
  uint64_t last_ = 0;
  std::deque<bool> out_;  // whether a message has left, from the oldest that has not on
  bool refused_ = false;
};

}  // namespace weft::transport::ofi
