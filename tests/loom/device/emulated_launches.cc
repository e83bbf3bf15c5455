// A launch on the fake driver is a run of the emulator on the bytes behind device memory.
#include "loom/device/emulated_launches.h"

#include <atomic>
#include <cstdlib>
#include <deque>

#include "cuda_kernels/emulator/emulator.h"

namespace loom::testing {
namespace {

using cuda::emulated::Kernel;
using cuda::emulated::PointerVisitor;

std::atomic<unsigned> seed_of_runs{0};

struct Visitor final : PointerVisitor {
  void (*visit)(void* data, void** pointer, uint64_t bytes, int written);
  void* data;
  void operator()(void*& pointer, uint64_t bytes) override { visit(data, &pointer, bytes, written); }
};

void visit_pointers(const FakeCudaKernel* kernel, void* arguments,
                    void (*visit)(void*, void**, uint64_t, int), void* data) {
  Visitor visitor;
  visitor.visit = visit;
  visitor.data = data;
  static_cast<const Kernel*>(kernel->own)->each_pointer(arguments, visitor);
}

void run(const FakeCudaKernel* kernel, const FakeCudaLaunch* launch) {
  const auto& own = *static_cast<const Kernel*>(kernel->own);
  if (launch->block[0] > own.threads || launch->block[1] * launch->block[2] != 1) std::abort();
  cuda::emulated::run(
      {{launch->grid[0], launch->grid[1], launch->grid[2]}, launch->block[0], launch->shared_bytes},
      seed_of_runs.load(), own, launch->arguments);
}

}  // namespace

void add_emulated_kernels_by(void (*add)(const FakeCudaKernel* kernel), unsigned seed) {
  seed_of_runs.store(seed);
  static std::deque<FakeCudaKernel> kernels;  // which the fake driver refers to
  static const bool once = [add] {
    for (const Kernel* kernel : cuda::emulated::all_kernels()) {
      kernels.push_back({kernel->name, kernel->argument_bytes, visit_pointers, run, kernel});
      add(&kernels.back());
    }
    return true;
  }();
  (void)once;
}

}  // namespace loom::testing

// What the fake driver calls of a library that FAKE_CUDA_KERNEL_LIBRARY names.
extern "C" [[gnu::visibility("default")]] void fake_cuda_add_kernels(void (*add)(const FakeCudaKernel*)) {
  loom::testing::add_emulated_kernels_by(add, 0);
}
