// Allocation and registration.
#include "engine/arena.h"

#include <cstring>
#include <utility>

#include "engine/groups.h"
#include "engine/memory_claims.h"
#include "engine/weft_call.h"

namespace loom::engine {

Result<Arena> Arena::create(int64_t bytes, const Groups& groups) {
  LOOM_TRY(check_memory(bytes, groups));
  const auto comms = groups.communicators();
  Result<Arena> arena = create(bytes, comms);
  if (arena.ok()) std::memset(arena->data_, 0, static_cast<size_t>(bytes));
  return arena;
}

Result<Arena> Arena::create(int64_t bytes, std::span<const weftComm_t> comms) {
  Arena arena;
  void* memory = nullptr;
  if (const Status status = from_weft(weftMemAlloc(&memory, static_cast<size_t>(bytes))); !status.ok())
    return fail(Code::out_of_memory, "a rank needs {} bytes to communicate from: {}", bytes,
                status.message());
  arena.data_ = static_cast<std::byte*>(memory);
  arena.bytes_ = bytes;
  for (const weftComm_t comm : comms) LOOM_TRY(arena.enroll(comm));
  return arena;
}

Status Arena::enroll(weftComm_t comm) {
  if (comm == nullptr) return {};
  void* handle = nullptr;
  LOOM_TRY_WEFT(weftCommRegister(comm, data_, static_cast<size_t>(bytes_), &handle));
  handles_.emplace_back(comm, handle);
  return {};
}

Arena::Arena(Arena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      handles_(std::exchange(other.handles_, {})) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(handles_, other.handles_);
  return *this;
}

Arena::~Arena() {
  for (const auto& [comm, handle] : handles_) (void)weftCommDeregister(comm, handle);
  if (data_ != nullptr) (void)weftMemFree(data_);
}

}  // namespace loom::engine
