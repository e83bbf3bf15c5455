#include "context.h"

#include <cstddef>
#include <cstring>

namespace weft::nccl_net {

/// The device's endpoint in this context; null over TCP, where every connection has its own.
Result<std::shared_ptr<Endpoint>> Context::endpoint_for(int device, const Device& description) {
  if (description.way == Way::tcp) return std::shared_ptr<Endpoint>();
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Endpoint>& endpoint = endpoints_[&description];
  if (endpoint) {
    const std::lock_guard held(endpoint->mutex());
    if (endpoint->status().ok()) return endpoint;
  }
  Result<std::shared_ptr<Endpoint>> opened = Endpoint::over_ofi(description);
  if (!opened.ok()) return opened.status().in(fmt::format("device {} ({})", device, description.name));
  return endpoint = opened.take();
}

Result<std::unique_ptr<Listener>> Context::listen(int device, void* handle) {
  const Result<Devices*> devices = Devices::get();
  if (!devices.ok()) return devices.status();
  const Result<const Device*> description = (*devices)->at(device);
  if (!description.ok()) return description.status();
  Result<std::shared_ptr<Endpoint>> endpoint = endpoint_for(device, **description);
  if (!endpoint.ok()) return endpoint.status();
  Result<std::unique_ptr<Listener>> listener = Listener::open(**description, endpoint.take());
  if (listener.ok()) std::memcpy(handle, &(*listener)->handle(), sizeof(Handle));
  return listener;
}

Result<Dialer*> Context::dialer_for(int device, Handle& handle, int traffic_class) {
  if (handle.dialing != 0) {
    const std::lock_guard lock(mutex_);
    const auto found = dialers_.find(handle.dialing);
    if (found != dialers_.end()) return found->second.get();
    return fail(Code::invalid_argument,
                "the handle to connect to has been used for another connection already");
  }
  const Result<Devices*> devices = Devices::get();
  if (!devices.ok()) return devices.status();
  const Result<const Device*> description = (*devices)->at(device);
  if (!description.ok()) return description.status();
  Result<std::shared_ptr<Endpoint>> endpoint = endpoint_for(device, **description);
  if (!endpoint.ok()) return endpoint.status();
  Result<std::unique_ptr<Dialer>> dialer =
      Dialer::start(**description, endpoint.take(), handle, traffic_class);
  if (!dialer.ok()) return dialer.status();
  const std::lock_guard lock(mutex_);
  handle.dialing = ++last_dial_;
  return (dialers_[handle.dialing] = dialer.take()).get();
}

Result<std::unique_ptr<Sender>> Context::connect(int device, void* bytes, int traffic_class) {
  Result<Handle> handle = read_handle(bytes);
  if (!handle.ok()) return handle.status();
  const Result<Dialer*> dialer = dialer_for(device, *handle, traffic_class);
  if (!dialer.ok()) return dialer.status();
  Result<std::unique_ptr<Sender>> sender = (*dialer)->advance();
  const bool over = !sender.ok() || *sender != nullptr;
  std::unique_ptr<Dialer> finished;  // goes without the lock
  if (over) {
    const std::lock_guard lock(mutex_);
    finished = std::move(dialers_[handle->dialing]);
    dialers_.erase(handle->dialing);
    handle->dialing = 0;
  }
  std::memcpy(bytes, &*handle, sizeof *handle);
  return sender;
}

}  // namespace weft::nccl_net
