#include "engine/lanes.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/weft_call.h"

namespace loom::engine {

using program::Instruction;

int lanes_of(const program::Program& program) {
  int lanes = 0;
  for (const Instruction& instruction : program.instructions) lanes = std::max(lanes, instruction.lane);
  return lanes;
}

HostLanes::~HostLanes() {
  for (const weftStream_t stream : streams_)
    if (stream != nullptr) (void)weftStreamDestroy(stream);  // what failed was said before
}

Status HostLanes::create(const program::Program& program, const std::string& tier_folder,
                         int64_t tier_bytes) {
  const int lanes = lanes_of(program);
  for (const Instruction& instruction : program.instructions)
    if (program::is_offloading(instruction.op)) tier_lane_ = instruction.lane;
  for (int lane = 1; lane <= lanes; ++lane) {
    weftStream_t stream = nullptr;
    if (lane != tier_lane_) LOOM_TRY_WEFT(weftStreamCreate(&stream));
    streams_.push_back(stream);
  }
  issued_.assign(static_cast<size_t>(lanes) + 1, 0);
  over_.assign(issued_.size(), 0);
  tickets_.resize(program.instructions.size());
  if (tier_bytes == 0) return {};
  Result<std::unique_ptr<Tier>> tier = Tier::create(tier_folder, tier_bytes);
  LOOM_TRY(tier.status());
  tier_ = tier.take();
  return {};
}

void HostLanes::move(size_t index, const Instruction& instruction, int64_t offset, std::byte* memory,
                     int64_t bytes) {
  tickets_[index] = instruction.op == program::Op::load ? tier_->load(offset, memory, bytes)
                                                        : tier_->store(offset, memory, bytes);
}

Status HostLanes::note_issued(size_t index, const Instruction& instruction) {
  if (index >= tickets_.size()) tickets_.resize(index + 1);  // of another program, the first time
  if (instruction.lane != tier_lane_)
    LOOM_TRY_WEFT(weftStreamGetPosition(stream(instruction), &tickets_[index]));
  issued_[static_cast<size_t>(instruction.lane)] = tickets_[index];
  return {};
}

Status HostLanes::wait_before(const program::Program& program, const Instruction& instruction) {
  for (const int before : instruction.after)
    LOOM_TRY(
        wait(program.instructions[static_cast<size_t>(before)].lane, tickets_[static_cast<size_t>(before)]));
  return {};
}

Status HostLanes::wait_all() {
  for (size_t lane = 1; lane < issued_.size(); ++lane) LOOM_TRY(wait(static_cast<int>(lane), issued_[lane]));
  return {};
}

Status HostLanes::wait(int lane, uint64_t ticket) {
  uint64_t& over = over_[static_cast<size_t>(lane)];
  if (ticket <= over) return {};
  const auto begin = std::chrono::steady_clock::now();
  if (lane == tier_lane_) LOOM_TRY(tier_->wait(ticket));
  else LOOM_TRY_WEFT(weftStreamSynchronizeTo(streams_[static_cast<size_t>(lane - 1)], ticket));
  over = ticket;
  waited_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return {};
}

double HostLanes::take_waited_seconds() { return std::exchange(waited_seconds_, 0.0); }

}  // namespace loom::engine
