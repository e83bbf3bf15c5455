// Registrations: buffers that a caller keeps registered with the transports of one context.
//
// Thread safety: under the context's lock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "engine/context/fabric.h"

namespace weft::engine {

class Registrations {
 public:
  explicit Registrations(Fabric& fabric) : fabric_(fabric) {}
  ~Registrations() { clear(); }
  Registrations(const Registrations&) = delete;
  Registrations& operator=(const Registrations&) = delete;

  /// Keeps a buffer registered until remove() is called with the handle that this returns. GPU memory
  /// (`on_device`) is never the transports' own affair: what they need of it is prepared by the operations.
  Result<void*> add(void* address, size_t bytes, bool on_device) {
    auto registration = std::make_unique<Registration>();
    for (transport::Transport* t : {fabric_.local(), fabric_.between_nodes()}) {
      if (!t || on_device) continue;
      auto buffer = t->expose(address, bytes);
      if (!buffer) {
        withdraw(*registration);
        return buffer.status();
      }
      registration->emplace_back(t, *buffer);
    }
    all_.push_back(std::move(registration));
    return static_cast<void*>(all_.back().get());
  }
  void remove(void* handle) {
    const auto found =
        std::find_if(all_.begin(), all_.end(), [&](const auto& r) { return r.get() == handle; });
    if (found == all_.end()) return;
    withdraw(**found);
    all_.erase(found);
  }
  void clear() {
    while (!all_.empty()) remove(all_.back().get());
  }

 private:
  using Registration = std::vector<std::pair<transport::MemoryAccess*, transport::RemoteBuffer>>;
  static void withdraw(Registration& registration) {
    for (auto& [transport, buffer] : registration) transport->unexpose(buffer);
  }

  Fabric& fabric_;
  std::vector<std::unique_ptr<Registration>> all_;
};

}  // namespace weft::engine
