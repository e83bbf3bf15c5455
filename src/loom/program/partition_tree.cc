// SMP's algorithm: from the root of the model's tree downwards.
#include <algorithm>
#include <limits>

#include "program/partition.h"

namespace loom::program {
namespace {

/// Units [begin, end): one that is not cut, the list of blocks, or the model.
struct Node {
  int begin = 0;
  int end = 0;
  std::vector<Node> children = {};
  int leaves() const { return children.empty() ? 1 : static_cast<int>(children.size()); }
};

class Tree {
 public:
  explicit Tree(const PartitionRequest& request) : request_(request) {}

  /// First units of the parts that so many stages make of a row of nodes with at least as many leaves.
  std::vector<int> cut(const std::vector<Node>& nodes, int stages) const {
    if (stages == 1) return {nodes.front().begin};
    if (nodes.size() == 1) return cut(nodes.front().children, stages);
    const std::vector<std::vector<Node>> segments =
        segments_of(nodes, std::min(stages, static_cast<int>(nodes.size())));
    const std::vector<int> seats = seats_of(segments, stages);
    std::vector<int> first;
    for (size_t i = 0; i < segments.size(); ++i) {
      if (seats[i] == 0) continue;  // the stage before it computes it
      const std::vector<int> below = cut(segments[i], seats[i]);
      first.insert(first.end(), below.begin(), below.end());
    }
    first.front() = nodes.front().begin;  // or, where there is none, the one behind it
    return first;
  }

 private:
  double cost(int begin, int end) const { return cost_of(request_, 0, begin, end); }

  /// Contiguous segments of the least largest cost.
  std::vector<std::vector<Node>> segments_of(const std::vector<Node>& nodes, int count) const {
    const int size = static_cast<int>(nodes.size());
    const double never = std::numeric_limits<double>::infinity();
    std::vector<std::vector<double>> best(count + 1, std::vector<double>(size + 1, never));
    std::vector<std::vector<int>> from(count + 1, std::vector<int>(size + 1, 0));
    best[0][0] = 0;
    for (int segment = 1; segment <= count; ++segment)
      for (int end = segment; end <= size; ++end)
        for (int begin = segment - 1; begin < end; ++begin) {
          const double largest =
              std::max(best[segment - 1][begin], cost(nodes[begin].begin, nodes[end - 1].end));
          if (largest < best[segment][end]) best[segment][end] = largest, from[segment][end] = begin;
        }
    std::vector<std::vector<Node>> segments(count);
    for (int segment = count, end = size; segment > 0; --segment) {
      const int begin = from[segment][end];
      segments[segment - 1] = {nodes.begin() + begin, nodes.begin() + end};
      end = begin;
    }
    return segments;
  }

  /// d'Hondt; no segment gets more stages than it has leaves.
  std::vector<int> seats_of(const std::vector<std::vector<Node>>& segments, int stages) const {
    std::vector<int> seats(segments.size(), 0);
    for (int stage = 0; stage < stages; ++stage) {
      size_t winner = 0;
      double most = -1;
      for (size_t i = 0; i < segments.size(); ++i) {
        int leaves = 0;
        for (const Node& node : segments[i]) leaves += node.leaves();
        if (seats[i] >= leaves) continue;
        const double quotient = cost(segments[i].front().begin, segments[i].back().end) / (seats[i] + 1);
        if (quotient > most) most = quotient, winner = i;
      }
      ++seats[winner];
    }
    return seats;
  }

  const PartitionRequest& request_;
};

}  // namespace

Result<Partition> partition_by_tree(const PartitionRequest& request) {
  const int units = static_cast<int>(request.units.size());
  // Units that share parameters are one leaf: SMP merges their modules.
  std::vector<Node> blocks;
  for (int unit = 1; unit + 1 < units; ++unit) {
    if (!blocks.empty() && !may_cut(request, unit)) blocks.back().end = unit + 1;
    else blocks.push_back({unit, unit + 1});
  }
  std::vector<Node> root = {{0, 1}};
  if (!blocks.empty()) root.push_back({1, units - 1, blocks});
  if (units > 1) root.push_back({units - 1, units});
  const int leaves = static_cast<int>(blocks.size()) + (units > 1 ? 2 : 1);
  if (request.parts > leaves)
    return fail(Code::invalid_argument,
                "{} units, some of which must stay together, cannot be cut into {} parts", units,
                request.parts);
  return partition_by_hand(request, Tree(request).cut(root, request.parts));
}

}  // namespace loom::program
