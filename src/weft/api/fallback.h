// Fallback: the NCCL communicator beside one of Weft. It serves device memory on a communicator of host
// memory, or everything. It serves everything if WEFT_BACKEND or the configuration is nccl, or is auto while
// Weft cannot use the device of a rank. It has the same ranks. A collective of Weft makes it: at the first
// collective that needs it, or at once.
//
// A communicator has a Fallback only where it can be needed. That is with backend nccl, where a rank yields
// its device, or on host memory if the machine has a CUDA driver. Otherwise a communicator of GPU memory does
// all operations itself.
//
// Thread safety: as communicators; abort() and health() from any thread.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "engine/run/group_run.h"
#include "nccl/decision.h"
#include "nccl/library.h"

namespace weft::api {

class Fallback;

/// An operation that NCCL does, on the call's CUDA stream; null there: the call returns with its result.
struct NcclCall {
  Fallback* whose;
  engine::Call call;
};

class Fallback {
 public:
  /// Null where it cannot be needed. `device`: that of the communicator, also one that is yielded, -1 for
  /// host memory; `lacks`: why it is yielded.
  static std::shared_ptr<Fallback> make(nccl::Backend wanted, int device, const Status& lacks);
  ~Fallback();
  Fallback(const Fallback&) = delete;
  Fallback& operator=(const Fallback&) = delete;

  nccl::Backend wanted() const { return wanted_; }
  /// Whether the last operation of the communicator was NCCL's, and how many have been; for weftCommGetStats.
  void count(bool theirs) {
    last_was_theirs_.store(theirs, std::memory_order_relaxed);
    if (theirs) operations_.fetch_add(1, std::memory_order_relaxed);
  }
  bool last_was_theirs() const { return last_was_theirs_.load(); }
  uint64_t operations() const { return operations_.load(); }
  /// Sets the communicator of Weft that this serves. If NCCL does every operation, makes NCCL's communicator
  /// now, which is a collective.
  Status attach(engine::Communicator* comm);
  /// Whether NCCL does every operation.
  bool takes_all() const { return takes_all_; }
  /// False, once attached, beside a communicator of GPU memory.
  bool is_needed() const { return device_ < 0 || takes_all_; }
  /// The device that was yielded to NCCL, for children to inherit; -1: none was.
  int yielded_device() const { return takes_all_ ? device_ : -1; }
  /// What Weft lacks for the first device that was yielded.
  const std::string& lack() const { return lack_; }

  /// Whether NCCL does a call on these buffers (null: not used), if all ranks have an NCCL: start() asks
  /// them. Errors: unsupported (device memory that nobody takes).
  Result<bool> takes(const void* send, const void* recv) const;
  bool takes_pointer(const void* pointer) const;
  static bool is_device_memory(const void* pointer);

  /// Starts the calls together, making NCCL's communicators where they are missing.
  static Status start(const std::vector<NcclCall>& calls);
  /// Waits for those without a stream.
  static Status finish(const std::vector<NcclCall>& calls);

  Result<void*> register_buffer(void* address, size_t bytes);
  /// False where the handle is not one of these.
  bool deregister_buffer(void* handle);

  /// Waits for the operations of this rank.
  Status finalize();
  /// Ends what is in flight.
  void abort();
  /// What NCCL's communicator failed with, or ok.
  Status health() const;

 private:
  Fallback(nccl::Backend wanted, int device, const Status& lacks);
  struct Card;
  Card card();
  static Status create(const std::vector<Fallback*>& missing);
  Status check_cards();
  nccl::Decision decision() const;
  Status launch(const NcclCall& call, int op) const;
  Status start_one(const NcclCall& call, std::vector<int>* operators) const;
  static Status missing_of(const std::vector<NcclCall>& calls, std::vector<Fallback*>* missing);

  const nccl::Backend wanted_;
  const int device_;    // with auto, the wished one, or -1
  const Status lacks_;  // of Weft's, for that
  bool takes_all_;      // with auto, known when attached
  void* cuda_context_;  // NCCL's device: that of the thread that asked for the communicator, or device_'s
  engine::Communicator* comm_ = nullptr;
  std::atomic<bool> last_was_theirs_{false};
  std::atomic<uint64_t> operations_{0};
  std::string lack_;
  std::vector<Card> cards_;  // of all ranks, while NCCL's communicator is made
  mutable Mutex mutex_;
  nccl::Comm_t nccl_ = nullptr;
  bool aborted_ = false;
  std::vector<void*> registrations_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft::api
