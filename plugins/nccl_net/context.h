// Context: the state of one communicator of NCCL in this plugin, from version 11 of the ABI on. In older
// versions the whole process has one. It has a libfabric endpoint for each device in use, and the
// connections that are being made.
//
// Thread safety: every function.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>

#include "base/fork.h"
#include "handshake.h"

namespace weft::nccl_net {

class Context {
 public:
  /// `traffic_class`: of its connections, negative for none.
  explicit Context(int traffic_class = -1) : traffic_class_(traffic_class) {}
  int traffic_class() const { return traffic_class_; }
  const Ownership& ownership() const { return ownership_; }
  /// Writes the listener's handle, kHandleBytes long. Errors: invalid_argument for a device that does not
  /// exist, or what opening says.
  Result<std::unique_ptr<Listener>> listen(int device, void* handle);
  /// One step towards the listener of `handle`, which keeps a note of where that stands: come again with the
  /// same bytes until there is a sender. Errors end the attempt.
  Result<std::unique_ptr<Sender>> connect(int device, void* handle, int traffic_class);

 private:
  Result<std::shared_ptr<Endpoint>> endpoint_for(int device, const Device& description);
  Result<Dialer*> dialer_for(int device, Handle& handle, int traffic_class);

  const Ownership ownership_;
  const int traffic_class_;
  std::mutex mutex_;
  std::unordered_map<const Device*, std::shared_ptr<Endpoint>> endpoints_;
  std::unordered_map<uint32_t, std::unique_ptr<Dialer>> dialers_;  // by Handle::dialing
  uint32_t last_dial_ = 0;
};

}  // namespace weft::nccl_net
