// Places of ranks, the splits, and the end of them.
#include "engine/groups.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/weft_call.h"

namespace loom::engine {

void Groups::swap(Groups& other) noexcept {
  std::swap(world_, other.world_);
  std::swap(pipeline_back_, other.pipeline_back_);
  std::swap(groups_, other.groups_);
  std::swap(layout_, other.layout_);
  std::swap(places_, other.places_);
  std::swap(rank_, other.rank_);
  std::swap(ranks_, other.ranks_);
  std::swap(place_, other.place_);
  std::swap(nodes_, other.nodes_);
}

// A rank that leaves in good order is still waited for by those that have not heard of the failure: each
// group has heard of its own only. Whatever a failed communicator says here was said before.
Groups::~Groups() {
  if (const Status failure = failure_of_any(); !failure.ok()) abort(failure);
  for (const weftComm_t comm : all())
    if (comm != nullptr) (void)weftCommDestroy(comm);
}

std::array<weftComm_t, program::kGroupKinds + 2> Groups::all() const {
  std::array<weftComm_t, program::kGroupKinds + 2> all{world_, pipeline_back_};
  std::copy(groups_.begin(), groups_.end(), all.begin() + 2);
  return all;
}

Status Groups::failure_of_any() const {
  for (const weftComm_t comm : all()) {
    weftResult_t failure = weftSuccess;
    if (comm == nullptr || weftCommGetAsyncError(comm, &failure) != weftSuccess) continue;
    if (failure == weftSuccess || failure == weftInProgress) continue;
    return fail(Code::communication_error, "{}", weftGetLastError(comm));
  }
  return {};
}

/// Handles stay what they are: Weft refuses those of communicators that were aborted.
/// A reason that has come from another group goes on without the names of those that it has come through.
void Groups::abort(const Status& why) const {
  constexpr std::string_view kBehind = " was aborted: ";
  std::string reason = why.message();
  if (const size_t last = reason.rfind(kBehind); last != std::string::npos)
    reason.erase(0, last + kBehind.size());
  for (const weftComm_t comm : all())
    if (comm != nullptr) (void)weftCommAbortWithReason(comm, reason.c_str());
}

Status Groups::place_ranks() {
  weftCommStats_t stats = WEFT_COMM_STATS_INITIALIZER;
  LOOM_TRY_WEFT(weftCommGetStats(world_, &stats));
  nodes_ = stats.nodes;
  std::vector<int> node_of(ranks_);
  LOOM_TRY_WEFT(weftAllGather(&stats.node, node_of.data(), 1, weftInt32, world_, nullptr));
  places_ = layout_.places(node_of);
  place_ = places_[rank_];
  return {};
}

/// A group is named by the place of its first rank. Ranks without peers of that kind get none.
Status Groups::split(program::GroupKind kind, const char* name, bool strict, weftComm_t& into) {
  const std::vector<int> peers = layout_.peers(kind, place_);
  const auto self = std::find(peers.begin(), peers.end(), place_);
  weftConfig_t config = WEFT_CONFIG_INITIALIZER;
  if (strict) config.strict = 1;  // else what WEFT_STRICT says
  config.commName = name;
  return from_weft(weftCommSplit(world_, peers.size() > 1 ? peers.front() : WEFT_SPLIT_NOCOLOR,
                                 static_cast<int>(self - peers.begin()), &into, &config));
}

Result<Groups> Groups::create(weftComm_t world, const program::Layout& layout, bool strict) {
  using program::GroupKind;
  Groups groups;
  if (world != nullptr) {
    LOOM_TRY_WEFT(weftCommCount(world, &groups.ranks_));
    LOOM_TRY_WEFT(weftCommUserRank(world, &groups.rank_));
  }
  LOOM_TRY(layout.check());
  if (layout.ranks() != groups.ranks_)
    return fail(Code::invalid_argument, "the layout is for {} ranks, the communicator has {}", layout.ranks(),
                groups.ranks_);
  groups.layout_ = layout;
  if (groups.ranks_ == 1) return groups;
  weftConfig_t config = WEFT_CONFIG_INITIALIZER;
  config.commName = "run";
  LOOM_TRY_WEFT(weftCommSplit(world, 0, groups.rank_, &groups.world_, &config));
  LOOM_TRY(groups.place_ranks());
  const bool apart = layout.pipeline * layout.tensor > 1;
  for (int k = 0; k < program::kGroupKinds; ++k) {
    const auto kind = static_cast<GroupKind>(k);
    const bool wanted = kind == GroupKind::partition     ? layout.shard > 1
                        : kind == GroupKind::replication ? layout.replicas() > 1
                        : kind == GroupKind::tensor      ? layout.tensor > 1
                        : kind == GroupKind::model       ? apart
                                                         : layout.pipeline > 1;
    if (wanted) LOOM_TRY(groups.split(kind, program::group_name(kind), strict, groups.groups_[k]));
  }
  if (layout.pipeline > 1)
    LOOM_TRY(groups.split(GroupKind::pipeline, "pipeline back", strict, groups.pipeline_back_));
  return groups;
}

Status Groups::barrier() const {
  if (world_ == nullptr) return {};
  int32_t one = 1, sum = 0;
  return from_weft(weftAllReduce(&one, &sum, 1, weftInt32, weftSum, world_, nullptr));
}

Status agree(weftComm_t comm, const Status& own) {
  if (comm == nullptr) return own;
  int rank = 0;
  LOOM_TRY_WEFT(weftCommUserRank(comm, &rank));
  // The lowest failing rank and its code, as one number.
  int32_t mine = own.ok() ? INT32_MAX : rank * 256 + static_cast<int>(own.code()), least = 0;
  Status told = from_weft(weftAllReduce(&mine, &least, 1, weftInt32, weftMin, comm, nullptr));
  if (told.ok() && least == INT32_MAX) return {};
  std::array<char, 512> sentence{};
  const int first = least / 256;
  if (rank == first) own.message().copy(sentence.data(), sentence.size() - 1);
  if (told.ok())
    told = from_weft(
        weftBroadcast(sentence.data(), sentence.data(), sentence.size(), weftChar, first, comm, nullptr));
  if (!own.ok()) return own;
  LOOM_TRY(told);
  return fail(static_cast<Code>(least % 256), "rank {}: {}", first, sentence.data());
}

}  // namespace loom::engine
