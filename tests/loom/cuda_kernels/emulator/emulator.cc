#include "cuda_kernels/emulator/emulator.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <numeric>
#include <random>

#include "cuda_kernels/emulator/fiber.h"

namespace loom::cuda::emulated {
namespace {

const char* name_of(Operation operation) {
  static constexpr const char* kNames[] = {"barrier",        "warp_barrier",  "shuffle",
                                           "ballot",         "load_matrices", "load_matrices_transposed",
                                           "multiply<bf16>", "multiply<fp16>"};
  return kNames[static_cast<int>(operation)];
}

struct Copy {
  std::byte* to;
  const std::byte* from;  // null: zeros
  int group;
};

enum class State { ready, at_warp, at_barrier, ended };

struct Thread {
  Index index;
  State state = State::ready;
  Operation operation = Operation::barrier;  // where it waits
  void* registers = nullptr;                 // what it hands over there
  void (*together)(void* const (&)[kLanes]) = nullptr;
  std::vector<Copy> copies;  // that it has not waited for
  int group = 0;             // that its next copy belongs to
};

/// The threads of one block, and the block that runs.
struct Block {
  LaunchShape shape;
  Index grid, index;
  std::vector<Thread> thread;
  std::byte* shared;
  const std::function<void()>* body = nullptr;
  unsigned waiting = 0;  // warps at the barrier

  /// As long as was asked for, to the byte: the address sanitizer finds what is behind the end.
  explicit Block(const LaunchShape& s)
      : shape(s),
        grid{s.grid[0], s.grid[1], s.grid[2]},
        thread(s.threads),
        shared(static_cast<std::byte*>(::operator new(s.shared_bytes, kAlignment))) {
    for (unsigned i = 0; i < s.threads; ++i) thread[i].index.x = i;
  }
  Block(const Block&) = delete;
  ~Block() { ::operator delete(shared, kAlignment); }

  static constexpr std::align_val_t kAlignment{128};
};

thread_local Block* current = nullptr;
thread_local Thread* running = nullptr;

[[noreturn]] __attribute__((format(printf, 1, 2))) void refuse(const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  std::fprintf(stderr, "CUDA emulator: ");
  std::vfprintf(stderr, format, arguments);  // NOLINT: va_list is initialized
  va_end(arguments);
  if (running != nullptr)
    std::fprintf(stderr, " (thread %u of block %u, %u, %u)", running->index.x, current->index.x,
                 current->index.y, current->index.z);
  std::fprintf(stderr, "\n");
  std::abort();
}

/// What every fiber does: a thread's work, again for each block.
void fiber_loop() {
  for (;;) {
    (*current->body)();
    if (!running->copies.empty()) refuse("a thread ends with copies that it has not waited for");
    running->state = State::ended;
    Fiber::yield();
  }
}

/// Fibers are kept: a block takes as many as it has threads.
std::vector<std::unique_ptr<Fiber>>& fibers() {
  thread_local std::vector<std::unique_ptr<Fiber>> kept;
  return kept;
}

/// Runs a thread until it waits or ends.
void resume(Block& block, unsigned thread) {
  running = &block.thread[thread];
  fibers()[thread]->resume();
  running = nullptr;
}

/// Runs each lane of a warp up to its next operation, in this order, and then the operation. False if the
/// warp waits for others, or has ended.
bool advance(Block& block, unsigned warp, const std::vector<unsigned>& order) {
  Thread* const lane = &block.thread[warp * kLanes];
  if (lane[0].state != State::ready) return false;
  for (const unsigned i : order) resume(block, warp * kLanes + i);
  const auto differs = [&](const Thread& other) {
    return other.state != lane[0].state ||
           (other.state != State::ended &&
            (other.operation != lane[0].operation || other.together != lane[0].together));
  };
  if (Thread* const other = std::find_if(lane, lane + kLanes, differs); other != lane + kLanes) {
    const auto where = [](const Thread& t) {
      return t.state == State::ended ? "its end" : name_of(t.operation);
    };
    refuse("divergence: thread %u is at %s and thread %u at %s", lane[0].index.x, where(lane[0]),
           other->index.x, where(*other));
  }
  if (lane[0].state == State::ended) return false;
  if (lane[0].state == State::at_barrier) {
    ++block.waiting;
    return false;
  }
  void* registers[kLanes];
  for (unsigned i = 0; i < kLanes; ++i) registers[i] = lane[i].registers, lane[i].state = State::ready;
  lane[0].together(registers);
  return true;
}

/// The order in which warps and lanes run.
class Order {
 public:
  Order(unsigned seed, unsigned warps)
      : seed_(seed), warps_(warps), random_(seed * 7919 + 1), lanes_(kLanes) {
    std::iota(lanes_.begin(), lanes_.end(), 0u);
    if (seed % 2 == 1) std::reverse(lanes_.begin(), lanes_.end());
  }
  /// The next warp to try, after `last`, which went on if `again`.
  unsigned next(unsigned last, bool again) {
    switch (std::min(seed_, kOrders - 1)) {
      case 0: return again ? last : (last + 1) % warps_;
      case 1: return again ? last : (last + warps_ - 1) % warps_;
      case 2: return (last + 1) % warps_;
      default: return static_cast<unsigned>(random_() % warps_);
    }
  }
  const std::vector<unsigned>& lanes() {
    if (seed_ >= kOrders - 1) std::shuffle(lanes_.begin(), lanes_.end(), random_);
    return lanes_;
  }

