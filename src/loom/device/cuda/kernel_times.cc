// Pairs of events.
#include "device/cuda/kernel_times.h"

#include <algorithm>
#include <functional>
#include <map>

namespace loom::cuda {

KernelTimes::~KernelTimes() {
  const Scope scope(queue_.device());
  events_.clear();
}

const TimedEvent* KernelTimes::record() {
  const Scope scope(queue_.device());
  if (used_ == events_.size()) {
    Status made;
    events_.emplace_back(made);
    (void)queue_.keep(made);
  }
  const TimedEvent& event = events_[used_++];
  if (queue_.status().ok()) (void)queue_.keep(event.record(queue_.stream()));
  return &event;
}

void KernelTimes::begin(const std::string& name) { pieces_.push_back({section_, name, record(), nullptr}); }
void KernelTimes::end() { pieces_.back().end = record(); }

Result<std::vector<KernelTime>> KernelTimes::take() {
  LOOM_TRY(queue_.drain());
  const Scope scope(queue_.device());
  std::map<std::pair<std::string, std::string>, KernelTime> sums;
  for (const Piece& piece : pieces_) {
    const Result<float> ms = piece.end->ms_since(*piece.begin);
    LOOM_TRY(ms.status());
    KernelTime& sum = sums[{piece.section, piece.name}];
    sum.section = piece.section;
    sum.name = piece.name;
    ++sum.calls;
    sum.ms += *ms;
  }
  pieces_.clear();
  used_ = 0;
  std::vector<KernelTime> times;
  for (auto& [key, sum] : sums) times.push_back(std::move(sum));
  std::ranges::stable_sort(times, std::ranges::greater(), &KernelTime::ms);
  return times;
}

}  // namespace loom::cuda
