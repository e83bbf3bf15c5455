// A cuDNN of our own for tests on machines without a GPU: a library with the functions of libcudnn.so that
// Loom calls. It reads graphs as they are built, and computes them operation by operation on the memory of
// the fake driver (tests/cuda/fake_driver). A run is work of the handle's stream, and its arrays are checked
// when its turn comes. What the library refuses this one refuses (descriptors.cc, program.cc); where that is
// not known, this one is strict: gradients of keys beyond a sequence's length are not written, the workspace
// is overwritten, and dq without a deterministic graph has other bits in every run.
//
// Environment:
//   FAKE_CUDNN_VERSION  10000 · major + 100 · minor + patch; 91900
//   FAKE_CUDNN_CUDART   the CUDA that it is for, 1000 · major + 10 · minor; 13000
//   FAKE_CUDNN_ENGINES  0: it has no engine for any graph, as if it did not find libnvrtc
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>

#include "cuda/fake_driver/control.h"
#include "loom/device/fake_cudnn/control.h"
#include "loom/device/fake_cudnn/program.h"

#define FAKE_API extern "C" __attribute__((visibility("default")))

using namespace fake_dnn;

// The library's opaque type.
namespace loom::cuda {
struct DnnHandle {
  StreamHandle* stream = nullptr;
};
}  // namespace loom::cuda

namespace {

/// What a plan runs, and a config proposes.
struct Work {
  std::shared_ptr<const Program> program;
  std::vector<float> numbers;  // by tensor
  uint64_t turn = 0;
};

struct Library {
  std::mutex mutex;
  std::map<std::string, uint64_t> calls;
  std::deque<std::shared_ptr<const Program>> programs;  // by Descriptor::number, from 1
  std::deque<Work> work;                                // kept, since a graph would do it again
  static Library& instance() {
    static Library* const library = new Library;
    return *library;
  }
};

uint64_t count(const char* what) {
  Library& library = Library::instance();
  const std::lock_guard guard(library.mutex);
  return ++library.calls[what];
}

std::shared_ptr<const Program> program_of(const Descriptor& descriptor) {
  Library& library = Library::instance();
  const std::lock_guard guard(library.mutex);
  return library.programs[static_cast<size_t>(descriptor.number - 1)];
}

int number_from(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? std::atoi(text) : otherwise;
}

/// The driver that the process uses.
template <typename Function>
Function* of_driver(const char* name) {
  static void* const driver = dlopen(std::getenv("WEFT_CUDA_LIBRARY"), RTLD_NOW | RTLD_NOLOAD);
  void* const found = driver != nullptr ? dlsym(driver, name) : nullptr;
  if (found == nullptr) std::abort();
  return reinterpret_cast<Function*>(found);
}

bool has_context() {
  ContextHandle* context = nullptr;
  return of_driver<int(ContextHandle**)>("cuCtxGetCurrent")(&context) == kSuccess && context != nullptr;
}

Descriptor* as_descriptor(DnnDescriptor descriptor) { return static_cast<Descriptor*>(descriptor); }

/// Reads a graph, whose number is then that of its program.
int finalize_graph(Descriptor& graph) {
  auto program = std::make_shared<Program>();
  if (const int wrong = read_program(graph, *program)) return wrong;
  Library& library = Library::instance();
  const std::lock_guard guard(library.mutex);
  library.programs.push_back(std::move(program));
  graph.number = static_cast<int64_t>(library.programs.size());
  return kDnnSuccess;
}

int finalize_plan(Descriptor& plan) {
  if (plan.has(kDnnPlanHandle) == plan.has(kDnnPlanDevice))
    return refuse(kDnnBadParameter, "a plan is for a handle or a device");
  plan.number = plan.at(kDnnPlanEngineConfig)->number;
  count("plans");
  if (program_of(plan)->is_deterministic()) count("deterministic plans");
  return kDnnSuccess;
}

bool overlap(const FakeCudaAccess& a, const FakeCudaAccess& b) {
  const auto* const first = static_cast<const std::byte*>(a.address);
  const auto* const second = static_cast<const std::byte*>(b.address);
  return first < second + b.bytes && second < first + a.bytes;
}

}  // namespace

