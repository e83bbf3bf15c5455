// A cuBLASLt of our own for tests on machines without a GPU: a library with the functions of libcublasLt.so
// that Loom calls. It computes by plain loops, on the memory of the fake driver (tests/cuda/fake_driver). A
// product is work of its stream, and its arrays are checked when its turn comes. Where the documentation says
// that the library refuses something, this one does; where it is not said, this one is strict (problem.cc).
//
// Candidates of a product differ in how many parts each sum over k has, so that they give different bits, and
// in the workspace they need.
//
// Environment:
//   FAKE_CUBLASLT_MAJOR  the major version of the library; 13
#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "loom/device/fake_cublaslt/control.h"
#include "loom/device/fake_cublaslt/problem.h"

#define FAKE_API extern "C" __attribute__((visibility("default")))

using namespace fake_lt;

namespace {

constexpr uint64_t kMagic = 0x66616b6520416c67;
constexpr int kMostCandidates = 8;
constexpr uint64_t kWorkspaceOfPart = 1 << 20;

std::atomic<int> answer_to_aux{kLtSuccess}, epilogue_ms{0};

/// The 64 bytes of an algorithm, as this library fills them.
struct Algorithm {
  uint64_t magic, hash, parts, workspace_bytes;
  uint32_t alignment[4];
  uint64_t unused[2];
};
static_assert(sizeof(Algorithm) == sizeof(LtAlgorithm));

struct Library {
  std::mutex mutex;
  std::map<std::string, uint64_t> calls;
  struct Work {
    Problem problem;
    bool has_bias, has_aux;
  };
  std::deque<Work> work;  // kept, since a graph would do it again
  static Library& instance() {
    static Library* const library = new Library;
    return *library;
  }
};

void count(const char* function) {
  Library& library = Library::instance();
  const std::lock_guard guard(library.mutex);
  ++library.calls[function];
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

int major_version() {
  const char* const text = std::getenv("FAKE_CUBLASLT_MAJOR");
  return text != nullptr ? std::atoi(text) : 13;
}

/// Copies an attribute of the right size.
template <typename T>
int take(T& into, const void* value, size_t bytes) {
  if (value == nullptr || bytes != sizeof(T)) return kLtInvalidValue;
  std::memcpy(&into, value, sizeof(T));
  return kLtSuccess;
}

bool is_aligned(const void* pointer, uint32_t alignment) {
  return reinterpret_cast<uintptr_t>(pointer) % alignment == 0;
}

}  // namespace

FAKE_API int cublasLtGetProperty(int property, int* value) {
  constexpr int kPatch = 1, kMinor = 1;
  *value = property == kLtMajorVersion ? major_version() : property == kLtMinorVersion ? kMinor : kPatch;
  return kLtSuccess;
}
FAKE_API const char* cublasLtGetStatusName(int status) {
  switch (status) {
    case kLtInvalidValue: return "CUBLAS_STATUS_INVALID_VALUE";
    case kLtNotSupported: return "CUBLAS_STATUS_NOT_SUPPORTED";
    case kLtNotInitialized: return "CUBLAS_STATUS_NOT_INITIALIZED";
    default: return "a status of the fake";
  }
}
FAKE_API int cublasLtCreate(LtHandle** handle) {
  if (!has_context()) return kLtNotInitialized;
  *handle = new LtHandle;
  return kLtSuccess;
}
FAKE_API int cublasLtDestroy(LtHandle* handle) {
  delete handle;
  return kLtSuccess;
}

// ---- Descriptors

FAKE_API int cublasLtMatmulDescCreate(LtMatmulDesc** desc, int compute, int scale_type) {
  *desc = new LtMatmulDesc{.compute = compute, .scale_type = scale_type};
  return kLtSuccess;
}
FAKE_API int cublasLtMatmulDescDestroy(LtMatmulDesc* desc) {
  delete desc;
  return kLtSuccess;
}
FAKE_API int cublasLtMatmulDescSetAttribute(LtMatmulDesc* desc, int attribute, const void* value,
                                            size_t bytes) {
  switch (attribute) {
    case kLtTransposeA: return take(desc->transpose_a, value, bytes);
    case kLtTransposeB: return take(desc->transpose_b, value, bytes);
    case kLtEpilogue: return take(desc->epilogue, value, bytes);
    case kLtBiasPointer: return take(desc->bias, value, bytes);
    case kLtBiasType: return take(desc->bias_type, value, bytes);
    case kLtAuxPointer: return take(desc->aux, value, bytes);
    case kLtAuxLd: return take(desc->aux_ld, value, bytes);
    default: return kLtInvalidValue;
  }
}
FAKE_API int cublasLtMatrixLayoutCreate(LtLayout** layout, int type, uint64_t rows, uint64_t columns,
                                        int64_t ld) {
  *layout = new LtLayout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), ld};
  return kLtSuccess;
}
FAKE_API int cublasLtMatrixLayoutDestroy(LtLayout* layout) {
  delete layout;
  return kLtSuccess;
}
FAKE_API int cublasLtMatmulPreferenceCreate(LtPreference** preference) {
  *preference = new LtPreference;
  return kLtSuccess;
}
FAKE_API int cublasLtMatmulPreferenceDestroy(LtPreference* preference) {
  delete preference;
  return kLtSuccess;
}
FAKE_API int cublasLtMatmulPreferenceSetAttribute(LtPreference* preference, int attribute, const void* value,
                                                  size_t bytes) {
  switch (attribute) {
    case kLtMaxWorkspaceBytes: return take(preference->workspace_bytes, value, bytes);
    case kLtReductionSchemes: return take(preference->reductions, value, bytes);
    case kLtAlignmentA:
    case kLtAlignmentB:
    case kLtAlignmentC:
    case kLtAlignmentD: return take(preference->alignment[attribute - kLtAlignmentA], value, bytes);
    default: return kLtInvalidValue;
  }
}

