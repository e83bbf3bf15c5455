// Parts dealt out in turn. A stage computes the sum of its parts, which no dynamic program over parts in
// their order can balance. First, cuts are moved one at a time while that helps. Then all partitions are
// tried, except those that cannot be better than the best one so far (branch and bound). If there are too
// many partitions, the best one that was found by then counts.
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
  double largest = kNever;   // cost of a stage
  double crossing = kNever;  // bytes of all cuts; numbers that are whole, so that equal ones are equal
  double squares = kNever;   // sum of the squares of all stages' costs
  bool operator<(const Score& other) const {
    if (largest < other.largest - kSame) return true;
    if (largest > other.largest + kSame) return false;
    return crossing != other.crossing ? crossing < other.crossing : squares < other.squares - kSame;
  }
};

/// Of each part: the sums over the units before each unit, so that a range's is a difference.
class Sums {
 public:
  template <typename F>
  Sums(int parts, int units, F&& value)
      : units_(units), before_(static_cast<size_t>(parts) * (units + 1), 0.0) {
    for (int part = 0; part < parts; ++part)
      for (int unit = 0; unit < units; ++unit) at(part, unit + 1) = at(part, unit) + value(part, unit);
  }
  double of(int part, int begin, int end) const { return at(part, end) - at(part, begin); }

 private:
  double& at(int part, int unit) { return before_[static_cast<size_t>(part) * (units_ + 1) + unit]; }
  double at(int part, int unit) const { return before_[static_cast<size_t>(part) * (units_ + 1) + unit]; }

  int units_;
  std::vector<double> before_;
};

/// The largest transient of each range of units: what does not add up.
class Transients {
 public:
  explicit Transients(const PartitionRequest& request)
      : stride_(request.units.size() + 1), most_(stride_ * stride_, 0.0) {
    for (size_t begin = 0; begin + 1 < stride_; ++begin)
      for (size_t end = begin + 1; end < stride_; ++end)
        most_[begin * stride_ + end] =
            std::max(most_[begin * stride_ + end - 1], request.units[end - 1].transient_bytes);
  }
  double of(int begin, int end) const {
    return most_[static_cast<size_t>(begin) * stride_ + static_cast<size_t>(end)];
  }

 private:
  size_t stride_;
  std::vector<double> most_;
};

class Search {
 public:
  Search(const PartitionRequest& request, int stages)
      : request_(request),
        parts_(request.parts),
        units_(static_cast<int>(request.units.size())),
        whole_(request),
        lasting_costs_(parts_, units_,
                       [&](int part, int unit) {
                         return whole_.of(lasting_bytes_of(request, part, unit, unit + 1),
                                          request.units[static_cast<size_t>(unit)].time_us);
                       }),
        lasting_bytes_(parts_, units_,
                       [&](int part, int unit) { return lasting_bytes_of(request, part, unit, unit + 1); }),
        transients_(request),
        rest_(units_ + 1, kNever),
        least_transient_(units_ + 1, kNever),
        least_crossing_(units_ + 1, kNever),
        sums_(stages, 0.0),
        room_(stages, kNever),
        first_(parts_, 0) {
    for (int begin = 0; begin <= units_; ++begin)
      for (int part = 0; part < parts_; ++part)
        rest_[begin] = std::min(rest_[begin], lasting_costs_.of(part, begin, units_));
    for (int unit = units_ - 1; unit >= 0; --unit)
      least_transient_[unit] =
          std::min(least_transient_[unit + 1], request.units[static_cast<size_t>(unit)].transient_bytes);
    for (int unit = units_ - 1; unit > 0; --unit)
      least_crossing_[unit] = std::min(least_crossing_[unit + 1], crossing_before(unit));
    if (request.memory_limit_bytes == 0) return;
    for (int stage = 0; stage < stages; ++stage)
      room_[stage] = request.memory_limit_bytes - (request.besides.empty() ? 0 : request.besides[stage]);
  }

  /// Begins with a partition that is known, and that need not keep the limit. Empty when none that it has
  /// seen does. Whether it has seen all that could be better is proven().
  std::vector<int> run(std::vector<int> known) {
    score_ = move_cuts(known);
    if (score_.largest < kNever) best_ = std::move(known);
    extend(0, 0, 0);
    return best_;
  }
  bool proven() const { return looked_at_ < kMost; }

 private:
  static constexpr int64_t kMost = 4'000'000;  // parts that are tried, in all

  size_t stage_of(int part) const { return static_cast<size_t>(part) % sums_.size(); }
  double cost(int part, int begin, int end) const {
    return lasting_costs_.of(part, begin, end) + whole_.of(transients_.of(begin, end), 0);
  }
  double bytes(int part, int begin, int end) const {
    return lasting_bytes_.of(part, begin, end) + transients_.of(begin, end);
  }
  bool may_begin_with(int unit) const { return unit == 0 || may_cut(request_, unit); }

