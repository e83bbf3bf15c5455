// GpuLanes: lanes of an arena on a GPU. Each is a CUDA stream, which a call of Weft takes as its stream, and
// the tier is pinned memory of the host. Streams wait for each other, and the host for none of them:
//
//   A lane waits, before each of its instructions, for the end of what is queued to compute.
//   The queue of operators waits for an instruction of a lane before what comes after that instruction.
//
// So whatever is issued later, on any lane, comes after both. That is the order that the memory planner and
// the verifier count with (program/order.h). Waits that follow from others are left out: the program says
// which are needed (Instruction::events and joins), and the verifier proves that they suffice. A failure on a
// stream shows when the host next waits for the device: at the norm.
//
// Thread safety: one thread.
#pragma once

#include "engine/lanes.h"
#include "engine/rank_device.h"

namespace loom::engine {

class GpuLanes final : public Lanes {
 public:
  /// `device` outlives it.
  explicit GpuLanes(RankDevice& device) : device_(device) {}
  /// As HostLanes::create(). Errors: out_of_memory, of the host for the tier; the driver's.
  Status create(const program::Program& program, int64_t tier_bytes);

  weftStream_t stream(const program::Instruction& instruction) const override;
  void move(size_t index, const program::Instruction& instruction, int64_t offset, std::byte* memory,
            int64_t bytes) override;
  Status note_issued(size_t index, const program::Instruction& instruction) override;
  Status wait_before(const program::Program& program, const program::Instruction& instruction) override;
  Status wait_all() override;
  /// 0: the host cannot tell for how long a GPU waits.
  double take_waited_seconds() override { return 0; }

 private:
  device::Queue& lane(const program::Instruction& instruction) const {
    return *lanes_[static_cast<size_t>(instruction.lane - 1)];
  }

  RankDevice& device_;
  device::Memory tier_;                                 // outlives the streams, which may still write to it
  std::vector<std::unique_ptr<device::Queue>> lanes_;   // 1, 2, …
  std::vector<std::unique_ptr<device::Event>> issued_;  // of each instruction on a lane, where it has one
  std::vector<device::Event*> last_;                    // of each lane; null where nothing was issued
  std::unique_ptr<device::Event> computed_;
};

}  // namespace loom::engine
