// DeviceExecutor: the means of a context to run plans on the memory of one CUDA device. It has queues for
// copies and kernels, blocks of memory of its own, the mappings of peers' memory, and what failed operations
// have left. device_run.h and device_steps.cc do an operation's work with them.
//
// Thread safety: none; under the context's lock, and inside a cuda::Scope of its device.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "base/status.h"
#include "device/cuda/block_pool.h"
#include "device/cuda/ipc.h"
#include "device/cuda/kernels.h"
#include "device/cuda/queue.h"
#include "engine/gpu/pending_release.h"

namespace weft::engine {

namespace cuda = device::cuda;

class DeviceExecutor {
 public:
  /// Says in the log, once, what the device or the driver lacks and what is done instead.
  static Result<std::unique_ptr<DeviceExecutor>> open(int ordinal);

  cuda::Device& device() const { return device_; }
  /// Work of different lanes may run side by side.
  cuda::Queue& queue(uint32_t lane) { return *queues_[lane % kCopyQueues]; }
  /// Kernels follow each other, so that WEFT_CUDA_BLOCKS bounds all of them together.
  cuda::Queue& kernel_queue() { return *queues_[kCopyQueues]; }
  cuda::BlockPool& host_blocks() { return host_blocks_; }
  cuda::BlockPool& device_blocks() { return device_blocks_; }
  cuda::Exporter& exporter() { return exporter_; }
  cuda::Importer& importer() { return importer_; }
  /// Null: reductions are the CPU's.
  const cuda::Kernels* kernels() const { return kernels_; }
  /// Whether other processes could map memory of the device; whether they can, each communicator finds out.
  bool shares_memory() const { return why_not_shared_.ok(); }
  const Status& why_not_shared() const { return why_not_shared_; }
  /// ok where kernels() are there.
  const Status& why_no_kernels() const { return why_no_kernels_; }
  /// Logs, once, that memory is staged which the network could not register, and why.
  void note_staging(const Status& why);
  /// An error where the device does nothing any more. Asks it, if the last time is a while ago.
  Status alive(int64_t now);
  /// Takes over what a failed operation has left, which may be queued for as long as other work of the device
  /// takes; settle() gives it back.
  void leave(PendingRelease release);
  /// The moments at which the queues are done with what is in them now; fewer than queues if the driver
  /// fails.
  std::vector<cuda::Ticket> mark_queues();
  /// The same of a path whose streams have to pass by its operations (PendingRelease::path).
  void drain(PendingRelease release) { releases_.push_back(std::move(release)); }
  /// Gives back what the device is done with; how many operations' that was.
  int settle();
  bool has_releases() const { return !releases_.empty(); }
  /// Ends an executor that nothing uses any more. Does not wait long: what a device is not done with goes
  /// later, on a thread of its own.
  static void close(std::unique_ptr<DeviceExecutor> executor);

 private:
  explicit DeviceExecutor(cuda::Device& device)
      : device_(device),
        host_blocks_(device, cuda::BlockPool::Kind::host),
        device_blocks_(device, cuda::BlockPool::Kind::device),
        importer_(device) {}

  Status warm_up();

  static constexpr size_t kCopyQueues = 4;

  cuda::Device& device_;
  cuda::BlockPool host_blocks_, device_blocks_;
  cuda::Exporter exporter_;
  cuda::Importer importer_;
  const cuda::Kernels* kernels_ = nullptr;
  Status why_not_shared_, why_no_kernels_;
  bool staging_noted_ = false;
  int64_t last_asked_ns_ = 0;                                         // whether it is alive
  std::array<std::unique_ptr<cuda::Queue>, kCopyQueues + 1> queues_;  // emptied before the blocks go
  std::vector<PendingRelease> releases_;                              // have tickets of the queues
  cuda::Ticket asked_;                                                // of alive()
};

}  // namespace weft::engine
