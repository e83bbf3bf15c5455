// Looking, and agreeing.
#include "device/choice.h"

#include <algorithm>

#include "device/cuda/cublaslt.h"
#include "device/cuda/device.h"
#include "device/cuda/kernels.h"

namespace loom::device {
namespace {

constexpr int kFirstWithBf16 = 80;  // compute capability

/// Where the GPU is on its machine's bus, which numbers it alike for all processes; its ordinal if the driver
/// does not tell.
uint64_t identity_of(int ordinal) {
  constexpr int kPciBus = 33, kPciDevice = 34, kPciDomain = 50;  // of enum CUdevice_attribute
  const cuda::Driver& d = **cuda::driver();
  cuda::DeviceNumber number = 0;
  int domain = 0, bus = 0, slot = 0;
  const bool told = d.device_get(&number, ordinal) == cuda::kSuccess &&
                    d.device_get_attribute(&domain, kPciDomain, number) == cuda::kSuccess &&
                    d.device_get_attribute(&bus, kPciBus, number) == cuda::kSuccess &&
                    d.device_get_attribute(&slot, kPciDevice, number) == cuda::kSuccess;
  if (!told) return static_cast<uint64_t>(ordinal);
  return uint64_t{1} << 63 | static_cast<uint64_t>(domain) << 32 | static_cast<uint64_t>(bus) << 8 |
         static_cast<uint64_t>(slot);
}

/// That training can run on the device: what fails here would fail in the first step.
Status check_trains(cuda::Device& device, cuda::ElementType type, std::span<const cuda::KernelImage> images) {
  if (type == cuda::ElementType::bf16 && device.capability() < kFirstWithBf16)
    return fail(Code::unsupported,
                "{} has no bf16, which compute capability 8.0 brought: train in fp16 or fp32 there",
                device.describe());
  LOOM_TRY(cuda::cublaslt().status());
  // One image tells of all: they are compiled for the same devices.
  return cuda::Kernels::load(device, images.first(std::min<size_t>(1, images.size()))).status();
}

Status look(int local_rank, cuda::ElementType type, std::span<const cuda::KernelImage> images,
            FoundGpu& found) {
  const Result<int> devices = cuda::Device::count();
  LOOM_TRY(devices.status());
  const int ordinal = local_rank % *devices;
  const Result<std::unique_ptr<cuda::Device>> device = cuda::Device::open(ordinal);
  LOOM_TRY(device.status());
  LOOM_TRY(check_trains(**device, type, images));
  const Result<MemoryState> memory = (*device)->memory();
  LOOM_TRY(memory.status());
  found = {ordinal, (*device)->describe(), {}, memory->free, identity_of(ordinal)};
  return {};
}

}  // namespace

Wanted wanted_from(std::string_view name) {
  return name == "cpu" ? Wanted::cpu : name == "cuda" ? Wanted::cuda : Wanted::automatic;
}

FoundGpu look_for_gpu(Wanted wanted, int local_rank, cuda::ElementType type,
                      std::span<const cuda::KernelImage> images) {
  FoundGpu found;
  if (wanted == Wanted::cpu) found.why_not = "the job asks for CPUs";
  else if (const Status status = look(local_rank, type, images, found); !status.ok())
    found.why_not = status.message();
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
