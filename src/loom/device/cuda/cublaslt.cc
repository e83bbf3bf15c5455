// Finding and loading cuBLASLt.
#include "device/cuda/cublaslt.h"

#include <vector>

#include "device/cuda/library.h"

namespace loom::cuda {
namespace {

constexpr const char* kSetting = "LOOM_CUBLASLT_LIBRARY";
constexpr int kFirstDriverOf13 = 13000;

/// Where a library of either major version may be, the first first. A library for CUDA 13 wants a driver for
/// it.
std::vector<std::string> places() {
  std::vector<std::string> all;
  const auto add = [&all](int major, const std::string& in_wheels) {
    for (std::string& place : places_of(fmt::format("libcublasLt.so.{}", major), major, in_wheels))
      all.push_back(std::move(place));
  };
  if ((*driver())->version >= kFirstDriverOf13) add(13, "nvidia/cu13/lib");
  add(12, "nvidia/cublas/lib");
  return all;
}

void bind_all(Library& library, CublasLt& lt) {
  const auto bind = [&library](auto& into, const char* symbol) { library.bind(into, symbol); };
  bind(lt.get_property, "cublasLtGetProperty");
  bind(lt.status_name, "cublasLtGetStatusName");
  bind(lt.create, "cublasLtCreate");
  bind(lt.destroy, "cublasLtDestroy");
  bind(lt.matmul_desc_create, "cublasLtMatmulDescCreate");
  bind(lt.matmul_desc_destroy, "cublasLtMatmulDescDestroy");
  bind(lt.matmul_desc_set, "cublasLtMatmulDescSetAttribute");
  bind(lt.layout_create, "cublasLtMatrixLayoutCreate");
  bind(lt.layout_destroy, "cublasLtMatrixLayoutDestroy");
  bind(lt.preference_create, "cublasLtMatmulPreferenceCreate");
  bind(lt.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  bind(lt.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  bind(lt.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  bind(lt.algorithm_check, "cublasLtMatmulAlgoCheck");
  bind(lt.matmul, "cublasLtMatmul");
}

Status load(CublasLt& lt) {
  if (const auto loaded = driver(); !loaded.ok()) return loaded.status();
  Library library(kSetting, places());
  if (!library.is_loaded())
    return fail(
        Code::unsupported,
        "cuBLASLt, which multiplies matrices on a GPU, cannot be loaded ({}): install CUDA's libraries "
        "or the Python package nvidia-cublas, or name libcublasLt.so in {}",
        library.error(), kSetting);
  lt.library = library.path();
  library.bind(lt.get_property, "cublasLtGetProperty");
  if (lt.get_property != nullptr)
    for (int part = kLtMajorVersion; part <= kLtPatchLevel; ++part)
      (void)lt.get_property(part, &lt.version[part]);
  if (lt.version[0] < kOldestCublasLt || lt.version[0] > kYoungestCublasLt)
    return fail(Code::unsupported,
                "{} is cuBLASLt {}.{}, Loom knows versions {} to {}: name another libcublasLt.so in {}",
                lt.library, lt.version[0], lt.version[1], kOldestCublasLt, kYoungestCublasLt, kSetting);
  bind_all(library, lt);
  if (!library.missing().empty())
    return fail(Code::unsupported, "{} has no function {}: name another libcublasLt.so in {}", lt.library,
                library.missing(), kSetting);
  return {};
}

struct Loaded {
  CublasLt lt{};
  Status status;
  Loaded() : status(load(lt)) {}
};

/// Never destroyed, nor is the library closed: it has state of the primary context.
const Loaded& loaded() {
  static const Loaded* const instance = new Loaded;
  return *instance;
}

Code code_of(int status) {
  switch (status) {
    case kLtAllocFailed: return Code::out_of_memory;
    case kLtNotSupported:
    case kLtArchMismatch: return Code::unsupported;
    default: return Code::system_error;
  }
}

}  // namespace

Result<const CublasLt*> cublaslt() {
  const Loaded& l = loaded();
  if (!l.status.ok()) return l.status;
  return &l.lt;
}

Status check_lt(int status, std::string_view what) {
  if (status == kLtSuccess) return {};
  const char* const name = loaded().lt.status_name(status);
  return fail(code_of(status), "{}: {} (cuBLASLt status {})", what, name != nullptr ? name : "unknown",
              status);
}

}  // namespace loom::cuda
