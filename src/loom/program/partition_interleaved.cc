// Parts dealt out in turn: what a stage computes is the sum of its parts, which no dynamic program over parts
// in their order can balance. First cuts are moved one at a time while that helps. Then all partitions are
// looked at, but for those that cannot be better than the best one so far (branch and bound); models whose
// partitions are too many get the best that was found by then.
#include <algorithm>
#include <limits>

#include "program/partition.h"

namespace loom::program {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
/// Rounding must not let two equal partitions differ.
constexpr double kSame = 1e-12;

/// What a partition is judged by.
struct Score {
  double largest = kNever;  // cost of a stage
  double squares = kNever;  // sum of the squares of all stages' costs
  bool operator<(const Score& other) const {
    if (largest < other.largest - kSame) return true;
    return largest <= other.largest + kSame && squares < other.squares - kSame;
  }
};

class Search {
 public:
  Search(const PartitionRequest& request, int stages)
      : parts_(request.parts),
        units_(static_cast<int>(request.units.size())),
        costs_(static_cast<size_t>(parts_) * (units_ + 1) * (units_ + 1), kNever),
        rest_(units_ + 1, kNever),
        sums_(stages, 0.0),
        first_(parts_, 0) {
    const double limit = request.memory_limit_bytes;
    for (int part = 0; part < parts_; ++part)
      for (int begin = 0; begin < units_; ++begin) {
        rest_[begin] = std::min(rest_[begin], cost_of(request, part, begin, units_));
        if (begin > 0 && !may_cut(request, begin)) continue;
        for (int end = begin + 1; end <= units_; ++end)
          if (limit == 0 || memory_of(request, part, begin, end) <= limit)
            cost(part, begin, end) = cost_of(request, part, begin, end);
      }
    rest_[units_] = 0;
  }

  /// Begins with a partition that is known. Whether it has seen all that could be better is proven().
  std::vector<int> run(std::vector<int> known) {
    score_ = move_cuts(known);
    best_ = std::move(known);
    extend(0, 0);
    return best_;
  }
  bool proven() const { return looked_at_ < kMost; }

 private:
  static constexpr int64_t kMost = 4'000'000;  // parts that are tried, in all

  size_t stage_of(int part) const { return static_cast<size_t>(part) % sums_.size(); }
  double& cost(int part, int begin, int end) {
    return costs_[(static_cast<size_t>(part) * (units_ + 1) + begin) * (units_ + 1) + end];
  }

  static Score score_of(const std::vector<double>& sums) {
    Score score{0, 0};
    for (const double sum : sums) {
      score.largest = std::max(score.largest, sum);
      score.squares += sum * sum;
    }
    return score;
  }

  Score score_of(const std::vector<int>& first) {
    std::vector<double> sums(sums_.size(), 0.0);
    for (int part = 0; part < parts_; ++part)
      sums[stage_of(part)] += cost(part, first[part], part + 1 < parts_ ? first[part + 1] : units_);
    return score_of(sums);
  }

  /// Moves one cut at a time to where it is best, until none helps.
  Score move_cuts(std::vector<int>& first) {
    Score best = score_of(first);
    for (bool moved = true; moved;) {
      moved = false;
      for (int part = 1; part < parts_; ++part) {
        const int end = part + 1 < parts_ ? first[part + 1] : units_;
        int kept = first[part];
        for (int unit = first[part - 1] + 1; unit < end; ++unit) {
          first[part] = unit;
          if (const Score now = score_of(first); now < best) best = now, kept = unit, moved = true;
        }
        first[part] = kept;
      }
    }
    return best;
  }

  /// The best that can become of the parts so far: what is left is shared so that all stages are equal.
  Score bound(int end) const {
    double all = rest_[end], largest = 0;
    for (const double sum : sums_) all += sum, largest = std::max(largest, sum);
    const double stages = static_cast<double>(sums_.size());
    return {std::max(largest, all / stages), all * all / stages};
  }

  /// Tries every end of a part that begins with `begin`.
  void extend(int part, int begin) {
    if (part == parts_) {
      if (const Score now = score_of(sums_); now < score_) score_ = now, best_ = first_;
      return;
    }
    first_[part] = begin;
    double& sum = sums_[stage_of(part)];
    const double before = sum;
    const int left = parts_ - part - 1;
    for (int end = left == 0 ? units_ : begin + 1; end <= units_ - left; ++end) {
      if (++looked_at_ > kMost) break;
      const double own = cost(part, begin, end);
      if (own == kNever || before + own > score_.largest + kSame) break;  // longer parts cost more
      sum = before + own;
      if (bound(end) < score_) extend(part + 1, end);
    }
    sum = before;
  }

  const int parts_, units_;
  std::vector<double> costs_;  // [part, begin, end]
  std::vector<double> rest_;   // the least that units from here on cost
  std::vector<double> sums_;   // of each stage, so far
  std::vector<int> first_, best_;
  Score score_;
  int64_t looked_at_ = 0;
};

}  // namespace

Result<Partition> partition_interleaved(const PartitionRequest& request, int stages) {
  const Result<Partition> begin = partition_exactly(request);
  LOOM_TRY(begin.status());
  Search search(request, stages);
  Result<Partition> partition = partition_by_hand(request, search.run(begin->first_units));
  LOOM_TRY(partition.status());
  Partition best = partition.take();
  best.proven = search.proven();
  return best;
}

}  // namespace loom::program
