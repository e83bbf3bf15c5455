// primitives.h on a CPU: each thread of a block is a fiber, and the functions of `emulated` are defined by
// the emulator of tests/loom/cuda_kernels/emulator, which is no part of the library. Included by primitives.h
// only.
//
// The emulator finds shared memory and targets of copies that are read too early: they are NaN until then. It
// finds lanes that call different warp operations, and threads that leave while others wait. It finds
// addresses outside of shared memory, bad alignment, and copies that nobody waits for. With the address
// sanitizer it finds all other bad addresses. With several seeds, which are orders of threads, it finds
// missing barriers. It cannot tell speed, bank conflicts, registers, the memory model, or how the GPU rounds.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#define LOOM_DEVICE inline
#define LOOM_KERNEL(name, Arguments, ...)                                                 \
  static void name(const Arguments& arguments);                                           \
  static const ::loom::cuda::emulated::Kernel name##_kernel =                             \
      ::loom::cuda::emulated::kernel_of<Arguments, name>(#name, __VA_ARGS__);             \
  static const ::loom::cuda::emulated::RegisteredKernel name##_registered(name##_kernel); \
  static void name(const Arguments& arguments)

namespace loom::cuda {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};

namespace emulated {

// ---- Kernels by name, for the fake driver

/// Is called with each pointer of a kernel's arguments and the bytes that the kernel may use there; it may
/// replace the pointer.
struct PointerVisitor {
  bool written = true;  // of the pointer that comes: whether the kernel may write there, or only reads
  virtual void operator()(void*& pointer, uint64_t bytes) = 0;

 protected:
  ~PointerVisitor() = default;
};

struct Kernel {
  const char* name;
  size_t argument_bytes;
  unsigned threads;                    // of a block, at most
  void (*run)(const void* arguments);  // what one thread does
  void (*each_pointer)(void* arguments, PointerVisitor& visit);
};

struct RegisteredKernel {
  explicit RegisteredKernel(const Kernel& kernel);
};

/// `Arguments` lists its pointers with their lengths in elements (device/cuda/kernel_arguments.h).
template <typename Arguments, void (*body)(const Arguments&)>
Kernel kernel_of(const char* name, unsigned threads, unsigned = 1) {
  static_assert(std::is_trivially_copyable_v<Arguments>);
  return {name, sizeof(Arguments), threads,
          [](const void* arguments) { body(*static_cast<const Arguments*>(arguments)); },
          [](void* bytes_of_arguments, PointerVisitor& visit) {
            Arguments& arguments = *static_cast<Arguments*>(bytes_of_arguments);
            arguments.pointers([&](auto*& pointer, int64_t elements) {
              if (pointer == nullptr) return;
              void* address = const_cast<void*>(static_cast<const void*>(pointer));
              visit.written =
                  !std::is_const_v<std::remove_pointer_t<std::remove_reference_t<decltype(pointer)>>>;
              visit(address, static_cast<uint64_t>(elements) * sizeof *pointer);
              pointer = static_cast<std::remove_reference_t<decltype(pointer)>>(address);
            });
          }};
}

// ---- The thread that runs

const Index& thread();
const Index& block();
const Index& grid();
unsigned threads();
std::byte* shared();

enum class Operation {
  barrier,
  warp_barrier,
  shuffle,
  ballot,
  load_matrices,
  load_transposed,
  bf16_product,
  fp16_product
};

/// Waits for all threads of the block.
void meet_block();
/// Waits for all lanes of the warp; then `together` is called once, with what each lane has handed over.
void meet_warp(Operation operation, void* registers, void (*together)(void* const (&lane)[kLanes]));
/// Ends the program, with a sentence, unless [p, p + bytes) is shared memory and aligned.
void check_shared(const void* p, size_t bytes, size_t alignment);
void check_aligned(const void* p, size_t alignment);

void copy_async(void* to, const void* from, bool valid);
void commit_copies();
void wait_for_copies(int but_the_last);

struct Matrices {
  uint32_t* r;
  const uint16_t* row;
};
struct Product {
  float* c;
  const uint32_t* a;
  uint32_t b[2];
};
void load_matrices(void* const (&lane)[kLanes]);
void load_transposed(void* const (&lane)[kLanes]);
void bf16_product(void* const (&lane)[kLanes]);
void fp16_product(void* const (&lane)[kLanes]);

template <typename X>
struct Shuffled {
  X x;
  int from;
};
template <typename X>
void shuffle_lanes(void* const (&lane)[kLanes]) {
  X x[kLanes];
  for (unsigned i = 0; i < kLanes; ++i) x[i] = static_cast<const Shuffled<X>*>(lane[i])->x;
  for (void* at : lane) {
    Shuffled<X>& to = *static_cast<Shuffled<X>*>(at);
    to.x = x[static_cast<unsigned>(to.from) % kLanes];
  }
}

}  // namespace emulated

inline Index thread_index() { return emulated::thread(); }
inline Index block_index() { return emulated::block(); }
inline Index grid_size() { return emulated::grid(); }
inline unsigned thread_count() { return emulated::threads(); }
inline std::byte* shared_memory() { return emulated::shared(); }

inline void barrier() { emulated::meet_block(); }
inline void warp_barrier() {
  emulated::meet_warp(emulated::Operation::warp_barrier, nullptr, [](void* const(&)[kLanes]) {});
}
template <typename X>
X shuffle(X x, int lane) {
  emulated::Shuffled<X> mine{x, lane};
  emulated::meet_warp(emulated::Operation::shuffle, &mine, emulated::shuffle_lanes<X>);
  return mine.x;
}
template <typename X>
X shuffle_xor(X x, int mask) {
  return shuffle(x, static_cast<int>(emulated::thread().x % kLanes) ^ mask);
}
inline uint32_t ballot(bool b) {
  uint32_t mine = b ? 1 : 0;
  emulated::meet_warp(emulated::Operation::ballot, &mine, [](void* const(&lane)[kLanes]) {
    uint32_t all = 0;
    for (unsigned i = 0; i < kLanes; ++i) all |= *static_cast<const uint32_t*>(lane[i]) << i;
    for (void* at : lane) *static_cast<uint32_t*>(at) = all;
  });
  return mine;
}

inline Words4 load16(const void* from) {
  emulated::check_aligned(from, 16);
  Words4 x;
  std::memcpy(&x, from, 16);
  return x;
}
inline void store16(void* to, const Words4& x) {
  emulated::check_aligned(to, 16);
  std::memcpy(to, &x, 16);
}

inline void load_matrices(uint32_t (&r)[4], const void* row) {
  emulated::check_shared(row, 16, 16);
  emulated::Matrices mine{r, static_cast<const uint16_t*>(row)};
  emulated::meet_warp(emulated::Operation::load_matrices, &mine, emulated::load_matrices);
}
inline void load_matrices_transposed(uint32_t (&r)[4], const void* row) {
  emulated::check_shared(row, 16, 16);
  emulated::Matrices mine{r, static_cast<const uint16_t*>(row)};
  emulated::meet_warp(emulated::Operation::load_transposed, &mine, emulated::load_transposed);
}
template <typename T>
void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  constexpr bool is_bf16 = std::is_same_v<T, bf16>;
  static_assert(is_bf16 || std::is_same_v<T, fp16>);
  emulated::Product mine{c, a, {b0, b1}};
  emulated::meet_warp(is_bf16 ? emulated::Operation::bf16_product : emulated::Operation::fp16_product, &mine,
                      is_bf16 ? emulated::bf16_product : emulated::fp16_product);
}

inline void copy_async(void* to, const void* from, bool valid) { emulated::copy_async(to, from, valid); }
inline void commit_copies() { emulated::commit_copies(); }
template <int n>
void wait_for_copies() {
  emulated::wait_for_copies(n);
}

inline float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }
inline float value_of(float x) { return x; }
inline float value_of(bf16 x) { return to_float(x); }
inline float value_of(fp16 x) { return to_float(x); }
template <typename T>
T rounded(float x) {
  if constexpr (std::is_same_v<T, float>) return x;
  else if constexpr (std::is_same_v<T, bf16>) return to_bf16(x);
  else return to_fp16(x);
}
template <typename T>
uint32_t pack(float low, float high) {
  return rounded<T>(low).bits | static_cast<uint32_t>(rounded<T>(high).bits) << 16;
}

inline float larger(float x, float y) { return std::fmax(x, y); }
inline float exp2_of(float x) { return std::exp2(x); }
inline float log2_of(float x) { return std::log2(x); }

}  // namespace loom::cuda
