// MicrobatchCounts: how often each microbatch is in a sum. Microbatches are added in about their order, so
// what is kept is runs of neighbours that are in it equally often: few, however many microbatches there are.
//
// Thread safety: a value.
#pragma once

#include <algorithm>
#include <iterator>
#include <map>

namespace loom::program {

class MicrobatchCounts {
 public:
  MicrobatchCounts() = default;
  /// One of a single microbatch.
  explicit MicrobatchCounts(int microbatch) { add(microbatch, microbatch + 1, 1); }

  bool operator==(const MicrobatchCounts&) const = default;

  int of(int microbatch) const {
    const auto after = starts_.upper_bound(microbatch);
    return after == starts_.begin() ? 0 : std::prev(after)->second;
  }
  void add(const MicrobatchCounts& other) {
    for (auto run = other.starts_.begin(); run != other.starts_.end(); ++run)
      if (run->second != 0) add(run->first, std::next(run)->first, run->second);
  }
  /// The first of [0, microbatches) that is not in it exactly once; -1: none.
  int first_that_is_not_once(int microbatches) const {
    if (microbatches > 0 && of(0) != 1) return 0;
    for (const auto& [start, times] : starts_)
      if (start >= 0 && start < microbatches && times != 1) return start;
    return -1;
  }

 private:
  /// `times` more of the microbatches [begin, end).
  void add(int begin, int end, int times) {
    cut(begin);
    cut(end);
    for (auto run = starts_.find(begin); run->first != end; ++run) run->second += times;
    join(end);
    join(begin);
  }
  void cut(int at) { starts_.emplace(at, of(at)); }
  void join(int at) {
    const auto run = starts_.find(at);
    const int before = run == starts_.begin() ? 0 : std::prev(run)->second;
    if (run->second == before) starts_.erase(run);
  }

  std::map<int, int> starts_;  // of runs, each with its count; the last one's is 0
};

}  // namespace loom::program
