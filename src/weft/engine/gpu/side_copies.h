// SideCopies: copies of one operation that run beside the lanes of its plan: those of puts, whose lanes have
// gone on, and those of what has arrived in host memory. What is queued in one turn on one queue shares an
// event, since an event costs the driver as much as a copy.
//
// Thread safety: none; under the context's lock, and inside a cuda::Scope of the device.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "device/cuda/block_pool.h"
#include "device/cuda/queue.h"
#include "plan/plan.h"

namespace weft::engine {

namespace cuda = device::cuda;

/// How a put leaves: as a message, one-sided from host memory, one-sided from GPU memory that the network
/// reads, or copied to the peer's GPU memory, of which a notification tells.
enum class PutPath : uint8_t { message, one_sided, in_place, copied };

/// A put whose lane has gone on.
struct PendingPut {
  plan::StepId step = plan::kNoStep;
  PutPath path = PutPath::message;
  cuda::Block block;  // host memory with its payload; empty: it leaves from its source
};

/// A payload on its way from host memory to the device.
struct PendingArrival {
  uint32_t number = 0;  // of its notification
  cuda::Block block;    // where it lies; empty: in a landing
};

class SideCopies {
 public:
  void add(cuda::Queue& queue, const PendingPut& put) { open_batch(queue).puts.push_back(put); }
  void add(cuda::Queue& queue, const PendingArrival& arrival) {
    open_batch(queue).arrivals.push_back(arrival);
  }
  /// A put without a copy.
  void add(const PendingPut& put) { ready_.push_back(put); }

  /// Puts an event behind what has been added since the last time.
  Status mark();
  /// Looks at the events. Puts whose copies are done become ready; arrivals whose copies are done are added
  /// to `arrived`, before an error too: their blocks are the caller's. Errors: those of the work.
  Status poll(std::vector<PendingArrival>& arrived);
  /// Puts that can be handed to their transports. The caller removes those that are.
  std::vector<PendingPut>& ready() { return ready_; }

  bool empty() const { return batches_.empty() && ready_.empty(); }
  /// Forgets everything; returns the blocks.
  std::vector<cuda::Block> clear();

 private:
  struct Batch {
    cuda::Queue* queue = nullptr;
    cuda::Ticket ticket;  // not valid: more may be added
    std::vector<PendingPut> puts;
    std::vector<PendingArrival> arrivals;
  };
  Batch& open_batch(cuda::Queue& queue);

  std::vector<Batch> batches_;  // the oldest first
  std::vector<PendingPut> ready_;
};

}  // namespace weft::engine
