// Choosing, sharing a GPU's memory, and what to change where it is too small.
#include "train/devices.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "device/cuda/device.h"
#include "engine/groups.h"
#include "engine/weft_call.h"
#include "train/threads.h"

namespace loom::train {
namespace {

/// Of a GPU's memory, what a rank takes beside the arena: 32 MiB for cuBLASLt's workspace; kernels' scratch,
/// which for the embedding is a quarter of a byte for each element of a microbatch's rows, 64 MiB at 65,536
/// rows of 4,096; and the images of kernels, for which the rest is an allowance that no GPU has confirmed.
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
  const ToldGpu own = told_of(device::look_for_gpu(wanted, *local, element_type_of(config)), machine_id());
  std::vector<ToldGpu> told = {own};
  int rank = 0, ranks = 1;
  if (comm != nullptr) {
    LOOM_TRY_WEFT(weftCommUserRank(comm, &rank));
    LOOM_TRY_WEFT(weftCommCount(comm, &ranks));
    told.resize(static_cast<size_t>(ranks));
    LOOM_TRY_WEFT(weftAllGather(&own, told.data(), sizeof own, weftUint8, comm, nullptr));
  }
  Result<Devices> devices = devices_of(config, told, rank);
  LOOM_TRY(devices.status());
  if (devices->gpu >= 0) {
    Result<std::unique_ptr<cuda::Device>> device = cuda::Device::open(devices->gpu);
    LOOM_TRY(engine::agree(comm, device.status()));
    devices->device = device.take();
    // Now every rank has its context, which takes memory of GPUs that ranks share.
    const Result<device::MemoryState> memory = devices->device->memory();
    LOOM_TRY(engine::agree(comm, memory.status()));
    told[static_cast<size_t>(rank)].free_bytes = memory->free;
    if (comm != nullptr) {
      const ToldGpu now = told[static_cast<size_t>(rank)];
      LOOM_TRY_WEFT(weftAllGather(&now, told.data(), sizeof now, weftUint8, comm, nullptr));
    }
    devices->memory_bytes = memory_share(told);
  }
  return devices;
}

namespace {

int64_t mib(int64_t bytes) { return bytes >> 20; }

/// A change of the config, and what it is called.
struct Change {
  enum class Kind { microbatch, recompute, both, ranks } kind;
  std::string words;
  Config config;
  int ranks = 1;
};

/// What needs less, the smallest changes first.
std::vector<Change> changes(const Config& config, const program::Job& job) {
  using Kind = Change::Kind;
  std::vector<Change> all;
  // The config that is to be changed.
  const auto add = [&](Change::Kind kind, std::string_view words, int ranks) -> Config& {
    Change& change = all.emplace_back();
    change.kind = kind;
    change.words = words;
    change.config = config;
    change.ranks = ranks;
    return change.config;
  };
  const int64_t batch = job.batch / (job.prescaled_batch ? 1 : job.tensor_degree);
  for (int64_t less = batch / 2; less >= 1; less /= 2)
    if (batch % less == 0)
      add(Kind::microbatch, fmt::format("data.microbatch={}", less), job.world).data.microbatch = less;
  if (config.parallel.activation_checkpointing.group == 0) {
    const std::string recompute = "parallel.activation_checkpointing=each";
    add(Kind::recompute, recompute, job.world).parallel.activation_checkpointing = {1, 1};
    if (batch > 1) {
      Config& smallest = add(Kind::both, "data.microbatch=1 with " + recompute, job.world);
      smallest.parallel.activation_checkpointing = {1, 1};
      smallest.data.microbatch = 1;
    }
  }
  for (const int times : {1, 2, 4, 8, 16, 32, 64}) {
    const int data = job.data_degree() * times;
    if (times == 1 && data == job.degree) continue;
    std::string words = fmt::format("parallel.sharded_data_parallel_degree={}", data);
    if (times > 1)
      words = fmt::format("{} ranks, each with as many sequences, and {}", job.world * times, words);
    Config& wider = add(Kind::ranks, words, job.world * times);
    wider.parallel.sharded_data_parallel_degree = data;
    wider.data.global_batch *= times;
  }
  return all;
}

/// The smallest change of each kind that fits, in words; "" if nothing does.
std::string what_fits(const Config& config, const model::ModelSpec& spec, const program::Job& job,
                      int64_t memory_bytes) {
  std::vector<std::string> fitting;
  std::optional<Change::Kind> last;
  for (const Change& change : changes(config, job)) {
    // Two changes are for where one is not enough.
    if (last == change.kind || (last && change.kind == Change::Kind::both)) continue;
    const Result<program::Job> made = job_of(change.config, spec, change.ranks);
    if (!made.ok()) continue;
    const Result<int64_t> bytes = arena_bytes(*made);
    if (!bytes.ok() || *bytes > memory_bytes) continue;
    fitting.push_back(fmt::format("{} ({} MiB)", change.words, mib(*bytes)));
    last = change.kind;
  }
  return fmt::format("{}", fmt::join(fitting, ", or "));
}

}  // namespace

Result<program::Job> job_on_gpus(const Config& config, const model::ModelSpec& spec, int ranks,
                                 const program::MeasuredUnits& measured, int64_t memory_bytes) {
  Config bounded = config;
  int64_t& limit = bounded.parallel.memory_limit_mb;
  const bool by_gpu = limit == 0 || limit > mib(memory_bytes);
  // 0 would be no limit.
  if (by_gpu) limit = std::max<int64_t>(1, mib(memory_bytes));
  Result<program::Job> job = job_of(bounded, spec, ranks, measured);
  if (job.ok() || !by_gpu || job.status().code() != Code::out_of_memory) return job;
  bounded.parallel.memory_limit_mb = 0;
  const bool open = bounded.parallel.sharded_data_parallel_degree == 0;
  const Result<program::Job> unbounded = job_of(bounded, spec, ranks, measured);
  LOOM_TRY(unbounded.status());
  const Result<int64_t> bytes = arena_bytes(*unbounded);
  LOOM_TRY(bytes.status());
  if (open) bounded.parallel.sharded_data_parallel_degree = unbounded->data_degree();
  const std::string fits = what_fits(bounded, spec, *unbounded, memory_bytes);
  return fail(Code::out_of_memory,
              "a rank's arena needs {} MiB of GPU memory, and {} MiB are free for it: {}", mib(*bytes) + 1,
              mib(memory_bytes),
              fits.empty() ? "nothing that was tried with this model fits, up to 64 times as many ranks"
                           : fits + " would fit");
}

}  // namespace loom::train
