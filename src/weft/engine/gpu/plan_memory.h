// PlanMemory: the control memory of a communicator's plan kernels (device/cuda/plan_program.h): a rank's
// own, which all peers reach, and the peers'. It has several *sets*. A set has its own flags, slots,
// scratch and epochs, so that kernels of different sets run in any order. Set 0 is for the communicator's
// calls. Each capture of a CUDA graph has one more, as long as there are some (capture_sets.h).
//
// At its end the memory is given back when no rank's kernels use it any more (offered_memory.h).
//
// Thread safety: under the context's lock, and inside a cuda::Scope of its device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "device/cuda/plan_program.h"
#include "engine/gpu/device_executor.h"
#include "engine/gpu/offered_memory.h"

namespace weft::engine {

class PlanMemory {
 public:
  static constexpr uint32_t kMostCaptures = 16;       // sets beside set 0
  static constexpr uint64_t kStagingBytes = 2 << 20;  // of an input or output

  /// Of rank `rank` of `ranks`, with sets for so many captures; the same number on all ranks. Errors:
  /// out_of_memory, unhandled_cuda_error.
  static Result<std::unique_ptr<PlanMemory>> create(DeviceExecutor& executor,
                                                    std::shared_ptr<NodeBoard> board, int rank, int ranks,
                                                    uint32_t captures);
  ~PlanMemory();
  PlanMemory(const PlanMemory&) = delete;
  PlanMemory& operator=(const PlanMemory&) = delete;

  /// The longest eager put in a set, and bytes of its scratch.
  static uint32_t slot_bytes(uint32_t set);
  static uint64_t scratch_bytes(int ranks, uint32_t set);

  Result<cuda::SharedMemory> offer();
  /// Reaches the memory of rank `rank`. Errors: unsupported, with the reason.
  Status reach(int rank, const cuda::SharedMemory& offered);
  /// No rank will launch a kernel: the memory can be used again.
  void withdraw() { offered_ = false; }
  uint32_t captures() const { return captures_; }
  /// At least `bytes` bytes more, which peers may reach: they stay as long as the rest, or until the set is
  /// cleared.
  Result<cuda::Block> take_more(uint64_t bytes, uint32_t set = 0);
  /// Makes the own part of a set as new, which no rank's kernels use. Waits for that.
  Status clear_set(uint32_t set);
  /// A kernel is under way when its path ends: OfferedMemory::under_way.
  void outlast(std::function<bool()> has_left) { memory_.under_way.push_back(std::move(has_left)); }
  /// A graph may launch kernels when this has ended: the own memory stays as long as the graph.
  void outlive(std::weak_ptr<void> graph) { memory_.graphs.push_back(std::move(graph)); }

  /// A set of a rank, as kernels of this rank reach it; nothing of a rank that reach() was not told of.
  cuda::PlanPeer peer(int rank, uint32_t set) const;
  /// Memory in the own set 0 that peers reach, for a buffer that they do not reach.
  std::byte* staging(int space) const;

 private:
  PlanMemory(DeviceExecutor& executor, std::shared_ptr<NodeBoard> board, int rank, int ranks,
             uint32_t captures);
  uint64_t begin_of(uint32_t set) const;
  uint64_t zeros_at() const { return begin_of(captures_ + 1) + 2 * kStagingBytes; }

  DeviceExecutor& executor_;
  const int rank_, ranks_;
  const uint32_t captures_;
  std::byte* own_ = nullptr;  // in the first block of set 0
  std::vector<std::byte*> of_rank_;
  OfferedMemory memory_;
  std::vector<std::vector<cuda::Block>> of_set_;  // all blocks; those of set 0 are for all
  bool offered_ = false;                          // kernels of peers may write here
};

}  // namespace weft::engine
