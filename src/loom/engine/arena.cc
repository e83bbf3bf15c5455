// Allocation and registration.
#include "engine/arena.h"

#include <cstring>
#include <utility>

#include "engine/weft_call.h"

namespace loom::engine {

Result<Arena> Arena::create(int64_t bytes, const Groups& groups) {
  Arena arena;
  void* memory = nullptr;
  if (const Status status = from_weft(weftMemAlloc(&memory, static_cast<size_t>(bytes))); !status.ok())
    return fail(Code::out_of_memory, "a rank needs {} bytes for its arena: {}", bytes, status.message());
  arena.data_ = static_cast<std::byte*>(memory);
  arena.bytes_ = bytes;
  std::memset(memory, 0, static_cast<size_t>(bytes));
  for (const weftComm_t comm : {groups.partition(), groups.replication(), groups.ends(), groups.pipeline(),
                                groups.pipeline_back(), groups.tensor()}) {
    if (comm == nullptr) continue;
    void* handle = nullptr;
    LOOM_TRY_WEFT(weftCommRegister(comm, memory, static_cast<size_t>(bytes), &handle));
    arena.handles_.emplace_back(comm, handle);
  }
  return arena;
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
