// Looking, and agreeing.
#include "device/choice.h"

#include <algorithm>

#include "device/cuda/device.h"

namespace loom::device {
namespace {

constexpr int kFirstWithBf16 = 80;  // compute capability

}  // namespace

FoundGpu look_for_gpu(Wanted wanted, int local_rank, cuda::ElementType type) {
  FoundGpu found;
  if (wanted == Wanted::cpu) {
    found.why_not = "the job asks for CPUs";
    return found;
  }
  const Result<int> devices = cuda::Device::count();
  if (!devices.ok()) {
    found.why_not = devices.status().message();
    return found;
  }
  const int ordinal = local_rank % *devices;
  const Result<std::unique_ptr<cuda::Device>> device = cuda::Device::open(ordinal);
  if (!device.ok()) {
    found.why_not = device.status().message();
  } else if (type == cuda::ElementType::bf16 && (*device)->capability() < kFirstWithBf16) {
    found.why_not =
        fmt::format("{} has no bf16, which compute capability 8.0 brought: train in fp16 or fp32 there",
                    (*device)->describe());
  } else {
    found.ordinal = ordinal;
    found.description = (*device)->describe();
  }
  return found;
}

Result<bool> computes_on_gpus(Wanted wanted, std::span<const FoundGpu> found, std::string& reason) {
  if (wanted == Wanted::cpu) return false;
  const auto without =
      std::find_if(found.begin(), found.end(), [](const FoundGpu& each) { return each.ordinal < 0; });
  if (without == found.end()) return true;
  const auto with =
      std::find_if(found.begin(), found.end(), [](const FoundGpu& each) { return each.ordinal >= 0; });
  reason = fmt::format("rank {} has no GPU: {}", without - found.begin(), without->why_not);
  if (wanted == Wanted::automatic) return false;
  if (with == found.end()) return fail(Code::unsupported, "parallel.device is cuda, but {}", reason);
  return fail(Code::unsupported,
              "parallel.device is cuda, but {}; rank {} has {}: start ranks only where GPUs are, or set "
              "parallel.device to cpu",
              reason, with - found.begin(), with->description);
}

}  // namespace loom::device
