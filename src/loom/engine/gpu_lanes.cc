// Events between streams.
#include "engine/gpu_lanes.h"

#include "device/cuda/device.h"

namespace loom::engine {

using program::Instruction;

Status GpuLanes::create(const program::Program& program, int64_t tier_bytes) {
  device::Device& device = device_.device();
  for (int lane = 0; lane < lanes_of(program); ++lane) {
    Result<std::unique_ptr<device::Queue>> queue = device.make_queue();
    LOOM_TRY(queue.status());
    lanes_.push_back(queue.take());
  }
  last_.resize(lanes_.size());
  issued_.resize(program.instructions.size());
  Result<std::unique_ptr<device::Event>> computed = device.make_event();
  LOOM_TRY(computed.status());
  computed_ = computed.take();
  if (tier_bytes == 0) return {};
  Result<device::Memory> tier = device.allocate_pinned(tier_bytes);
  if (!tier.ok()) return tier.status().in("memory of the host for offloaded activations");
  tier_ = tier.take();
  return {};
}

weftStream_t GpuLanes::stream(const Instruction& instruction) const {
  return reinterpret_cast<weftStream_t>(static_cast<cuda::Queue&>(lane(instruction)).stream());
}

void GpuLanes::move(size_t, const Instruction& instruction, int64_t offset, std::byte* memory,
                    int64_t bytes) {
  std::byte* const stored = tier_.data() + offset;
  if (instruction.op == program::Op::load) lane(instruction).copy(memory, stored, bytes);
  else lane(instruction).copy(stored, memory, bytes);
}

Status GpuLanes::note_issued(size_t index, const Instruction& instruction) {
  if (index >= issued_.size()) issued_.resize(index + 1);  // of another program, the first time
  if (issued_[index] == nullptr) {
    Result<std::unique_ptr<device::Event>> event = device_.device().make_event();
    LOOM_TRY(event.status());
    issued_[index] = event.take();
  }
  device::Queue& queue = lane(instruction);
  queue.record(*issued_[index]);
  last_[static_cast<size_t>(instruction.lane - 1)] = issued_[index].get();
  return queue.status();
}

Status GpuLanes::wait_before(const program::Program& program, const Instruction& instruction) {
  device::Queue& computing = device_.queue();
  for (const int before : instruction.events) {
    device::Event* const event = issued_[static_cast<size_t>(before)].get();
    computing.wait(*event);
    device::Event*& last =
        last_[static_cast<size_t>(program.instructions[static_cast<size_t>(before)].lane - 1)];
    if (last == event) last = nullptr;
  }
  if (instruction.joins) {
    computing.record(*computed_);
    lane(instruction).wait(*computed_);
  }
  return computing.status();
}

Status GpuLanes::wait_all() {
  for (device::Event*& event : last_)
    if (event != nullptr) device_.queue().wait(*std::exchange(event, nullptr));
  return device_.queue().status();
}

}  // namespace loom::engine
