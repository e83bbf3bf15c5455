#include "job/founding.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/hash.h"
#include "base/settings.h"
#include "device/cuda/device.h"
#include "engine/run/gather_words.h"
#include "job/device_meeting.h"
#include "job/tuning.h"

namespace weft::job {
namespace {

using namespace engine;

// What sets ids of other kinds apart from those of splits, whose last part is a color.
constexpr uint64_t kShrunk = uint64_t{0x5eed} << 32;
constexpr uint64_t kGroup = uint64_t{0x6772} << 32;

// ---- A job

enum class Seat : uint8_t { on_host, on_device, yields_device };

/// What the ranks of a job have said when they met.
struct Met {
  bool all_on_devices = true;
  bool any_yields_device = false;
};

// Returns when every rank is reachable, or when one has failed to open its fabric. In the same exchange rank
// 0 says which machine the cost models use, and each rank says whether it has a device.
Result<Met> meet(Context& context, Seat seat, Deadline deadline) {
  std::vector<std::byte> mine =
      (context.rank() == 0 ? decide_machine(context.fabric()) : MachineDecision()).packed();
  mine.push_back(static_cast<std::byte>(seat));
  const auto all = context.bootstrap().all_gather(mine, deadline);
  if (!all) return all.status();
  Met met;
  for (size_t end = mine.size(); end <= all->size(); end += mine.size()) {
    const auto of_rank = static_cast<Seat>((*all)[end - 1]);
    met.all_on_devices &= of_rank == Seat::on_device;
    met.any_yields_device |= of_rank == Seat::yields_device;
  }
  const MachineDecision decision = MachineDecision::unpack({all->data(), mine.size() - 1});
  if (decision.tunes && !decision.measure) set_machine(context, decision.machine);
  else context.machine().machine = decision.machine;
  context.machine().wants_measuring = decision.measure;
  context.machine().tunes = decision.tunes;
  return met;
}

// A communicator of its own measures, so that nothing of it shows in the user's.
Status measure_first(const std::shared_ptr<Context>& context, uint32_t id, const std::vector<int>& worlds) {
  CommOptions apart;
  apart.name = "tuning";
  apart.timeout_s = settings().init_timeout_s;
  Communicator tuning(context, hash_32(~uint64_t{0}, id), worlds, std::move(apart));
  return measure_machine(*context, tuning);
}

// ---- Children

/// What a rank says in a split.
struct Choice {
  int32_t color, key;
  int32_t device;  // kYielded where that is nothing for Weft
};
constexpr int32_t kYielded = -2;
using Choices = Words<Choice>;

/// What a rank says when its communicator grows.
struct Growth {
  int32_t ranks;  // of the larger communicator
  int32_t has_id;
  bootstrap::UniqueId id;
};

NewComm make_child(const Communicator& parent, uint32_t id, std::vector<int> worlds, CommOptions options,
                   Siblings siblings, const Communicator* shrunk_from) {
  auto made = std::make_shared<Communicator>(parent.context().shared_from_this(), id, std::move(worlds),
                                             std::move(options));
  WEFT_TRY(open_device(*made, siblings, made->options().timeout_s, shrunk_from));
  return made;
}

// The one id of a growth, on which all ranks agree.
Result<bootstrap::UniqueId> agreed_id(const Words<Growth>& all, const Growth& own) {
  const bootstrap::UniqueId* id = nullptr;
  for (size_t rank = 0; rank + 1 < all.size(); ++rank) {
    if (all[rank].ranks != own.ranks)
      return fail(Code::mismatch, "nRanks is {} here, and {} on rank {}", own.ranks, all[rank].ranks, rank);
    if (!all[rank].has_id) continue;
    if (id)
      return fail(Code::mismatch,
                  "rank {} is the second that passes a uniqueId: one rank does, and the others "
                  "pass NULL",
                  rank);
    id = &all[rank].id;
  }
  if (!id)
    return fail(Code::invalid_argument,
                "no rank passes a uniqueId: the rank that called weftCommGetUniqueId passes what it gave");
  return *id;
}

// The child of the ranks that chose `color`.
NewComm make_split(const Communicator& parent, const Choices& all, int color, uint32_t split,
                   CommOptions options) {
  std::vector<int> members;
  for (int rank = 0; rank < parent.size(); ++rank)
    if (all[rank].color == color) members.push_back(rank);
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) { return all[a].key < all[b].key; });
  Siblings siblings = Siblings::on_devices;
  for (int& member : members) {
    if (all[member].device < 0) siblings = Siblings::mixed;
    if (all[member].device == kYielded) options.device = -1;
    member = parent.members().world_rank(member);
  }
  const uint32_t id = hash_32(static_cast<uint32_t>(color), hash_32(split, parent.id()));
  return make_child(parent, id, std::move(members), std::move(options), siblings, nullptr);
}

}  // namespace

