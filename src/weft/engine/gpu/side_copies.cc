#include "engine/gpu/side_copies.h"

#include <algorithm>

namespace weft::engine {

SideCopies::Batch& SideCopies::open_batch(cuda::Queue& queue) {
  const auto open = std::find_if(batches_.begin(), batches_.end(), [&queue](const Batch& batch) {
    return batch.queue == &queue && !batch.ticket.valid();
  });
  if (open != batches_.end()) return *open;
  batches_.push_back({&queue, {}, {}, {}});
  return batches_.back();
}

Status SideCopies::mark() {
  for (Batch& batch : batches_) {
    if (batch.ticket.valid()) continue;
    auto ticket = batch.queue->mark();
    if (!ticket) return ticket.status();
    batch.ticket = ticket.take();
  }
  return {};
}

Status SideCopies::poll(std::vector<PendingArrival>& arrived) {
  for (size_t i = 0; i < batches_.size();) {
    Batch& batch = batches_[i];
    const auto done = batch.ticket.valid() ? batch.ticket.done() : Result<bool>(false);
    if (!done) return done.status();
    if (!*done) {
      ++i;
      continue;
    }
    ready_.insert(ready_.end(), batch.puts.begin(), batch.puts.end());
    arrived.insert(arrived.end(), batch.arrivals.begin(), batch.arrivals.end());
    batches_.erase(batches_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return {};
}

std::vector<cuda::Block> SideCopies::clear() {
  std::vector<cuda::Block> blocks;
  const auto keep = [&blocks](const cuda::Block& block) {
    if (block.data) blocks.push_back(block);
  };
  for (const Batch& batch : batches_) {
    for (const PendingPut& put : batch.puts) keep(put.block);
    for (const PendingArrival& arrival : batch.arrivals) keep(arrival.block);
  }
  for (const PendingPut& put : ready_) keep(put.block);
  batches_.clear();
  ready_.clear();
  return blocks;
}

}  // namespace weft::engine
