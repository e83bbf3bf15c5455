// Making communicators: of a new job, by a split, a shrink or a growth, and of some ranks of another one.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <utility>

#include "api/comm_spec.h"
#include "api/group.h"
#include "api/handles.h"
#include "base/cancellation.h"
#include "base/mutex.h"
#include "base/settings.h"
#include "base/thread.h"
#include "bootstrap/launch.h"
#include "job/founding.h"

namespace weft::api {
namespace {

using engine::CommOptions;
using engine::Communicator;
using job::NewComm;
using job::PendingComm;

// Puts what a creation has come to into its handle, which may have been aborted in the meantime: then nobody
// uses it, and the others are told.
Status settle(weftComm_t handle, NewComm made, const std::shared_ptr<Fallback>& fallback) {
  const MutexLock guard(handle->mutex);
  const bool aborted = handle->state.load() == weftComm::destroyed;
  if (!made) {
    handle->creation = made.status();
    if (!aborted) handle->state.store(weftComm::failed_to_create, std::memory_order_release);
    return made.status();
  }
  if (!*made) {  // split: this rank is in no new communicator
    handle->state.store(weftComm::destroyed, std::memory_order_release);
    return {};
  }
  if (aborted) {
    if (fallback) fallback->abort();
    (*made)->abort(handle->aborted_for);
    return fail(Code::aborted, "the communicator was aborted while it was being created");
  }
  handle->comm = made.take();
  handle->fallback = fallback && fallback->is_needed() ? fallback : nullptr;
  if (fallback) {
    handle->yielded_device = fallback->yielded_device();
    handle->yielded_for = fallback->lack();
  }
  handle->state.store(weftComm::live, std::memory_order_release);
  return {};
}

// Fills a new handle, now or at the group's end: `begin` takes the creation's place among the calls on
// `parent`; the rest is done there and then, or (non-blocking) on a thread of its own.
Status create(weftComm_t* out, const CommSpec& spec, Communicator* parent,
              std::function<Result<PendingComm>()> begin) {
  weftComm* handle = new_comm_handle();
  *out = handle;
  handle->backend = spec.backend;
  const auto fill =
      [handle, fallback = Fallback::make(spec.backend, spec.device, spec.lacks)](const PendingComm& rest) {
        NewComm made = rest();
        if (made && *made && fallback)
          if (Status attached = fallback->attach(made->get()); !attached.ok()) made = attached;
        return settle(handle, std::move(made), fallback);
      };
  const auto refuse = [handle, out](const Status& why) {
    (void)settle(handle, why, nullptr);
    *out = nullptr;
  };
  const auto run = [=, blocking = spec.options.blocking, begin = std::move(begin)]() -> Status {
    Result<PendingComm> rest = begin();
    if (!rest) {
      refuse(rest.status());
      return rest.status();
    }
    if (!blocking) {
      Result<std::thread> thread = start_thread("weft-create", [handle, fill, rest = rest.take()] {
        const Cancellation by_abort(handle->creation_cancelled);
        (void)fill(rest);
      });
      if (!thread) {
        refuse(thread.status());
        return thread.status();
      }
      handle->background = thread.take();
      return {};
    }
    Status filled = fill(*rest);
    // A failed creation leaves nothing behind that the caller would have to free.
    if (handle->state.load() != weftComm::live) *out = nullptr;
    return filled;
  };
  WEFT_TRY(create_or_note({.parent = parent, .create = run, .cancel = refuse}));
  if (spec.options.blocking) return {};
  return fail(Code::in_progress, "the communicator is being created");
}

// One that begins a job of its own has no place to take.
Status create(weftComm_t* out, const CommSpec& spec, PendingComm make) {
  return create(out, spec, nullptr, [make = std::move(make)]() -> Result<PendingComm> { return make; });
}

Status check_members(int nranks, int rank) {
  if (nranks < 1) return fail(Code::invalid_argument, "nranks is {}, must be at least 1", nranks);
  if (rank < 0 || rank >= nranks)
    return fail(Code::invalid_root, "rank is {}, must be in [0, {})", rank, nranks);
  return {};
}

Status init_rank(weftComm_t* comm, int nranks, const weftUniqueId& id, int rank, const weftConfig_t* config) {
  if (!comm) return fail(Code::invalid_pointer, "comm is NULL");
  *comm = nullptr;
  WEFT_TRY(settings_status());
  WEFT_TRY(check_members(nranks, rank));
  bootstrap::UniqueId unique;
  std::memcpy(unique.bytes.data(), id.internal, sizeof id.internal);
  WEFT_TRY(bootstrap::check_unique_id(unique));
  const auto spec = spec_of(config);
  if (!spec) return spec.status();
  return create(comm, *spec,
                [=, options = spec->options] { return job::create(unique, rank, nranks, options); });
}

// What is behind a handle, kept beyond its end.
Result<std::shared_ptr<Communicator>> kept(weftComm_t handle) {
  const InUse in_use(handle);
  auto found = usable(handle);
  if (!found) return found.status();
  return handle->comm;
}

enum class Way { split, split_without_child, shrink };

// A child by `begin`, of a parent that is kept until it is made.
template <typename Begin>
Status derive(weftComm_t parent, weftComm_t* newcomm, const weftConfig_t* config, Way way, Begin begin) {
  auto found = kept(parent);
  if (!found) return found.status();
  const std::shared_ptr<Communicator> keep = found.take();
  const auto spec = spec_of_child(parent, keep->options(), config, way != Way::shrink);
  if (!spec) return spec.status();
  if (way == Way::split_without_child && !spec->options.blocking)
    return create_or_note({.parent = keep.get(),
                           .create = [keep] { return job::stay_out_of_split(*keep); },
                           .cancel = [](const Status&) {}});
  return create(newcomm, *spec, keep.get(), [=, options = spec->options]() -> Result<PendingComm> {
    Result<PendingComm> rest = begin(*keep, options);
    if (!rest) return rest;
    return PendingComm([keep, rest = rest.take()] { return rest(); });
  });
}

/// To be called before anything else is looked at: a failed creation leaves no handle.
Status clear(weftComm_t* newcomm) {
  if (!newcomm) return fail(Code::invalid_pointer, "newcomm is NULL");
  *newcomm = nullptr;
  return {};
}

Status split(weftComm_t comm, int color, int key, weftComm_t* newcomm, const weftConfig_t* config) {
  WEFT_TRY(clear(newcomm));
  if (color < 0 && color != WEFT_SPLIT_NOCOLOR)
    return fail(Code::invalid_argument, "color is {}, must be at least 0, or WEFT_SPLIT_NOCOLOR", color);
  return derive(comm, newcomm, config, color == WEFT_SPLIT_NOCOLOR ? Way::split_without_child : Way::split,
                [=](Communicator& parent, const CommOptions& options) {
                  return job::begin_split(parent, color, key, options);
                });
}

Status create_group(weftComm_t comm, const int* ranks, int count, uint64_t tag, weftComm_t* newcomm,
                    const weftConfig_t* config) {
  WEFT_TRY(clear(newcomm));
  if (count <= 0 || !ranks)
    return fail(Code::invalid_argument,
                "ranksCount is {} with ranksList {}: must name at least the calling rank", count,
                static_cast<const void*>(ranks));
  return derive(
      comm, newcomm, config, Way::shrink,
      [=, list = std::vector<int>(ranks, ranks + count)](Communicator& parent, const CommOptions& options) {
        return job::begin_group(parent, list, tag, options);
      });
}

Status shrink(weftComm_t comm, const int* excluded, int count, weftComm_t* newcomm,
              const weftConfig_t* config, int flags) {
  WEFT_TRY(clear(newcomm));
  if (count < 0 || (count > 0 && !excluded))
    return fail(Code::invalid_argument, "excludeRanksCount is {} with excludeRanksList {}", count,
                static_cast<const void*>(excluded));
  if (flags != WEFT_SHRINK_DEFAULT && flags != WEFT_SHRINK_ABORT)
    return fail(Code::invalid_argument,
                "shrinkFlags is {}, must be WEFT_SHRINK_DEFAULT (0) or WEFT_SHRINK_ABORT (1)", flags);
  return derive(comm, newcomm, config, Way::shrink,
                [=, list = std::vector<int>(excluded, excluded + count)](Communicator& parent,
                                                                         const CommOptions& options) {
                  return job::begin_shrink(parent, list, flags == WEFT_SHRINK_ABORT, options);
                });
}

Status grow(weftComm_t comm, int nranks, const weftUniqueId* id, int rank, weftComm_t* newcomm,
            const weftConfig_t* config) {
  WEFT_TRY(clear(newcomm));
  if (!comm && !id)
    return fail(Code::invalid_pointer,
                "comm and uniqueId are NULL: a rank that joins passes what weftCommGetUniqueId gave");
  if (!comm) return init_rank(newcomm, nranks, *id, rank, config);
  if (rank != -1)
    return fail(Code::invalid_root, "rank is {}, must be -1: the ranks of comm keep their numbers", rank);
  std::optional<bootstrap::UniqueId> unique;
  if (id) {
    std::memcpy(unique.emplace().bytes.data(), id->internal, sizeof id->internal);
    WEFT_TRY(bootstrap::check_unique_id(*unique));
  }
  return derive(comm, newcomm, config, Way::split, [=](Communicator& parent, const CommOptions& options) {
    return job::begin_grow(parent, nranks, unique ? &*unique : nullptr, options);
  });
}

Status init_all(weftComm_t* comms, int ndev) {
  if (!comms) return fail(Code::invalid_pointer, "comms is NULL");
  if (ndev < 1) return fail(Code::invalid_argument, "ndev is {}, must be at least 1", ndev);
  std::fill_n(comms, ndev, nullptr);
  WEFT_TRY(settings_status());
  auto made = bootstrap::create_unique_id();
  if (!made) return made.status();
  weftUniqueId id;
  std::memcpy(id.internal, made->bytes.data(), sizeof id.internal);
  for (int rank = 0; rank < ndev; ++rank) WEFT_TRY(init_rank(&comms[rank], ndev, id, rank, nullptr));
  return {};
}

Status init_env(weftComm_t* comm) {
  if (!comm) return fail(Code::invalid_pointer, "comm is NULL");
  *comm = nullptr;
  WEFT_TRY(settings_status());
  auto launch = bootstrap::detect_launch();
  if (!launch) return launch.status();
  static std::atomic<bool> done{false};
  if (done.load() && launch->size > 1)
    return fail(Code::invalid_usage,
                "this process has the communicator of its job already, or had it; more of them come from "
                "weftCommSplit, or from weftGetUniqueId and weftCommInitRank");
  const auto spec = spec_of(nullptr);
  if (!spec) return spec.status();
  return create(comm, *spec, [launch = *launch, options = spec->options]() -> NewComm {
    auto id = bootstrap::launch_unique_id(launch, Deadline::in_seconds(settings().init_timeout_s));
    if (!id) return id.status();
    auto made = job::create(*id, launch.rank, launch.size, options);
    if (made) done.store(true);
    return made;
  });
}

/// A creation may be a call of a group: one that is wrong starts nothing of it.
weftResult_t report_creation(const char* function, const Status& status) {
  if (status.ok() || status.code() == Code::in_progress) return static_cast<weftResult_t>(status.code());
  const Status named = status.in(function);
  spoil_group(named);
  return report(named);
}

}  // namespace
}  // namespace weft::api

