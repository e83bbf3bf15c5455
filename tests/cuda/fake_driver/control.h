// What a test tells the fake driver beyond CUDA's interface. Looked up with dlsym, since the library that is
// tested loads the driver by itself.
#pragma once

#include <cstdint>

extern "C" {
/// `function` (without version suffix, "cuMemcpyAsync") fails once with `error`, after `calls` more good
/// calls.
void fake_cuda_fail_after(const char* function, int calls, int error);
/// How often a function was called; "pageable copy" counts copies from or to memory that was not pinned,
/// "stream with kernels" streams that a kernel was launched on.
uint64_t fake_cuda_calls(const char* function);
/// All calls of one thread (0), or of all threads that are named "weft-progress" (1), in two counts. `work`:
/// what entering a context takes (`entries`) is no part of it, nor are questions for an event that has not
/// been reached, of which chance says how many there are.
struct FakeCudaCalls {
  uint64_t work, entries;
};
FakeCudaCalls fake_cuda_calls_of(int progress_threads);
/// The device fails with an error that every later call returns, and its streams stop; 0: it works again.
void fake_cuda_break(int ordinal, int error);
/// Kernels stand still, and what follows them in their streams, until they are let go on.
void fake_cuda_hold_kernels(int held);
/// Calls of a function do not return until they are let go on.
void fake_cuda_block(const char* function, int blocked);
/// The most blocks that a kernel was launched with since the last question.
unsigned fake_cuda_largest_grid();
/// The file behind device memory, for a network that reaches it: where in it these bytes are. Its pages stay
/// while somebody maps it, whatever becomes of the memory. -1 for what is no device memory, or goes beyond
/// its allocation. The file is the driver's.
int fake_cuda_file_behind(const void* device, uint64_t bytes, uint64_t* offset);
/// Where the bytes of device memory are in this process, until it is freed: for what stands in for kernels.
/// NULL for what is no device memory.
void* fake_cuda_bytes_behind(const void* device);

// ---- For libraries that stand in for kernels of others

/// Memory that a piece of work uses.
struct FakeCudaAccess {
  const void* address;
  uint64_t bytes;
  int written;
};
/// A launch of a kernel that was added: `arguments` is a copy of the kernel's struct, in which the addresses
/// are those of the bytes behind device memory.
struct FakeCudaLaunch {
  const void* arguments;
  unsigned grid[3], block[3], shared_bytes;
};
/// A kernel of any module. `pointers` calls visit(data, address of the pointer, bytes, written) for each
/// pointer in `arguments`. `run` does a whole launch, on the thread of its stream.
struct FakeCudaKernel {
  const char* name;
  uint64_t argument_bytes;
  void (*pointers)(const FakeCudaKernel* kernel, void* arguments,
                   void (*visit)(void* data, void** pointer, uint64_t bytes, int written), void* data);
  void (*run)(const FakeCudaKernel* kernel, const FakeCudaLaunch* launch);
  const void* own;  // of whoever adds it
};
/// `kernel` stays as it is until the process ends.
void fake_cuda_add_kernel(const FakeCudaKernel* kernel);
/// Queues work(data, where the bytes of each access are) on a stream. Memory that the device does not reach
/// is an illegal address when the work's turn comes. Returns as cuLaunchKernel does.
int fake_cuda_submit(void* stream, const char* name, const FakeCudaAccess* accesses, int count,
                     void (*work)(void* data, void* const* bytes), void* data);
/// The work of a stream stands still until it is let go on.
void fake_cuda_hold_stream(void* stream, int held);

// ---- Races

/// The `number`th wait of a stream for an event from now on is left out, of all streams; 0: none is.
void fake_cuda_leave_out_wait(uint64_t number);

/// From now on (1) it is followed which work of streams comes after which, and what memory it uses.
void fake_cuda_follow_races(int on);
/// A sentence about the first two pieces of work that used the same memory, one of them writing, neither of
/// them after the other; "" if there were none. It is forgotten.
void fake_cuda_take_race(char* text, uint64_t bytes);
}
