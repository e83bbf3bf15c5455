#include "device/cuda/ipc.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "base/clock.h"
#include "device/cuda/deferred_free.h"

namespace weft::device::cuda {

namespace {

constexpr double kCloseSeconds = 1;
constexpr auto kBetweenLooks = std::chrono::microseconds(100);

}  // namespace

uint64_t process_number() {
  static const uint64_t number = [] {
    std::random_device random;
    return uint64_t{random()} << 32 | random();
  }();
  return number;
}

Result<SharedMemory> Exporter::describe(const void* address, size_t bytes, bool for_others) {
  auto place = locate(address);
  if (!place) return place.status();
  return describe(*place, address, bytes, for_others);
}

Result<SharedMemory> Exporter::describe(const Place& place, const void* address, size_t bytes,
                                        bool for_others) {
  SharedMemory memory;
  memory.process = process_number();
  memory.address = reinterpret_cast<uintptr_t>(address);
  memory.bytes = bytes;
  memory.ordinal = place.ordinal;
  memory.cuda_version = static_cast<uint16_t>((*driver())->version / 10);
  if (!for_others) return memory;
  if (!place.shareable)
    return fail(Code::unsupported, "CUDA cannot share the memory at {} with other processes", address);
  memory.buffer_id = place.buffer_id;
  memory.offset = memory.address - place.base;
  memory.whole = place.bytes;
  auto known = handles_.find(place.buffer_id);
  if (known == handles_.end()) {
    IpcHandle handle;
    WEFT_TRY(check((*driver())->ipc_get_mem_handle(&handle, place.base), "cuIpcGetMemHandle"));
    if (handles_.size() == kKept) handles_.clear();
    known = handles_.emplace(place.buffer_id, handle).first;
  }
  memory.handle = known->second;
  return memory;
}

Importer::Mapping::~Mapping() { DeferredFree::instance().add_mapping(device_, base_); }

Importer::Range Importer::range_of(const SharedMemory& memory) {
  const uint64_t first = memory.address - memory.offset;
  return {memory.process, first, first + memory.whole};
}

template <typename Condition>
void Importer::drop_if(Condition condition) {
  std::erase_if(dropped_, [](const Dropped& dropped) { return dropped.mapping.expired(); });
  std::erase_if(kept_, [&](const Kept& k) {
    if (!condition(k)) return false;
    if (k.mapping.use_count() > 1) dropped_.push_back({k.range, k.mapping});
    return true;
  });
}

// Mappings that prevent this one are closed even while a stream waits for this very operation, which fails
// otherwise.
Result<Importer::Reached> Importer::map(const SharedMemory& memory) {
  const Driver& d = **driver();
  const Range range = range_of(memory);
  drop_if([&](const Kept& k) { return k.range.overlaps(range); });
  DevicePointer base = 0;
  const int opened = d.ipc_open_mem_handle(&base, memory.handle, kIpcLazyPeerAccess);
  Status status =
      check(opened, "mapping a peer's GPU memory (cuIpcOpenMemHandle; WEFT_CUDA_IPC=off does without)");
  if (status.ok()) {
    auto mapping = std::make_shared<Mapping>(device_, base);
    return Reached{mapping->at(memory.offset), mapping};
  }
  if (opened == kAlreadyMapped) {
    auto closing = DeferredFree::instance().close_mappings();
    if (!closing) {
      drop_if([&](const Kept& k) { return k.range.process == range.process && k.mapping.use_count() == 1; });
      closing = DeferredFree::instance().close_mappings();
    }
    if (closing) return Reached{nullptr, nullptr, *closing, std::move(status), true};
    for (const Dropped& dropped : dropped_)
      if (dropped.range.overlaps(range) && !dropped.mapping.expired())
        return Reached{nullptr, nullptr, dropped.mapping, std::move(status)};
  }
  if (memory.cuda_version == d.version / 10) return status;
  return fail(status.code(),
              "{}; its driver is for CUDA {}.{}, this process's for {}.{}: give both the same one",
              status.message(), memory.cuda_version / 100, memory.cuda_version % 100, d.version / 1000,
              d.version % 1000 / 10);
}

Result<Importer::Reached> Importer::reach_of_rank(int rank, const SharedMemory& offered) {
  if (offered.bytes == 0) return fail(Code::unsupported, "rank {} shares no GPU memory", rank);
  const Deadline deadline = Deadline::in_seconds(kCloseSeconds);
  auto reached = reach(offered);
  for (; reached && reached->closing && !deadline.passed(); reached = reach(offered))
    std::this_thread::sleep_for(kBetweenLooks);
  const Status why = reached && !reached->address ? reached->why : reached.status();
  if (!why.ok()) return why.in(fmt::format("rank {}", rank));
  return reached;
}

Result<Importer::Reached> Importer::reach(const SharedMemory& memory) {
  if (memory.format != kSharedMemoryFormat)
    return fail(
        Code::mismatch,
        "its description of GPU memory has format {}, this library reads {}: use one version of libweft "
        "on all ranks",
        memory.format, kSharedMemoryFormat);
  if (memory.process == process_number()) {
    WEFT_TRY(device_.reach(memory.ordinal));
    return Reached{reinterpret_cast<std::byte*>(memory.address)};
  }
  auto known = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& k) {
    return k.range.process == memory.process && k.buffer_id == memory.buffer_id;
  });
  if (known == kept_.end()) {
    auto mapped = map(memory);
    if (!mapped || !mapped->address) return mapped;
    const auto is_of_peer = [&](const Kept& k) { return k.range.process == memory.process; };
    if (std::count_if(kept_.begin(), kept_.end(), is_of_peer) == kKept) {
      const auto* const oldest = std::find_if(kept_.rbegin(), kept_.rend(), is_of_peer)->mapping.get();
      drop_if([=](const Kept& k) { return k.mapping.get() == oldest; });
    }
    known = kept_.insert(kept_.end(), {range_of(memory), memory.buffer_id, mapped->mapping});
  }
  std::rotate(kept_.begin(), known, known + 1);
  const auto& mapping = kept_.front().mapping;
  return Reached{mapping->at(memory.offset), mapping};
}

}  // namespace weft::device::cuda
