// Device: a CUDA device as Weft uses it: its primary context, its abilities, and the kind of memory at an
// address. Work for a device is in queue.h, arithmetic in kernels.h, sharing memory with other processes in
// ipc.h.
//
// Thread safety: every function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/mutex.h"
#include "base/status.h"
#include "device/cuda/driver.h"

namespace weft::device::cuda {

class Device {
 public:
  /// The process's only Device of this ordinal. The first call opens it, and nothing closes it, since the
  /// program's streams may still refer to its flags. Errors: driver()'s, and invalid_argument for an ordinal
  /// that does not exist.
  static Result<Device*> open(int ordinal);
  /// The device of the calling thread's current context; 0 where it has none, as CUDA's runtime takes it.
  static Result<int> current();
  static Result<int> count();

  int ordinal() const { return ordinal_; }
  ContextHandle* context() const { return context_; }
  const Uuid& uuid() const { return uuid_; }
  /// Whether a stream can write flags and wait for them; if not, `why_no_memory_operations` says why.
  bool has_memory_operations() const { return why_no_memory_operations_.ok(); }
  const Status& why_no_memory_operations() const { return why_no_memory_operations_; }
  /// ok if a CUDA graph can hold such writes and waits, otherwise the reason. The first call tries it.
  Status can_be_captured();
  /// "CUDA device 0 (NVIDIA H100, compute capability 9.0)".
  const std::string& describe() const { return description_; }

  /// Lets kernels of this device work on memory of another device of this process. unsupported if the machine
  /// cannot.
  Status reach(int ordinal);

  /// ok if writes of a network interface into this device's memory (GPUDirect) can be made visible to work
  /// that is queued later. Errors: unsupported if the device does not order such writes, and the driver does
  /// not flush them.
  Status orders_network_writes() const;
  /// Whether work on this device sees them only after a flush.
  bool needs_network_flush() const { return network_order_ < kFlushToOwner; }
  /// Makes them visible, to every device of the process. Under a Scope of this device.
  Status flush_network_writes() const;

  /// Two words in pinned memory by which a stream and a CPU thread wait for each other. They are counters
  /// that only grow, so that a younger value satisfies a wait for an older one.
  struct alignas(64) Flags {
    uint32_t ready = 0;             // written by the stream when the operation may start
    alignas(64) uint32_t done = 0;  // written by the CPU; the stream waits for it
    alignas(64) uint32_t turn = 0;  // the value that both shall have next; the CPU's alone
    DevicePointer on_device = 0;    // where the device finds these flags

    DevicePointer address_of_ready() const { return on_device + offsetof(Flags, ready); }
    DevicePointer address_of_done() const { return on_device + offsetof(Flags, done); }
  };
  Result<Flags*> take_flags();
  /// Takes flags for reuse; does not call CUDA. The caller has seen `ready`: a stream that has yet to write
  /// it would disturb the next user.
  void give_flags(Flags* flags);

 private:
  Device() = default;
  Status open_context(int ordinal);
  Status probe_memory_operations();
  Status probe_captures();
  Status add_flags();

  int ordinal_ = 0;
  DeviceNumber number_ = 0;
  ContextHandle* context_ = nullptr;
  Uuid uuid_{};
  std::string description_;
  Status why_no_memory_operations_;
  int network_order_ = 0;  // whose reads a NIC's writes come before: a flush's scope, or 0
  bool flushes_network_writes_ = false;

  std::once_flag captures_probed_;
  Status why_no_captures_;
  Mutex flags_mutex_;  // held over no call of the driver: what a graph destroys gives flags back
  std::vector<Flags*> free_flags_ WEFT_GUARDED_BY(flags_mutex_);
  Mutex reached_mutex_;
  std::vector<int> reached_ WEFT_GUARDED_BY(reached_mutex_);
};

/// Makes a device's context current on the calling thread while it lives. Calls of the thread in between do
/// not disturb a graph capture elsewhere in the process. Inside a Scope of the same device another one calls
/// nothing. Nobody else changes the thread's context meanwhile.
class Scope {
 public:
  explicit Scope(const Device& device);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  const Device* const outer_;  // whose Scope the thread was in; null: none's
  int mode_ = kCaptureModeRelaxed;
  bool restores_mode_ = false, pops_ = false;
};

/// For a thread of Weft: the first context that a Scope makes current on it stays, and captures elsewhere do
/// not concern it from then on.
void keep_context_on_this_thread();

/// The memory at an address.
struct Place {
  enum class Kind : uint8_t { pageable, pinned, device, managed };
  Kind kind = Kind::pageable;
  int ordinal = -1;        // of device memory: which device's
  uint64_t buffer_id = 0;  // of device memory: never used twice in a process
  bool shareable = false;  // of device memory: CUDA IPC takes it
  uintptr_t base = 0;      // of device memory that is shareable: where its allocation starts
  size_t bytes = 0;        // … and how long it is
};
Result<Place> locate(const void* address);

/// Device memory as a file that other drivers take.
struct DmaBuf {
  UniqueFd file;
  uint64_t offset = 0;  // of the memory in it: the driver makes files of whole pages of the host
};
/// Makes the file of [address, address + bytes). Errors: unsupported (a driver older than CUDA 11.7),
/// unhandled_cuda_error.
Result<DmaBuf> make_dma_buf(const void* address, size_t bytes);

/// The memory at `address`. Fails if operations on `device` cannot use `bytes` bytes there, more than 0. The
/// sentence names the buffer, and says what would be right.
Result<Place> check_buffer(const Device& device, const char* name, const void* address, uint64_t bytes);

}  // namespace weft::device::cuda
