// PlanBlock: a thread block of a plan kernel, on a GPU and on a CPU. It has the memory operations that order,
// and the loops over the block's threads. plan_kernel.h is written in these primitives.
//
// On a GPU the loops are threads, and a wait polls. On a CPU they are plain loops, and a wait returns at
// once. There the caller tries again: a test gives each block its turn, or a thread of its own.
#pragma once

#include <cstdint>
#include <cstring>

#include "device/cuda/plan_program.h"
#include "device/cuda/reduce_range.h"

#if !defined(__CUDACC__)
#include <atomic>
#endif

#if defined(__CUDACC__)
#define WEFT_IN_BLOCK __device__  // code of a thread block, for a GPU only
#else
#define WEFT_IN_BLOCK
#endif

namespace weft::device::cuda {

/// 8 bytes of data and the stamps of their epoch, stored as two words that are each there as a whole.
struct Packet {
  uint64_t low, high;

  WEFT_ALWAYS_INLINE static Packet of(uint64_t data, uint32_t stamp) {
    return {uint64_t{stamp} << 32 | (data & 0xffffffff), uint64_t{stamp} << 32 | data >> 32};
  }
  WEFT_ALWAYS_INLINE bool has(uint32_t stamp) const { return low >> 32 == stamp && high >> 32 == stamp; }
  WEFT_ALWAYS_INLINE uint64_t data() const { return (low & 0xffffffff) | high << 32; }
};
/// Never 0, which fresh slots hold.
WEFT_ALWAYS_INLINE uint32_t stamp_of(uint64_t epoch) { return static_cast<uint32_t>(epoch % 0xffffffff) + 1; }

#if defined(__CUDACC__)

/// A thread block of a GPU. Every thread has its own copy, with the same values.
class PlanBlock {
 public:
  static constexpr uint32_t kPollsBetweenLooks = 4096;

  __device__ PlanBlock(uint32_t number, MeanArguments& arguments)
      : number_(number), began_(now()), arguments_(arguments) {}

  __device__ static uint64_t load_acquire(const uint64_t* word) {
    uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
  }
  __device__ static uint32_t load_acquire(const uint32_t* word) {
    uint32_t value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
  }
  __device__ static uint64_t load_relaxed(const uint64_t* word) {
    uint64_t value;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
  }
  __device__ static void store_release(uint64_t* word, uint64_t value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
  }
  __device__ static void store_release(uint32_t* word, uint32_t value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
  }
  __device__ static uint32_t add(uint32_t* word, uint32_t more) {
    uint32_t old;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
                 : "=r"(old)
                 : "l"(word), "r"(more)
                 : "memory");
    return old;
  }
  /// Orders what a thread has seen and done before against its later relaxed stores and loads.
  __device__ static void fence() { __threadfence_system(); }
  /// Stores one word and then loads another: of two who do so with the words exchanged, one sees the other's
  /// store.
  __device__ static uint32_t store_then_load(uint64_t* stored, uint64_t value, const uint32_t* loaded) {
    store_fenced(stored, value);
    fence();
    return load_acquire(loaded);
  }
  /// After fence(): a release, without a fence for each word.
  __device__ static void store_fenced(uint64_t* word, uint64_t value) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
  }
  __device__ static void store_packet(Packet* to, const Packet& packet, bool) {
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(packet.low), "l"(packet.high)
                 : "memory");
  }
  __device__ static Packet load_packet(const Packet* from, bool) {
    Packet packet;
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(packet.low), "=l"(packet.high)
                 : "l"(from)
                 : "memory");
    return packet;
  }

  /// Does `work(thread, threads)` in every thread. What the block has done before is visible to all of them
  /// afterwards.
  template <typename Work>
  __device__ void each(Work work) {
    work(threadIdx.x, blockDim.x);
    __syncthreads();
  }
  /// Does `work` in one thread, after what all have done before.
  template <typename Work>
  __device__ void once(Work work) {
    if (threadIdx.x == 0) work();
    __syncthreads();
  }
  /// What one thread finds, in all of them.
  template <typename Find>
  __device__ bool any(Find find) {
    return __syncthreads_or(threadIdx.x == 0 && find());
  }
  /// Tries each of `count` until it succeeds. False if the block has to leave: should_leave() was true.
  template <typename Try, typename Leave>
  __device__ bool until(uint32_t count, Try succeeds, Leave should_leave) {
    bool leaves = false;
    for (uint32_t i = threadIdx.x; i < count && !leaves; i += blockDim.x)
      for (uint32_t polls = 1; !succeeds(i) && !leaves; ++polls)
        leaves = polls % kPollsBetweenLooks == 0 && should_leave();
    if (__syncthreads_or(leaves)) stopped = true;
    return !stopped;
  }
  __device__ static uint64_t now() {
    uint64_t ns;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
    return ns;
  }
  __device__ uint64_t waited_ns() const { return now() - began_; }
  __device__ uint32_t number() const { return number_; }
  /// Room for what a reduction is told, which all threads share.
  __device__ MeanArguments& arguments() { return arguments_; }
  /// Where a buffer is that a peer exposes in one of its spaces.
  __device__ static char* exposed(uint32_t, uint32_t, uint64_t address) {
    return reinterpret_cast<char*>(address);
  }

  // Where it is.
  uint64_t epoch = 0;    // 0: it has not begun
  uint32_t at = 0;       // position in PlanProgram::step
  uint32_t met = 0;      // barriers behind it
  bool stopped = false;  // it was told to leave, or has waited too long

 private:
  const uint32_t number_;
  const uint64_t began_;
  MeanArguments& arguments_;
};

