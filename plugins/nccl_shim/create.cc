// Making communicators, and with that deciding whose they are. The rank that makes the unique id decides, and
// the id carries the decision to the others: ids of Weft can be told from NCCL's. It decides for its device:
// what other ranks' devices lack is found when they join. Children belong to whom their parent belongs to.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <span>
#include <vector>

#include "base/log.h"
#include "base/settings.h"
#include "bootstrap/bootstrap.h"
#include "device/cuda/device.h"
#include "export.h"
#include "route.h"

namespace weft::nccl_shim {

const nccl::Decision& process_decision() {
  static const nccl::Decision decision = nccl::decide(nccl::wanted_backend());
  return decision;
}

namespace {

using nccl::Config;
using nccl::Decision;
using nccl::UniqueId;

/// The calling thread's device, as CUDA's runtime takes a thread that has chosen none; -1 where the process
/// may use no GPU.
int current_device() {
  if (!has_gpu()) return -1;
  const Result<int> device = nccl::gpu()->current_device();
  return device.ok() ? *device : 0;
}

/// What this thread decides on for a communicator of its device.
Decision own_decision() {
  const int device = current_device();
  return nccl::decide(nccl::wanted_backend(), std::span(&device, device >= 0 ? 1 : 0));
}

Status null_pointer(const char* what) { return fail(Code::invalid_pointer, "{} is NULL", what); }

/// A configuration in NCCL's terms, as Weft understands it: names, blocking and sharing. What speaks of
/// kernels, NICs and NVLink has no meaning there. Null stays null.
Result<weftConfig_t> weft_config(const Config* config) {
  weftConfig_t own = WEFT_CONFIG_INITIALIZER;
  if (!config) return own;
  if (config->magic != nccl::kConfigMagic || config->size < offsetof(Config, cga_cluster_size))
    return fail(Code::invalid_argument,
                "config does not start as NCCL_CONFIG_INITIALIZER (size {}, magic {:#x})", config->size,
                config->magic);
  const auto holds = [&](size_t end) { return config->size >= end; };
  own.blocking = config->blocking;
  if (holds(offsetof(Config, traffic_class))) own.splitShare = config->split_share;
  if (holds(offsetof(Config, collnet_enable))) own.commName = config->comm_name;
  if (holds(offsetof(Config, nvls_ctas))) own.shrinkShare = config->shrink_share;
  return own;
}

/// What would have a meaning for Weft, and is not done: said once.
void note_ignored(const Config* config) {
  if (!config || config->size < offsetof(Config, comm_name) || config->traffic_class < 0) return;
  static std::once_flag told;
  std::call_once(told, [&] {
    log::warn(
        "config.trafficClass is {}: ignored, Weft's communicators leave the traffic class of their sockets "
        "alone",
        config->traffic_class);
  });
}

/// Whose communicator an id makes. Errors: this process is set to something else, or cannot do it.
Result<Decision> decision_of(const UniqueId& id) {
  WEFT_TRY(settings_status());
  bootstrap::UniqueId bytes;
  std::memcpy(bytes.bytes.data(), id.internal, sizeof id.internal);
  const Backend wanted = nccl::wanted_backend();
  const bool of_weft = bootstrap::check_unique_id(bytes).ok();
  if (of_weft && wanted == Backend::nccl)
    return fail(Code::mismatch,
                "the unique id was made by Weft, but WEFT_BACKEND is nccl here: set it alike on all ranks");
  // Without NCCL it can only be a damaged id; Weft says what is wrong with it.
  if (of_weft || wanted == Backend::weft) {
    Decision own = own_decision();
    if (own.backend == Backend::weft) return own;
    return Decision{Backend::weft, "the rank that made the unique id decided so"};
  }
  if (const Result<const nccl::Library*>& real = nccl::Library::get(); !real.ok())
    return fail(real.status().code(), "the unique id was not made by Weft, so it is NCCL's, but {}",
                real.status().message());
  Decision own = own_decision();
  if (own.backend == Backend::nccl) return own;
  return Decision{Backend::nccl, "the rank that made the unique id decided so", true};
}

/// What every creation ends with: the program gets the handle, unless nothing was made.
Result_t finish(Result_t result, Handle* handle, Comm_t* out) {
  const bool may_come = result == nccl::kSuccess && in_group();
  if (result == nccl::kInProgress || may_come || (result == nccl::kSuccess && handle->made())) {
    *out = handle->as_comm();
    note_creation(out, handle);
    nccl::tally::count_communicator(handle->decision);
  }
  return result;
}

Result_t init_rank(const char* name, Comm_t* out, int ranks, const UniqueId& id, int rank, Config* config) {
  if (!out) return refuse(null_pointer("comm").in(name));
  *out = nullptr;
  const Result<Decision> decision = decision_of(id);
  if (!decision.ok()) return refuse(decision.status().in(name));
  const Result<weftConfig_t> own = weft_config(config);
  if (!own.ok()) return refuse(own.status().in(name));
  if (Status joined = join_group(decision->backend); !joined.ok()) return refuse(joined.in(name));
  Handle* handle = new_handle(*decision);
  handle->device = current_device();
  if (decision->backend == Backend::nccl) {
    const Result_t result =
        config ? call_real(name, &Functions::CommInitRankConfig, handle->real, ranks, id, rank, config)
               : call_real(name, &Functions::CommInitRank, handle->real, ranks, id, rank);
    return finish(result, handle, out);
  }
  note_ignored(config);
  weftUniqueId bytes;
  std::memcpy(bytes.internal, id.internal, sizeof bytes.internal);
  weftConfig_t with_device = *own;
  with_device.device = handle->device;      // -1 is WEFT_DEVICE_HOST
  with_device.backend = WEFT_BACKEND_WEFT;  // it has been decided: Weft shall not hand it to NCCL in turn
  handle->of_device = handle->device >= 0;
  const weftResult_t result = weftCommInitRankConfig(&handle->weft, ranks, bytes, rank, &with_device);
  return finish(from_weft(result, nullptr), handle, out);
}

/// Asked before any rank begins: the others would wait for one that has no device.
Status check_devices(int count, const int* devices) {
  for (int rank = 0; rank < count && has_gpu(); ++rank)
    if (const auto device = device::cuda::Device::open(devices ? devices[rank] : rank); !device.ok())
      return device.status();
  return {};
}

Result_t init_all_weft(Comm_t* comms, int count, const int* devices, const Decision& decision) {
  if (Status there = check_devices(count, devices); !there.ok()) return refuse(there.in("ncclCommInitAll"));
  weftUniqueId id;
  if (weftResult_t made = weftGetUniqueId(&id); made != weftSuccess) return from_weft(made, nullptr);
  if (Status joined = join_group(Backend::weft); !joined.ok()) return refuse(joined);
  (void)weftGroupStart();  // of its own, so that it works outside groups too
  weftResult_t first = weftSuccess;
  for (int rank = 0; rank < count; ++rank) {
    Handle* handle = new_handle(decision);
    handle->device = devices ? devices[rank] : rank;
    comms[rank] = handle->as_comm();
    note_creation(&comms[rank], handle);
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    handle->of_device = has_gpu();
    if (handle->of_device) config.device = handle->device;
    config.backend = WEFT_BACKEND_WEFT;
    const weftResult_t noted = weftCommInitRankConfig(&handle->weft, count, id, rank, &config);
    if (first == weftSuccess) first = noted;
    nccl::tally::count_communicator(decision);
  }
  const weftResult_t ended = weftGroupEnd();
  const Result_t result = from_weft(first != weftSuccess ? first : ended, nullptr);
  if (in_group()) return result;
  for (int rank = 0; rank < count; ++rank)
    if (!reinterpret_cast<Handle*>(comms[rank])->made()) comms[rank] = nullptr;
  return result;
}

Result_t init_all_real(Comm_t* comms, int count, const int* devices, const Decision& decision) {
  if (Status joined = join_group(Backend::nccl); !joined.ok()) return refuse(joined);
  Comm_t* reals = new Comm_t[static_cast<size_t>(count)]();  // stays: NCCL may write it when a group ends
  const Result_t result = call_real("ncclCommInitAll", &Functions::CommInitAll, reals, count, devices);
  for (int rank = 0; rank < count; ++rank) {
    if (result != nccl::kSuccess || (!reals[rank] && !in_group())) continue;
    Handle* handle = new_handle(decision);
    handle->real = &reals[rank];
    handle->device = devices ? devices[rank] : rank;
    comms[rank] = handle->as_comm();
    note_creation(&comms[rank], handle);
    nccl::tally::count_communicator(decision);
  }
  return result;
}

/// A child of a communicator: `real` and `ours` make it where the parent is.
template <typename Real, typename Ours>
Result_t derive(const char* name, Comm_t comm, Comm_t* out, const Config* config, Real real, Ours ours) {
  if (!out) return refuse(null_pointer("newcomm").in(name));
  *out = nullptr;
  const Result<Handle*> parent = usable(comm);
  if (!parent.ok()) return refuse(parent.status().in(name));
  const Result<weftConfig_t> own = weft_config(config);
  if (!own.ok()) return refuse(own.status().in(name));
  if (Status joined = join_group((*parent)->backend); !joined.ok()) return refuse(joined.in(name));
  Handle* handle = new_handle((*parent)->decision);
  handle->device = (*parent)->device;
  handle->of_device = (*parent)->of_device;
  const bool of_weft = handle->backend == Backend::weft;
  if (of_weft) note_ignored(config);
  const Result_t result =
      of_weft ? from_weft(ours((*parent)->weft, &handle->weft, config ? &*own : nullptr), nullptr)
              : real(*(*parent)->real, handle->real);
  if (of_weft && result == nccl::kInProgress) note_child(*parent, handle);
  return finish(result, handle, out);
}

}  // namespace
}  // namespace weft::nccl_shim