NewComm create(const bootstrap::UniqueId& id, int rank, int ranks, CommOptions options) {
  WEFT_TRY(settings_status());
  if (const auto pins = model::parse_pins(settings().algo); !pins) return pins.status();
  // Here, so that the other ranks do not wait for a rank whose device cannot be opened.
  if (options.device >= 0)
    if (auto device = device::cuda::Device::open(options.device); !device) return device.status();
  const Deadline deadline = Deadline::in_seconds(settings().init_timeout_s);
  auto joined = Context::join(id, rank, ranks, options.host_id, options.device, deadline);
  if (!joined) return joined.status();
  const std::shared_ptr<Context> context = joined.take();
  const Seat seat = options.yields_device ? Seat::yields_device
                    : options.device >= 0 ? Seat::on_device
                                          : Seat::on_host;
  const auto met = meet(*context, seat, deadline);
  if (!met) return met.status();
  WEFT_TRY(context->begin(deadline));
  if (met->any_yields_device) options.device = -1;
  const auto comm_id = static_cast<uint32_t>(context->job());
  std::vector<int> worlds(static_cast<size_t>(ranks));
  std::iota(worlds.begin(), worlds.end(), 0);
  if (options.name.empty()) options.name = "world";
  if (context->machine().wants_measuring) WEFT_TRY(measure_first(context, comm_id, worlds));
  const Siblings siblings = met->all_on_devices ? Siblings::on_devices : Siblings::mixed;
  auto made = std::make_shared<Communicator>(context, comm_id, std::move(worlds), std::move(options));
  WEFT_TRY(open_device(*made, siblings, settings().init_timeout_s));
  return made;
}

Result<PendingComm> begin_split(Communicator& parent, int color, int key, CommOptions options) {
  const auto choices =
      words_of(parent, Choice{color, key, options.yields_device ? kYielded : options.device});
  Context& context = parent.context();
  const Lock lock = context.lock();
  const auto gathering = gather_words(parent, choices, Purpose::split);
  if (!gathering) return gathering.status();
  const uint32_t split = parent.operations().next_split();
  return PendingComm([=, &parent, &context, op = *gathering]() -> NewComm {
    Lock lock = context.lock();
    const Status gathered = end_gathering(lock, parent, op);
    lock.unlock();
    WEFT_TRY(gathered);
    if (color < 0) return std::shared_ptr<Communicator>();
    return make_split(parent, *choices, color, split, options);
  });
}

Status stay_out_of_split(Communicator& parent) {
  Context& context = parent.context();
  const Lock lock = context.lock();
  const auto gathering = gather_words(parent, words_of(parent, Choice{-1, 0, -1}), Purpose::split);
  if (!gathering) return gathering.status();
  (void)parent.operations().next_split();
  context.operations().release(*gathering);
  if (!context.sleepers().any_waiting()) context.waiting().wake_progress();
  return {};
}