// ---- Algorithms

FAKE_API int cublasLtMatmulAlgoGetHeuristic(LtHandle*, LtMatmulDesc* desc, LtLayout* a, LtLayout* b,
                                            LtLayout* c, LtLayout* d, LtPreference* preference, int asked,
                                            LtHeuristic* results, int* found) {
  count("cublasLtMatmulAlgoGetHeuristic");
  *found = 0;
  const Problem problem{*desc, *a, *b, *c, *d};
  if (const int refused = problem.check()) return refused;
  if (problem.has_aux() && answer_to_aux.load() != kLtSuccess) return answer_to_aux.load();
  if (desc->epilogue != kLtEpilogueDefault)
    for (const uint32_t alignment : preference->alignment)
      if (alignment < 16) return kLtNotSupported;
  for (uint64_t parts = 1; parts <= kMostCandidates && *found < asked; ++parts) {
    if (parts > 1 && preference->reductions == kLtNoReduction) break;
    Algorithm algorithm{kMagic, problem.hash(), parts, (parts - 1) * kWorkspaceOfPart, {}, {}};
    if (algorithm.workspace_bytes > preference->workspace_bytes) break;
    std::memcpy(algorithm.alignment, preference->alignment, sizeof algorithm.alignment);
    LtHeuristic& result = results[(*found)++];
    result = {};
    std::memcpy(&result.algorithm, &algorithm, sizeof algorithm);
    result.workspace_bytes = algorithm.workspace_bytes;
  }
  return kLtSuccess;
}
FAKE_API int cublasLtMatmulAlgoCheck(LtHandle*, LtMatmulDesc* desc, LtLayout* a, LtLayout* b, LtLayout* c,
                                     LtLayout* d, const LtAlgorithm* algorithm, LtHeuristic* result) {
  const Problem problem{*desc, *a, *b, *c, *d};
  if (const int refused = problem.check()) return refused;
  Algorithm own;
  std::memcpy(&own, algorithm, sizeof own);
  if (own.magic != kMagic || own.hash != problem.hash()) return kLtInvalidValue;
  result->workspace_bytes = own.workspace_bytes;
  result->state = kLtSuccess;
  return kLtSuccess;
}

