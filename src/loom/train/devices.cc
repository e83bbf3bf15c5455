#include "train/devices.h"

#include <algorithm>
#include <cstring>

#include "device/cuda/device.h"
#include "engine/groups.h"
#include "engine/weft_call.h"
#include "train/threads.h"

namespace loom::train {
namespace {

/// GPU memory that a rank takes beside the arena, bytes. cuBLASLt's workspace takes 32 MiB. Scratch of the
/// embedding's kernels takes a quarter of a byte for each element of a microbatch's rows: 64 MiB for 65,536
/// rows of 4,096. The rest is for the images of kernels. No GPU has confirmed it.
constexpr int64_t kBesideArena = 256 << 20;

cuda::ElementType element_type_of(const Config& config) {
  return program::with_type(precision_of(config), []<typename T>(T) { return cuda::kElementType<T>; });
}

template <size_t N>
void put(const std::string& text, char (&into)[N]) {
  std::strncpy(into, text.c_str(), N - 1);
}

/// What says how a card rounds: its description without its number.
std::string_view card_of(const ToldGpu& told) {
  const std::string_view all = told.description;
  return all.substr(std::min(all.size(), all.find('(')));
}

bool same_gpu(const ToldGpu& a, const ToldGpu& b) {
  return a.machine == b.machine && a.identity == b.identity;
}

/// Of what is free, the least share of any rank.
int64_t memory_share(std::span<const ToldGpu> told) {
  int64_t least = INT64_MAX;
  for (const ToldGpu& own : told) {
    const auto sharers =
        std::count_if(told.begin(), told.end(), [&](const ToldGpu& other) { return same_gpu(own, other); });
    least = std::min(least, own.free_bytes / sharers - kBesideArena);
  }
  return std::max<int64_t>(0, least);
}

/// "": all cards are of one kind.
std::string mixed_cards(std::span<const ToldGpu> told) {
  for (size_t rank = 1; rank < told.size(); ++rank)
    if (card_of(told[rank]) != card_of(told[0]))
      return fmt::format(
          "rank 0 computes on {}, rank {} on {}, which may round otherwise, so that copies of the same state "
          "do not stay the same to the last bit",
          told[0].description, rank, told[rank].description);
  return {};
}

}  // namespace

ToldGpu told_of(const device::FoundGpu& found, uint64_t machine) {
  ToldGpu told{machine, found.identity, found.free_bytes, found.ordinal};
  put(found.description, told.description);
  put(found.why_not, told.why_not);
  return told;
}

Result<Devices> devices_of(const Config& config, std::span<const ToldGpu> told, int rank) {
  const device::Wanted wanted = device::wanted_from(config.parallel.device);
  std::vector<device::FoundGpu> found;
  for (const ToldGpu& each : told) found.push_back({each.ordinal, each.description, each.why_not, 0, 0});
  Devices devices;
  const Result<bool> on_gpus = device::computes_on_gpus(wanted, found, devices.reason);
  LOOM_TRY(on_gpus.status());
  if (!*on_gpus) {
    // Where no rank has a GPU there is nothing that a user would miss.
    const bool some =
        std::any_of(told.begin(), told.end(), [](const ToldGpu& each) { return each.ordinal >= 0; });
    if (some) devices.note = "all ranks compute on CPUs: " + devices.reason;
    return devices;
  }
  const std::string mixed = mixed_cards(told);
  if (!mixed.empty() && config.parallel.strict) return fail(Code::unsupported, "parallel.strict: {}", mixed);
  devices.note = mixed;
  devices.gpu = told[static_cast<size_t>(rank)].ordinal;
  devices.description = told[static_cast<size_t>(rank)].description;
  devices.memory_bytes = memory_share(told);
  return devices;
}

Result<Devices> choose_devices(const Config& config, weftComm_t comm) {
  const device::Wanted wanted = device::wanted_from(config.parallel.device);
  if (wanted == device::Wanted::cpu) return Devices();
  const Result<int> local = local_rank(comm);
  LOOM_TRY(local.status());
  int rank = 0, ranks = 1;
  if (comm != nullptr) {
    LOOM_TRY_WEFT(weftCommUserRank(comm, &rank));
    LOOM_TRY_WEFT(weftCommCount(comm, &ranks));
  }
  std::vector<ToldGpu> told(static_cast<size_t>(ranks));
  const auto tell = [&](const ToldGpu& own) -> Status {
    told[static_cast<size_t>(rank)] = own;
    if (comm != nullptr)
      LOOM_TRY_WEFT(weftAllGather(&own, told.data(), sizeof own, weftUint8, comm, nullptr));
    return {};
  };
  ToldGpu own = told_of(device::look_for_gpu(wanted, *local, element_type_of(config)), machine_id());
  LOOM_TRY(tell(own));
  Result<Devices> devices = devices_of(config, told, rank);
  LOOM_TRY(devices.status());
  if (devices->gpu >= 0) {
    Result<std::unique_ptr<cuda::Device>> device = cuda::Device::open(devices->gpu);
    LOOM_TRY(engine::agree(comm, device.status()));
    devices->device = device.take();
    // Now every rank has its context, which takes memory of GPUs that ranks share.
    const Result<device::MemoryState> memory = devices->device->memory();
    LOOM_TRY(engine::agree(comm, memory.status()));
    own.free_bytes = memory->free;
    LOOM_TRY(tell(own));
    devices->memory_bytes = memory_share(told);
  }
  return devices;
}

}  // namespace loom::train
