// A CUDA driver of our own on host memory, for tests on machines without a GPU: a library with the functions
// of libcuda.so.1 that Weft uses. Where CUDA is strict it is stricter:
//   * Device memory lies behind addresses that fault when a CPU touches them: whoever forgets a copy dies.
//   * Streams are threads. Each piece of work is done a little late, so that whoever does not wait is found
//   out.
//   * A kernel may touch device memory that it can reach, and pinned memory; anything else is an illegal
//   address.
//   * Fresh memory holds no zeros.
//   * A stream holds so much work and no more: a call that queues more waits for room, as CUDA's do.
// What it says nothing of: speed, and what a real device does with caches, ordering between devices, or
// faults.
//
// Environment (control.h has calls besides):
//   FAKE_CUDA_DEVICES   how many devices; 2
//   FAKE_CUDA_VERSION   cuDriverGetVersion's; 13000
//   FAKE_CUDA_MEMOPS    0: no stream memory operations
//   FAKE_CUDA_KERNELS   0: no module loads
//   FAKE_CUDA_GRAPH_MEMOPS 0: graphs cannot hold stream memory operations
//   FAKE_CUDA_IPC       0: memory cannot be shared
//   FAKE_CUDA_PEERS     0: no device reaches another one's memory, nor maps it
//   FAKE_CUDA_REMAPS    1: a peer's memory is mapped beside an old mapping of the same addresses, as the
//                       driver for CUDA 13.0 does; else that is refused
//   FAKE_CUDA_SYNC_FREE 1: what gives memory or mappings back waits for all streams, as a driver may; the
//                       process ends where one of them never comes
//   FAKE_CUDA_UNADDRESSED  this device has no addresses in common with the host; none
//   FAKE_CUDA_FLUSH     0: a network's writes cannot be flushed (GPUDirect)
//   FAKE_CUDA_DELAY_US  the longest delay of a piece of work; 20
//   FAKE_CUDA_CAPABILITY 10 × major + minor of every device; 90
//   FAKE_CUDA_MEMORY_MIB  what a device has; 16384
//   FAKE_CUDA_MULTIPROCESSORS  of a device; 4. Each holds one block of the kernels whose blocks wait for each
//   other
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cuda/fake_driver/control.h"
#include "cuda/fake_driver/graphs.h"
#include "device/cuda/driver.h"

namespace fake {

using namespace weft::device::cuda;

constexpr int kMostSharedBytesOfBlock = 97;  // an attribute that Weft does not ask for

constexpr size_t kMostQueued = 1024;  // pieces of work of a stream; CUDA's number is about as large

/// What was imported: whose, where the owner has it, and the owner's number of it.
struct Origin {
  pid_t pid = 0;
  uintptr_t address = 0;
  uint64_t id = 0;
};

/// A piece of device memory: where CUDA says it is, and where its bytes are.
struct Allocation {
  uintptr_t address = 0;
  size_t bytes = 0;
  std::byte* backing = nullptr;
  int fd = -1;
  int ordinal = 0;
  uint64_t id = 0;
  bool foreign = false;  // another process's
  Origin origin;         // then
  int opened = 1;        // then: how often
  ~Allocation();
};

struct Freed {
  size_t bytes;
  std::weak_ptr<Allocation> memory;  // expires when the last queued work that uses it is done
};

/// How much of each stream's work comes before; see races.h.
using Clock = std::map<const void*, uint64_t>;
/// When work was queued: what the host had seen by then, and the place among all that was queued. Without a
/// clock where races are not followed.
struct HostMoment {
  std::shared_ptr<const Clock> clock;
  uint64_t number = 0;
};
struct QueuedPiece {
  Piece run;
  HostMoment queued;
};

struct Pinned {
  size_t bytes;
  bool allocated;  // by cuMemHostAlloc
  uint64_t id;
};

}  // namespace fake

// The driver's opaque types.
namespace weft::device::cuda {
struct ContextHandle {
  int ordinal;
  std::atomic<int> asynchronous_error{0};
  std::set<int> reaches;  // devices
};
struct StreamHandle {
  int ordinal = 0;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<fake::QueuedPiece> work;
  uint64_t queued = 0, done = 0;
  std::shared_ptr<fake::Capture> capture;  // that is under way on it, and after which nodes it is
  std::vector<size_t> frontier;
  bool closing = false;
  std::atomic<bool> had_kernels{false};
  std::thread thread;

