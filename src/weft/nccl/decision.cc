#include "nccl/decision.h"

#include "base/settings.h"
#include "nccl/gpu.h"
#include "nccl/library.h"

namespace weft::nccl {

const char* name_of(Backend backend) {
  switch (backend) {
    case Backend::weft: return "weft";
    case Backend::nccl: return "nccl";
    default: return "auto";
  }
}

Backend wanted_backend() {
  const std::string& set = settings().backend;
  return set == "weft" ? Backend::weft : set == "nccl" ? Backend::nccl : Backend::automatic;
}

bool weft_takes_device_memory() { return false; }

Decision decide(Backend wanted) {
  if (wanted != Backend::automatic) return {wanted, fmt::format("WEFT_BACKEND is {}", name_of(wanted))};
  if (!gpu()) return {Backend::weft, "this machine has no CUDA driver, so all buffers are host memory"};
  if (gpu()->devices() == 0)
    return {Backend::weft, "this process may use no GPU, so all buffers are host memory"};
  if (weft_takes_device_memory()) return {Backend::weft, "Weft takes the memory of this machine's GPUs"};
  const Result<const Library*>& library = Library::get();
  if (library.ok()) return {Backend::nccl, "there is a GPU, and Weft does not take device memory"};
  return {Backend::weft,
          fmt::format("there is a GPU, whose memory Weft does not take, but {}", library.status().message())};
}

}  // namespace weft::nccl
