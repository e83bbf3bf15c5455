// Places of ranks, and the two splits.
#include "engine/groups.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "engine/weft_call.h"

namespace loom::engine {

void Groups::swap(Groups& other) noexcept {
  std::swap(world_, other.world_);
  std::swap(partition_, other.partition_);
  std::swap(replication_, other.replication_);
  std::swap(places_, other.places_);
  std::swap(rank_, other.rank_);
  std::swap(ranks_, other.ranks_);
  std::swap(degree_, other.degree_);
  std::swap(place_, other.place_);
  std::swap(nodes_, other.nodes_);
}

Groups::~Groups() {
  // Whatever a failed communicator says here was said before.
  if (partition_) (void)weftCommDestroy(partition_);
  if (replication_) (void)weftCommDestroy(replication_);
}

Status Groups::place_ranks() {
  weftCommStats_t stats = WEFT_COMM_STATS_INITIALIZER;
  LOOM_TRY_WEFT(weftCommGetStats(world_, &stats));
  nodes_ = stats.nodes;
  std::vector<int> node_of(ranks_), order(ranks_);
  LOOM_TRY_WEFT(weftAllGather(&stats.node, node_of.data(), 1, weftInt32, world_, nullptr));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return node_of[a] < node_of[b]; });
  places_.resize(ranks_);
  for (int place = 0; place < ranks_; ++place) places_[order[place]] = place;
  place_ = places_[rank_];
  return {};
}

Result<Groups> Groups::create(weftComm_t world, int degree, bool strict) {
  Groups groups;
  if (world != nullptr) {
    LOOM_TRY_WEFT(weftCommCount(world, &groups.ranks_));
    LOOM_TRY_WEFT(weftCommUserRank(world, &groups.rank_));
  }
  if (degree < 1 || groups.ranks_ % degree != 0)
    return fail(Code::invalid_argument, "sharded_data_parallel_degree is {}, must divide the {} ranks",
                degree, groups.ranks_);
  groups.degree_ = degree;
  if (groups.ranks_ == 1) return groups;
  groups.world_ = world;
  LOOM_TRY(groups.place_ranks());
  weftConfig_t config = WEFT_CONFIG_INITIALIZER;
  config.strict = strict ? 1 : 0;
  const int replicas = groups.ranks_ / degree;
  config.commName = "partition";
  LOOM_TRY_WEFT(weftCommSplit(world, degree > 1 ? groups.group() : WEFT_SPLIT_NOCOLOR, groups.place_,
                              &groups.partition_, &config));
  config.commName = "replication";
  LOOM_TRY_WEFT(weftCommSplit(world, replicas > 1 ? groups.member() : WEFT_SPLIT_NOCOLOR, groups.place_,
                              &groups.replication_, &config));
  return groups;
}

Status Groups::barrier() const {
  if (world_ == nullptr) return {};
  int32_t one = 1, sum = 0;
  return from_weft(weftAllReduce(&one, &sum, 1, weftInt32, weftSum, world_, nullptr));
}

Status Groups::agree(const Status& own) const {
  if (world_ == nullptr) return own;
  // The lowest failing rank and its code, as one number.
  int32_t mine = own.ok() ? INT32_MAX : rank_ * 256 + static_cast<int>(own.code()), least = 0;
  LOOM_TRY_WEFT(weftAllReduce(&mine, &least, 1, weftInt32, weftMin, world_, nullptr));
  if (least == INT32_MAX) return {};
  std::array<char, 512> sentence{};
  const int first = least / 256;
  if (rank_ == first) own.message().copy(sentence.data(), sentence.size() - 1);
  LOOM_TRY_WEFT(
      weftBroadcast(sentence.data(), sentence.data(), sentence.size(), weftChar, first, world_, nullptr));
  if (!own.ok()) return own;
  return fail(static_cast<Code>(least % 256), "rank {}: {}", first, sentence.data());
}

}  // namespace loom::engine
