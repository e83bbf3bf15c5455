// Allocation and registration.
#include "engine/arena.h"

#include "engine/groups.h"
#include "engine/memory_claims.h"
#include "engine/rank_device.h"
#include "engine/weft_call.h"

namespace loom::engine {
namespace {

/// Memory of the host.
Result<device::Memory> allocate(int64_t bytes) {
  void* memory = nullptr;
  if (const Status status = from_weft(weftMemAlloc(&memory, static_cast<size_t>(bytes))); !status.ok())
    return fail(Code::out_of_memory, "a rank needs {} bytes to communicate from: {}", bytes,
                status.message());
  return device::Memory(static_cast<std::byte*>(memory), bytes,
                        [](std::byte* data) { (void)weftMemFree(data); });
}

}  // namespace

Result<Arena> Arena::create(int64_t bytes, const Groups& groups, RankDevice& device) {
  if (!device.on_gpu()) LOOM_TRY(check_memory(bytes, groups));
  Result<device::Memory> memory = device.on_gpu() ? device.device().allocate(bytes) : allocate(bytes);
  LOOM_TRY(memory.status());
  Arena arena(memory.take());
  LOOM_TRY(arena.enroll(groups.of_arena()));
  device.queue().fill(arena.data(), std::byte(0), bytes);
  LOOM_TRY(device.queue().drain());
  return arena;
}

Result<Arena> Arena::create(int64_t bytes, std::span<const weftComm_t> comms) {
  Result<device::Memory> memory = allocate(bytes);
  LOOM_TRY(memory.status());
  Arena arena(memory.take());
  LOOM_TRY(arena.enroll(comms));
  return arena;
}

Status Arena::enroll(std::span<const weftComm_t> comms) {
  for (const weftComm_t comm : comms) {
    if (comm == nullptr) continue;
    void* handle = nullptr;
    LOOM_TRY_WEFT(weftCommRegister(comm, data(), static_cast<size_t>(bytes()), &handle));
    handles_.emplace_back(comm, handle);
  }
  return {};
}

Arena::~Arena() {
  for (const auto& [comm, handle] : handles_) (void)weftCommDeregister(comm, handle);
}

}  // namespace loom::engine
