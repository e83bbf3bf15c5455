#include "engine/gpu/proxy.h"

#include <cstring>

namespace weft::engine {

ProxyPlaces proxy_places(const plan::Plan& plan, const cuda::PlanProgram& program) {
  ProxyPlaces places;
  places.blocks = program.blocks;
  places.outgoing.resize(plan.steps.size());
  places.incoming.resize(plan.notifications());
  const auto find = [&](const plan::Step& step) -> const cuda::Instruction* {
    for (int i = 0; i < program.lane_begin[program.lanes]; ++i) {
      const cuda::Instruction& known = program.step[i];
      const bool waits = known.action == cuda::PlanAction::wait;
      if (known.flags & cuda::kCrosses && known.peer == step.peer && known.tag == step.tag &&
          waits == (step.kind == plan::StepKind::wait))
        return &known;
    }
    return nullptr;
  };
  for (size_t id = 0; id < plan.steps.size(); ++id) {
    const plan::Step& step = plan.steps[id];
    const cuda::Instruction* const of_kernel = find(step);
    if (!of_kernel) continue;
    if (step.kind == plan::StepKind::put) places.outgoing[id] = of_kernel->slot;
    else if (step.kind == plan::StepKind::wait)
      places.incoming[plan.wait_begin[static_cast<size_t>(step.peer)] + step.tag] = {of_kernel->slot,
                                                                                     of_kernel->bytes};
  }
  return places;
}

Result<std::unique_ptr<Proxy>> Proxy::create(DeviceExecutor& executor, int ranks) {
  const auto n = static_cast<uint32_t>(ranks);
  const uint64_t bytes = cuda::proxy_bytes(n, kSlotBytes);
  auto block = executor.host_blocks().take(bytes);
  if (!block) return block.status();
  std::memset(block->data, 0, sizeof(cuda::PlanProxy));
  return std::unique_ptr<Proxy>(new Proxy(executor, *block, n));
}

Proxy::~Proxy() {
  if (!outlives_) executor_.host_blocks().give(block_);
}

void Proxy::note_launched(uint64_t epoch) {
  launched_ = epoch;
  unsent_.insert(epoch);
}

void Proxy::note_sent(uint64_t epoch) {
  if (unsent_.erase(epoch) > 0) words_.tell_sent(unsent_.empty() ? launched_ : *unsent_.begin() - 1);
}

}  // namespace weft::engine
