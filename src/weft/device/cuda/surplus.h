// Surplus: memory and mappings that Weft has no more use for, until the driver can have them back. Calls that
// give back (cuMemFree, cuMemHostUnregister, cuIpcCloseMemHandle) may wait for everything that is queued on a
// device: also for a stream that waits for an operation, whose end is the business of the very thread that
// gives back. So nothing is given back while a stream waits for Weft anywhere in the process, or a graph is
// there that may begin to without a call of Weft. Until then blocks may be had again.
//
// Thread safety: every function. Its lock is the innermost, and held while things are given back: a stream
// that is about to wait for Weft does so afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "device/cuda/device.h"

namespace weft::device::cuda {

enum class BlockKind : uint8_t { host, device };

class Surplus {
 public:
  static Surplus& instance();

  /// A stream is about to wait for Weft.
  void stream_waits();
  /// It has been let go. Gives back what is there, if it was the last.
  void stream_goes_on();
  /// The same for a graph that makes streams wait; its end calls nothing of CUDA.
  void graph_begins();
  void graph_ends();

  /// A block of a pool: device memory, or a pinned window.
  void add_block(Device& device, BlockKind kind, std::byte* block, size_t bytes);
  /// A mapping of a peer's memory.
  void add_mapping(Device& device, DevicePointer base);
  /// A block of exactly so many bytes again; null if there is none.
  std::byte* take_block(const Device& device, BlockKind kind, size_t bytes);
  /// Closes the mappings now, whoever waits: they are in the way of others.
  void close_mappings();

 private:
  struct Block {
    Device* device;
    BlockKind kind;
    std::byte* data;
    size_t bytes;
  };
  struct Mapping {
    Device* device;
    DevicePointer base;
  };
  void give_back_if_quiet();
  void close_all_mappings();

  std::mutex mutex_;
  size_t waiting_ = 0;  // streams and graphs
  std::vector<Block> blocks_;
  std::vector<Mapping> mappings_;
};

}  // namespace weft::device::cuda
