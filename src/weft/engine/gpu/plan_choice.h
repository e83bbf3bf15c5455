// Which plan a kernel does for a call (plan_path.h), decided alike by all ranks:
//   one_hop   short calls: every rank puts its data into slots of all others
//   direct    longer ones: ranks expose their buffers, and read and write those of others
//
// On several nodes, the kernel does the steps inside its node. Its proxy (proxy.h) does those between nodes:
//   one_hop              every rank puts its data to all others
//   all_to_all           inside a node ranks read each other's buffers, and blocks go to other nodes
//   recursive_doubling   … in steps, each with one partner
//   binomial             … along a tree
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "device/cuda/plan_program.h"
#include "model/cost.h"
#include "plan/plan.h"

namespace weft::engine {

/// What the kernels of a communicator's ranks can do, the same on all ranks.
struct KernelReach {
  topology::Layout layout = topology::Layout::blocks(1, 1);
  uint32_t blocks = 1;         // of one kernel
  uint64_t slot_bytes = 0;     // of one sender: the longest eager put
  uint64_t message_bytes = 0;  // the longest put to another node
  uint64_t proxy_bytes = 0;    // of all puts to a rank of another node
  uint64_t scratch_bytes = 0;  // of a rank
  uint64_t exposed_bytes = 0;  // the longest buffer that a rank can expose; 0: none

  int ranks() const { return layout.ranks(); }
};

struct KernelPlan {
  const char* name = "";  // how statistics and the flight recorder call it: "one_hop_kernel"
  std::string_view algorithm;
  device::cuda::PlanProgram program;  // of one rank
  double predicted_us = 0;            // 0: nothing was measured
  plan::Plan crossing;                // its steps between nodes
};

/// For rank `rank`. `scaled`: of a pre-multiplied sum, whose plans are those of with_scaled_input().
/// `machine`: null where nothing was measured. Errors: unsupported, with the reason, the same on all ranks.
Result<KernelPlan> choose_kernel_plan(const plan::Request& request, bool scaled, int rank,
                                      const KernelReach& reach, const model::Machine* machine);

}  // namespace weft::engine
