// PlanPath: short collectives of a communicator of GPU memory as one kernel each, on the caller's stream.
// Every rank has control memory that all others reach (device/cuda/plan_program.h), and the kernels wait for
// each other there. The CPU takes no part. It only looks at words in pinned memory: whether a kernel has
// ended, or has waited too long.
//
// A communicator has one if every rank asks for it (WEFT_CUDA_KERNEL), all are on one node and reach each
// other's memory, ranks that share a device are threads of one process, and streams may wait on the device,
// which has room for the kernels of all of them at once. Calls that it does not serve go step by step.
//
// Thread safety: under the context's lock, and inside a cuda::Scope of its device.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "device/cuda/plan_kernels.h"
#include "engine/gpu/device_executor.h"
#include "engine/gpu/stream_path.h"
#include "plan/plan_program.h"

namespace weft::engine {

class PlanPath final : public StreamPath, public std::enable_shared_from_this<PlanPath> {
 public:
  /// What a rank tells the others, as plain bytes.
  struct Offer {
    uint64_t process = 0;  // as in SharedMemory
    cuda::Uuid device{};
    uint32_t resident_blocks = 0;  // of its device; 0: the rank has no kernels
    cuda::SharedMemory control;
  };
  /// The most blocks of a kernel, from the offers of all ranks: every rank cuts its calls alike. Errors:
  /// unsupported, with the reason.
  static Result<uint32_t> most_blocks(std::span<const Offer> offers);

  /// What a kernel of so many blocks a lane does for a request on rank `rank` of `ranks`. Errors:
  /// unsupported, with the reason, the same on all ranks.
  static Result<cuda::PlanProgram> make_program(const plan::Request& request, int rank, int ranks,
                                                uint32_t blocks);

  /// Of rank `rank` of `ranks`. Errors: unsupported, unhandled_cuda_error, out_of_memory.
  static Result<std::shared_ptr<PlanPath>> create(DeviceExecutor& executor, int rank, int ranks);
  ~PlanPath() override;

  Result<Offer> offer();
  /// Reaches the memory of all ranks, whose offers these are. Errors: unsupported, with the reason.
  Status connect(std::span<const Offer> offers);
  /// No rank will launch a kernel, since one of them cannot: the control memory can be used again.
  void withdraw() { offered_ = false; }

  Result<uint64_t> arrive(const Operation& op, const std::shared_ptr<const Served>& served) override;
  Status leave(uint64_t) override { return {}; }
  bool has_begun(uint64_t epoch) const override;
  Result<bool> has_ended(uint64_t epoch) override;
  std::string holds_up(uint64_t epoch) const override;
  /// Every block of a kernel under way leaves.
  void let_go(uint64_t epoch) override;
  bool is_drained() override;

 private:
  PlanPath(DeviceExecutor& executor, int rank, int ranks) : executor_(executor), rank_(rank), ranks_(ranks) {}
  Status take_memory();
  struct Kernel final : Served {
    cuda::PlanProgram program;
  };
  std::shared_ptr<Served> make(const plan::Request& request, const Prices& prices) const override;
  uint32_t blocks_for(uint64_t bytes) const;
  Status follow_last(cuda::StreamHandle* stream);

  DeviceExecutor& executor_;
  const int rank_, ranks_;
  const cuda::PlanKernels* kernels_ = nullptr;
  cuda::Block control_, words_;
  cuda::PlanHost* host_ = nullptr;
  std::vector<cuda::PlanPeer> peers_;
  std::vector<std::shared_ptr<cuda::Importer::Mapping>> mappings_;
  uint32_t most_blocks_ = 0;           // of one kernel
  bool offered_ = false;               // kernels of peers may write to the control memory
  uint64_t launched_ = 0;              // epochs
  size_t lingering_ = 0;               // operations that are over before their kernels were
  cuda::EventHandle* last_ = nullptr;  // recorded behind the last launch
  void* last_stream_ = nullptr;
  cuda::PlanArguments arguments_{};
};

}  // namespace weft::engine
