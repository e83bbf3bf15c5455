// Finding and loading cuDNN.
#include "device/cuda/cudnn.h"

#include "device/cuda/cublaslt.h"
#include "device/cuda/library.h"

namespace loom::cuda {
namespace {

constexpr const char* kSetting = "LOOM_CUDNN_LIBRARY";

void bind_all(Library& library, Cudnn& dnn) {
  const auto bind = [&library](auto& into, const char* symbol) { library.bind(into, symbol); };
  bind(dnn.get_cudart_version, "cudnnGetCudartVersion");
  bind(dnn.error_string, "cudnnGetErrorString");
  bind(dnn.last_error, "cudnnGetLastErrorString");
  bind(dnn.create, "cudnnCreate");
  bind(dnn.destroy, "cudnnDestroy");
  bind(dnn.set_stream, "cudnnSetStream");
  bind(dnn.descriptor_create, "cudnnBackendCreateDescriptor");
  bind(dnn.descriptor_destroy, "cudnnBackendDestroyDescriptor");
  bind(dnn.descriptor_finalize, "cudnnBackendFinalize");
  bind(dnn.attribute_set, "cudnnBackendSetAttribute");
  bind(dnn.attribute_get, "cudnnBackendGetAttribute");
  bind(dnn.execute, "cudnnBackendExecute");
}

/// The number is 10000 · major + 100 · minor + patch.
void read_version(Cudnn& dnn) {
  const auto version = static_cast<int>(dnn.get_version());
  dnn.version[0] = version / 10000;
  dnn.version[1] = version / 100 % 100;
  dnn.version[2] = version % 100;
}

Status load(Cudnn& dnn) {
  const auto lt = cublaslt();
  if (!lt.ok()) return lt.status();
  Library library(kSetting, places_of("libcudnn.so.9", (*lt)->version[0], "nvidia/cudnn/lib"));
  if (!library.is_loaded())
    return fail(
        Code::unsupported,
        "cuDNN cannot be loaded ({}): install the Python package nvidia-cudnn-cu{}, or name libcudnn.so.9 "
        "in {}",
        library.error(), (*lt)->version[0], kSetting);
  dnn.library = library.path();
  library.bind(dnn.get_version, "cudnnGetVersion");
  if (dnn.get_version != nullptr) read_version(dnn);
  if (dnn.version[0] != kCudnnMajor || dnn.version[1] < kOldestCudnnMinor)
    return fail(Code::unsupported,
                "{} is cuDNN {}.{}, Loom knows version {} from {}.{} on: name another in {}", dnn.library,
                dnn.version[0], dnn.version[1], kCudnnMajor, kCudnnMajor, kOldestCudnnMinor, kSetting);
  bind_all(library, dnn);
  if (!library.missing().empty())
    return fail(Code::unsupported, "{} has no function {}: name another libcudnn.so.9 in {}", dnn.library,
                library.missing(), kSetting);
  dnn.cuda_major = static_cast<int>(dnn.get_cudart_version() / 1000);
  if (dnn.cuda_major != (*lt)->version[0])
    return fail(Code::unsupported,
                "{} is for CUDA {}, and cuBLASLt ({}) for CUDA {}: name a cuDNN for CUDA {} in {}",
                dnn.library, dnn.cuda_major, (*lt)->library, (*lt)->version[0], (*lt)->version[0], kSetting);
  return {};
}

struct Loaded {
  Cudnn dnn{};
  Status status;
  Loaded() : status(load(dnn)) {}
};

/// Never destroyed, nor is the library closed: it has state of the primary context.
const Loaded& loaded() {
  static const Loaded* const instance = new Loaded;
  return *instance;
}

Code code_of(int status) {
  if (status == kDnnHostAllocationFailed || status == kDnnDeviceAllocationFailed) return Code::out_of_memory;
  return is_unsupported(status) ? Code::unsupported : Code::system_error;
}

/// What the library says of the last failure of this thread, in one line.
std::string last_words() {
  char text[512] = "";
  loaded().dnn.last_error(text, sizeof text);
  std::string line(text);
  for (char& c : line)
    if (c == '\n') c = ' ';
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

}  // namespace

Result<const Cudnn*> cudnn() {
  const Loaded& l = loaded();
  if (!l.status.ok()) return l.status;
  return &l.dnn;
}

Status check_dnn(int status, std::string_view what) {
  if (status == kDnnSuccess) return {};
  const std::string words = last_words();
  return fail(code_of(status), "{}: {} (cuDNN status {}){}{}", what, loaded().dnn.error_string(status),
              status, words.empty() ? "" : ", ", words);
}

}  // namespace loom::cuda
