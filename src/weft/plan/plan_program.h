// A plan as the instructions of a plan kernel (device/cuda/plan_program.h): for ranks that reach the memory
// of all ranks of their node. The kernel does what the plan says, with lanes as groups of thread blocks. What
// goes to other nodes passes through the proxy memory (crossing.h).
//
// Thread safety: pure functions.
#pragma once

#include <span>
#include <vector>

#include "device/cuda/plan_program.h"
#include "plan/plan.h"

namespace weft::plan {

/// How a plan becomes a program; the same on all ranks.
struct ProgramShape {
  uint32_t blocks = 1;               // of each lane
  uint64_t slot_bytes = 1 << 20;     // for what one rank puts eagerly to another of its node in an operation
  uint64_t packet_bytes = 16 << 10;  // the longest eager put inside a node that travels as packets
  uint64_t proxy_slot_bytes = 0;     // … and for a rank of another node
  bool scaled = false;               // the plans are of with_scaled_input()
};

/// The program of rank `rank`. `plans[r]` is rank r's, and verify() accepts them. Errors: unsupported, with
/// the reason, where the plans are not for this kernel: the same answer for every rank.
Result<device::cuda::PlanProgram> make_program(std::span<const Plan> plans, int rank,
                                               const topology::Layout& layout, const Limits& limits,
                                               const ProgramShape& shape);

/// The same plan of a pre-multiplied reduction: its first step makes a scaled copy of the input in scratch,
/// which all other steps read in the input's place. In a program that step is PlanAction::scale. Errors:
/// unsupported for a plan that exposes its input.
Result<Plan> with_scaled_input(const Plan& plan);

}  // namespace weft::plan
