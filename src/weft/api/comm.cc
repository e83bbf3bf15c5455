// Communicators: ending and asking them.
#include <atomic>
#include <cstring>
#include <utility>

#include "api/comm_spec.h"
#include "api/group.h"
#include "api/handles.h"
#include "base/mutex.h"
#include "base/settings.h"
#include "base/thread.h"
#include "device/cuda/device.h"
#include "engine/record/dump.h"

namespace weft::api {
namespace {

using engine::Communicator;

Status finalize(weftComm_t handle) {
  const InUse in_use(handle);
  auto found = usable(handle);
  if (!found) return found.status();
  if (in_group()) return fail(Code::invalid_usage, "a communicator cannot be finalized inside a group");
  // Each step only from the one before: an abort by another thread may have come between, and stays.
  int state = weftComm::live;
  if (!handle->state.compare_exchange_strong(state, weftComm::finalizing)) return usable(handle).status();
  auto finish = [handle, comm = handle->comm, fallback = handle->fallback]() -> Status {
    Status finished = comm->finalize();
    if (finished.ok() && fallback) finished = fallback->finalize();
    const MutexLock guard(handle->mutex);
    handle->creation = finished;
    int state = weftComm::finalizing;
    handle->state.compare_exchange_strong(state, weftComm::finalized);
    return finished;
  };
  if ((*found)->options().blocking) return finish();
  if (handle->background.joinable()) handle->background.join();
  Result<std::thread> thread = start_thread("weft-finalize", [finish] { (void)finish(); });
  if (!thread) return finish();
  handle->background = thread.take();
  return fail(Code::in_progress, "the communicator is being finalized");
}

// Takes the communicator out of its handle; later uses of the handle are refused.
std::shared_ptr<Communicator> take_apart(weftComm_t handle) {
  handle->calls.drain();  // one that an abort overtakes may be about to start the finalization
  if (handle->background.joinable()) handle->background.join();
  handle->state.store(weftComm::destroyed);
  handle->calls.drain();  // calls that an abort has failed are on their way out
  const MutexLock guard(handle->mutex);
  handle->fallback.reset();
  return std::exchange(handle->comm, nullptr);
}

Status check_not_destroyed(weftComm_t comm) {
  WEFT_TRY(check_own(comm));
  if (comm->state.load() == weftComm::destroyed)
    return fail(Code::invalid_comm, "comm has been destroyed or aborted already");
  if (in_group()) return fail(Code::invalid_usage, "a communicator cannot be ended inside a group");
  return {};
}

weftResult_t abort(weftComm_t comm, const char* reason, const char* function) {
  if (Status valid = check_not_destroyed(comm); !valid) return report(valid.in(function));
  std::shared_ptr<Communicator> made;
  std::shared_ptr<Fallback> fallback;
  {
    const MutexLock guard(comm->mutex);
    comm->aborted_for = reason ? reason : "";
    comm->state.store(weftComm::destroyed);  // no new call comes in, and a creation aborts what it makes
    made = comm->comm;
    fallback = comm->fallback;
  }
  comm->creation_cancelled.store(true);
  if (fallback) fallback->abort();
  if (made) made->abort(reason ? reason : "");
  if (!comm->ending.exchange(true)) take_apart(comm);
  return weftSuccess;
}

weftResult_t report_as(const char* function, const Status& status) {
  return status.code() == Code::in_progress ? weftInProgress : report(status.in(function));
}

void copy_text(char (&into)[32], const std::string& text) {
  std::snprintf(into, sizeof into, "%s", text.c_str());
}

}  // namespace
}  // namespace weft::api

using namespace weft;
using namespace weft::api;

weftResult_t weftGetVersion(int* version) {
  if (!version) return report(fail(Code::invalid_pointer, "weftGetVersion: version is NULL"));
  *version = WEFT_VERSION_CODE;
  return weftSuccess;
}

const char* weftGetErrorString(weftResult_t result) { return code_name(static_cast<Code>(result)); }

const char* weftGetLastError(weftComm_t comm) {
  thread_local std::string text;
  text = last_error_of_thread();
  if (comm && comm->owner.here() && comm->state.load() != weftComm::destroyed &&
      !last_error_is_newer_than_failure_of(comm)) {
    const MutexLock guard(comm->mutex);
    if (!comm->creation.ok()) text = comm->creation.message();
    if (comm->comm)
      if (Status health = health_of(comm); !health) text = health.message();
  }
  return text.c_str();
}

weftResult_t weftDeviceQuery(int device) {
  if (!settings_status()) return report(settings_status());
  auto ordinal = device_from(device);
  if (!ordinal) return report(ordinal.status().in(__func__));
  if (*ordinal < 0) return weftSuccess;
  return report(device::cuda::Device::open(*ordinal).status().in(__func__));
}

