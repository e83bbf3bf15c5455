// DeferredFree: memory and mappings that Weft has no more use for, until the driver can have them back. Calls
// that give back (cuMemFree, cuMemHostUnregister, cuIpcCloseMemHandle) may wait for everything that is queued
// on a device: a program's long kernel, or a stream that waits for an operation of Weft. So a thread of its
// own makes them, whose waiting holds up nothing of Weft's, and only while no stream waits for Weft anywhere
// in the process, and no graph is there that may begin to without a call of Weft. Until then blocks may be
// had again. Mappings cannot: more than kMostMappings are closed, the oldest first, whoever waits.
//
// Thread safety: every function. No lock is held over a call of CUDA, but for one that only stream_waits()
// takes: a stream that is about to wait for Weft does so after what is being given back in quiet.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "base/mutex.h"
#include "device/cuda/device.h"

namespace weft::device::cuda {

enum class BlockKind : uint8_t { host, device };

class DeferredFree {
 public:
  /// Whether a block may be had again before the driver has had it.
  enum class Lending : uint8_t { allowed, forbidden };
  static constexpr size_t kMostMappings = 64;

  static DeferredFree& instance();

  /// A stream is about to wait for Weft.
  void stream_waits();
  /// It has been let go. Waits for nothing.
  void stream_goes_on();
  /// The same for a graph that makes streams wait; its end takes no lock and calls nothing of CUDA, since the
  /// driver's own threads come here.
  void graph_begins();
  void graph_ends() { stream_goes_on(); }

  /// A block of a pool: device memory, or a pinned window.
  void add_block(Device& device, BlockKind kind, std::byte* block, size_t bytes,
                 Lending lending = Lending::allowed);
  /// A mapping of a peer's memory.
  void add_mapping(Device& device, DevicePointer base);
  /// A block of exactly so many bytes again; null if there is none.
  std::byte* take_block(const Device& device, BlockKind kind, size_t bytes);
  /// Closes the mappings now, on this thread, whoever waits: they are in the way of others.
  void close_mappings();

 private:
  struct Block {
    Device* device;
    BlockKind kind;
    Lending lending;
    std::byte* data;
    size_t bytes;
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

  Mutex mutex_;  // the innermost lock
  std::condition_variable_any closed_;
  std::deque<Block> blocks_ WEFT_GUARDED_BY(mutex_);  // the oldest first
  std::deque<Mapping> mappings_ WEFT_GUARDED_BY(mutex_);
  size_t closing_ WEFT_GUARDED_BY(mutex_) = 0;  // mappings that some thread is about to close
  bool started_ WEFT_GUARDED_BY(mutex_) = false;
};

}  // namespace weft::device::cuda
