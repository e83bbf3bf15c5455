// The backend "weft" of torch.distributed: c10d::Backend over the interface of weft/weft.h, for tensors of
// host memory and of an accelerator.
//   backend.cc         runs operations on host memory; device_group.h runs those of an accelerator
//   group_life.cc      begins, divides and ends a group; membership.h makes its communicators
//   movement.cc, reductions.cc, point_to_point.cc, window.cc   translate torch's calls to Weft's
#ifndef WEFT_TORCH_BACKEND_H_
#define WEFT_TORCH_BACKEND_H_

#include <weft/weft.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "async_queue.h"
#include "buffers.h"
#include "coalescing.h"
#include "device_group.h"
#include "membership.h"
#include "operation.h"
#include "reduction.h"
#include "work.h"

namespace weft_torch {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

class WeftBackend final : public c10d::Backend {
 public:
  // A collective of all ranks of the group. `global_ranks` are its ranks in the default group; none: it is
  // that. A group of some ranks shares the default group's connections. Where those are not Weft's, ranks
  // meet through the store, and `timeout` is how long they wait. `accelerator` names the type of device whose
  // tensors are taken besides the host's, as "cuda"; "": none. Another thread that sets `*cancelled` ends the
  // wait for ranks; the constructor then throws DistBackendError. A signal whose handler raises an exception
  // in Python, as Ctrl-C does, ends the wait, too; the constructor throws that exception.
  WeftBackend(c10::intrusive_ptr<c10d::Store> store, int rank, int size, std::chrono::milliseconds timeout,
              std::string group_name, std::vector<uint64_t> global_ranks, const std::string& accelerator,
              const std::atomic<bool>* cancelled = nullptr);
  // Of a communicator that is there, which it destroys.
  WeftBackend(Membership group, weftComm_t comm, c10::intrusive_ptr<Options> options,
              std::optional<at::DeviceType> accelerator);
  // Without shutdown() or abort() before, waits 2 s at most for operations in flight, then aborts them: a
  // program may end while it waits for a message that nobody sends.
  ~WeftBackend() override;

  const std::string getBackendName() const override { return "weft"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  bool supportsCoalescing() const override { return true; }
  bool supportsSplitting() const override { return true; }
  bool supportsShrinking() const override { return true; }
  // Memory of weftMemAlloc(), which the ranks of a node reach without a copy.
  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;
  void startCoalescing() override;
  WorkPtr endCoalescing() override;
  // In place of endCoalescing(): what this thread has coalesced is not started, and its Works fail. Else
  // nothing.
  void cancel_coalescing();

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  // Overrides a function of c10d::Backend that torch has from 2.14.
  virtual WorkPtr gather_into_tensor(at::Tensor& output, at::Tensor& input,
                                     const c10d::GatherOptions& options);
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;

  WorkPtr send(Tensors& tensors, int peer, int tag) override;
  WorkPtr recv(Tensors& tensors, int peer, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all) override;

#ifdef C10D_BACKEND_HAS_WINDOW
  bool supportsWindow() const override { return true; }
  c10::intrusive_ptr<c10d::Window> new_window(const std::optional<at::Tensor>& tensor) override;
#endif

  // Children share this group's connections, on the device too if it is connected; ranks outside them have
  // nothing to do. The ranks of a child call in one order. torch's store is not used: its prefix may differ
  // among them.
  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                    const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<Options>& options) override;

  // Makes the communicator of the device now, so that groups of some ranks share its connections.
  void eagerConnectSingleDevice(at::Device device) override;

  // The ranks that are not excluded go on as a group of their own; this one may have failed. `flags` are
  // those of torch.distributed.shrink_group(): 1 aborts first what is in flight.
  c10::intrusive_ptr<Backend> shrink(const std::vector<int64_t>& excluded, int flags,
                                     const c10::intrusive_ptr<Options>& options) override;

