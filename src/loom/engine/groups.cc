// Places of ranks, the splits, and the end of them.
#include "engine/groups.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "engine/weft_call.h"

namespace loom::engine {
namespace {

/// What agreeing takes.
struct Agreement {
  int32_t own, least;
  std::array<char, 512> sentence;
};

Status agree_by(weftComm_t comm, const Status& own, Agreement& told) {
  int rank = 0;
  LOOM_TRY_WEFT(weftCommUserRank(comm, &rank));
  // The lowest failing rank and its code, as one number.
  told = {own.ok() ? INT32_MAX : rank * 256 + static_cast<int>(own.code()), 0, {}};
  Status status = from_weft(weftAllReduce(&told.own, &told.least, 1, weftInt32, weftMin, comm, nullptr));
  if (status.ok() && told.least == INT32_MAX) return {};
  const int first = told.least / 256;
  std::array<char, 512>& sentence = told.sentence;
  if (rank == first) own.message().copy(sentence.data(), sentence.size() - 1);
  if (status.ok())
    status = from_weft(
        weftBroadcast(sentence.data(), sentence.data(), sentence.size(), weftChar, first, comm, nullptr));
  if (!own.ok()) return own;
  LOOM_TRY(status);
  return fail(static_cast<Code>(told.least % 256), "rank {}: {}", first, sentence.data());
}

}  // namespace

void Groups::swap(Groups& other) noexcept {
  std::swap(world_, other.world_);
  std::swap(pipeline_back_, other.pipeline_back_);
  std::swap(desk_, other.desk_);
  std::swap(groups_, other.groups_);
  std::swap(moving_, other.moving_);
  std::swap(layout_, other.layout_);
  std::swap(places_, other.places_);
  std::swap(rank_, other.rank_);
  std::swap(ranks_, other.ranks_);
  std::swap(place_, other.place_);
  std::swap(nodes_, other.nodes_);
  std::swap(gpu_, other.gpu_);
}

// A rank that leaves in good order is still waited for by those that have not heard of the failure: each
// group has heard of its own only. Whatever a failed communicator says here was said before.
Groups::~Groups() {
  if (const Status failed = failure(); !failed.ok()) abort(failed);
  desk_.reset();
  for (const weftComm_t comm : communicators())
    if (comm != nullptr) (void)weftCommDestroy(comm);
}

std::vector<weftComm_t> Groups::communicators() const {
  std::vector<weftComm_t> all{world_, pipeline_back_};
  all.insert(all.end(), groups_.begin(), groups_.end());
  if (gpu_ >= 0) all.insert(all.end(), moving_.begin(), moving_.end());
  return all;
}

std::vector<weftComm_t> Groups::of_arena() const {
  if (gpu_ < 0) return communicators();  // norms and losses are there, too
  std::vector<weftComm_t> all{pipeline_back_};
  all.insert(all.end(), moving_.begin(), moving_.end());
  return all;
}

Status Groups::failure() const {
  const auto failure_of = [](weftComm_t comm) -> Status {
    weftResult_t failure = weftSuccess;
    if (comm == nullptr || weftCommGetAsyncError(comm, &failure) != weftSuccess) return {};
    if (failure == weftSuccess || failure == weftInProgress) return {};
    return fail(Code::communication_error, "{}", weftGetLastError(comm));
  };
  LOOM_TRY(failure_of(world_));
  LOOM_TRY(failure_of(pipeline_back_));
  for (const weftComm_t comm : groups_) LOOM_TRY(failure_of(comm));
  for (const weftComm_t comm : moving_) LOOM_TRY(failure_of(comm));
  return {};
}

/// Handles stay what they are: Weft refuses those of communicators that were aborted.
/// A reason that has come from another group goes on without the names of those that it has come through.
void Groups::abort(const Status& why) const {
  constexpr std::string_view kBehind = " was aborted: ";
  std::string reason = why.message();
  if (const size_t last = reason.rfind(kBehind); last != std::string::npos)
    reason.erase(0, last + kBehind.size());
  for (const weftComm_t comm : communicators())
    if (comm != nullptr) (void)weftCommAbortWithReason(comm, reason.c_str());
}

Status Groups::place_ranks() {
  weftCommStats_t stats = WEFT_COMM_STATS_INITIALIZER;
  LOOM_TRY_WEFT(weftCommGetStats(world_, &stats));
  nodes_ = stats.nodes;
  const Result<std::vector<int>> node_of = gather(stats.node);
  LOOM_TRY(node_of.status());
  places_ = layout_.places(*node_of);
  place_ = places_[rank_];
  return {};
}

/// A group is named by the place of its first rank. Ranks without peers of that kind get none.
Status Groups::split(program::GroupKind kind, const std::string& name, bool strict, int gpu,
                     weftComm_t& into) {
  const std::vector<int> peers = layout_.peers(kind, place_);
  const auto self = std::find(peers.begin(), peers.end(), place_);
  weftConfig_t config = WEFT_CONFIG_INITIALIZER;
  if (strict) config.strict = 1;  // else what WEFT_STRICT says
  config.commName = name.c_str();
  if (gpu >= 0) config.device = gpu;
  return from_weft(weftCommSplit(world_, peers.size() > 1 ? peers.front() : WEFT_SPLIT_NOCOLOR,
                                 static_cast<int>(self - peers.begin()), &into, &config));
}

Result<Groups> Groups::create(weftComm_t world, const program::Layout& layout, bool strict, int gpu) {
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
  groups.gpu_ = gpu;
  if (groups.ranks_ == 1) return groups;
  weftConfig_t config = WEFT_CONFIG_INITIALIZER;
  config.commName = "run";
  LOOM_TRY_WEFT(weftCommSplit(world, 0, groups.rank_, &groups.world_, &config));
  LOOM_TRY(groups.make_desk());
  LOOM_TRY(groups.place_ranks());
  LOOM_TRY(groups.make_groups(strict));
  return groups;
}

Status Groups::make_groups(bool strict) {
  using program::GroupKind;
  const bool apart = layout_.pipeline * layout_.tensor > 1;
  for (int k = 0; k < program::kGroupKinds; ++k) {
    const auto kind = static_cast<GroupKind>(k);
    const bool wanted = kind == GroupKind::partition     ? layout_.shard > 1
                        : kind == GroupKind::replication ? layout_.replicas() > 1
                        : kind == GroupKind::tensor      ? layout_.tensor > 1
                        : kind == GroupKind::model       ? apart
                                                         : layout_.pipeline > 1;
    if (!wanted) continue;
    const std::string name = program::group_name(kind);
    LOOM_TRY(split(kind, name, strict, -1, groups_[k]));
    if (gpu_ < 0) moving_[k] = groups_[k];
    else if (kind != GroupKind::model) LOOM_TRY(split(kind, name + " of GPUs", strict, gpu_, moving_[k]));
  }
  if (layout_.pipeline > 1)
    LOOM_TRY(split(GroupKind::pipeline, "pipeline back", strict, gpu_, pipeline_back_));
  return {};
}

/// Of the same size on all ranks, since what is larger goes in pieces of it.
Status Groups::make_desk() {
  constexpr int64_t kLeast = 256 << 10;  // models go by it when they are saved
  const std::array<weftComm_t, 1> world = {world_};
  Result<Arena> desk = Arena::create(std::max(kLeast, (ranks_ + 1) * kMostTold), world);
  LOOM_TRY(desk.status());
  desk_.emplace(desk.take());
  return {};
}

Status Groups::barrier() const {
  if (world_ == nullptr) return {};
  auto* const numbers = desk_->as<int32_t>();
  numbers[0] = 1;
  return from_weft(weftAllReduce(numbers, numbers + 1, 1, weftInt32, weftSum, world_, nullptr));
}

Status Groups::agree(const Status& own) const {
  return world_ == nullptr ? own : agree_by(world_, own, *desk_->as<Agreement>());
}

Status Groups::gather_bytes(std::span<const std::byte> own, std::span<std::byte> all) const {
  if (world_ == nullptr) return {};
  std::byte* const to = desk_->data() + kMostTold;
  std::memcpy(desk_->data(), own.data(), own.size());
  LOOM_TRY_WEFT(weftAllGather(desk_->data(), to, own.size(), weftUint8, world_, nullptr));
  std::memcpy(all.data(), to, all.size());
  return {};
}

Result<int64_t> Groups::most(int64_t own) const {
  if (world_ == nullptr) return own;
  auto* const numbers = desk_->as<int64_t>();
  numbers[0] = own;
  LOOM_TRY_WEFT(weftAllReduce(numbers, numbers + 1, 1, weftInt64, weftMax, world_, nullptr));
  return numbers[1];
}

Result<std::string> Groups::of_first(std::string own, weftComm_t comm) const {
  if (comm == nullptr) return own;
  int rank = 0;
  LOOM_TRY_WEFT(weftCommUserRank(comm, &rank));
  const auto broadcast = [&](size_t bytes) {
    return from_weft(weftBroadcast(desk_->data(), desk_->data(), bytes, weftUint8, 0, comm, nullptr));
  };
  *desk_->as<uint64_t>() = own.size();
  LOOM_TRY(broadcast(sizeof(uint64_t)));
  own.resize(*desk_->as<uint64_t>());
  const auto most = static_cast<size_t>(desk_->bytes());
  for (size_t at = 0; at < own.size(); at += most) {
    const size_t some = std::min(most, own.size() - at);
    if (rank == 0) std::memcpy(desk_->data(), own.data() + at, some);
    LOOM_TRY(broadcast(some));
    std::memcpy(own.data() + at, desk_->data(), some);
  }
  return own;
}

Status Groups::send(std::span<const std::byte> bytes, int peer) const {
  for (const auto most = static_cast<size_t>(desk_->bytes()); !bytes.empty();) {
    const std::span<const std::byte> some = bytes.first(std::min(most, bytes.size()));
    std::memcpy(desk_->data(), some.data(), some.size());
    LOOM_TRY_WEFT(weftSend(desk_->data(), some.size(), weftUint8, peer, world_, nullptr));
    bytes = bytes.subspan(some.size());
  }
  return {};
}

Status Groups::receive(std::span<std::byte> bytes, int peer) const {
  for (const auto most = static_cast<size_t>(desk_->bytes()); !bytes.empty();) {
    const std::span<std::byte> some = bytes.first(std::min(most, bytes.size()));
    LOOM_TRY_WEFT(weftRecv(desk_->data(), some.size(), weftUint8, peer, world_, nullptr));
    std::memcpy(some.data(), desk_->data(), some.size());
    bytes = bytes.subspan(some.size());
  }
  return {};
}

Status agree(weftComm_t comm, const Status& own) {
  Agreement told;
  return comm == nullptr ? own : agree_by(comm, own, told);
}

Result<bool> any_rank(const Groups& groups, bool own) {
  const Result<int64_t> most = groups.most(own ? 1 : 0);
  LOOM_TRY(most.status());
  return *most != 0;
}

}  // namespace loom::engine