  /// Bytes of a cut before this unit.
  double crossing_before(int unit) const {
    return unit > 0 && unit < units_ ? request_.units[unit - 1].boundary_bytes : 0;
  }

  static Score score_of(const std::vector<double>& sums, double crossing) {
    Score score{0, crossing, 0};
    for (const double sum : sums) {
      score.largest = std::max(score.largest, sum);
      score.squares += sum * sum;
    }
    return score;
  }

  Score score_of(const std::vector<int>& first) const {
    std::vector<double> sums(sums_.size(), 0.0), room = room_;
    double crossing = 0;
    for (int part = 0; part < parts_; ++part) {
      const int end = part + 1 < parts_ ? first[part + 1] : units_;
      if (!may_begin_with(first[part])) return {};
      crossing += crossing_before(first[part]);
      sums[stage_of(part)] += cost(part, first[part], end);
      room[stage_of(part)] -= bytes(part, first[part], end);
      if (room[stage_of(part)] < 0) return {};
    }
    return score_of(sums, crossing);
  }

  /// Moves one cut at a time to where it is best, until none helps.
  Score move_cuts(std::vector<int>& first) const {
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

  /// The best that can become of the parts so far, which end with `crossing` bytes, with `left` more: what is
  /// left is shared so that all stages are equal. One of these parts has the unit with the largest transient,
  /// and each of the others has one; its cuts, one fewer than the parts, are where least crosses.
  Score bound(int end, double crossing, int left) const {
    double all = rest_[end], largest = 0;
    if (left > 0) all += whole_.of(transients_.of(end, units_) + (left - 1) * least_transient_[end], 0);
    for (const double sum : sums_) all += sum, largest = std::max(largest, sum);
    const double stages = static_cast<double>(sums_.size());
    const double more = left > 1 ? (left - 1) * least_crossing_[end + 1] : 0;
    return {std::max(largest, all / stages), crossing + more, all * all / stages};
  }

  /// Tries every end of a part that begins with `begin`, behind cuts that `crossing` bytes cross.
  void extend(int part, int begin, double crossing) {
    if (part == parts_) {
      if (const Score now = score_of(sums_, crossing); now < score_) score_ = now, best_ = first_;
      return;
    }
    if (!may_begin_with(begin)) return;
    first_[part] = begin;
    double &sum = sums_[stage_of(part)], &room = room_[stage_of(part)];
    const double before = sum, room_before = room;
    const int left = parts_ - part - 1;
    for (int end = left == 0 ? units_ : begin + 1; end <= units_ - left; ++end) {
      if (++looked_at_ > kMost) break;
      sum = before + cost(part, begin, end);
      room = room_before - bytes(part, begin, end);
      if (room < 0 || sum > score_.largest + kSame) break;  // longer parts need and cost more
      const double crossed = crossing + crossing_before(end);
      if (bound(end, crossed, left) < score_) extend(part + 1, end, crossed);
    }
    sum = before;
    room = room_before;
  }

  const PartitionRequest& request_;
  const int parts_, units_;
  const WholeCost whole_;
  const Sums lasting_costs_, lasting_bytes_;
  const Transients transients_;
  std::vector<double> rest_;             // the least that units from here on cost, their transients left out
  std::vector<double> least_transient_;  // of units from here on, bytes
  std::vector<double> least_crossing_;   // the least that crosses a cut before a unit from here on
  std::vector<double> sums_;             // of each stage's costs, so far
  std::vector<double> room_;             // of each stage: bytes that the limit leaves it, so far
  std::vector<int> first_, best_;
  Score score_;
  int64_t looked_at_ = 0;
};

}  // namespace

Result<Partition> partition_interleaved(const PartitionRequest& request, int stages) {
  PartitionRequest anywhere = request;  // the limit is of stages, not of each part
  anywhere.memory_limit_bytes = 0;
  const Result<Partition> begin = partition_exactly(anywhere);
  LOOM_TRY(begin.status());
  Search search(request, stages);
  std::vector<int> first = search.run(begin->first_units);
  if (first.empty())
    return fail(Code::out_of_memory, "no partition into {} parts{} keeps each of {} stages below {:.1f} MiB",
                request.parts, search.proven() ? "" : " that was tried", stages,
                request.memory_limit_bytes / (1 << 20));
  Result<Partition> partition = partition_by_hand(request, std::move(first));
  LOOM_TRY(partition.status());
  Partition best = partition.take();
  best.proven = search.proven();
  return best;
}

}  // namespace loom::program
