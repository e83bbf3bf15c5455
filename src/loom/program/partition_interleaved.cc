// Parts dealt out in turn: what a stage computes is the sum of its parts, which no dynamic program over parts
// in their order can balance. Cuts are moved one at a time while that makes the stages more equal.
#include <algorithm>

#include "program/partition.h"

namespace loom::program {
namespace {

class Mover {
 public:
  Mover(const PartitionRequest& request, int stages, std::vector<int> first)
      : request_(request), stages_(stages), first_(std::move(first)) {}

  std::vector<int> run() {
    std::pair<double, double> best = score();
    for (bool moved = true; moved;) {
      moved = false;
      for (int part = 1; part < request_.parts; ++part) {
        const int last = end_of(part) - 1;
        int kept = first_[part];
        for (int unit = first_[part - 1] + 1; unit <= last; ++unit) {
          first_[part] = unit;
          if (!may_cut(request_, unit) || !fits(part - 1) || !fits(part)) continue;
          const std::pair<double, double> now = score();
          // Rounding must not let two equal partitions take turns.
          if (now.first > best.first + kSame || now.second > best.second - kSame) continue;
          best = now, kept = unit, moved = true;
        }
        first_[part] = kept;
      }
    }
    return first_;
  }

 private:
  static constexpr double kSame = 1e-12;

  int end_of(int part) const {
    return part + 1 < request_.parts ? first_[part + 1] : static_cast<int>(request_.units.size());
  }

  bool fits(int part) const {
    const double limit = request_.memory_limit_bytes;
    return limit == 0 || memory_of(request_, part, first_[part], end_of(part)) <= limit;
  }

  /// The largest cost of a stage, and the sum of squares of all; neither may grow.
  std::pair<double, double> score() const {
    std::vector<double> stages(stages_, 0.0);
    for (int part = 0; part < request_.parts; ++part)
      stages[part % stages_] += cost_of(request_, part, first_[part], end_of(part));
    double squares = 0;
    for (const double cost : stages) squares += cost * cost;
    return {*std::max_element(stages.begin(), stages.end()), squares};
  }

  const PartitionRequest& request_;
  const int stages_;
  std::vector<int> first_;
};

}  // namespace

Result<Partition> partition_interleaved(const PartitionRequest& request, int stages) {
  Result<Partition> exact = partition_exactly(request);
  LOOM_TRY(exact.status());
  return partition_by_hand(request, Mover(request, stages, exact->first_units).run());
}

}  // namespace loom::program
