// DeferredFree: memory and mappings that Weft no longer uses, until the driver can take them back. The calls
// for that (cuMemFree, cuMemHostUnregister, cuIpcCloseMemHandle) may wait for everything that is queued on a
// device: a program's long kernel, or a stream that waits for an operation of Weft. So a thread of its own
// makes them, which holds up nothing of Weft. It does so only while no stream of the process waits for Weft,
// and no graph exists that may wait without a call of Weft. Until then Weft may take blocks again. It cannot
// take mappings again: beyond kMostMappings the thread closes the oldest, even while streams wait.
//
// Thread safety: every function. No lock is held over a call of CUDA, except one that only stream_waits()
// takes. So a stream that is about to wait for Weft does so after the memory that the thread is giving back
// at that moment.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "base/mutex.h"
#include "device/cuda/device.h"
#include "device/segment.h"

namespace weft::device::cuda {

enum class BlockKind : uint8_t { host, device };

class DeferredFree {
 public:
  /// Whether Weft may take a block again before the driver has it.
  enum class Lending : uint8_t { allowed, forbidden };
  static constexpr size_t kMostMappings = 64;

  static DeferredFree& instance();

  /// A stream is about to wait for Weft.
  void stream_waits();
  /// The stream's wait has ended. Does not block.
  void stream_goes_on();
  /// The same for a graph that makes streams wait. The call for its end takes no lock and does not call CUDA,
  /// since threads of the driver make it.
  void graph_begins();
  void graph_ends() { stream_goes_on(); }

  /// A block of a pool: device memory, or a pinned window.
  void add_block(Device& device, BlockKind kind, std::byte* block, size_t bytes,
                 Lending lending = Lending::allowed);
  /// A segment of host memory that is pinned here, of this or another process.
  void add_segment(Device& device, Segment segment);
  /// A mapping of a peer's memory.
  void add_mapping(Device& device, DevicePointer base);
  /// Takes a block of exactly this size again; null if there is none.
  std::byte* take_block(const Device& device, BlockKind kind, size_t bytes);
  /// Has the thread close the mappings that are there, even while streams wait: they prevent other mappings.
  /// What is returned expires when they are closed; nothing, if there are none. Does not block.
  std::optional<std::weak_ptr<void>> close_mappings();

 private:
  struct Block {
    Device* device;
    BlockKind kind;
    Lending lending;
    std::byte* data;
    size_t bytes;
    std::shared_ptr<const Segment> segment = {};  // that the data lies in; null: a window, or GPU memory
  };
  struct Mapping {
    Device* device;
    DevicePointer base;
  };
  void start_thread() WEFT_REQUIRES(mutex_);
  void ring();
  void give_back();
  bool give_one_in_quiet() WEFT_EXCLUDES(quiet_mutex_, mutex_);
  bool close_one_too_many();
  std::optional<Mapping> take_mapping(size_t keep);
  void close(const Mapping& mapping);
  static void give(const Block& block);

  std::atomic<size_t> waiting_{0};  // streams and graphs
  std::atomic<size_t> items_{0};    // blocks and mappings
  std::atomic<uint32_t> rings_{0};  // wake the thread
  Mutex quiet_mutex_;               // held while something is given back because nobody waits

  Mutex mutex_;                                       // the innermost lock
  std::deque<Block> blocks_ WEFT_GUARDED_BY(mutex_);  // the oldest first
  std::deque<Mapping> mappings_ WEFT_GUARDED_BY(mutex_);
  bool closing_ WEFT_GUARDED_BY(mutex_) = false;             // the thread is about to close one
  std::shared_ptr<void> close_all_ WEFT_GUARDED_BY(mutex_);  // until all are closed; null: nobody has asked
  bool started_ WEFT_GUARDED_BY(mutex_) = false;
};

}  // namespace weft::device::cuda
