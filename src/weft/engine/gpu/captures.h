// Captures: a communicator's captures of CUDA graphs. Operations of a communicator match over ranks by the
// order of the calls; captured ones run when a stream comes to them, between any others. So each capture has
// a *shadow*: a communicator of the same ranks, known to no user, whose operations are those of this capture
// alone. Ranks number their captures, and nothing is sent. Inside a capture an event chains the calls, so
// that every launch comes to them in their order, on whichever streams they were captured. The shadow shares
// its communicator's health.
//
// A call that a path does is a kernel of the graph. Its launches need no thread of the CPU. So the CPU looks
// at the kernel's words only at calls, and every 100 ms while operations wait for their streams.
//
// Thread safety: every method; those marked (lock) want the context's lock held, the others want it free. The
// lock of this is taken before the context's.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "engine/gpu/captured_calls.h"
#include "engine/gpu/stream_path.h"
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
  /// Puts a call into the graph as a kernel, which needs no CPU at a launch, where a path serves it
  /// (StreamPath::for_capture). False: it has to be held.
  Result<bool> capture_on_path(const cuda::Capture& capture, const Call& call);
  /// Puts their start into a stream, after that of the capture's calls before.
  Status arrive(CapturedCalls& calls, const cuda::Capture& capture, cuda::StreamHandle* stream);

  // (lock)
  /// The communicator has failed, and its shadows with it.
  void fail() WEFT_REQUIRES(context_lock);
  /// An operation that is in flight; null if there is none.
  Operation* unfinished() const WEFT_REQUIRES(context_lock);
  /// Launches pass by from now on.
  void close() WEFT_REQUIRES(context_lock);
  /// Whether the stream of a launch has come to a call that a path does, and has not done it.
  bool path_under_way() const WEFT_REQUIRES(context_lock);
  /// The communicator fails if a call that a path does has waited too long.
  void check() WEFT_REQUIRES(context_lock);
  /// How the last captured call of a path is done; "": there is none.
  std::string_view algorithm_on_path() const WEFT_REQUIRES(context_lock) { return algorithm_on_path_; }
  /// Operations that have ended.
  uint64_t operations() const WEFT_REQUIRES(context_lock);
  /// The operation that a launch came to last; null before the first one.
  const Record* latest() const WEFT_REQUIRES(context_lock);
  std::vector<const Communicator*> shadows() const WEFT_REQUIRES(context_lock);

 private:
  struct Shadow {
    uint64_t capture;
    uint32_t number;  // of the communicator's captures
    std::unique_ptr<Communicator> comm;
    cuda::EventHandle* last = nullptr;  // recorded after the last calls' start
    std::vector<std::weak_ptr<CapturedCalls>> calls;
    std::shared_ptr<StreamPath> path;   // of the kernels; null: none yet
    std::weak_ptr<void> graph;          // lives as long as a graph that holds kernels
    uint32_t kernels = 0, history = 0;  // captured so far, and a hash of their signatures
    bool in_use() const WEFT_REQUIRES(context_lock);
  };
  Shadow* find(uint64_t capture);
  Result<Shadow*> find_or_make(uint64_t capture);
  Status compare(Shadow& shadow, const StreamPath::StreamCall& call, const StreamPath::Served& served)
      WEFT_REQUIRES(context_lock);
  Status keep_with(const cuda::Capture& capture, Shadow& shadow);
  Status follow_last(Shadow& shadow, cuda::StreamHandle* stream);
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
  std::string_view algorithm_on_path_;
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
