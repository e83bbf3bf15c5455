#include "engine/context/operation_table.h"

#include "engine/gpu/device_run.h"
#include "engine/run/communicator.h"

namespace weft::engine {

Operation::Operation() = default;
Operation::~Operation() = default;

void OperationTable::grow() {
  pool_.push_back(std::make_unique<Operation>());
  free_.push_back(pool_.back().get());
}

void OperationTable::enter(Operation& op) {
  op.retain();
  op.started = true;
  op.active_index = static_cast<uint32_t>(active_.size());
  active_.push_back(&op);
  Operation*& head = buckets_[bucket_of(op.comm->id(), op.number)];
  op.next_in_bucket = head;
  head = &op;
  latest_ = &op;
  on_network_ += op.tables->between_nodes;
  on_device_ += op.device != nullptr;
}

void OperationTable::leave(Operation& op) {
  on_network_ -= op.tables->between_nodes;
  on_device_ -= op.device != nullptr;
  active_.erase(active_.begin() + op.active_index);
  for (uint32_t i = op.active_index; i < active_.size(); ++i) active_[i]->active_index = i;
  Operation** link = &buckets_[bucket_of(op.comm->id(), op.number)];
  while (*link != &op) link = &(*link)->next_in_bucket;
  *link = op.next_in_bucket;
  if (latest_ == &op) latest_ = active_.empty() ? nullptr : active_.back();
}

std::vector<Operation*> OperationTable::snapshot() {
  std::vector<Operation*> copy = std::exchange(spare_, {});
  copy = active_;
  return copy;
}

Operation* OperationTable::find(int peer, const transport::Envelope& envelope) const {
  const auto matches = [&](const Operation& op) {
    return op.number == envelope.op && op.comm->id() == envelope.comm &&
           (op.transfer_peer < 0 || op.comm->members().world_rank(op.transfer_peer) == peer);
  };
  if (latest_ && matches(*latest_)) return latest_;
  for (Operation* op = buckets_[bucket_of(envelope.comm, envelope.op)]; op; op = op->next_in_bucket)
    if (matches(*op)) return op;
  return nullptr;
}

}  // namespace weft::engine
