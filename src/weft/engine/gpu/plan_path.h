// PlanPath: collectives of a communicator of GPU memory as one kernel each, on the caller's stream.
// Every rank has control memory that all others reach (device/cuda/plan_program.h), and the kernels wait
// for each other there. The CPU takes no part. It only looks at words in pinned memory: whether a kernel
// has ended, or has waited too long.
//
// Short calls go through slots of the control memory, and touch no buffer of another rank. Longer ones
// expose buffers (plan_choice.h): a kernel tells its peers' kernels where its buffers are. Ranks of one
// process reach a buffer if they share a device, or if the buffer is from cuMemAlloc. A buffer that peers do
// not reach is staged: copied, on the caller's stream, to memory that they reach. Its owner alone knows, and
// tells the staging's address in place of the buffer's. Ranks of several processes reach the staging in the
// control memory, which bounds what they expose.
//
// A communicator has one if all of this holds. Calls that it does not serve go step by step.
//   Every rank asks for it (WEFT_CUDA_KERNEL), and reaches the memory of its node's ranks.
//   Ranks that share a device are threads of one process.
//   Streams may wait on the device, which has room for the kernels of all of them at once.
//
// On several nodes the kernels of a node wait for each other as above. For what comes from other nodes they
// wait for the rank's proxy (proxy.h).
//
// On one node a captured call is a kernel of the graph and nothing else. Each capture has a path of its own
// with a set of control memory. So its launches match those of peers, whatever other calls do. No CPU learns
// of a launch.
//
// A rank that has failed notes it on the node's board. Peers whose operations end later fail too, since they
// may have read what the rank has overwritten. A kernel that has begun may use memory of peers until it
// has left.
//
// Thread safety: under the context's lock, and inside a cuda::Scope of its device.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/status.h"
#include "device/cuda/plan_kernels.h"
#include "engine/gpu/capture_sets.h"
#include "engine/gpu/device_executor.h"
#include "engine/gpu/node_board.h"
#include "engine/gpu/plan_choice.h"
#include "engine/gpu/plan_memory.h"
#include "engine/gpu/proxy.h"
#include "engine/gpu/stream_path.h"

namespace weft::engine {

class PlanPath final : public StreamPath, public std::enable_shared_from_this<PlanPath> {
 public:
  /// What a rank tells the others, as plain bytes.
  struct Offer {
    uint64_t process = 0;  // as in SharedMemory
    cuda::Uuid device{};
    uint32_t resident_blocks = 0;  // of its device; 0: the rank has no kernels
    uint32_t message_bytes = 0;    // the longest to another node
    cuda::SharedMemory control;
  };
  /// The most blocks of a kernel, of all lanes, from the offers of all ranks: every rank cuts its calls
  /// alike. Errors:
  /// unsupported, with the reason.
  static Result<uint32_t> most_blocks(std::span<const Offer> offers);

  /// What kernels of so many blocks can do, where the ranks of a node are of one process or of several.
  /// `message_bytes`: the longest message between nodes.
  static KernelReach reach_of(const topology::Layout& layout, uint32_t blocks, bool one_process,
                              uint64_t message_bytes, uint32_t set = 0);

  /// Of rank `rank`. Errors: unsupported, unhandled_cuda_error, out_of_memory.
  static Result<std::shared_ptr<PlanPath>> create(DeviceExecutor& executor, std::shared_ptr<NodeBoard> board,
                                                  const topology::Layout& layout, int rank,
                                                  uint64_t message_bytes);
  ~PlanPath() override;

  Result<Offer> offer();
  /// Reaches the memory of the node's ranks. `offers` are those of all. Errors: unsupported, with the reason.
  Status connect(std::span<const Offer> offers);
  /// No rank will launch a kernel, since one of them cannot: the control memory can be used again.
  void withdraw() { memory_->withdraw(); }

