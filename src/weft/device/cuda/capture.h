// Streams that are being captured into a CUDA graph: which capture a stream is part of, and objects that live
// as long as the captured graph.
//
// Thread safety: every function; under a Scope of the stream's device.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "device/cuda/driver.h"

namespace weft::device::cuda {

/// A capture that is under way.
struct Capture {
  uint64_t id = 0;               // never used twice in a process
  GraphHandle* graph = nullptr;  // being captured; null: no capture
  explicit operator bool() const { return graph != nullptr; }
};

/// The capture that a stream is part of. Errors: unsupported (the default stream, which a capture on another
/// stream forbids to use; a driver that cannot tell), invalid_usage (a capture that has failed already).
Result<Capture> capture_of(StreamHandle* stream);

/// Keeps `what` until the graph, its copies, and all instances of them have run and are destroyed. A thread
/// of the driver then releases it; that thread may not call CUDA.
Status keep_with(GraphHandle* graph, std::shared_ptr<void> what);

}  // namespace weft::device::cuda
