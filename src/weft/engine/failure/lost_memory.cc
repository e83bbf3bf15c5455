#include "engine/failure/lost_memory.h"

#include <algorithm>
#include <array>

#include "engine/context/operation_table.h"
#include "engine/run/communicator.h"

namespace weft::engine {
namespace {

constexpr size_t kMostBuffers = 64;

/// A buffer that an operation uses.
struct Memory {
  const void* begin;
  uint64_t bytes;
  const char* name;

  bool meets(const void* other, uint64_t count) const {
    return MemoryWatch::Run{static_cast<const char*>(begin), static_cast<const char*>(begin) + bytes, false}
        .meets(other, count);
  }
};

std::array<Memory, 2> memories_of(const Operation& op) {
  return {Memory{op.call.send, op.tables->bytes[0], "its input"},
          Memory{op.call.recv, op.tables->bytes[1], "its output"}};
}

/// What another rank of this process has exposed: touched here directly.
Memory memory_of(const PeerBuffer& learned) {
  return {learned.mapped, learned.gate ? learned.buffer.bytes : 0,
          "a buffer of another rank of this process"};
}

}  // namespace

bool LostMemory::owns(const void* self, const void* address) {
  const auto& memory = *static_cast<const LostMemory*>(self);
  const auto holds = [address](const Memory& buffer) { return buffer.meets(address, 1); };
  const auto uses = [&](const Operation& op) {
    const auto own = memories_of(op);
    return std::any_of(own.begin(), own.end(), holds) ||
           std::any_of(op.progress.learned.begin(), op.progress.learned.end(),
                       [&](const PeerBuffer& learned) { return holds(memory_of(learned)); });
  };
  const Operation* const latest = memory.operations_.latest();
  const std::vector<Operation*>& active = memory.operations_.active();
  return (latest && uses(*latest)) ||
         std::any_of(active.begin(), active.end(), [&](const Operation* op) { return uses(*op); }) ||
         std::any_of(memory.buffers_.begin(), memory.buffers_.end(), [&](const auto& lost) {
           return holds({lost.first, lost.second, ""});
         });
}

Status LostMemory::of(const Operation& op) {
  const auto gone = [](const Memory& memory) {
    return MemoryWatch::lost(memory.begin, memory.bytes)
               ? fail(Code::invalid_usage,
                      "{} is not mapped ({} bytes at {}): it was freed while the operation used it, or never "
                      "valid; buffers must stay until their operation has ended",
                      memory.name, memory.bytes, memory.begin)
               : Status();
  };
  for (const Memory& memory : memories_of(op))
    if (Status why = gone(memory); !why.ok()) return why;
  for (const PeerBuffer& learned : op.progress.learned)
    if (Status why = gone(memory_of(learned)); !why.ok()) return why;
  return {};
}

void LostMemory::remember(const void* begin, uint64_t bytes) {
  const std::pair<const void*, uint64_t> buffer(begin, bytes);
  if (bytes == 0 || std::find(buffers_.begin(), buffers_.end(), buffer) != buffers_.end()) return;
  if (buffers_.size() == kMostBuffers) buffers_.erase(buffers_.begin());
  buffers_.push_back(buffer);
}

std::vector<std::pair<Communicator*, Status>> LostMemory::settle() {
  std::vector<std::pair<Communicator*, Status>> failures;
  for (Operation* op : operations_.active()) {
    Status why = of(*op);
    if (why.ok()) continue;
    failures.emplace_back(op->comm, why.in(describe(*op)));
    for (const Memory& memory : memories_of(*op)) remember(memory.begin, memory.bytes);
  }
  MemoryWatch::settle([](const MemoryWatch::Run&) {});
  return failures;
}

}  // namespace weft::engine
