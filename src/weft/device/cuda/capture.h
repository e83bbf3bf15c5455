// Streams that are being captured into a CUDA graph: which capture a stream is part of, and things that live
// as long as the graph that is captured.
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
  GraphHandle* graph = nullptr;  // that is being captured; null: none is
  explicit operator bool() const { return graph != nullptr; }
};

/// The capture that a stream is part of. Errors: unsupported (the default stream, which a capture on another
/// one forbids to use; a driver that does not tell), invalid_usage (a capture that has failed already).
Result<Capture> capture_of(StreamHandle* stream);

/// Keeps `what` until the graph, its copies, and all that was instantiated from it are destroyed and have
/// run. It is then let go of on a thread of the driver's, which may call nothing of CUDA.
Status keep_with(GraphHandle* graph, std::shared_ptr<void> what);

}  // namespace weft::device::cuda
