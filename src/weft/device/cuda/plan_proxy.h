// ProxyWords: the CPU's side of what crosses nodes in a plan kernel (PlanProxy). A progress thread finds what
// a kernel has put for a rank of another node, and tells the kernel what has arrived from there.
//
// The CPU may use the slots of an operation once its kernel has begun: then the kernel of the operation
// before last, which used the same set, has ended.
//
// Thread safety: one thread at a time, beside the kernel of the rank.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "device/cuda/plan_program.h"

namespace weft::device::cuda {

class ProxyWords {
 public:
  /// `memory` has proxy_bytes() bytes, zeroed when the communicator is made.
  ProxyWords(PlanProxy* memory, uint32_t ranks, uint32_t slot_bytes)
      : memory_(memory), ranks_(ranks), slot_bytes_(slot_bytes) {}

  /// Whether all `blocks` blocks of a lane have done a put or signal of an operation.
  bool is_raised(uint64_t epoch, uint32_t receiver, uint32_t tag, uint32_t blocks) const {
    for (uint32_t block = 0; block < blocks; ++block)
      if (std::atomic_ref(memory_->raised[receiver][tag][block]).load(std::memory_order_acquire) < epoch)
        return false;
    return true;
  }
  /// The slots of a peer in an operation.
  std::byte* slots(ProxySlots which, uint64_t epoch, uint32_t peer) const {
    return reinterpret_cast<std::byte*>(memory_) + proxy_slots_at(which, epoch, peer, ranks_, slot_bytes_);
  }
  /// What a rank has sent under a tag lies in the incoming slots.
  void tell_arrived(uint64_t epoch, uint32_t sender, uint32_t tag) const {
    std::atomic_ref(memory_->arrived[sender][tag]).store(epoch, std::memory_order_release);
  }
  /// Outgoing slots of operations up to this one may be written again.
  void tell_sent(uint64_t epoch) const {
    std::atomic_ref(memory_->sent).store(epoch, std::memory_order_release);
  }

 private:
  PlanProxy* memory_;
  uint32_t ranks_, slot_bytes_;
};

}  // namespace weft::device::cuda
