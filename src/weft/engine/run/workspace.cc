#include "engine/run/workspace.h"

#include "base/clock.h"
#include "device/window.h"

namespace weft::engine {
namespace {

// Calls `act` with the begin and the length, in bytes, of each block of the caller's input. What lies between
// uneven blocks is not the operation's to read.
template <typename Act>
void for_each_input_block(const Operation& op, Act act) {
  const auto& uneven = op.call.uneven;
  if (!uneven || op.call.collective == plan::Collective::all_gather) {
    if (op.memory.bytes[0] > 0) act(uint64_t{0}, op.memory.bytes[0]);
    return;
  }
  const size_t element = device::size_of(op.call.type);
  for (const plan::Uneven::Block& block : uneven->given)
    if (block.count > 0) act(block.begin * element, block.count * element);
}

}  // namespace

Status Workspace::prepare(Operation& op) {
  const plan::Plan& plan = op.tables->plan;
  if (plan.scratch_bytes > kInlineScratch || op.tables->exposes[2]) {
    auto block = scratch_.take(plan.scratch_bytes);
    if (!block) return block.status();
    op.memory.scratch = *block;
    op.memory.base[2] = block->data;
  }
  if (op.call.premultiply && op.memory.bytes[0] > 0) {
    WEFT_TRY(stage(op, plan::Space::input, op.memory.staged_input));
    for_each_input_block(op, [&](uint64_t begin, uint64_t bytes) {
      device::scale(op.call.type, op.memory.base[0] + begin,
                    static_cast<const std::byte*>(op.call.send) + begin,
                    bytes / device::size_of(op.call.type), op.call.scalar);
    });
  }
  // Where the kernel forbids single-copy reads, what peers of the node must read goes through a window.
  if (!local_ || local_->peer_mapping()->reads_peers()) return {};
  if (op.tables->exposes[0] && !op.memory.staged_input.data &&
      !device::find_window(op.memory.base[0], op.memory.bytes[0])) {
    WEFT_TRY(stage(op, plan::Space::input, op.memory.staged_input));
    for_each_input_block(op, [&](uint64_t begin, uint64_t bytes) {
      device::copy(op.memory.base[0] + begin, static_cast<const std::byte*>(op.call.send) + begin, bytes);
    });
  }
  if (op.tables->exposes[1] && !device::find_window(op.memory.base[1], op.memory.bytes[1]))
    WEFT_TRY(stage(op, plan::Space::output, op.memory.staged_output));
  return {};
}

Status Workspace::stage(Operation& op, plan::Space space, ScratchPool::Block& block) {
  const int index = static_cast<int>(space);
  auto taken = scratch_.take(op.memory.bytes[index]);
  if (!taken) return taken.status();
  block = *taken;
  op.memory.base[index] = block.data;
  return {};
}

// Between uneven blocks the caller's memory stays as it is.
void Workspace::bring_back(const Operation& op) {
  const auto& uneven = op.call.uneven;
  const bool blocks = uneven && op.call.collective != plan::Collective::reduce_scatter;
  auto* const to = static_cast<std::byte*>(op.call.recv);
  if (!blocks) return device::copy(to, op.memory.staged_output.data, op.memory.bytes[1]);
  const size_t element = device::size_of(op.call.type);
  for (const plan::Uneven::Block& block : uneven->taken)
    device::copy(to + block.begin * element, op.memory.staged_output.data + block.begin * element,
                 block.count * element);
}

void Workspace::give_back(Operation& op, bool succeeded) {
  give_back(op, plan::Space::scratch, op.memory.scratch, succeeded);
  give_back(op, plan::Space::input, op.memory.staged_input, succeeded);
  give_back(op, plan::Space::output, op.memory.staged_output, succeeded);
}

void Workspace::give_back(const Operation& op, plan::Space space, ScratchPool::Block& block, bool succeeded) {
  if (!block.data) return;
  if (succeeded || !op.tables->exposes[static_cast<int>(space)]) scratch_.give(block);
  else scratch_.retire(block, now_ns());
  block = {};
}

std::byte* Workspace::bounce(size_t bytes) {
  if (bounce_.size() < bytes) bounce_.resize(bytes);
  return bounce_.data();
}

}  // namespace weft::engine