  void push(fake::Piece piece);
  void synchronize();
};
struct EventHandle {
  std::atomic<uint64_t> recorded{0};
  const std::shared_ptr<std::atomic<uint64_t>> reached = std::make_shared<std::atomic<uint64_t>>(0);
  using Time = std::chrono::steady_clock::time_point;
  const std::shared_ptr<std::atomic<Time>> reached_at = std::make_shared<std::atomic<Time>>();
  std::shared_ptr<fake::Capture> capture;  // that it was last recorded in
  std::vector<size_t> nodes;
  int ordinal = 0;
};
struct FunctionHandle {
  void (*run)(const void* arguments, int ordinal, uint64_t threads);
  size_t argument_bytes;
  /// In place of run: for a kernel whose blocks may wait for each other.
  fake::Piece (*start)(const void* arguments, int ordinal) = nullptr;
  /// In place of both: of a kernel that another library has added (control.h).
  const FakeCudaKernel* added = nullptr;
  unsigned shared_bytes = 48 << 10;  // that a launch may ask for
};
struct ModuleHandle {};
}  // namespace weft::device::cuda

namespace fake {

class World {
 public:
  static World& instance();

  int devices, version, unaddressed, multiprocessors, capability;
  size_t memory_bytes;  // of a device
  bool memops, graph_memops, kernels, ipc, peers, flushes, remaps, synchronizing_frees;
  unsigned delay_us;
  std::atomic<bool> initialized{false}, kernels_held{false};
  std::atomic<unsigned> largest_grid{0};
  std::atomic<uint64_t> until_left_out{0};  // waits for events, the last of which is left out; 0: none is

  bool leaves_out_wait();

  ContextHandle* context(int ordinal) { return contexts_[static_cast<size_t>(ordinal)].get(); }
  StreamHandle* default_stream(int ordinal);
  StreamHandle* add_stream(int ordinal);
  bool knows(StreamHandle* stream);

  // Memory.
  int allocate(size_t bytes, int ordinal, uintptr_t* address);
  size_t allocated_on(int ordinal);
  /// Maps what another process has allocated; once more, where it is mapped already. Refuses what overlaps
  /// with other memory of that process that is mapped: the owner must have freed that.
  int import(const Origin& origin, int fd, size_t bytes, int ordinal, uintptr_t* address);
  int free(uintptr_t address, bool foreign);
  std::shared_ptr<Allocation> find(uintptr_t address);
  bool find_pinned(uintptr_t address, uintptr_t* base, Pinned* pinned);
  bool was_freed(uintptr_t address);
  /// The address of freed memory of this length that no queued work uses, or 0. The caller owns it.
  uintptr_t take_freed(size_t bytes);
  void pin(void* memory, size_t bytes, bool allocated);
  int unpin(void* memory, bool allocated);
  bool is_held(StreamHandle* stream);

  /// Counts a call, and says what it shall fail with: 0 if with nothing.
  int enter(const char* function);
  void fail_after(const char* function, int calls, int error);
  void block(const char* function, bool blocked);
  uint64_t calls(const char* function);
  void pause();  // a little while
  /// Returns when every stream has done what is in it now, or after a time in which any test's work is done:
  /// false. `but_held`: not of streams that are held.
  bool wait_for_streams(bool but_held);
  /// Where frees synchronize: returns when every stream has done what is in it now.
  void synchronize_for(const char* function);

  std::mutex mutex;
  std::set<StreamHandle*> streams, held_streams;

 private:
  World();
  std::vector<std::unique_ptr<ContextHandle>> contexts_;
  std::vector<StreamHandle*> defaults_;
  std::map<uintptr_t, std::shared_ptr<Allocation>> allocations_;
  /// Addresses stay reserved when their memory is freed: no memory of the host appears there.
  std::map<uintptr_t, Freed> freed_;
  std::map<uintptr_t, Pinned> pinned_;
  uint64_t last_id_ = 0;
  struct Failure {
    int calls, error;
  };
  std::map<std::string, Failure> failures_;
  std::map<std::string, uint64_t> calls_;
  std::set<std::string> blocked_;
};

/// Where the bytes of [address, address + bytes) are for work of a device: device memory that it reaches, or
/// pinned memory; null for anything else.
std::byte* bytes_for_kernel(const void* address, size_t bytes, int ordinal);
/// The kernel of that name, or null.
FunctionHandle* kernel_named(const std::string& name);
FunctionHandle* plan_kernel_named(const std::string& name);
FunctionHandle* added_kernel_named(const std::string& name);

/// The device's work ends with CUDA_ERROR_ILLEGAL_ADDRESS.
void illegal_address(int ordinal);

}  // namespace fake
