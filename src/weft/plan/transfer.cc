#include "plan/transfer.h"

namespace weft::plan {

void offer(const Task& task, Builder& b, int lane, int peer, uint64_t bytes, Space own, Phase phase) {
  if (!task.eager(peer, bytes)) b.signal(lane, peer, tag(phase), own);
}

void accept(const Task& task, Builder& b, int lane, int peer, uint64_t bytes, Space theirs, Phase phase) {
  if (!task.eager(peer, bytes)) b.wait(lane, peer, tag(phase), theirs);
}

StepId put_slices(Builder& b, int lane, int peer, Region src, Region dst, const Slices& slices, Phase phase,
                  std::span<const StepId> ready) {
  StepId last = kNoStep;
  for (int s = 0; s < slices.count(); ++s) {
    const uint64_t at = slices.begin(s);
    last = b.put(lane, peer, src + at, dst + at, slices.bytes(s), tag(phase, s),
                 s == 0 ? ready : std::span<const StepId>());
  }
  return last;
}

void receive_slices(Builder& b, int lane, int peer, const Slices& slices, Phase phase) {
  for (int s = 0; s < slices.count(); ++s) b.wait(lane, peer, tag(phase, s));
}

int lane_beside(const Task& task, Builder& b, int lane, int peer, uint64_t bytes) {
  const bool at_once = task.same_node(peer) && task.eager(peer, bytes) && Slices(bytes, task).count() <= 1;
  if (at_once) return lane;
  const int other = b.new_lane();
  return other == lane ? b.new_lane() : other;  // nothing has used `lane` so far
}

}  // namespace weft::plan