 private:
  unsigned seed_, warps_;
  std::minstd_rand random_;
  std::vector<unsigned> lanes_;
};

void run_block(Block& block, Order& order) {
  const unsigned warps = block.shape.threads / kLanes;
  std::memset(block.shared, 0xff, block.shape.shared_bytes);  // NaN in every type
  for (Thread& t : block.thread) t.state = State::ready, t.group = 0;
  block.waiting = 0;
  unsigned warp = order.next(0, true);
  for (;;) {
    const bool went_on = advance(block, warp, order.lanes());
    const auto stands = [&](unsigned w) { return block.thread[w * kLanes].state != State::ready; };
    unsigned standing = 0, ended = 0;
    for (unsigned w = 0; w < warps; ++w) {
      standing += stands(w);
      ended += block.thread[w * kLanes].state == State::ended;
    }
    if (ended == warps) return;
    if (standing == warps) {
      if (ended > 0) refuse("%u warps have ended, and %u wait for them at a barrier", ended, block.waiting);
      for (Thread& t : block.thread) t.state = State::ready;
      block.waiting = 0;
    }
    warp = order.next(warp, went_on);
  }
}

std::vector<const Kernel*>& registry() {
  static std::vector<const Kernel*> kernels;
  return kernels;
}

float to_float_of(uint32_t bits, bool is_bf16) {
  const uint16_t element = static_cast<uint16_t>(bits);
  return is_bf16 ? loom::to_float(bf16{element}) : loom::to_float(fp16{element});
}

template <bool is_bf16>
void product(void* const (&lane)[kLanes]) {
  float a[16][16], b[16][8];
  for (int l = 0; l < 32; ++l) {
    const Product& p = *static_cast<const Product*>(lane[l]);
    const int g = l / 4, t = l % 4;
    for (int i = 0; i < 4; ++i)
      for (int k = 0; k < 2; ++k)
        a[g + i % 2 * 8][2 * t + k + i / 2 * 8] = to_float_of(p.a[i] >> (16 * k), is_bf16);
    for (int i = 0; i < 2; ++i)
      for (int k = 0; k < 2; ++k) b[2 * t + k + i * 8][g] = to_float_of(p.b[i] >> (16 * k), is_bf16);
  }
  float c[16][8] = {};
  for (int row = 0; row < 16; ++row)
    for (int k = 0; k < 16; ++k)
      for (int column = 0; column < 8; ++column) c[row][column] += a[row][k] * b[k][column];
  for (int l = 0; l < 32; ++l) {
    const Product& p = *static_cast<const Product*>(lane[l]);
    for (int i = 0; i < 4; ++i) p.c[i] += c[l / 4 + i / 2 * 8][l % 4 * 2 + i % 2];
  }
}

template <bool transposed>
void matrices(void* const (&lane)[kLanes]) {
  for (int l = 0; l < 32; ++l)
    for (int m = 0; m < 4; ++m) {
      uint32_t element[2];
      for (int k = 0; k < 2; ++k) {
        const int row = transposed ? l % 4 * 2 + k : l / 4, column = transposed ? l / 4 : l % 4 * 2 + k;
        element[k] = static_cast<const Matrices*>(lane[m * 8 + row])->row[column];
      }
      static_cast<const Matrices*>(lane[l])->r[m] = element[0] | element[1] << 16;
    }
}

}  // namespace

// ---- What primitives_host.h asks for

const Index& thread() { return running->index; }
const Index& block() { return current->index; }
const Index& grid() { return current->grid; }
unsigned threads() { return current->shape.threads; }
std::byte* shared() { return current->shared; }

void meet_block() {
  running->state = State::at_barrier;
  running->operation = Operation::barrier;
  Fiber::yield();
}

void meet_warp(Operation operation, void* registers, void (*together)(void* const (&)[kLanes])) {
  running->state = State::at_warp;
  running->operation = operation;
  running->registers = registers;
  running->together = together;
  Fiber::yield();
}

void check_aligned(const void* p, size_t alignment) {
  if (reinterpret_cast<uintptr_t>(p) % alignment != 0) refuse("%p is not aligned to %zu", p, alignment);
}
void check_shared(const void* p, size_t bytes, size_t alignment) {
  check_aligned(p, alignment);
  const auto* const at = static_cast<const std::byte*>(p);
  if (at < current->shared || at + bytes > current->shared + current->shape.shared_bytes)
    refuse("byte %td is outside of the %zu of shared memory", at - current->shared,
           current->shape.shared_bytes);
}

void copy_async(void* to, const void* from, bool valid) {
  check_shared(to, 16, 16);
  if (valid) check_aligned(from, 16);
  std::memset(to, 0xff, 16);
  running->copies.push_back(
      {static_cast<std::byte*>(to), valid ? static_cast<const std::byte*>(from) : nullptr, running->group});
}
void commit_copies() { ++running->group; }
void wait_for_copies(int but_the_last) {
  std::erase_if(running->copies, [&](const Copy& copy) {
    if (copy.group >= running->group - but_the_last) return false;
    if (copy.from != nullptr) std::memcpy(copy.to, copy.from, 16);
    else std::memset(copy.to, 0, 16);
    return true;
  });
}

void load_matrices(void* const (&lane)[kLanes]) { matrices<false>(lane); }
void load_transposed(void* const (&lane)[kLanes]) { matrices<true>(lane); }
void bf16_product(void* const (&lane)[kLanes]) { product<true>(lane); }
void fp16_product(void* const (&lane)[kLanes]) { product<false>(lane); }

RegisteredKernel::RegisteredKernel(const Kernel& kernel) { registry().push_back(&kernel); }

// ---- What emulator.h offers

std::vector<const Kernel*> all_kernels() { return registry(); }

const Kernel* find_kernel(std::string_view name) {
  const auto& kernels = registry();
  const auto found =
      std::find_if(kernels.begin(), kernels.end(), [&](const Kernel* k) { return name == k->name; });
  return found == kernels.end() ? nullptr : *found;
}

void run(const LaunchShape& shape, unsigned seed, const std::function<void()>& body) {
  if (shape.threads == 0 || shape.threads % kLanes != 0 || shape.threads > 1024)
    refuse("a block of %u threads", shape.threads);
  while (fibers().size() < shape.threads) fibers().push_back(std::make_unique<Fiber>(fiber_loop));
  Block block(shape);
  block.body = &body;
  current = &block;
  Order order(seed, shape.threads / kLanes);
  for (unsigned z = 0; z < shape.grid[2]; ++z)
    for (unsigned y = 0; y < shape.grid[1]; ++y)
      for (unsigned x = 0; x < shape.grid[0]; ++x) {
        block.index = {x, y, z};
        run_block(block, order);
      }
  current = nullptr;
}

void run(const LaunchShape& shape, unsigned seed, const Kernel& kernel, const void* arguments) {
  if (shape.threads > kernel.threads)
    refuse("%s is compiled for %u threads, and launched with %u", kernel.name, kernel.threads, shape.threads);
  run(shape, seed, [&] { kernel.run(arguments); });
}

void run_on_copies(const LaunchShape& shape, unsigned seed, const Kernel& kernel, const void* arguments) {
  struct Buffer {
    void* original;
    std::unique_ptr<std::byte[]> copy;
    uint64_t bytes;
  };
  struct Copies final : PointerVisitor {
    std::vector<Buffer> buffers;
    void operator()(void*& pointer, uint64_t bytes) override {
      buffers.push_back({pointer, std::make_unique<std::byte[]>(bytes), bytes});
      std::memcpy(buffers.back().copy.get(), pointer, bytes);
      pointer = buffers.back().copy.get();
    }
  } copies;
  std::vector<std::byte> own(kernel.argument_bytes);
  std::memcpy(own.data(), arguments, own.size());
  kernel.each_pointer(own.data(), copies);
  run(shape, seed, kernel, own.data());
  for (const Buffer& buffer : copies.buffers)
    if (std::memcmp(buffer.original, buffer.copy.get(), buffer.bytes) != 0)
      std::memcpy(buffer.original, buffer.copy.get(), buffer.bytes);
}

}  // namespace loom::cuda::emulated
