// Proxy: what a communicator's plan kernels exchange with other nodes. A kernel puts data for a rank of
// another node into pinned memory, and the progress thread sends it as a message; what arrives, the thread
// puts there for the kernel. So a call on several nodes is one kernel, which waits for flags of the thread.
//
// An operation has a plan of its steps between nodes (plan/crossing.h). It starts when its kernel has begun,
// and ProxySteps does its steps.
//
// Thread safety: under the context's lock. Creating and destroying need a cuda::Scope of its device.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "base/status.h"
#include "device/cuda/plan_proxy.h"
#include "engine/gpu/device_executor.h"
#include "plan/plan.h"

namespace weft::engine {

/// Where the data of an operation's steps between nodes lies, in the slots of a peer.
struct ProxyPlaces {
  struct Arrival {
    uint32_t slot = 0, bytes = 0;
  };
  uint32_t blocks = 1;             // of each lane of the kernel
  std::vector<uint32_t> outgoing;  // by step: of puts
  std::vector<Arrival> incoming;   // by notification
};
/// `plan` is crossing_part() of the plan of `program`.
ProxyPlaces proxy_places(const plan::Plan& plan, const cuda::PlanProgram& program);

class Proxy {
 public:
  /// Of a peer: room for the longest message of TCP and a shorter one. With the words before them, the slots
  /// of a power of two of ranks fill a block of the pool.
  static constexpr uint32_t kSlotBytes = 112 << 10;

  /// For a rank of a communicator of so many ranks. Errors: out_of_memory, unhandled_cuda_error.
  static Result<std::unique_ptr<Proxy>> create(DeviceExecutor& executor, int ranks);
  ~Proxy();
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  /// As kernels of this rank reach it.
  cuda::PlanProxy* memory() const { return reinterpret_cast<cuda::PlanProxy*>(block_.data); }
  const cuda::ProxyWords& words() const { return words_; }
  /// A kernel may still run when this has ended: the memory stays for ever.
  void outlive() { outlives_ = true; }

  /// A kernel was launched for an operation. Epochs count up.
  void note_launched(uint64_t epoch);
  /// The operation has sent everything.
  void note_sent(uint64_t epoch);

 private:
  Proxy(DeviceExecutor& executor, cuda::Block block, uint32_t ranks)
      : executor_(executor), block_(block), words_(memory(), ranks, kSlotBytes) {}

  DeviceExecutor& executor_;
  const cuda::Block block_;  // host
  const cuda::ProxyWords words_;
  std::set<uint64_t> unsent_;  // epochs
  uint64_t launched_ = 0;
  bool outlives_ = false;
};

}  // namespace weft::engine