FAKE_API size_t cudnnGetVersion() { return static_cast<size_t>(number_from("FAKE_CUDNN_VERSION", 91900)); }
FAKE_API size_t cudnnGetCudartVersion() {
  return static_cast<size_t>(number_from("FAKE_CUDNN_CUDART", 13000));
}
FAKE_API const char* cudnnGetErrorString(int status) {
  switch (status) {
    case kDnnNotInitialized: return "CUDNN_STATUS_NOT_INITIALIZED";
    case kDnnBadParameter: return "CUDNN_STATUS_BAD_PARAM";
    case kDnnNullPointer: return "CUDNN_STATUS_BAD_PARAM_NULL_POINTER";
    case kDnnMisalignedPointer: return "CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER";
    case kDnnNotFinalized: return "CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED";
    case kDnnAttributeType: return "CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE";
    case kDnnDescriptorType: return "CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE";
    case kDnnNotSupported: return "CUDNN_STATUS_NOT_SUPPORTED";
    default: return "a status of the fake";
  }
}
FAKE_API void cudnnGetLastErrorString(char* text, size_t bytes) {
  if (bytes == 0) return;
  std::strncpy(text, last_refusal().c_str(), bytes - 1);
  text[bytes - 1] = 0;
}
FAKE_API int cudnnCreate(DnnHandle** handle) {
  if (!has_context()) return refuse(kDnnNotInitialized, "no context is current");
  *handle = new DnnHandle;
  return kDnnSuccess;
}
FAKE_API int cudnnDestroy(DnnHandle* handle) {
  delete handle;
  return kDnnSuccess;
}
FAKE_API int cudnnSetStream(DnnHandle* handle, StreamHandle* stream) {
  handle->stream = stream;
  return kDnnSuccess;
}

// ---- Descriptors

FAKE_API int cudnnBackendCreateDescriptor(int kind, DnnDescriptor* descriptor) {
  if (!is_known(kind)) return refuse(kDnnDescriptorType, "there is no such descriptor");
  *descriptor = new Descriptor(kind);
  return kDnnSuccess;
}
FAKE_API int cudnnBackendDestroyDescriptor(DnnDescriptor descriptor) {
  delete as_descriptor(descriptor);
  return kDnnSuccess;
}
FAKE_API int cudnnBackendSetAttribute(DnnDescriptor descriptor, int attribute, int type, int64_t values,
                                      const void* from) {
  return set(*as_descriptor(descriptor), attribute, type, values, from);
}
FAKE_API int cudnnBackendFinalize(DnnDescriptor handle) {
  Descriptor& descriptor = *as_descriptor(handle);
  if (const int incomplete = check_complete(descriptor)) return incomplete;
  int wrong = kDnnSuccess;
  if (descriptor.kind == kDnnOperationGraph) wrong = finalize_graph(descriptor);
  if (descriptor.kind == kDnnExecutionPlan) wrong = finalize_plan(descriptor);
  if (descriptor.kind == kDnnEngineHeuristics) descriptor.number = descriptor.at(kDnnHeuristicsGraph)->number;
  if (descriptor.kind == kDnnVariantPack &&
      descriptor.all<int64_t>(kDnnPackIds).size() != descriptor.all<void*>(kDnnPackPointers).size())
    wrong = refuse(kDnnBadParameter, "there are more or fewer addresses than tensors");
  descriptor.finalized = wrong == kDnnSuccess;
  return wrong;
}
FAKE_API int cudnnBackendGetAttribute(DnnDescriptor handle, int attribute, int type, int64_t asked,
                                      int64_t* found, void* values) {
  const Descriptor& descriptor = *as_descriptor(handle);
  if (!descriptor.finalized) return refuse(kDnnNotFinalized, "the descriptor is not finalized");
  if (descriptor.kind == kDnnExecutionPlan && attribute == kDnnPlanWorkspaceBytes && type == kDnnOfInt64) {
    *found = 1;
    *static_cast<int64_t*>(values) = program_of(descriptor)->workspace_bytes();
    return kDnnSuccess;
  }
  if (descriptor.kind != kDnnEngineHeuristics || attribute != kDnnHeuristicsResults ||
      type != kDnnOfDescriptor)
    return refuse(kDnnBadParameter, "there is nothing to get");
  const bool has_one = number_from("FAKE_CUDNN_ENGINES", 1) != 0 && program_of(descriptor)->is_supported();
  *found = has_one ? 1 : 0;
  if (has_one && asked > 0) {
    Descriptor& config = **static_cast<Descriptor**>(values);
    config.number = descriptor.number;
    config.finalized = true;
  }
  return kDnnSuccess;
}