// The larger communicator is a job of its own, in which new ranks meet those of the parent.
Result<PendingComm> begin_grow(Communicator& parent, int ranks, const bootstrap::UniqueId* id,
                               CommOptions options) {
  if (ranks <= parent.size())
    return fail(Code::invalid_argument, "nRanks is {}, must be more than the {} ranks of the communicator",
                ranks, parent.size());
  const Growth own{ranks, id != nullptr, id ? *id : bootstrap::UniqueId()};
  const auto growths = words_of(parent, own);
  Context& context = parent.context();
  const Lock lock = context.lock();
  const auto gathering = gather_words(parent, growths, Purpose::grow);
  if (!gathering) return gathering.status();
  return PendingComm([=, &parent, &context, op = *gathering]() -> NewComm {
    Lock lock = context.lock();
    const Status gathered = end_gathering(lock, parent, op);
    lock.unlock();
    WEFT_TRY(gathered);
    const Result<bootstrap::UniqueId> agreed = agreed_id(*growths, own);
    if (!agreed) return agreed.status();
    return create(*agreed, parent.rank(), ranks, options);
  });
}

Result<PendingComm> begin_group(Communicator& parent, const std::vector<int>& ranks, uint64_t tag,
                                CommOptions options) {
  std::vector<bool> in(static_cast<size_t>(parent.size()), false);
  uint32_t id = hash_32(kGroup, hash_32(tag, parent.id()));
  std::vector<int> members;
  for (const int rank : ranks) {
    if (rank < 0 || rank >= parent.size())
      return fail(Code::invalid_root, "ranksList names rank {}, must be in [0, {})", rank, parent.size());
    if (in[rank]) return fail(Code::invalid_argument, "ranksList names rank {} twice", rank);
    in[rank] = true;
    members.push_back(parent.members().world_rank(rank));
    id = hash_32(static_cast<uint64_t>(rank), id);
  }
  if (!in[parent.rank()])
    return fail(Code::invalid_argument, "ranksList lacks the calling rank, {}: only ranks of the group call",
                parent.rank());
  if (parent.options().device >= 0 && options.device >= 0 && options.device != parent.options().device)
    return fail(
        Code::invalid_argument,
        "config.device is {}, but a group keeps the communicator's device, {}: split it for another one",
        options.device, parent.options().device);
  return PendingComm([=, &parent]() -> NewComm {
    return make_child(parent, id, members, options, Siblings::on_devices, &parent);
  });
}

Result<PendingComm> begin_shrink(Communicator& parent, const std::vector<int>& excluded, bool abort_first,
                                 CommOptions options) {
  const int size = parent.size(), own = parent.rank();
  std::vector<bool> out(static_cast<size_t>(size), false);
  for (int rank : excluded) {
    if (rank < 0 || rank >= size)
      return fail(Code::invalid_root, "excluded rank {} is not in [0, {})", rank, size);
    out[rank] = true;
  }
  if (out[own])
    return fail(Code::invalid_argument, "rank {} excludes itself: only ranks that stay call shrink", own);
  // A shrink sends nothing. What the parent has found out about devices holds only while every rank keeps its
  // device.
  if (parent.options().device >= 0 && options.device >= 0 && options.device != parent.options().device)
    return fail(
        Code::invalid_argument,
        "config.device is {}, but shrinking keeps the communicator's device, {}: split it for another "
        "one",
        options.device, parent.options().device);
  const Lock lock = parent.context().lock();
  if (abort_first) parent.fail(fail(Code::aborted, "communicator {} was shrunk", parent.name()), false);
  // Shrinks have a count of their own: a failed split may have been begun on some ranks only.
  uint32_t id = hash_32(kShrunk, hash_32(parent.operations().next_shrunk(), parent.id()));
  std::vector<int> members;
  for (int rank = 0; rank < size; ++rank) {
    if (!out[rank]) members.push_back(parent.members().world_rank(rank));
    id = hash_32(out[rank], id);
  }
  return PendingComm([=, &parent]() -> NewComm {
    return make_child(parent, id, members, options, Siblings::on_devices, &parent);
  });
}

}  // namespace weft::job
