// Captures: a communicator's captures of CUDA graphs. Operations of a communicator match over ranks by the
// order of the calls; captured ones run when a stream comes to them, between any others. So each capture has
// a *shadow*: a communicator of the same ranks, known to no user, whose operations are those of this capture
// alone. Ranks number their captures, and nothing is sent. Inside a capture an event chains the calls, so
// that every launch comes to them in their order, on whichever streams they were captured. The shadow shares
// its communicator's health.
//
// Thread safety: every method; those marked (lock) want the context's lock held, the others want it free. The
// lock of this is taken before the context's.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "engine/gpu/captured_calls.h"
#include "engine/run/communicator.h"

namespace weft::engine {

class Captures {
 public:
  explicit Captures(Communicator& parent) : parent_(parent) {}
  ~Captures();
  Captures(const Captures&) = delete;
  Captures& operator=(const Captures&) = delete;

  /// What is to hold further calls of a capture.
  Result<std::shared_ptr<CapturedCalls>> hold(const cuda::Capture& capture);
  /// Puts their start into a stream, after that of the capture's calls before.
  Status arrive(CapturedCalls& calls, const cuda::Capture& capture, cuda::StreamHandle* stream);

  // (lock)
  /// The communicator has failed, and its shadows with it.
  void fail() WEFT_REQUIRES(context_lock);
  /// An operation that is in flight; null if there is none.
  Operation* unfinished() const WEFT_REQUIRES(context_lock);
  /// Launches pass by from now on.
  void close() WEFT_REQUIRES(context_lock);
  /// Operations that have ended.
  uint64_t operations() const WEFT_REQUIRES(context_lock);
  /// The operation that a launch came to last; null before the first one.
  const Record* latest() const WEFT_REQUIRES(context_lock);
  std::vector<const Communicator*> shadows() const WEFT_REQUIRES(context_lock);

 private:
  struct Shadow {
    uint64_t capture;
    std::unique_ptr<Communicator> comm;
    cuda::EventHandle* last = nullptr;  // recorded after the last calls' start
    std::vector<std::weak_ptr<CapturedCalls>> calls;
    bool in_use() const WEFT_REQUIRES(context_lock);
  };
  Shadow* find(uint64_t capture);
  const Record* latest_of_old_shadows() const {
    return latest_of_old_shadows_ ? &*latest_of_old_shadows_ : nullptr;
  }
  std::list<Shadow> take_unused();
  void dispose(std::list<Shadow>& unused);

  Communicator& parent_;
  Mutex mutex_;                  // one call is captured at a time
  std::list<Shadow> shadows_;    // changed under this lock and the context's
  uint32_t captures_ = 0;        // so far
  uint64_t of_old_shadows_ = 0;  // operations
  std::optional<Record> latest_of_old_shadows_;
};

/// The captured calls of one group on their way into graphs: those of a communicator on one stream together.
class CapturedGroup {
 public:
  /// Notes a call down.
  Status add(Communicator& comm, const cuda::Capture& capture, const Call& call,
             std::shared_ptr<const PlanTables> tables);
  /// Puts the start of all into their streams; then wait(): the streams wait for their ends. In between, the
  /// starts of the group's other calls: they may need each other.
  Status arrive();
  Status wait();

 private:
  struct Part {
    Communicator* comm;
    cuda::Capture capture;
    cuda::StreamHandle* stream;
    std::shared_ptr<CapturedCalls> calls;
  };
  std::vector<Part> parts_;
};

}  // namespace weft::engine
