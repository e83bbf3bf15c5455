// DeviceOperations: what a context does for operations on GPU memory beside what it does for all. They wait
// for their CUDA stream before they start, nothing but polling tells how far the device is, and a failed one
// may leave work on it.
//
// Thread safety: under the context's lock.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/status.h"
#include "device/cuda/device.h"
#include "engine/context/context_lock.h"

namespace weft::engine {

class Context;
class DeviceExecutor;
struct Operation;

class DeviceOperations {
 public:
  explicit DeviceOperations(Context& context);
  /// The executors end; no operation uses one.
  ~DeviceOperations();
  DeviceOperations(const DeviceOperations&) = delete;
  DeviceOperations& operator=(const DeviceOperations&) = delete;

  /// What runs plans on the memory of a CUDA device; made at the first call.
  Result<DeviceExecutor*> executor(int ordinal) WEFT_REQUIRES(context_lock);
  /// The device of all executors; null: none, or several.
  const device::cuda::Device* only_device() const WEFT_REQUIRES(context_lock);
  /// Takes in an operation whose CUDA stream has still to come to it; turns start it when it has.
  void await_stream(Operation& op) WEFT_REQUIRES(context_lock);
  /// Whether operations wait for their streams, or work is left on a device.
  bool empty() const WEFT_REQUIRES(context_lock) { return awaiting_.empty() && !has_releases_; }
  bool has_releases() const WEFT_REQUIRES(context_lock) { return has_releases_; }
  /// Starts what its stream has come to, and gives back what the device is done with. Returns the number of
  /// events.
  int turn() WEFT_REQUIRES(context_lock) {
    if (empty()) return 0;
    const int started = start_awaiting();
    return started + settle_releases();
  }
  /// Gives back what the device is done with of failed operations.
  int settle_releases() WEFT_REQUIRES(context_lock);
  /// Fails operations whose stream will not come.
  void check(int64_t now_ns) WEFT_REQUIRES(context_lock);

 private:
  int start_awaiting() WEFT_REQUIRES(context_lock);
  int start_proxy(Operation& op) WEFT_REQUIRES(context_lock);
  Result<bool> is_done_by_its_path(Operation& op) WEFT_REQUIRES(context_lock);
  void check_on_path(Operation& op, int64_t now_ns) WEFT_REQUIRES(context_lock);

  Context& context_;
  // Each with a reference. On a path they stay until their streams have done them.
  std::vector<Operation*> awaiting_;
  bool has_releases_ = false;                                 // see pending_release.h
  std::map<int, std::unique_ptr<DeviceExecutor>> executors_;  // by device
};

}  // namespace weft::engine
