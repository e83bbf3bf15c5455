// OperationTable: the operations of one context. It owns their memory, keeps those that are active in the
// order in which they were started, and finds the one that a message is for.
//
// Invariants: an operation is active from enter() to leave(); while it is, the table holds a reference to it.
//
// Thread safety: none; under the context's lock.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "engine/run/operation.h"
#include "transport/transport.h"

namespace weft::engine {

class OperationTable {
 public:
  explicit OperationTable(Context& context) : context_(context) {}

  /// A fresh operation of the context with one reference.
  Operation* acquire() {
    if (free_.empty()) [[unlikely]]
      grow();
    Operation* const op = free_.back();
    free_.pop_back();
    op->context = &context_;
    op->renew();
    return op;
  }
  /// Gives up a reference; without any the operation is used again.
  void release(Operation* op) {
    if (!op->drop()) return;
    op->buffers.reset();
    free_.push_back(op);
  }
  /// Frees the memory of all operations. None may be active.
  void clear() { pool_.clear(); }

  /// The operation becomes active.
  void enter(Operation& op);
  /// The operation ends. The caller releases the table's reference.
  void leave(Operation& op);
  /// Whether no operation is active.
  bool empty() const { return active_.empty(); }
  /// The active operations, the oldest first.
  const std::vector<Operation*>& active() const { return active_; }
  /// A copy of active() for a loop in which operations may end. Give it back with recycle().
  std::vector<Operation*> snapshot();
  void recycle(std::vector<Operation*> snapshot) { spare_ = std::move(snapshot); }
  /// Whether an active operation talks to another node; whether one works on GPU memory.
  bool uses_network() const { return on_network_ > 0; }
  bool uses_device() const { return on_device_ > 0; }

  /// The operation that a message of rank `peer` of the job is for; null: it is not active here.
  Operation* find(int peer, const transport::Envelope& envelope) const;
  /// Lets find() lead to an operation that is not active, and is done by its caller alone (fast_path.h). Null
  /// ends that.
  void expect(Operation* op) { latest_ = op; }
  /// The operation of expect(), else the one that was started last, which most messages are for.
  Operation* latest() const { return latest_; }

 private:
  void grow();

  static constexpr size_t kBuckets = 256;
  static size_t bucket_of(uint32_t comm, OpNumber number) { return (comm * 0x9e3779b1u + number) % kBuckets; }

  Context& context_;
  std::vector<std::unique_ptr<Operation>> pool_;
  std::vector<Operation*> free_;
  std::vector<Operation*> active_;
  std::vector<Operation*> spare_;  // memory for a snapshot
  Operation* latest_ = nullptr;
  Operation* buckets_[kBuckets] = {};  // of active operations, by communicator and number
  uint32_t on_network_ = 0, on_device_ = 0;
};

}  // namespace weft::engine
