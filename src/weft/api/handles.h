// What weftComm_t and weftStream_t point to, and the last error.
//
// Handles are shells that are never freed (their contents are), so that a destroyed one can be recognised and
// refused instead of being followed.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "api/fallback.h"
#include "base/fork.h"
#include "base/gate.h"
#include "base/mutex.h"
#include "base/status.h"
#include "engine/run/communicator.h"
#include "engine/run/stream.h"
#include "weft/weft.h"

namespace weft::api {

/// A pre-multiplied sum: weftRedOp_t values from weftNumOps on.
struct PreMulSum {
  bool live = false;
  device::DataType type;
  std::byte scalar[8] = {};
  const void* late_scalar = nullptr;  // read when the operation runs, if not null
};

}  // namespace weft::api

struct weftComm {
  enum State : int { creating, live, failed_to_create, finalizing, finalized, destroyed };

  std::atomic<int> state{creating};
  const weft::Ownership owner;
  weft::Gate calls;  // that threads are inside of; see api::InUse
  int serial = 0;    // of this process; part of the operators' values
  weft::nccl::Backend backend = weft::nccl::Backend::automatic;
  std::shared_ptr<weft::engine::Communicator> comm;
  std::shared_ptr<weft::api::Fallback> fallback;  // null where nothing can be for NCCL
  int yielded_device = -1;                        // which NCCL has instead of Weft, and why
  std::string yielded_for;

  std::atomic<bool> ending{false};              // the call that sets it takes the communicator apart
  std::atomic<bool> creation_cancelled{false};  // an abort does not wait for the ranks that are to come
  /// A non-blocking creation or finalization. Of the call that creates, finalizes or ends the communicator.
  std::thread background;

  weft::Mutex mutex;
  weft::Status creation WEFT_GUARDED_BY(mutex);  // why creating or finalizing failed
  std::string aborted_for
      WEFT_GUARDED_BY(mutex);  // what others are told where the creation has still to make what was aborted
  std::vector<weft::api::PreMulSum> operators WEFT_GUARDED_BY(mutex);
  std::vector<void*> registrations WEFT_GUARDED_BY(mutex);  // opaque, for weftCommDeregister
};

struct weftStream {
  std::atomic<bool> live{true};
  const weft::Ownership owner;
  std::unique_ptr<weft::engine::Stream> stream;
};

namespace weft::api {

/// Keeps what is behind a handle while a thread is inside a call: weftCommAbort may come from another thread,
/// fails what the call waits for, and takes the communicator apart when the call has left.
class InUse {
 public:
  explicit InUse(weftComm_t comm) : pass_(comm ? &comm->calls : nullptr) {}

 private:
  const Gate::Pass pass_;
};

weftComm* new_comm_handle();
weftStream* new_stream_handle();
/// Whether this is a stream of weftStreamCreate, alive or not: it may be anything.
bool is_stream_handle(const void* pointer);

/// ok, or what is wrong with a handle of which nothing else may be looked at: NULL, or of the process that
/// forked this one.
Status check_own(weftComm_t comm);

/// The communicator behind a handle that can be used for operations; the error says what is wrong with it.
Result<engine::Communicator*> usable(weftComm_t comm);
/// As usable(), also for a communicator that has been finalized.
Result<engine::Communicator*> existing(weftComm_t comm);

/// What the communicator failed with, in Weft or in NCCL; ok if it has not. Its state is live or a later one.
Status health_of(weftComm_t comm);

/// Remembers a failure as the calling thread's last error, and returns its number. `comm`: whose call it was.
weftResult_t report(const Status& status, weftComm_t comm = nullptr);
/// From now on weftGetLastError(comm) gives the calling thread the communicator's failure.
void tell_of_failure();
const std::string& last_error_of_thread();
/// Whether the thread's last error is of a call that `comm`, which had failed before, refused for another
/// reason.
bool last_error_is_newer_than_failure_of(weftComm_t comm);

}  // namespace weft::api
