#include "nccl/decision.h"

#include "base/settings.h"
#include "device/cuda/driver.h"
#include "device/cuda/suits.h"
#include "nccl/gpu.h"
#include "nccl/library.h"

namespace weft::nccl {
namespace {

/// Weft cannot take the GPU memory, for this reason.
Decision nccl_if_there(const Status& why) {
  const Result<const Library*>& library = Library::get();
  if (!library.ok())
    return {Backend::weft, fmt::format("there is a GPU and no NCCL for it: {}", library.status().message())};
  return {Backend::nccl, fmt::format("Weft cannot take this machine's GPU memory: {}", why.message()), true};
}

}  // namespace

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

Status lacking(std::span<const int> devices) {
  if (!gpu() || gpu()->devices() == 0) return {};
  if (const Result<const device::cuda::Driver*>& driver = device::cuda::driver(); !driver.ok())
    return driver.status();
  for (const int ordinal : devices)
    if (const Status suits = device::cuda::suits(ordinal); suits.code() == Code::unsupported) return suits;
  return {};
}

Decision decide(Backend wanted) { return decide(wanted, {}); }

Decision decide(Backend wanted, std::span<const int> devices) {
  if (wanted != Backend::automatic) return {wanted, fmt::format("WEFT_BACKEND is {}", name_of(wanted))};
  if (!gpu()) return {Backend::weft, "this machine has no CUDA driver, so all buffers are host memory"};
  if (gpu()->devices() == 0)
    return {Backend::weft, "this process may use no GPU, so all buffers are host memory"};
  const Status lacks = lacking(devices);
  if (lacks.ok()) return {Backend::weft, "Weft takes the memory of this machine's GPUs itself"};
  return nccl_if_there(lacks);
}

}  // namespace weft::nccl