using namespace weft;
using namespace weft::api;

weftResult_t weftGetUniqueId(weftUniqueId* uniqueId) {
  if (!uniqueId) return report(fail(Code::invalid_pointer, "weftGetUniqueId: uniqueId is NULL"));
  if (!settings_status()) return report(settings_status());
  auto made = bootstrap::create_unique_id();
  if (!made) return report(made.status().in(__func__));
  std::memcpy(uniqueId->internal, made->bytes.data(), sizeof uniqueId->internal);
  return weftSuccess;
}

weftResult_t weftCommInitRank(weftComm_t* comm, int nranks, weftUniqueId commId, int rank) {
  return report_creation(__func__, init_rank(comm, nranks, commId, rank, nullptr));
}

weftResult_t weftCommInitRankConfig(weftComm_t* comm, int nranks, weftUniqueId commId, int rank,
                                    const weftConfig_t* config) {
  return report_creation(__func__, init_rank(comm, nranks, commId, rank, config));
}

weftResult_t weftCommInitAll(weftComm_t* comms, int ndev, const int*) {
  (void)weftGroupStart();
  const weftResult_t noted = report_creation(__func__, init_all(comms, ndev));
  const weftResult_t ended = weftGroupEnd();
  return noted != weftSuccess ? noted : ended;
}