  void setSequenceNumberForGroup() override { sequence_number_ = 0; }
  uint64_t getSequenceNumberForGroup() override { return sequence_number_; }
  void enableCollectivesTiming() override { timing_ = true; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;

  // Writes the flight recorder of the communicator on host memory as JSON.
  void dump(const std::string& path);

 private:
  friend class WeftWindow;
  // Runs an operation: blocking if `async` is false, else as a Work. Between startCoalescing() and
  // endCoalescing() of the same thread it is kept for the latter.
  WorkPtr run(Operation operation, bool async, std::chrono::milliseconds timeout);
  WorkPtr run_on_device(Operation operation, bool async);
  // Several as one group of Weft, with one Work.
  WorkPtr run_all(std::vector<Operation> operations, c10d::OpType type, const char* title, bool async,
                  std::chrono::milliseconds timeout);
  // The sequence number of a new Work of the operation.
  uint64_t number_of(const Operation& operation);
  c10::intrusive_ptr<WeftWork> new_work(const Operation& operation);
  void run_blocking(Operation& operation);
  // Puts them on their streams together. `whole` may be null.
  void issue(std::vector<Started> started, const c10::intrusive_ptr<WeftWork>& whole);
  const std::shared_ptr<AsyncQueue>& queue(const QueueKey& key);
  // What is to be done when the operation of `kept` has ended.
  AsyncQueue::Completion completion_of(std::shared_ptr<Started> kept, c10::intrusive_ptr<WeftWork> whole);
  void open();
  void drain();
  void check_open() const;
  // Sets what the operation is on and of, by the tensor that `what` names. Throws ValueError for a device
  // that the group does not serve.
  void locate(Operation& made, const at::Tensor& tensor, const char* what);
  // The same for a message, and what the communicator calls the peer.
  int locate_message(Operation& made, const at::Tensor& tensor, int peer, const char* what);
  // Whether it is on host memory; throws ValueError if it is on no device that the group serves.
  bool is_on_host(const at::Tensor& tensor, const char* what) const;
  uint64_t global_rank(int rank) const;
  void check_root(int64_t root, const char* what) const;
  std::string sentence(weftResult_t result) const;

  Operation prepare_allreduce(const at::Tensor& tensor, const c10d::ReduceOp& op);
  Operation prepare_reduce_scatter(const at::Tensor& output, const at::Tensor& flat_input,
                                   const c10d::ReduceOp& op, const Counts& counts = {});
  Operation prepare_allgather(const at::Tensor& output, const at::Tensor& input);
  Operation prepare_allgather_list(const Tensors& outputs, const at::Tensor& input);
  Operation prepare_alltoall(Landing place, at::Tensor source, const Counts& taken, const Counts& given);

  const Membership group_;
  const c10::intrusive_ptr<Options> options_;
  std::atomic<int64_t> timeout_ms_;  // the communicator's
  std::atomic<uint64_t> sequence_number_{0};
  uint64_t monitored_barriers_ = 0;
  int windows_ = 0;                  // how many there have been
  std::atomic<bool> timing_{false};  // Works keep their durations
  weftComm_t comm_ = nullptr;
  std::unique_ptr<DeviceGroup> device_;  // null: there is no accelerator
  std::shared_ptr<Lender> lender_;       // of connections to groups that are split off
  std::atomic<bool> closed_{false};
  std::atomic<bool> aborted_{false};
  std::mutex life_mutex_;  // one abort() or shutdown() at a time

  std::mutex issue_mutex_;  // operations are put on streams one call at a time, so in the same order
  std::map<QueueKey, std::shared_ptr<AsyncQueue>> queues_;  // guarded by issue_mutex_

  std::atomic<int> in_flight_{0};              // asynchronous operations, those between pairs among them
  std::atomic<int> collectives_in_flight_{0};  // asynchronous ones

  Coalescing coalescing_;
};

}  // namespace weft_torch

#endif  // WEFT_TORCH_BACKEND_H_
