// A group whose ranks can change: torch.distributed's reconfigure(), which torch has from 2.14. It is made
// without a communicator; each reconfigure() ends the backend that it had and makes another of the ranks that
// are named. All calls go to that.
#ifndef WEFT_TORCH_RECONFIGURABLE_H_
#define WEFT_TORCH_RECONFIGURABLE_H_

#include <torch/csrc/distributed/c10d/Backend.hpp>

#ifdef C10D_BACKEND_HAS_RECONFIGURE

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backend.h"

namespace weft_torch {

// Thread safety: any thread may call every function, except torch's getRank() and getSize() while
// reconfigure() runs: they take no lock. The timeout of getBackendOptions() is read so, too: not while
// setTimeout() runs. A call that a reconfigure() overtakes ends with an error.
class ReconfigurableBackend final : public c10d::Backend {
 public:
  // `rank` and `size` are those that torch's program was started with, until the first reconfigure().
  ReconfigurableBackend(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                        std::chrono::milliseconds timeout, std::string group_name, std::string accelerator);

  const std::string getBackendName() const override { return "weft"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  bool supportsReconfigure() const override { return true; }
  // The same text for as long as the group lives, and no other's.
  c10d::ReconfigureHandle get_reconfigure_handle() const override { return handle_; }
  // Ends what is in flight here, then waits for all that are named: through the store, which must be theirs.
  // The Work is complete. A rank that is not named keeps what it has, until it is used or its ranks end it.
  // abort() and shutdown() end the wait with DistBackendError; after them the group cannot be reconfigured.
  WorkPtr reconfigure(const c10d::ReconfigureOptions& options) override;

#ifdef C10D_BACKEND_HAS_WINDOW
  // A window is of the ranks of the last reconfigure(), and ends with them.
  bool supportsWindow() const override { return true; }
  c10::intrusive_ptr<c10d::Window> new_window(const std::optional<at::Tensor>& tensor) override {
    return now()->new_window(tensor);
  }
#endif

  // These divide the ranks of the last reconfigure(). The new groups keep their ranks.
  bool supportsSplitting() const override { return true; }
  bool supportsShrinking() const override { return true; }
  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                    const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<Options>& options) override {
    return now()->split(store, ranks, options);
  }
  c10::intrusive_ptr<Backend> shrink(const std::vector<int64_t>& excluded, int flags,
                                     const c10::intrusive_ptr<Options>& options) override {
    return now()->shrink(excluded, flags, options);
  }

  bool supportsCoalescing() const override { return true; }
  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override {
    return now()->allocateTensor(size, options);
  }
  // Without a reconfigure() these do nothing: torch calls abort() between them.
  void startCoalescing() override;
  WorkPtr endCoalescing() override;
  void cancel_coalescing();

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return now()->allreduce(tensors, options);
  }
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    return now()->allreduce_coalesced(tensors, options);
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    return now()->reduce(tensors, options);
  }
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override {
    return now()->reduce_scatter(outputs, inputs, options);
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    return now()->_reduce_scatter_base(output, input, options);
  }
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override {
    return now()->reduce_scatter_tensor_coalesced(outputs, inputs, options);
  }
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return now()->broadcast(tensors, options);
  }
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override {
    return now()->allgather(outputs, inputs, options);
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override {
    return now()->_allgather_base(output, input, options);
  }
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override {
    return now()->allgather_coalesced(outputs, inputs, options);
  }
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override {
    return now()->allgather_into_tensor_coalesced(outputs, inputs, options);
  }
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options) override {
    return now()->gather(outputs, inputs, options);
  }
  WorkPtr gather_into_tensor(at::Tensor& output, at::Tensor& input,
                             const c10d::GatherOptions& options) override {
    return now()->gather_into_tensor(output, input, options);
  }
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& options) override {
    return now()->scatter(outputs, inputs, options);
  }
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override {
    return now()->alltoall_base(output, input, output_splits, input_splits, options);
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    return now()->alltoall(outputs, inputs, options);
  }
  WorkPtr send(Tensors& tensors, int peer, int tag) override { return now()->send(tensors, peer, tag); }
  WorkPtr recv(Tensors& tensors, int peer, int tag) override { return now()->recv(tensors, peer, tag); }
  WorkPtr recvAnysource(Tensors& tensors, int tag) override { return now()->recvAnysource(tensors, tag); }
  WorkPtr barrier(const c10d::BarrierOptions& options) override { return now()->barrier(options); }
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all) override {
    now()->monitoredBarrier(options, wait_all);
  }

  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return now()->getSequenceNumberForGroup(); }
  void enableCollectivesTiming() override { now()->enableCollectivesTiming(); }
  // Also of the groups that reconfigure() makes from now on.
  void setTimeout(std::chrono::milliseconds timeout) override;
  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;

 private:
  using BackendPtr = c10::intrusive_ptr<WeftBackend>;
  // Throws if there was no reconfigure() yet, or the last one failed.
  BackendPtr now() const;
  BackendPtr any() const;  // may be null
  // Gives `made`, whose timeout is `timeout`, the group's timeout and its calls. False if the group has
  // ended.
  bool install(const BackendPtr& made, std::chrono::milliseconds timeout);

  const c10::intrusive_ptr<c10d::Store> store_;
  const c10::intrusive_ptr<Options> options_;  // its timeout is guarded by mutex_
  const std::string accelerator_;
  const c10d::ReconfigureHandle handle_;
  std::mutex reconfiguring_;          // one at a time
  std::atomic<bool> ended_{false};    // by abort() or shutdown()
  mutable std::mutex mutex_;          // guards writes of rank_ and size_, too
  BackendPtr now_;                    // guarded by mutex_
  std::optional<int64_t> last_uuid_;  // guarded by reconfiguring_
};

}  // namespace weft_torch

#endif  // C10D_BACKEND_HAS_RECONFIGURE

#endif  // WEFT_TORCH_RECONFIGURABLE_H_
