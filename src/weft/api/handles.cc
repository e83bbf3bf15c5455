#include "api/handles.h"

#include <algorithm>
#include <deque>

#include "base/mutex.h"

namespace weft::api {
namespace {

// Shells of all handles ever made; the deque keeps their addresses and the mutex its order.
template <typename Handle>
struct Shells {
  ForkSafeMutex mutex;
  std::deque<Handle> shells WEFT_GUARDED_BY(mutex);

  static Shells& get() {
    static Shells& all = *new Shells;
    return all;
  }
  Handle* add() {
    const MutexLock guard(mutex);
    return &shells.emplace_back();
  }
  bool has(const void* pointer) {
    const MutexLock guard(mutex);
    return std::any_of(shells.begin(), shells.end(), [&](const Handle& shell) { return &shell == pointer; });
  }
};

thread_local std::string t_last_error;
// The communicator that had failed when its call was refused for another reason; never followed.
thread_local const void* t_refused_by = nullptr;

}  // namespace

weftComm* new_comm_handle() {
  static std::atomic<int> serial{0};
  weftComm* handle = Shells<weftComm>::get().add();
  handle->serial = serial.fetch_add(1) % (1 << 18);  // operators have it above 12 bits of an int
  return handle;
}

weftStream* new_stream_handle() { return Shells<weftStream>::get().add(); }

bool is_stream_handle(const void* pointer) { return Shells<weftStream>::get().has(pointer); }

Status check_own(weftComm_t comm) {
  if (comm) return comm->owner.check("comm");
  return fail(Code::invalid_comm,
              "comm is NULL: pass a communicator that weftCommInitRank, weftCommInitEnv, weftCommInitAll, "
              "weftCommSplit or weftCommShrink has made");
}

Result<engine::Communicator*> existing(weftComm_t comm) {
  WEFT_TRY(check_own(comm));
  switch (comm->state.load(std::memory_order_acquire)) {
    case weftComm::creating:
      return fail(Code::invalid_usage,
                  "comm is still being created: wait until weftCommGetAsyncError says so");
    case weftComm::failed_to_create:
      return fail(Code::invalid_comm,
                  "comm could not be created: only weftCommAbort and weftCommDestroy are left");
    case weftComm::destroyed: return fail(Code::invalid_comm, "comm has been destroyed or aborted");
    default: return comm->comm.get();
  }
}

Result<engine::Communicator*> usable(weftComm_t comm) {
  if (comm && comm->owner.here()) {
    const int state = comm->state.load(std::memory_order_acquire);
    if (state == weftComm::live) return comm->comm.get();
    if (state == weftComm::finalizing || state == weftComm::finalized)
      return fail(Code::invalid_usage, "comm has been finalized: only weftCommDestroy is left");
  }
  return existing(comm);
}

Status health_of(weftComm_t handle) {
  Status health = handle->comm->health();
  return health.ok() && handle->fallback ? handle->fallback->health() : health;
}

weftResult_t report(const Status& status, weftComm_t comm) {
  if (status.ok()) return weftSuccess;
  t_last_error = status.message();
  t_refused_by = nullptr;
  if (comm && !comm->owner.here()) comm = nullptr;
  const InUse in_use(comm);
  const int state = comm ? comm->state.load() : weftComm::destroyed;
  if (state == weftComm::live || state == weftComm::finalizing || state == weftComm::finalized) {
    const Status health = health_of(comm);
    if (!health.ok() && t_last_error.find(health.message()) == std::string::npos) t_refused_by = comm;
  }
  return static_cast<weftResult_t>(status.code());
}

void tell_of_failure() { t_refused_by = nullptr; }

bool last_error_is_newer_than_failure_of(weftComm_t comm) { return t_refused_by == comm; }

const std::string& last_error_of_thread() { return t_last_error; }

}  // namespace weft::api
