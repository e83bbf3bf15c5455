#include "device/cuda/waits.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

namespace weft::device::cuda {
namespace {

constexpr const char* kConnectionsVariable = "CUDA_DEVICE_MAX_CONNECTIONS";
constexpr const char* kLoadingVariable = "CUDA_MODULE_LOADING";
constexpr int kConnectionsByDefault = 8;
constexpr int kFewConnections = 16;  // fewer do not reach for the streams of usual programs

bool cuda_is_initialized() {
  void* const library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (!library) return false;
  const auto current = reinterpret_cast<int (*)(ContextHandle**)>(dlsym(library, "cuCtxGetCurrent"));
  ContextHandle* context = nullptr;
  const bool initialized = !current || current(&context) != kNotInitialized;
  dlclose(library);
  return initialized;
}

bool is_set_to(const char* variable, std::string_view value) {
  const char* const text = std::getenv(variable);
  return text && text == value;
}

/// Runs when the library is loaded, since most programs initialize CUDA later. It leaves the environment as
/// it is on machines without NVIDIA's driver, which have no such file, and in programs whose streams never
/// wait for Weft.
[[gnu::constructor]] void ask_at_load() {
  const bool has_driver = access("/dev/nvidiactl", F_OK) == 0 || std::getenv("WEFT_CUDA_LIBRARY");
  const bool wanted = !is_set_to("WEFT_BACKEND", "nccl") && !is_set_to("WEFT_CUDA_MEMOPS", "off");
  if (has_driver && wanted && !cuda_is_initialized()) ask_for_waits();
}

}  // namespace

void ask_for_waits() {
  setenv(kConnectionsVariable, std::to_string(kConnections).c_str(), 0);
  setenv(kLoadingVariable, "EAGER", 0);
}

Status streams_may_wait(const Driver& driver) {
  const char* const asked = std::getenv(kConnectionsVariable);
  if ((asked ? std::atoi(asked) : kConnectionsByDefault) < kFewConnections)
    return fail(Code::unsupported,
                "{} is {}, and when as many streams wait no kernel can start: set it to {} before CUDA is "
                "initialized (WEFT_CUDA_MEMOPS=on lets streams wait all the same)",
                kConnectionsVariable, asked ? asked : "8, its default", kConnections);
  int mode = kEagerLoading;  // what there was before there was a choice
  if (driver.module_get_loading_mode && driver.module_get_loading_mode(&mode) == kSuccess &&
      mode != kEagerLoading)
    return fail(Code::unsupported,
                "CUDA loads kernels when they are first launched, for which it waits for all streams: set "
                "{}=EAGER before CUDA is initialized (WEFT_CUDA_MEMOPS=on lets streams wait all the same)",
                kLoadingVariable);
  return {};
}

}  // namespace weft::device::cuda