using namespace weft;
using namespace weft::nccl_shim;

namespace weft::nccl {

Result_t pncclGetUniqueId(UniqueId* id) {
  if (!id) return report(fail(Code::invalid_pointer, "ncclGetUniqueId: uniqueId is NULL"));
  if (!settings_status().ok()) return report(settings_status().in("ncclGetUniqueId"));
  if (own_decision().backend == Backend::nccl)
    return call_real("ncclGetUniqueId", &Functions::GetUniqueId, id);
  weftUniqueId own;
  const weftResult_t made = weftGetUniqueId(&own);
  if (made == weftSuccess) std::memcpy(id->internal, own.internal, sizeof id->internal);
  return from_weft(made, nullptr);
}
WEFT_NCCL_ALIAS(GetUniqueId)

Result_t pncclCommInitRank(Comm_t* comm, int ranks, UniqueId id, int rank) {
  return init_rank("ncclCommInitRank", comm, ranks, id, rank, nullptr);
}
WEFT_NCCL_ALIAS(CommInitRank)

Result_t pncclCommInitRankConfig(Comm_t* comm, int ranks, UniqueId id, int rank, Config* config) {
  return init_rank("ncclCommInitRankConfig", comm, ranks, id, rank, config);
}
WEFT_NCCL_ALIAS(CommInitRankConfig)

// Weft's ranks meet in a tree of their own, for which one id is enough.
Result_t pncclCommInitRankScalable(Comm_t* comm, int ranks, int rank, int count, UniqueId* ids,
                                   Config* config) {
  constexpr const char* kName = "ncclCommInitRankScalable";
  if (!comm || !ids) return refuse(null_pointer(comm ? "commIds" : "newcomm").in(kName));
  *comm = nullptr;
  if (count < 1 || count > ranks)
    return refuse(fail(Code::invalid_argument, "{}: nId is {}, must be in [1, {}], the number of ranks",
                       kName, count, ranks));
  const Result<Decision> decision = decision_of(ids[0]);
  if (!decision.ok()) return refuse(decision.status().in(kName));
  if (decision->backend == Backend::weft) return init_rank(kName, comm, ranks, ids[0], rank, config);
  if (Status joined = join_group(Backend::nccl); !joined.ok()) return refuse(joined.in(kName));
  Handle* handle = new_handle(*decision);
  const Result_t result =
      call_real(kName, &Functions::CommInitRankScalable, handle->real, ranks, rank, count, ids, config);
  return finish(result, handle, comm);
}
WEFT_NCCL_ALIAS(CommInitRankScalable)

Result_t pncclCommInitAll(Comm_t* comms, int count, const int* devices) {
  if (!comms) return refuse(fail(Code::invalid_pointer, "ncclCommInitAll: comms is NULL"));
  if (count < 1)
    return refuse(fail(Code::invalid_argument, "ncclCommInitAll: ndev is {}, must be at least 1", count));
  std::fill_n(comms, count, nullptr);
  if (!settings_status().ok()) return refuse(settings_status().in("ncclCommInitAll"));
  std::vector<int> listed(devices, devices ? devices + count : devices);
  for (int rank = 0; !devices && rank < count; ++rank) listed.push_back(rank);
  const Decision decision = nccl::decide(nccl::wanted_backend(), listed);
  return decision.backend == Backend::weft ? init_all_weft(comms, count, devices, decision)
                                           : init_all_real(comms, count, devices, decision);
}
WEFT_NCCL_ALIAS(CommInitAll)

Result_t pncclCommSplit(Comm_t comm, int color, int key, Comm_t* child, Config* config) {
  const Result_t result = derive(
      "ncclCommSplit", comm, child, config,
      [&](Comm_t parent, Comm_t* made) {
        return call_real("ncclCommSplit", &Functions::CommSplit, parent, color, key, made, config);
      },
      [&](weftComm_t parent, weftComm_t* made, const weftConfig_t* own) {
        return weftCommSplit(parent, color, key, made, own);
      });
  if (color == kNoColor && child) *child = nullptr;  // also where that is only known when a group ends
  return result;
}
WEFT_NCCL_ALIAS(CommSplit)

Result_t pncclCommShrink(Comm_t comm, int* excluded, int count, Comm_t* child, Config* config, int flags) {
  return derive(
      "ncclCommShrink", comm, child, config,
      [&](Comm_t parent, Comm_t* made) {
        return call_real("ncclCommShrink", &Functions::CommShrink, parent, excluded, count, made, config,
                         flags);
      },
      [&](weftComm_t parent, weftComm_t* made, const weftConfig_t* own) {
        return weftCommShrink(parent, excluded, count, made, own, flags);
      });
}
WEFT_NCCL_ALIAS(CommShrink)

Result_t pncclCommGetUniqueId(Comm_t comm, UniqueId* id) {
  constexpr const char* kName = "ncclCommGetUniqueId";
  const Result<Handle*> handle = usable(comm);
  if (!handle.ok()) return report(handle.status().in(kName));
  if (!id) return report(null_pointer("uniqueId").in(kName));
  if ((*handle)->backend == Backend::nccl)
    return call_real(kName, &Functions::CommGetUniqueId, *(*handle)->real, id);
  weftUniqueId own;
  const weftResult_t made = weftCommGetUniqueId((*handle)->weft, &own);
  if (made == weftSuccess) std::memcpy(id->internal, own.internal, sizeof id->internal);
  return from_weft(made, (*handle)->weft);
}
WEFT_NCCL_ALIAS(CommGetUniqueId)

// Ranks that join have no communicator, but the id of one that grows.
Result_t pncclCommGrow(Comm_t comm, int ranks, const UniqueId* id, int rank, Comm_t* grown, Config* config) {
  constexpr const char* kName = "ncclCommGrow";
  if (!grown || (!comm && !id)) return refuse(null_pointer(grown ? "uniqueId" : "newcomm").in(kName));
  if (comm)
    return derive(
        kName, comm, grown, config,
        [&](Comm_t parent, Comm_t* made) {
          return call_real(kName, &Functions::CommGrow, parent, ranks, id, rank, made, config);
        },
        [&](weftComm_t parent, weftComm_t* made, const weftConfig_t* own) {
          weftUniqueId bytes;
          if (id) std::memcpy(bytes.internal, id->internal, sizeof bytes.internal);
          return weftCommGrow(parent, ranks, id ? &bytes : nullptr, rank, made, own);
        });
  *grown = nullptr;
  const Result<Decision> decision = decision_of(*id);
  if (!decision.ok()) return refuse(decision.status().in(kName));
  if (decision->backend == Backend::weft) return init_rank(kName, grown, ranks, *id, rank, config);
  if (Status joined = join_group(Backend::nccl); !joined.ok()) return refuse(joined.in(kName));
  Handle* handle = new_handle({Backend::nccl, "the communicator that grows is NCCL's"});
  const Result_t result =
      call_real(kName, &Functions::CommGrow, Comm_t(nullptr), ranks, id, rank, handle->real, config);
  return finish(result, handle, grown);
}
WEFT_NCCL_ALIAS(CommGrow)

}  // namespace weft::nccl