// ---- Runs

FAKE_API int cudnnBackendExecute(DnnHandle* handle, DnnDescriptor plan_handle, DnnDescriptor pack_handle) {
  const uint64_t turn = count("cudnnBackendExecute");
  const Descriptor &plan = *as_descriptor(plan_handle), &pack = *as_descriptor(pack_handle);
  if (!plan.finalized || !pack.finalized) return refuse(kDnnNotFinalized, "the descriptor is not finalized");
  if (!plan.has(kDnnPlanHandle) || plan.get<DnnHandle*>(kDnnPlanHandle) != handle || !has_context())
    return refuse(kDnnBadParameter, "the plan is for another handle");
  Work work{program_of(plan), {}, turn};
  const auto ids = pack.all<int64_t>(kDnnPackIds);
  const auto pointers = pack.all<void*>(kDnnPackPointers);
  std::vector<FakeCudaAccess> accesses;
  std::vector<size_t>
      alone;  // accesses that share no byte with others; slices of one array lie in each other
  for (const Tensor& tensor : work.program->tensors) {
    work.numbers.push_back(0);
    if (tensor.place == Tensor::Place::between) continue;
    const auto found = std::find(ids.begin(), ids.end(), tensor.id);
    if (found == ids.end()) return refuse(kDnnBadParameter, "a tensor has no address");
    void* const address = pointers[static_cast<size_t>(found - ids.begin())];
    if (address == nullptr) return refuse(kDnnNullPointer, "a tensor's address is null");
    if (reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(tensor.alignment) != 0)
      return refuse(kDnnMisalignedPointer, "a tensor is not aligned");
    if (tensor.place == Tensor::Place::number) std::memcpy(&work.numbers.back(), address, sizeof(float));
    else accesses.push_back({address, tensor.extent_bytes(), tensor.written});
    if (tensor.place == Tensor::Place::array && tensor.written && tensor.type == kDnnFloat32)
      alone.push_back(accesses.size() - 1);
  }
  void* const workspace = pack.get<void*>(kDnnPackWorkspace, nullptr);
  const auto workspace_bytes = static_cast<uint64_t>(work.program->workspace_bytes());
  if (workspace == nullptr || reinterpret_cast<uintptr_t>(workspace) % 16 != 0)
    return refuse(kDnnMisalignedPointer, "the workspace is missing or not aligned");
  accesses.push_back({workspace, workspace_bytes, 1});
  alone.push_back(accesses.size() - 1);
  for (const size_t own : alone)
    for (size_t other = 0; other < accesses.size(); ++other)
      if (own != other && overlap(accesses[own], accesses[other]))
        return refuse(kDnnBadParameter, "arrays overlap");

  Work* queued = nullptr;
  {
    Library& library = Library::instance();
    const std::lock_guard guard(library.mutex);
    queued = &library.work.emplace_back(std::move(work));
  }
  const auto do_work = [](void* data, void* const* bytes) {
    Work& own = *static_cast<Work*>(data);
    std::vector<void*> arrays;
    size_t next = 0;
    for (size_t i = 0; i < own.program->tensors.size(); ++i) switch (own.program->tensors[i].place) {
        case Tensor::Place::array: arrays.push_back(bytes[next++]); break;
        case Tensor::Place::number: arrays.push_back(&own.numbers[i]); break;
        case Tensor::Place::between: arrays.push_back(nullptr);
      }
    std::memset(bytes[next], 0xa5, static_cast<size_t>(own.program->workspace_bytes()));
    run(*own.program, arrays, own.turn);
  };
  const int submitted = of_driver<decltype(fake_cuda_submit)>("fake_cuda_submit")(
      handle->stream, "attention of cuDNN", accesses.data(), static_cast<int>(accesses.size()), do_work,
      queued);
  return submitted == kSuccess ? int{kDnnSuccess} : refuse(kDnnExecutionFailed, "the stream takes no work");
}

// ---- Control

FAKE_API uint64_t fake_cudnn_calls(const char* what) {
  Library& library = Library::instance();
  const std::lock_guard guard(library.mutex);
  return library.calls[what];
}
