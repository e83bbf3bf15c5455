// The fake driver's modules and launches, and kernels that other libraries add.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cuda/fake_driver/control.h"
#include "cuda/fake_driver/entry.h"
#include "cuda/fake_driver/races.h"

using namespace fake;

namespace {

struct Extent {
  unsigned x, y, z;
  uint64_t product() const { return uint64_t{x} * y * z; }
};

struct AddedKernels {
  std::mutex mutex;
  std::map<std::string, FunctionHandle> functions;
  static AddedKernels& instance() {
    static AddedKernels* const kernels = new AddedKernels;
    return *kernels;
  }
};

/// A program that adds no kernels may name a library that does: FAKE_CUDA_KERNEL_LIBRARY, with a function
/// fake_cuda_add_kernels(fake_cuda_add_kernel).
void load_kernel_library() {
  static std::once_flag once;
  std::call_once(once, [] {
    const char* const path = std::getenv("FAKE_CUDA_KERNEL_LIBRARY");
    if (path == nullptr) return;
    void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void* const function = library != nullptr ? dlsym(library, "fake_cuda_add_kernels") : nullptr;
    if (function == nullptr) {
      std::fprintf(stderr, "fake driver: %s\n", dlerror());
      std::abort();
    }
    reinterpret_cast<void (*)(decltype(&fake_cuda_add_kernel))>(function)(fake_cuda_add_kernel);
  });
}

/// Calls visit(pointer, bytes, written) for each pointer of a kernel's arguments.
template <typename Visit>
void for_pointers(const FakeCudaKernel& kernel, void* arguments, Visit visit) {
  kernel.pointers(
      &kernel, arguments,
      [](void* data, void** pointer, uint64_t bytes, int written) {
        (*static_cast<Visit*>(data))(*pointer, bytes, written != 0);
      },
      &visit);
}

int launch_added(StreamHandle* stream, const FakeCudaKernel& kernel, std::vector<uint64_t> arguments,
                 Extent grid, Extent block, unsigned shared_bytes) {
  std::vector<Access> accesses;
  for_pointers(kernel, arguments.data(), [&](void*& pointer, uint64_t bytes, bool written) {
    accesses.push_back({reinterpret_cast<uintptr_t>(pointer), bytes, written});
  });
  const int ordinal = stream->ordinal;
  return submit(stream, Piece([=, &kernel] {
                  if (World::instance().kernels_held.load()) return false;
                  note_accesses(std::string("kernel ") + kernel.name, accesses);
                  std::vector<uint64_t> own = arguments;
                  bool reached = true;
                  for_pointers(kernel, own.data(), [&](void*& pointer, uint64_t bytes, bool) {
                    if (bytes == 0) return;
                    pointer = bytes_for_kernel(pointer, bytes, ordinal);
                    reached = reached && pointer;
                  });
                  const FakeCudaLaunch launch{
                      own.data(), {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared_bytes};
                  if (reached) kernel.run(&kernel, &launch);
                  else illegal_address(ordinal);
                  return true;
                }));
}

}  // namespace

namespace fake {

FunctionHandle* added_kernel_named(const std::string& name) {
  AddedKernels& kernels = AddedKernels::instance();
  const std::lock_guard guard(kernels.mutex);
  const auto found = kernels.functions.find(name);
  return found == kernels.functions.end() ? nullptr : &found->second;
}

}  // namespace fake

// ---- Modules

FAKE_API int cuModuleLoadData(ModuleHandle** module, const void* image) {
  ENTER(cuModuleLoadData);
  NEED_NO_CAPTURE();
  NEED_CONTEXT();
  constexpr uint32_t kFatBinary = 0xba55ed50;
  uint32_t magic;
  std::memcpy(&magic, image, sizeof magic);
  if (magic != kFatBinary) return kInvalidImage;
  if (!World::instance().kernels) return kNoBinaryForGpu;
  load_kernel_library();
  static ModuleHandle loaded;
  *module = &loaded;
  return kSuccess;
}
FAKE_API int cuModuleUnload(ModuleHandle* module) {
  ENTER(cuModuleUnload);
  return module ? kSuccess : kInvalidHandle;
}
FAKE_API int cuModuleGetLoadingMode(int* mode) {
  ENTER(cuModuleGetLoadingMode);
  const char* const asked = std::getenv("CUDA_MODULE_LOADING");
  *mode = asked && std::string_view(asked) == "EAGER" ? kEagerLoading : kLazyLoading;
  return kSuccess;
}
FAKE_API int cuModuleGetFunction(FunctionHandle** function, ModuleHandle*, const char* name) {
  ENTER(cuModuleGetFunction);
  *function = kernel_named(name);
  return *function ? kSuccess : kNotFound;
}
FAKE_API int cuFuncSetAttribute(FunctionHandle* function, int attribute, int value) {
  ENTER(cuFuncSetAttribute);
  constexpr int kMaxDynamicSharedBytes = 8, kMost = 227 << 10;
  if (attribute != kMaxDynamicSharedBytes || value < 0 || value > kMost) return kInvalidValue;
  function->shared_bytes = static_cast<unsigned>(value);
  return kSuccess;
}

// ---- Launches

FAKE_API int cuLaunchKernel(FunctionHandle* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                            unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                            StreamHandle* handle, void** parameters, void** extra) {
  ENTER(cuLaunchKernel);
  NEED_CONTEXT();
  StreamHandle* const stream = resolve(handle);
  if (!stream) return kInvalidHandle;
  if (!stream->had_kernels.exchange(true)) (void)World::instance().enter("stream with kernels");
  const Extent grid{grid_x, grid_y, grid_z}, block{block_x, block_y, block_z};
  constexpr unsigned kMostOfGrid = 65535;  // in y and z
  if (grid.product() == 0 || grid_y > kMostOfGrid || grid_z > kMostOfGrid || block.product() == 0 ||
      block.product() > 1024 || block_z > 64 || shared_bytes > function->shared_bytes || extra)
    return kInvalidValue;
  if (!function->added && (grid_y * grid_z * block_y * block_z != 1)) return kInvalidValue;
  const auto* first = static_cast<const char*>(parameters[0]);
  const size_t bytes = std::min<size_t>(function->argument_bytes, 4096);  // CUDA takes no more
  std::vector<uint64_t> arguments((bytes + 7) / 8);
  std::memcpy(arguments.data(), first, bytes);
  const uint64_t threads = uint64_t{grid_x} * block_x;
  const int ordinal = context->ordinal;
  std::atomic<unsigned>& largest = World::instance().largest_grid;
  for (unsigned known = largest.load(); known < grid_x && !largest.compare_exchange_weak(known, grid_x);) {
  }
  if (function->added)
    return launch_added(stream, *function->added, std::move(arguments), grid, block, shared_bytes);
  if (function->start) return submit(stream, function->start(arguments.data(), ordinal));
  return submit(stream, Piece([=] {
                  if (World::instance().kernels_held.load()) return false;
                  function->run(arguments.data(), ordinal, threads);
                  return true;
                }));
}

// ---- Control

FAKE_API void fake_cuda_add_kernel(const FakeCudaKernel* kernel) {
  AddedKernels& kernels = AddedKernels::instance();
  const std::lock_guard guard(kernels.mutex);
  FunctionHandle function{};
  function.argument_bytes = kernel->argument_bytes;
  function.added = kernel;
  kernels.functions.insert_or_assign(kernel->name, function);
}
FAKE_API int fake_cuda_submit(void* handle, const char* name, const FakeCudaAccess* accesses, int count,
                              void (*work)(void* data, void* const* bytes), void* data) {
  NEED_CONTEXT();
  StreamHandle* const stream = resolve(static_cast<StreamHandle*>(handle));
  if (!stream) return kInvalidHandle;
  std::vector<Access> noted;
  for (int i = 0; i < count; ++i)
    noted.push_back(
        {reinterpret_cast<uintptr_t>(accesses[i].address), accesses[i].bytes, accesses[i].written != 0});
  const int ordinal = stream->ordinal;
  return submit(stream, [=, name = std::string(name)] {
    note_accesses(name, noted);
    std::vector<void*> bytes;
    for (const Access& access : noted) {
      bytes.push_back(bytes_for_kernel(reinterpret_cast<void*>(static_cast<uintptr_t>(access.address)),
                                       access.bytes, ordinal));
      if (!bytes.back()) return illegal_address(ordinal);
    }
    work(data, bytes.data());
  });
}
FAKE_API void fake_cuda_hold_stream(void* handle, int held) {
  World& world = World::instance();
  const std::lock_guard guard(world.mutex);
  if (held) world.held_streams.insert(static_cast<StreamHandle*>(handle));
  else world.held_streams.erase(static_cast<StreamHandle*>(handle));
}