// ---- Products

FAKE_API int cublasLtMatmul(LtHandle* handle, LtMatmulDesc* desc, const void* alpha, const void* a,
                            LtLayout* a_layout, const void* b, LtLayout* b_layout, const void* beta,
                            const void* c, LtLayout* c_layout, void* d, LtLayout* d_layout,
                            const LtAlgorithm* algorithm, void* workspace, size_t workspace_bytes,
                            StreamHandle* stream) {
  count("cublasLtMatmul");
  if (handle == nullptr || !has_context()) return kLtNotInitialized;
  Problem problem{*desc, *a_layout, *b_layout, *c_layout, *d_layout};
  std::memcpy(&problem.alpha, alpha, sizeof problem.alpha);
  std::memcpy(&problem.beta, beta, sizeof problem.beta);
  if (const int refused = problem.check()) return refused;
  Algorithm own;
  std::memcpy(&own, algorithm, sizeof own);
  if (own.magic != kMagic || own.hash != problem.hash() || c != d) return kLtInvalidValue;
  if (own.workspace_bytes > workspace_bytes || !is_aligned(workspace, 16)) return kLtInvalidValue;
  const void* const arrays[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i)
    if (!is_aligned(arrays[i], own.alignment[i])) return kLtInvalidValue;
  problem.parts = static_cast<int>(own.parts);

  const uint64_t bias_bytes = static_cast<uint64_t>(problem.bias_length() * size_of(problem.d.type));
  const uint64_t aux_bytes = extent_of({problem.d.type, problem.m(), problem.n(), desc->aux_ld});
  const bool has_bias = problem.adds_bias() || problem.sums();
  std::vector<FakeCudaAccess> accesses{
      {a, extent_of(*a_layout), 0}, {b, extent_of(*b_layout), 0}, {d, extent_of(*d_layout), 1}};
  if (has_bias) accesses.push_back({desc->bias, bias_bytes, problem.sums()});
  if (problem.has_aux()) accesses.push_back({desc->aux, aux_bytes, !problem.has(kLtEpilogueDgelu)});
  if (own.workspace_bytes > 0) accesses.push_back({workspace, own.workspace_bytes, 1});

  Library& library = Library::instance();
  Library::Work* work;
  {
    const std::lock_guard guard(library.mutex);
    work = &library.work.emplace_back(Library::Work{problem, has_bias, problem.has_aux()});
  }
  const auto run = [](void* data, void* const* bytes) {
    const auto& [problem, has_bias, has_aux] = *static_cast<const Library::Work*>(data);
    if (problem.desc.epilogue != kLtEpilogueDefault)
      std::this_thread::sleep_for(std::chrono::milliseconds(epilogue_ms.load()));
    compute(problem, bytes[0], bytes[1], bytes[2], has_bias ? bytes[3] : nullptr,
            has_aux ? bytes[has_bias ? 4 : 3] : nullptr);
  };
  const int submitted = of_driver<decltype(fake_cuda_submit)>("fake_cuda_submit")(
      stream, "a product", accesses.data(), static_cast<int>(accesses.size()), run, work);
  return submitted == kSuccess ? kLtSuccess : kLtExecutionFailed;
}

// ---- Control

FAKE_API void fake_cublaslt_refuse_aux(int status) { answer_to_aux.store(status); }
FAKE_API void fake_cublaslt_slow_epilogues(int milliseconds) { epilogue_ms.store(milliseconds); }
FAKE_API uint64_t fake_cublaslt_calls(const char* function) {
  Library& library = Library::instance();
  const std::lock_guard guard(library.mutex);
  return library.calls[function];
}