weftResult_t weftCommFinalize(weftComm_t comm) { return report_as(__func__, finalize(comm)); }

weftResult_t weftCommDestroy(weftComm_t comm) {
  if (Status valid = check_not_destroyed(comm); !valid) return report(valid.in(__func__));
  {
    const InUse in_use(comm);  // an abort by another thread ends what this waits for
    if (auto found = usable(comm)) (void)(*found)->finalize();  // a failure is known already
  }
  if (!comm->ending.exchange(true)) take_apart(comm);
  return weftSuccess;
}

weftResult_t weftCommAbort(weftComm_t comm) { return abort(comm, nullptr, __func__); }

weftResult_t weftCommAbortWithReason(weftComm_t comm, const char* reason) {
  return abort(comm, reason, __func__);
}

weftResult_t weftCommGetAsyncError(weftComm_t comm, weftResult_t* asyncError) {
  const InUse in_use(comm);
  if (!asyncError) return report(fail(Code::invalid_pointer, "weftCommGetAsyncError: asyncError is NULL"));
  if (Status own = check_own(comm); !own) return report(own.in(__func__));
  switch (comm->state.load()) {
    case weftComm::destroyed: return report(existing(comm).status().in(__func__));
    case weftComm::creating:
    case weftComm::finalizing: *asyncError = weftInProgress; break;
    case weftComm::failed_to_create: {
      const MutexLock guard(comm->mutex);
      *asyncError = static_cast<weftResult_t>(comm->creation.code());
      break;
    }
    default: *asyncError = static_cast<weftResult_t>(health_of(comm).code());
  }
  tell_of_failure();
  return weftSuccess;
}

weftResult_t weftCommCount(const weftComm_t comm, int* count) {
  const InUse in_use(comm);
  auto found = existing(comm);
  if (!found) return report(found.status().in(__func__));
  if (!count) return report(fail(Code::invalid_pointer, "weftCommCount: count is NULL"), comm);
  *count = (*found)->size();
  return weftSuccess;
}

weftResult_t weftCommUserRank(const weftComm_t comm, int* rank) {
  const InUse in_use(comm);
  auto found = existing(comm);
  if (!found) return report(found.status().in(__func__));
  if (!rank) return report(fail(Code::invalid_pointer, "weftCommUserRank: rank is NULL"), comm);
  *rank = (*found)->rank();
  return weftSuccess;
}

weftResult_t weftCommDump(weftComm_t comm, const char* path) {
  const InUse in_use(comm);
  auto found = existing(comm);
  if (!found) return report(found.status().in(__func__));
  if (!path) return report(fail(Code::invalid_pointer, "weftCommDump: path is NULL"), comm);
  Status dumped;
  {
    engine::Lock lock = (*found)->context().lock();
    dumped = engine::dump_to(**found, path).in(__func__);
  }
  return report(dumped, comm);
}

weftResult_t weftCommGetStats(weftComm_t comm, weftCommStats_t* stats) {
  const InUse in_use(comm);
  auto found = existing(comm);
  if (!found) return report(found.status().in(__func__));
  if (!stats) return report(fail(Code::invalid_pointer, "weftCommGetStats: stats is NULL"), comm);
  if (stats->size < sizeof(weftCommStats_t) || stats->magic != WEFT_API_MAGIC)
    return report(
        fail(Code::invalid_argument, "weftCommGetStats: stats does not start as WEFT_COMM_STATS_INITIALIZER"),
        comm);
  const engine::CommStats s = (*found)->stats();
  stats->operations = s.operations;
  stats->intraBytes = s.intra.payload_bytes_sent + s.intra.bytes_read;
  stats->intraMessages = s.intra.messages_sent;
  stats->interBytes = s.inter.payload_bytes_sent;
  stats->interMessages = s.inter.messages_sent;
  stats->node = s.node;
  stats->nodes = s.nodes;
  copy_text(stats->intraTransport, s.intra_transport);
  copy_text(stats->interTransport, s.inter_transport);
  copy_text(stats->lastAlgorithm, s.last_algorithm);
  stats->lastPredictedTime = s.last_predicted_us > 0 ? s.last_predicted_us : WEFT_UNDEF_FLOAT;
  if (const auto& fallback = comm->fallback) {
    stats->operations += fallback->operations();
    if (fallback->last_was_theirs()) {
      copy_text(stats->lastAlgorithm, "nccl");
      stats->lastPredictedTime = WEFT_UNDEF_FLOAT;
    }
  }
  return weftSuccess;
}
