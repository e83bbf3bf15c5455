// The operations that threads have called between startCoalescing() and endCoalescing() of a group. The
// backend starts them.
#ifndef WEFT_TORCH_COALESCING_H_
#define WEFT_TORCH_COALESCING_H_

#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "device_group.h"
#include "operation.h"
#include "work.h"

namespace weft_torch {

// An operation on host memory, with its Work.
struct Started {
  Operation operation;
  c10::intrusive_ptr<WeftWork> work;
};

struct CoalescedCalls {
  std::vector<Started> on_host;
  std::vector<Operation> on_device;
  std::vector<DeviceWorkPtr> works_on_device;  // of those on the device, in their order
};

// The coalesced calls of a group, by thread.
//
// Thread safety: any thread may call every function, for its own calls.
class Coalescing {
 public:
  // This thread coalesces from here on. It must not do so yet.
  void begin() {
    const std::lock_guard<std::mutex> lock(mutex_);
    calls_[std::this_thread::get_id()];
  }
  // Null if this thread does not coalesce; valid until its take().
  CoalescedCalls* calls() {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = calls_.find(std::this_thread::get_id());
    return found == calls_.end() ? nullptr : &found->second;
  }
  bool is_on() { return calls() != nullptr; }
  // Ends this thread's coalescing, and returns its calls; nothing if it did not coalesce.
  std::optional<CoalescedCalls> take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto node = calls_.extract(std::this_thread::get_id());
    if (node.empty()) return std::nullopt;
    return std::move(node.mapped());
  }

 private:
  std::mutex mutex_;
  std::map<std::thread::id, CoalescedCalls> calls_;  // guarded by mutex_; each is used by its thread alone
};

}  // namespace weft_torch

#endif  // WEFT_TORCH_COALESCING_H_
