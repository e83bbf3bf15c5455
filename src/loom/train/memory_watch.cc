#include "train/memory_watch.h"

#include <algorithm>

namespace loom::train {

void MemoryWatch::watch(std::function<int64_t()> used) {
  used_ = std::move(used);
  before_ = used_();
}

Status MemoryWatch::look(Moment after, const engine::Groups& groups) {
  constexpr int kLooks = 2;  // nothing is allocated after the first steps
  if (looks_[static_cast<size_t>(after)]++ >= kLooks) return {};
  own_bytes_ = std::max(own_bytes_, used_() - before_);
  const Result<int64_t> most = groups.most(own_bytes_);
  LOOM_TRY(most.status());
  most_bytes_ = *most;
  return {};
}

}  // namespace loom::train
