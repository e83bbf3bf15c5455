// Stash: messages of operations that this rank has not started yet. A sender may run ahead, as far as the
// transport takes its messages; what is kept here for it is bounded. Memory of what was delivered is used
// again: of as many messages as were here at once, so that a loop of collectives comes to allocate nothing.
//
// Thread safety: none.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "engine/run/message_kind.h"
#include "engine/run/operation.h"
#include "transport/transport.h"

namespace weft::engine {

class Stash {
 public:
  struct Message {
    int peer;  // of the world
    transport::Envelope envelope;
    std::vector<std::byte> payload;
  };

  /// `budget_bytes` of payload and book-keeping may be kept.
  explicit Stash(uint64_t budget_bytes);

  /// Keeps a copy of a message; false, and nothing kept, where that would exceed the budget.
  bool keep(int peer, const transport::Envelope& envelope, const void* payload);
  /// Takes out, in order of arrival, what was kept for an operation: of `peer` alone, or of all if that is
  /// -1.
  std::vector<Message> take(uint32_t comm, OpNumber number, int peer);
  /// Copies of the messages of one kind that are kept for a communicator.
  std::vector<Message> find_all(uint32_t comm, MessageKind kind) const;
  /// Memory that take() gave, for later messages.
  void recycle(std::vector<Message> taken);
  /// Forgets everything of a communicator, and gives back what an unusual number of messages needed.
  void drop(uint32_t comm);

  bool empty() const { return messages_.empty(); }
  bool keeps_of(int peer) const {
    return static_cast<size_t>(peer) < kept_of_.size() && kept_of_[static_cast<size_t>(peer)] > 0;
  }
  /// Whether it holds more than caches can hold, or a good part of its budget.
  bool is_large() const { return bytes_ > std::min<uint64_t>(kLargeBytes, budget_bytes_ / 4); }
  bool is_half_full() const { return bytes_ >= budget_bytes_ / 2; }
  bool is_nearly_full() const { return bytes_ >= budget_bytes_ / 4 * 3; }
  uint64_t bytes() const { return bytes_; }
  uint64_t budget_bytes() const { return budget_bytes_; }

 private:
  static constexpr size_t kLargeBytes = size_t{4} << 20;

  static uint64_t key_of(uint32_t comm, OpNumber number) { return uint64_t{comm} << 32 | number; }
  static uint64_t cost_of(const Message& message) { return sizeof(Message) + message.payload.size(); }

  void count(const Message& message, int change) {
    kept_of_[static_cast<size_t>(message.peer)] += static_cast<uint32_t>(change);
    bytes_ += static_cast<uint64_t>(change) * cost_of(message);
  }

  using Messages = std::unordered_map<uint64_t, std::vector<Message>>;
  std::vector<Message>& list_of(uint64_t key);
  std::vector<std::vector<std::byte>>& spares_of(size_t bytes) {
    return spare_payloads_[static_cast<size_t>(std::bit_width(bytes))];
  }

  const uint64_t budget_bytes_;
  uint64_t bytes_ = 0;
  Messages messages_;              // by communicator and number of the operation
  std::vector<uint32_t> kept_of_;  // messages, by peer
  std::vector<Messages::node_type> spare_nodes_;
  std::vector<std::vector<Message>> spare_lists_;
  // By the width of their capacity in bits. So short messages do not use up the spares of long ones, and the
  // spares of a width are as many as such messages were here at once.
  std::array<std::vector<std::vector<std::byte>>, 33> spare_payloads_;
  size_t spare_bytes_ = 0;  // of them, at most the budget
};

}  // namespace weft::engine
