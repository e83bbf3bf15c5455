#include "engine/gpu/plan_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace weft::engine {
namespace {

constexpr uint64_t kLeastBytes = 1 << 20;  // of a block that shares its allocation with no other
constexpr uint32_t kSlotBytes = 256 << 10, kSlotBytesOfCaptures = 32 << 10;

uint64_t control_bytes(int ranks, uint32_t set) {
  return cuda::control_bytes(static_cast<uint32_t>(ranks), PlanMemory::slot_bytes(set));
}

/// Zeroes a block of device memory by copies, and waits for them.
Status clear(DeviceExecutor& executor, std::byte* data, size_t bytes) {
  const size_t piece = std::min<size_t>(bytes, 1 << 20);
  auto zeros = executor.host_blocks().take(piece);
  if (!zeros) return zeros.status();
  std::memset(zeros->data, 0, piece);
  Status cleared;
  for (size_t at = 0; at < bytes && cleared.ok(); at += piece)
    cleared = executor.queue(0).copy(data + at, zeros->data, std::min(piece, bytes - at));
  if (Status drained = executor.queue(0).drain(); cleared.ok()) cleared = drained;
  executor.host_blocks().give(*zeros);
  return cleared;
}

}  // namespace

uint32_t PlanMemory::slot_bytes(uint32_t set) { return set == 0 ? kSlotBytes : kSlotBytesOfCaptures; }

// one_hop has a place for the data of every rank, and for its own as a scalar multiplies it.
uint64_t PlanMemory::scratch_bytes(int ranks, uint32_t set) {
  return (static_cast<uint64_t>(ranks) + 1) * slot_bytes(set);
}

// A set is its control memory with slots, then its scratch. Behind all sets is the staging, then zeros for a
// set of a capture: the driver is not asked for memory while a graph is captured.
uint64_t PlanMemory::begin_of(uint32_t set) const {
  const auto bytes = [this](uint32_t of) { return control_bytes(ranks_, of) + scratch_bytes(ranks_, of); };
  return set == 0 ? 0 : bytes(0) + (set - 1) * bytes(1);
}

PlanMemory::PlanMemory(DeviceExecutor& executor, std::shared_ptr<NodeBoard> board, int rank, int ranks,
                       uint32_t captures)
    : executor_(executor),
      rank_(rank),
      ranks_(ranks),
      captures_(captures),
      of_rank_(static_cast<size_t>(ranks)),
      memory_{&executor.device(), std::move(board), {}, {}, {}, {}},
      of_set_(captures + 1) {
  memory_.board->note_path_begins();
}

Result<std::unique_ptr<PlanMemory>> PlanMemory::create(DeviceExecutor& executor,
                                                       std::shared_ptr<NodeBoard> board, int rank, int ranks,
                                                       uint32_t captures) {
  std::unique_ptr<PlanMemory> memory(new PlanMemory(executor, std::move(board), rank, ranks, captures));
  const uint64_t zeros_bytes = captures > 0 ? control_bytes(ranks, 1) : 0;
  auto own = memory->take_more(memory->zeros_at() + zeros_bytes);
  if (!own) return own.status();
  memory->own_ = own->data;
  memory->of_rank_[static_cast<size_t>(rank)] = own->data;
  for (uint32_t set = 0; set <= captures; ++set)
    WEFT_TRY(clear(executor, own->data + memory->begin_of(set), control_bytes(ranks, set)));
  WEFT_TRY(clear(executor, own->data + memory->zeros_at(), zeros_bytes));
  return memory;
}

PlanMemory::~PlanMemory() {
  for (const auto& blocks : of_set_)
    memory_.blocks.insert(memory_.blocks.end(), blocks.begin(), blocks.end());
  if (offered_) {
    give_back_unused(std::move(memory_));
  } else {
    memory_.board->note_path_ends();
    for (const cuda::Block& block : memory_.blocks) executor_.device_blocks().give(block);
  }
}

Result<cuda::Block> PlanMemory::take_more(uint64_t bytes, uint32_t set) {
  auto block = executor_.device_blocks().take(std::max(bytes, kLeastBytes));
  if (block) of_set_[set].push_back(*block);
  return block;
}

Status PlanMemory::clear_set(uint32_t set) {
  for (const cuda::Block& block : std::exchange(of_set_[set], {})) executor_.device_blocks().give(block);
  cuda::Queue& queue = executor_.queue(0);
  WEFT_TRY(queue.copy(own_ + begin_of(set), own_ + zeros_at(), control_bytes(ranks_, set)));
  return queue.drain();
}

Result<cuda::SharedMemory> PlanMemory::offer() {
  auto own = executor_.exporter().describe(own_, sizeof(cuda::PlanControl), true);
  offered_ = own.ok();
  return own;
}

Status PlanMemory::reach(int rank, const cuda::SharedMemory& offered) {
  if (rank == rank_) return {};
  auto reached = executor_.importer().reach_of_rank(rank, offered);
  if (!reached) return reached.status();
  of_rank_[static_cast<size_t>(rank)] = reached->address;
  if (reached->mapping) memory_.mappings.push_back(reached->mapping);
  return {};
}

cuda::PlanPeer PlanMemory::peer(int rank, uint32_t set) const {
  if (!of_rank_[static_cast<size_t>(rank)]) return {};
  std::byte* const control = of_rank_[static_cast<size_t>(rank)] + begin_of(set);
  return {control, {nullptr, nullptr, control + control_bytes(ranks_, set)}};
}

std::byte* PlanMemory::staging(int space) const {
  return own_ + begin_of(captures_ + 1) + static_cast<uint64_t>(space) * kStagingBytes;
}

}  // namespace weft::engine
