// PendingRelease: what a failed operation has left under way on a device. The operation ends at once for
// its caller. Its copies and kernels may be queued behind a program's own, and are the device's until they
// are done. Until then their memory and the peers' memory that they use stay, and the caller's stream
// waits, since they may still write the caller's buffers. Nothing here waits.
//
// Thread safety: none; under the context's lock, and inside a cuda::Scope of the device.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "device/cuda/block_pool.h"
#include "device/cuda/ipc.h"
#include "device/cuda/queue.h"

namespace weft::engine {

namespace cuda = device::cuda;

class CapturedCalls;
class StreamPath;

/// How a caller's stream waits for an operation.
struct StreamHold {
  cuda::Device::Flags* flags = nullptr;  // null: it does not, or a graph's does
  uint32_t turn = 0;
  bool come = false;                     // the stream has come to the operation
  std::shared_ptr<CapturedCalls> calls;  // whose graph has come to it; null: not captured
  bool lingers = false;                  // the operation has failed, and is a pending release

  /// Whether the stream has written that it is here.
  bool has_come();
  /// From now on it waits for a pending release.
  void linger();
  /// Lets it go on. What the operation used has been given back before, to pools that call nothing of CUDA.
  void release(cuda::Device& device);
};

/// The memory that an operation has used.
struct UsedMemory {
  std::vector<cuda::Block> host, device;
  std::vector<cuda::Block> exposed_host, exposed_device;  // that peers may not be done with
  std::vector<std::shared_ptr<cuda::Importer::Mapping>> mappings;
  std::shared_ptr<void> other;

  /// `retire`: also what was exposed to nobody.
  void give_back(cuda::BlockPool& host_pool, cuda::BlockPool& device_pool, bool retire);
};

struct PendingRelease {
  std::vector<cuda::Ticket> tickets;
  bool unknown = false;  // the device has reported an error: what it still does, nobody knows
  UsedMemory memory;
  StreamHold stream;
  std::shared_ptr<StreamPath> path;  // whose operations streams have yet to pass by; null: none

  /// Whether the device is done with it, or does nothing any more.
  bool over();
};

}  // namespace weft::engine
