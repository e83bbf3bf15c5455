#include "nccl/library.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/settings.h"
#include "nccl/own_calls.h"

namespace weft::nccl {
namespace {

constexpr const char* kFile = "libnccl.so.2";
/// After the linker's own search, which may have found only Weft's shim.
constexpr const char* kFolders[] = {
    "/usr/local/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64",
    "/usr/lib",       "/usr/local/nccl/lib",       "/usr/local/cuda/lib64",      "/opt/nccl/lib"};

/// Whether calls of NCCL's functions by name go to another library of the program: Weft's shim, or an NCCL.
bool another_is_in_front(void* library) {
  void* const program = dlopen(nullptr, RTLD_LAZY);
  void* const first = program ? dlsym(program, "ncclGetVersion") : nullptr;
  return first && first != dlsym(library, "ncclGetVersion");
}

std::string last_dl_error() {
  const char* text = dlerror();
  return text ? text : "the dynamic linker does not say why";
}

/// The NCCL that PyTorch's wheels bring, for each PyTorch that is loaded: its libraries find it by a RUNPATH,
/// which the linker does not use for others. The paths are only collected here: the linker holds its lock.
std::vector<std::string> beside_pytorch() {
  std::vector<std::string> files;
  const auto collect = [](dl_phdr_info* object, size_t, void* into) {
    const auto folder = std::filesystem::path(object->dlpi_name).lexically_normal().parent_path();
    if (folder.filename() != "lib" || folder.parent_path().filename() != "torch") return 0;
    const std::string file = folder.parent_path().parent_path() / "nvidia/nccl/lib" / kFile;
    auto& found = *static_cast<std::vector<std::string>*>(into);
    if (std::find(found.begin(), found.end(), file) == found.end()) found.push_back(file);
    return 0;
  };
  dl_iterate_phdr(collect, &files);
  return files;
}

/// Weft's code for a failure of NCCL's.
Code code_of(int result) {
  if (result == kTimeout) return Code::timeout;
  return result > 0 && result < kInProgress ? static_cast<Code>(result) : Code::internal_error;
}

Result<const Library*> find() {
  const std::string& set = settings().nccl_library;
  if (set.empty()) return Library::find_among(Library::candidates());
  Result<const Library*> opened = Library::open(set);
  if (opened.ok()) return opened;
  return fail(Code::invalid_setting, "WEFT_NCCL_LIBRARY: {}", opened.status().message());
}

}  // namespace

const Result<const Library*>& Library::get() {
  static const Result<const Library*> found = [] {
    Result<const Library*> library = find();
    if (library.ok()) log::info("NCCL {} is {}", (*library)->version(), (*library)->path());
    else log::info("{}", library.status().message());
    return library;
  }();
  return found;
}

std::vector<std::string> Library::candidates() {
  std::vector<std::string> files = {kFile};
  const char* path = std::getenv("LD_LIBRARY_PATH");
  for (std::string_view rest = path ? path : ""; !rest.empty();) {
    const size_t end = std::min(rest.find_first_of(":;"), rest.size());
    if (end > 0) files.push_back(std::string(rest.substr(0, end)) + "/" + kFile);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  for (std::string& file : beside_pytorch()) files.push_back(std::move(file));
  for (const char* folder : kFolders) files.push_back(std::string(folder) + "/" + kFile);
  return files;
}

Result<const Library*> Library::find_among(const std::vector<std::string>& files) {
  std::string why = fmt::format(
      "no NCCL was found: there is no {} where the dynamic linker looks, in LD_LIBRARY_PATH, beside PyTorch "
      "or in the usual folders; WEFT_NCCL_LIBRARY may name the file",
      kFile);
  for (const std::string& file : files) {
    if (file != kFile && access(file.c_str(), R_OK) != 0) continue;
    Result<const Library*> opened = Library::open(file);
    if (opened.ok()) return opened;
    // By its bare name it is usually just not there; a file that is there and is wrong is worth a word.
    if (file != kFile && opened.status().code() != Code::invalid_argument) why = opened.status().message();
  }
  return fail(Code::unsupported, "{}", why);
}

Result<const Library*> Library::open(const std::string& file) {
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) return fail(Code::unsupported, "{} cannot be opened: {}", file, last_dl_error());
  if (dlsym(handle, kShimMark)) {
    dlclose(handle);
    return fail(Code::invalid_argument, "{} is Weft's own shim, not NCCL", file);
  }
  if (another_is_in_front(handle))
    if (const Status kept = keep_own_calls(handle); !kept.ok()) {
      dlclose(handle);
      return kept.in(file);
    }
  Library* library = new Library;  // stays, as what it opened does
  library->path_ = file;
  Functions& functions = library->functions_;
#define WEFT_NCCL_LOAD(name, returns, parameters) \
  functions.name = reinterpret_cast<decltype(functions.name)>(dlsym(handle, "nccl" #name));
  WEFT_NCCL_FUNCTIONS(WEFT_NCCL_LOAD)
#undef WEFT_NCCL_LOAD
  Status right;
  if (!functions.GetVersion || !functions.CommInitRank || !functions.GroupEnd) {
    right = fail(Code::unsupported, "{} is no NCCL: it lacks {}", file,
                 !functions.GetVersion     ? "ncclGetVersion"
                 : !functions.CommInitRank ? "ncclCommInitRank"
                                           : "ncclGroupEnd");
  } else if (functions.GetVersion(&library->version_code_) != kSuccess) {
    right = fail(Code::unsupported, "{} does not tell its version", file);
  } else if (const std::string version = library->version();
             !version.starts_with(fmt::format("{}.", kMajor))) {
    right = fail(Code::unsupported, "{} is NCCL {}, but Weft knows how to call NCCL {} only", file, version,
                 kMajor);
  }
  if (right.ok()) {
    Dl_info where;
    if (dladdr(reinterpret_cast<void*>(functions.GetVersion), &where) && where.dli_fname)
      library->path_ = where.dli_fname;
    return library;
  }
  dlclose(handle);
  delete library;
  return right;
}

std::string Library::version() const { return version_text(version_code_); }

Status Library::check(int result, const char* what, Comm_t comm) const {
  if (result == kSuccess) return {};
  if (result == kInProgress) return fail(Code::in_progress, "{} goes on", what);
  const char* code = functions_.GetErrorString ? functions_.GetErrorString(result) : "";
  const char* sentence = functions_.GetLastError ? functions_.GetLastError(comm) : "";
  return fail(code_of(result), "{} of NCCL {} failed: {}{}{}", what, version(), code,
              sentence && *sentence ? ": " : "", sentence ? sentence : "");
}

Status Library::lacks(const char* name) const {
  return fail(Code::unsupported, "{} is NCCL {}, which has no {}: it is too old for that", path_, version(),
              name);
}

std::string version_text(int code) {
  const int major =
      code >= 10000 ? 10000 : 1000;  // 2.8 and before counted with three digits behind the major
  return fmt::format("{}.{}.{}", code / major, code % major / 100, code % 100);
}

int nccl_code(Code code) {
  switch (code) {
    case Code::ok:
    case Code::unhandled_cuda_error:
    case Code::system_error:
    case Code::internal_error:
    case Code::invalid_argument:
    case Code::invalid_usage:
    case Code::remote_error:
    case Code::in_progress: return static_cast<int>(code);
    case Code::invalid_pointer:
    case Code::invalid_type:
    case Code::invalid_op:
    case Code::invalid_count:
    case Code::invalid_root:
    case Code::invalid_comm:
    case Code::invalid_unique_id: return kInvalidArgument;
    case Code::invalid_setting:
    case Code::mismatch:
    case Code::unsupported: return kInvalidUsage;
    case Code::timeout:
    case Code::aborted:
    case Code::protocol_error: return kRemoteError;
    case Code::out_of_memory: return kSystemError;
  }
  return kInternalError;
}

}  // namespace weft::nccl