  Result<uint64_t> arrive(Lock& lock, const Operation& op,
                          const std::shared_ptr<const Served>& served) override WEFT_REQUIRES(context_lock);
  Status leave(Lock&, uint64_t) override WEFT_REQUIRES(context_lock) { return {}; }
  bool may_take_memory(const Served& served) const override;
  bool has_begun(uint64_t epoch) const override;
  Result<bool> has_ended(uint64_t epoch) override;
  std::string holds_up(uint64_t epoch) const override;
  /// Every block of a kernel under way leaves.
  void let_go(uint64_t epoch) override;
  bool is_drained() override;
  Proxy* proxy() const override { return proxy_.get(); }

  Result<std::shared_ptr<StreamPath>> for_capture(Lock& lock, uint32_t number) override
      WEFT_REQUIRES(context_lock);
  Status capture(Lock& lock, const StreamCall& call, const std::shared_ptr<const Served>& served) override
      WEFT_REQUIRES(context_lock);
  uint64_t begun() const override;
  uint64_t ended() const override;
  void stop() override;
  std::shared_ptr<void> kept_by_graphs() const override { return words_; }
  void outlive(std::weak_ptr<void> graph) override { memory_->outlive(std::move(graph)); }

 private:
  PlanPath(DeviceExecutor& executor, std::shared_ptr<NodeBoard> board, int rank, KernelReach reach,
           std::shared_ptr<PlanMemory> memory, SetOfCapture own)
      : executor_(executor),
        board_(std::move(board)),
        rank_(rank),
        memory_(std::move(memory)),
        own_(own),
        sets_(board_, memory_->captures()),
        reach_(std::move(reach)) {}
  /// What it has of the driver.
  Status make_words();
  bool is_captured() const { return own_.set > 0; }
  struct Kernel final : Served {
    cuda::PlanProgram program;
    bool exposes[2] = {};  // by space: input, output
  };
  /// Words between the CPU and the kernels, in flags of the device. They stay as long as the path, a kernel
  /// that is under way at its end, and a graph of its calls.
  class Words;
  /// A buffer of a call that peers do not reach, and what stands for it.
  struct Staged {
    std::byte* staging = nullptr;
    void* buffer = nullptr;
    uint64_t bytes = 0;
  };
  /// By space: input, output.
  using BothStaged = std::array<Staged, 2>;
  std::shared_ptr<Served> make(const plan::Request& request, bool scaled,
                               const Prices& prices) const override;
  /// Fills the arguments of a call's kernel. Then launch() puts the kernel into the stream, with copies
  /// before and behind it, without the lock.
  Result<BothStaged> prepare(const StreamCall& call, const Kernel& kernel);
  struct Launched {
    bool kernel = false;  // it is in the stream
    Status status;        // of all
  };
  Launched launch(const Call& call, const BothStaged& staged);
  void set_call(const StreamCall& call);
  Status fetch_scalar(const Call& call);
  Result<BothStaged> expose(const Kernel& kernel);
  Result<bool> is_reached(const void* buffer) const;
  Result<std::byte*> staging_for(int space, uint64_t bytes);
  Status follow_last(cuda::StreamHandle* stream);

  DeviceExecutor& executor_;
  const std::shared_ptr<NodeBoard> board_;
  const int rank_;
  const std::shared_ptr<PlanMemory> memory_;
  const SetOfCapture own_;  // of the memory
  CaptureSets sets_;        // of captures, where this is none's
  const cuda::PlanKernels* kernels_ = nullptr;
  std::shared_ptr<Words> words_;
  cuda::PlanHost* host_ = nullptr;  // in them
  KernelReach reach_;
  std::unique_ptr<Proxy> proxy_;                   // null: all ranks are on one node
  bool one_process_ = false, one_device_ = false;  // all ranks of a node are of
  cuda::Block staging_[2];                         // of input and output, in one process, of memory_
  bool copies_last_ = false;                       // behind the last kernel, from a staging
  uint64_t launched_ = 0;                          // epochs
  size_t lingering_ = 0;                           // operations that are over before their kernels were
  cuda::EventHandle* last_ = nullptr;              // recorded behind the last copy from a staging
  uint64_t last_stream_ = 0;                       // of the last kernel: number_of_stream()
  cuda::PlanArguments arguments_{};
};

}  // namespace weft::engine
