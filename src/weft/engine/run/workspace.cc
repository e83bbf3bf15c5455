#include "engine/run/workspace.h"

#include "base/clock.h"
#include "device/window.h"
#include "engine/context/fabric.h"
#include "engine/run/communicator.h"

namespace weft::engine {

Status Workspace::prepare(Operation& op) {
  const plan::Plan& plan = op.prepared->plan;
  const int ranks = op.comm->size();
  op.base[0] = static_cast<std::byte*>(const_cast<void*>(op.call.send));
  op.base[1] = static_cast<std::byte*>(op.call.recv);
  op.base_bytes[0] = plan::input_bytes(plan.request, ranks, plan.rank);
  op.base_bytes[1] = plan::output_bytes(plan.request, ranks, plan.rank);
  op.base_bytes[2] = plan.scratch_bytes;
  if (plan.scratch_bytes <= kInlineScratch && !op.prepared->exposes[2]) {
    op.base[2] = op.inline_scratch;
  } else {
    auto block = scratch_.take(plan.scratch_bytes);
    if (!block) return block.status();
    op.scratch = *block;
    op.base[2] = block->data;
  }
  if (op.call.premultiply && op.base_bytes[0] > 0) {
    WEFT_TRY(stage(op, plan::Space::input, op.staged_input));
    device::scale(op.call.type, op.base[0], op.call.send, op.base_bytes[0] / device::size_of(op.call.type),
                  op.call.scalar);
  }
  // Where the kernel forbids single-copy reads, what peers of the node must read goes through a window.
  const transport::Transport* const local = fabric_.local();
  if (!local || local->reads_peers()) return {};
  if (op.prepared->exposes[0] && !op.staged_input.data &&
      !device::find_window(op.base[0], op.base_bytes[0])) {
    WEFT_TRY(stage(op, plan::Space::input, op.staged_input));
    if (op.base_bytes[0]) device::copy(op.base[0], op.call.send, op.base_bytes[0]);
  }
  if (op.prepared->exposes[1] && !device::find_window(op.base[1], op.base_bytes[1]))
    WEFT_TRY(stage(op, plan::Space::output, op.staged_output));
  return {};
}

Status Workspace::stage(Operation& op, plan::Space space, ScratchPool::Block& block) {
  const int index = static_cast<int>(space);
  auto taken = scratch_.take(op.base_bytes[index]);
  if (!taken) return taken.status();
  block = *taken;
  op.base[index] = block.data;
  return {};
}

// Between uneven blocks the caller's memory stays as it is.
void Workspace::bring_back(const Operation& op) {
  const auto& uneven = op.call.uneven;
  const bool blocks = uneven && op.call.collective != plan::Collective::reduce_scatter;
  auto* const to = static_cast<std::byte*>(op.call.recv);
  if (!blocks) return device::copy(to, op.staged_output.data, op.base_bytes[1]);
  const size_t element = device::size_of(op.call.type);
  for (const plan::Uneven::Block& block : uneven->taken)
    device::copy(to + block.begin * element, op.staged_output.data + block.begin * element,
                 block.count * element);
}

void Workspace::give_back(Operation& op, bool succeeded) {
  give_back(op, plan::Space::scratch, op.scratch, succeeded);
  give_back(op, plan::Space::input, op.staged_input, succeeded);
  give_back(op, plan::Space::output, op.staged_output, succeeded);
}

void Workspace::give_back(const Operation& op, plan::Space space, ScratchPool::Block& block, bool succeeded) {
  if (!block.data) return;
  if (succeeded || !op.prepared->exposes[static_cast<int>(space)]) scratch_.give(block);
  else scratch_.retire(block, now_ns());
  block = {};
}

std::byte* Workspace::bounce(size_t bytes) {
  if (bounce_.size() < bytes) bounce_.resize(bytes);
  return bounce_.data();
}

}  // namespace weft::engine