weftResult_t weftCommInitEnv(weftComm_t* comm) { return report_creation(__func__, init_env(comm)); }

weftResult_t weftCommSplit(weftComm_t comm, int color, int key, weftComm_t* newcomm,
                           const weftConfig_t* config) {
  return report_creation(__func__, split(comm, color, key, newcomm, config));
}

weftResult_t weftCommCreateGroup(weftComm_t comm, const int* ranksList, int ranksCount, uint64_t tag,
                                 weftComm_t* newcomm, const weftConfig_t* config) {
  return report_creation(__func__, create_group(comm, ranksList, ranksCount, tag, newcomm, config));
}

weftResult_t weftCommShrink(weftComm_t comm, const int* excludeRanksList, int excludeRanksCount,
                            weftComm_t* newcomm, const weftConfig_t* config, int shrinkFlags) {
  return report_creation(__func__,
                         shrink(comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags));
}

weftResult_t weftCommGetUniqueId(weftComm_t comm, weftUniqueId* uniqueId) {
  const InUse in_use(comm);
  if (auto found = usable(comm); !found) return report(found.status().in(__func__));
  return weftGetUniqueId(uniqueId);
}

weftResult_t weftCommGrow(weftComm_t comm, int nRanks, const weftUniqueId* uniqueId, int rank,
                          weftComm_t* newcomm, const weftConfig_t* config) {
  return report_creation(__func__, grow(comm, nRanks, uniqueId, rank, newcomm, config));
}
