// What generators share: the task they are given, how data is cut into blocks and slices, how notifications
// are named. Private to plan/.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "plan/plan.h"

namespace weft::plan {

/// What a generator is given. It may assume at least two ranks and, but for transfers, at least one element:
/// make_with() sees to the rest.
struct Task {
  const Request& request;
  const topology::Layout& layout;
  const Limits& limits;
  int rank;

  int ranks() const { return layout.ranks(); }
  int root() const { return request.root; }
  bool is_root() const { return rank == request.root; }
  uint64_t bytes() const { return request.bytes(); }
  /// The rank `distance` further round. Loops over peers use it so that not everybody starts with the same
  /// one.
  int rank_after(int distance) const { return (rank + distance) % ranks(); }
  int rank_before(int distance) const { return (rank + ranks() - distance) % ranks(); }
  bool same_node(int peer) const { return layout.same_node(rank, peer); }
  /// Whether `transfer_bytes` between this rank and `peer` need no exposed target.
  bool eager(int peer, uint64_t transfer_bytes) const {
    return transfer_bytes <= limits.eager_bytes(same_node(peer));
  }
};

/// Names of notifications: a phase of the schedule, and an index inside it. See Builder on tags.
enum class Phase : uint32_t {
  announce,
  open,
  open_input,
  open_scratch,
  open_rail,
  data,
  ready,
  credit,
  spread,
  collect,
  done,
  done_input
};
constexpr uint32_t tag(Phase phase, uint64_t index = 0) {
  return static_cast<uint32_t>(phase) << 27 | static_cast<uint32_t>(index);
}

/// Where slices and blocks like to begin: at multiples of 64 elements, which are whole cache lines.
constexpr uint64_t kAlignElements = 64;

constexpr uint64_t divide_up(uint64_t a, uint64_t b) { return (a + b - 1) / b; }
constexpr uint64_t round_up(uint64_t bytes, uint64_t unit) { return divide_up(bytes, unit) * unit; }

/// A buffer cut into consecutive blocks. Block 0 is the largest; later ones may be empty.
class Blocks {
 public:
  static Blocks equal(int parts, uint64_t bytes_each) {
    return Blocks(parts, bytes_each, 1, 0, bytes_each * parts);
  }
  /// As evenly as whole cache lines of whole elements allow.
  static Blocks divide(uint64_t bytes, uint32_t element_bytes, int parts) {
    const uint64_t line = std::lcm<uint64_t>(64, element_bytes), lines = divide_up(bytes, line);
    return Blocks(parts, line, lines / parts, lines % parts, bytes);
  }

  int count() const { return parts_; }
  uint64_t begin(int part) const {
    const uint64_t p = static_cast<uint64_t>(part);
    return std::min(total_, unit_ * (units_each_ * p + std::min(p, longer_)));
  }
  uint64_t bytes(int part) const { return begin(part + 1) - begin(part); }
  uint64_t largest() const { return bytes(0); }

 private:
  Blocks(int parts, uint64_t unit, uint64_t units_each, uint64_t longer, uint64_t total)
      : parts_(parts), unit_(unit), units_each_(units_each), longer_(longer), total_(total) {}
  int parts_;
  uint64_t unit_, units_each_;
  uint64_t longer_;  // so many blocks at the front have one unit more
  uint64_t total_;
};

/// How a transfer is cut so that hops pipeline: at most `most` slices, longer ones for longer data.
class Slices {
 public:
  static constexpr int kMost = 64;

  Slices(uint64_t bytes, const Task& task, int most = kMost) : bytes_(bytes) {
    const uint64_t wanted = divide_up(bytes, std::max<uint64_t>(1, task.limits.slice_bytes));
    const uint64_t pieces = std::clamp<uint64_t>(wanted, 1, static_cast<uint64_t>(most));
    each_ = std::max<uint64_t>(
        1, round_up(divide_up(bytes, pieces), kAlignElements * task.request.element_bytes));
  }
  /// The same cuts in a shorter transfer.
  Slices of(uint64_t bytes) const {
    Slices shorter = *this;
    shorter.bytes_ = bytes;
    return shorter;
  }

  /// The same transfer in two slices at least, if it can be cut.
  Slices halved(const Task& task) const {
    Slices two = *this;
    two.each_ = std::min(each_, round_up(divide_up(bytes_, 2), kAlignElements * task.request.element_bytes));
    return two;
  }

  /// The same transfer in one slice.
  Slices whole() const {
    Slices one = *this;
    one.each_ = std::max<uint64_t>(1, bytes_);
    return one;
  }

  uint64_t total() const { return bytes_; }
  int count() const { return static_cast<int>(divide_up(bytes_, each_)); }
  uint64_t begin(int slice) const { return std::min(bytes_, each_ * static_cast<uint64_t>(slice)); }
  uint64_t bytes(int slice) const { return begin(slice + 1) - begin(slice); }
  uint64_t each() const { return each_; }  // bytes of all slices but the last

 private:
  uint64_t bytes_, each_;
};

/// No algorithm needs more than four lanes a rank, and lanes are numbered in 16 bits.
inline constexpr int kMostRanks = 16000;

/// What every algorithm needs to be true of a request; names what is not.
Status fits_any(const Request& request, const topology::Layout& layout);
/// Reductions in strict order need an algorithm that brings all raw contributions to one place.
Status refuse_strict(const Request& request, std::string_view algorithm);
/// For algorithms that only send eagerly, the longest message of which is of `blocks` blocks.
Status refuse_long(const Request& request, uint64_t blocks, const topology::Layout& layout,
                   const Limits& limits, std::string_view algorithm);

/// The plan of a rank that is alone: its input is its output.
void plan_alone(const Task& task, Builder& builder);

/// Turns a generator into Algorithm::make.
template <const char* kName, void (*kGenerate)(const Task&, Builder&)>
Plan make_with(const Request& request, const topology::Layout& layout, const Limits& limits, int rank) {
  Builder builder(kName, request, layout.ranks(), rank);
  const Task task{request, layout, limits, rank};
  const bool has_steps = request.bytes() > 0 || is_transfer(request.collective);
  if (has_steps) layout.ranks() == 1 ? plan_alone(task, builder) : kGenerate(task, builder);
  return builder.finish();
}

// The table of each algorithm file: what registry.cc joins.
std::span<const Algorithm> one_hop_algorithms();
std::span<const Algorithm> direct_algorithms();
std::span<const Algorithm> all_to_all_algorithms();
std::span<const Algorithm> ring_algorithms();
std::span<const Algorithm> recursive_doubling_algorithms();
std::span<const Algorithm> recursive_halving_algorithms();
std::span<const Algorithm> binomial_algorithms();
std::span<const Algorithm> binomial_all_algorithms();
std::span<const Algorithm> double_tree_algorithms();
std::span<const Algorithm> bruck_algorithms();
std::span<const Algorithm> point_to_point_algorithms();

}  // namespace weft::plan
