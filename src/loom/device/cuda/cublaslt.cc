// Finding and loading cuBLASLt.
#include "device/cuda/cublaslt.h"

#include <dlfcn.h>
#include <glob.h>

#include <cstdlib>
#include <vector>

namespace loom::cuda {
namespace {

constexpr const char* kSetting = "LOOM_CUBLASLT_LIBRARY";
constexpr int kFirstDriverOf13 = 13000;

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

/// Files that match a pattern of the shell.
std::vector<std::string> files_like(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> files;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0)
    files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  return files;
}

/// Where a library of that major version may be, the first first.
void add_places(int major, std::vector<std::string>& places) {
  const std::string name = fmt::format("libcublasLt.so.{}", major);
  places.push_back(name);
  places.push_back(fmt::format("/usr/local/cuda-{}/lib64/{}", major, name));
  places.push_back("/usr/local/cuda/lib64/" + name);
  const std::string in_wheel = major == 12 ? "nvidia/cublas/lib/" : fmt::format("nvidia/cu{}/lib/", major);
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const std::string prefix = environment(variable); !prefix.empty())
      for (std::string& file : files_like(prefix + "/lib/python3*/site-packages/" + in_wheel + name))
        places.push_back(std::move(file));
}

void* open_library(CublasLt& lt, Status& why_not) {
  const std::string set = environment(kSetting);
  std::vector<std::string> places;
  if (!set.empty()) {
    places.push_back(set);
  } else {
    if ((*driver())->version >= kFirstDriverOf13) add_places(13, places);
    add_places(12, places);
  }
  std::string first_error;
  for (const std::string& place : places) {
    if (void* const library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      lt.library = place;
      return library;
    }
    if (first_error.empty()) first_error = dlerror();
  }
  why_not =
      fail(Code::unsupported,
           "cuBLASLt, which multiplies matrices on a GPU, cannot be loaded ({}): install CUDA's libraries "
           "or the Python package nvidia-cublas, or name libcublasLt.so in {}",
           first_error, kSetting);
  return nullptr;
}

/// `missing` is the first function that the library lacks.
struct Binder {
  void* library;
  std::string missing;
  template <typename Function>
  void operator()(Function*& into, const char* symbol) {
    into = reinterpret_cast<Function*>(dlsym(library, symbol));
    if (into == nullptr && missing.empty()) missing = symbol;
  }
};

void bind_all(Binder& bind, CublasLt& lt) {
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
  Status why_not;
  void* const library = open_library(lt, why_not);
  if (library == nullptr) return why_not;
  Binder bind{library, {}};
  bind(lt.get_property, "cublasLtGetProperty");
  if (lt.get_property != nullptr)
    for (int part = kLtMajorVersion; part <= kLtPatchLevel; ++part)
      (void)lt.get_property(part, &lt.version[part]);
  if (lt.version[0] < kOldestCublasLt || lt.version[0] > kYoungestCublasLt)
    return fail(Code::unsupported,
                "{} is cuBLASLt {}.{}, Loom knows versions {} to {}: name another libcublasLt.so in {}",
                lt.library, lt.version[0], lt.version[1], kOldestCublasLt, kYoungestCublasLt, kSetting);
  bind_all(bind, lt);
  if (!bind.missing.empty())
    return fail(Code::unsupported, "{} has no function {}: name another libcublasLt.so in {}", lt.library,
                bind.missing, kSetting);
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