#else

/// Where a device finds the memory that peers expose to it.
class PlanReach {
 public:
  virtual ~PlanReach() = default;
  virtual char* find(uint32_t rank, uint32_t space, uint64_t address) = 0;
};

/// A thread block on a CPU, which goes on from where it is at every turn.
class PlanBlock {
 public:
  static constexpr uint32_t kPollsBetweenLooks = 4, kThreads = 3;

  /// `clock` is in ns.
  PlanBlock(uint32_t number, uint64_t (*clock)()) : number_(number), clock_(clock), began_(clock()) {}

  template <typename Word>
  static Word load_acquire(const Word* word) {
    return std::atomic_ref(*const_cast<Word*>(word)).load(std::memory_order_acquire);
  }
  static uint64_t load_relaxed(const uint64_t* word) {
    return std::atomic_ref(*const_cast<uint64_t*>(word)).load(std::memory_order_relaxed);
  }
  template <typename Word>
  static void store_release(Word* word, Word value) {
    std::atomic_ref(*word).store(value, std::memory_order_release);
  }
  static uint32_t add(uint32_t* word, uint32_t more) {
    return std::atomic_ref(*word).fetch_add(more, std::memory_order_acq_rel);
  }
  static void fence() {}  // a fence's loads and stores acquire and release by themselves
  static void store_fenced(uint64_t* word, uint64_t value) { store_release(word, value); }
  static uint32_t store_then_load(uint64_t* stored, uint64_t value, const uint32_t* loaded) {
    std::atomic_ref(*stored).store(value);
    return std::atomic_ref(*const_cast<uint32_t*>(loaded)).load();
  }
  static void store_packet(Packet* to, const Packet& packet, bool ordered) {
    const auto order = ordered ? std::memory_order_release : std::memory_order_relaxed;
    std::atomic_ref(to->low).store(packet.low, order);
    std::atomic_ref(to->high).store(packet.high, order);
  }
  static Packet load_packet(const Packet* from, bool ordered) {
    const auto order = ordered ? std::memory_order_acquire : std::memory_order_relaxed;
    Packet* const packet = const_cast<Packet*>(from);
    return {std::atomic_ref(packet->low).load(order), std::atomic_ref(packet->high).load(order)};
  }

  template <typename Work>
  void each(Work work) {
    for (uint32_t thread = 0; thread < kThreads; ++thread) work(thread, kThreads);
  }
  template <typename Work>
  void once(Work work) {
    work();
  }
  template <typename Find>
  bool any(Find find) {
    return find();
  }
  /// Tries each of `count`. False if one does not succeed yet, or the block has to leave.
  template <typename Try, typename Leave>
  bool until(uint32_t count, Try succeeds, Leave should_leave) {
    for (uint32_t i = 0; i < count; ++i) {
      if (succeeds(i)) continue;
      if (++polls_ % kPollsBetweenLooks == 0 && should_leave()) stopped = true;
      return false;
    }
    return true;
  }
  uint64_t waited_ns() const { return clock_() - began_; }
  uint32_t number() const { return number_; }
  MeanArguments& arguments() { return arguments_; }
  char* exposed(uint32_t rank, uint32_t space, uint64_t address) const {
    return reach ? reach->find(rank, space, address) : reinterpret_cast<char*>(address);
  }

  uint64_t epoch = 0;
  uint32_t at = 0, met = 0;
  bool stopped = false;
  PlanReach* reach = nullptr;  // null: addresses are those of the process

 private:
  uint32_t number_;
  uint64_t (*clock_)();
  uint64_t began_;
  uint32_t polls_ = 0;
  MeanArguments arguments_{};
};

#endif

}  // namespace weft::device::cuda
