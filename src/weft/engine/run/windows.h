// Windows: the part of a communicator that serves one-sided operations: buffers that its ranks have opened to
// each other, puts into them (one_sided.h), and signals.
//
// The ranks of a communicator open their windows in the same order, so that a number names a window on all of
// them. A rank knows its own part before any other rank can learn of it.
//
// Thread safety: under the context's lock, but for open_window().
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/context/context_lock.h"
#include "engine/run/operation.h"
#include "engine/run/signals.h"

namespace weft::engine {

/// A window, as one rank has it.
struct Window {
  std::byte* base = nullptr;
  uint64_t bytes = 0;
  std::vector<uint64_t> sizes;   // of all ranks' parts
  void* registration = nullptr;  // of this rank's
};

class Windows {
 public:
  explicit Windows(Communicator& comm, int ranks) : comm_(comm), signals_(ranks) {}
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;

  /// Null: there is no such window.
  const Window* find(uint32_t number) const;
  void close(uint32_t number) WEFT_REQUIRES(context_lock);
  /// Closes all, and forgets what was announced. The communicator does so before it goes.
  void clear() WEFT_REQUIRES(context_lock);

  // ---- Calls

  /// The plan of a put to oneself, or of a wait. Valid until the next call.
  const std::shared_ptr<const PlanTables>* make_plan(const Call& call);
  /// What a call says, once it has its place among the calls.
  std::shared_ptr<const OneSided> claimed(const Call& call);

  // ---- Operations

  /// An operation begins. A wait looks for signals that are there already. A put takes its place among the
  /// puts to its peer. A later put may be announced first: if this one is staged, or the transport has no
  /// room for it.
  void began(Operation& op);
  /// Either end of a put, or a wait, has ended well.
  void ended(const Operation& op) WEFT_REQUIRES(context_lock);
  /// Whom a wait has not heard of: "rank 1 has sent 2 of 3 signals"; "" if of all.
  std::string missing(const Operation& op) const;

  // ---- Announcements

  PutAnnouncement announcement_of(const Operation& op) const;
  /// One of `from` has come. The put's receiver begins in begin_noted(), outside of the transports' poll.
  void note(int from, OpNumber number, const PutAnnouncement& announcement) WEFT_REQUIRES(context_lock);
  void begin_noted() WEFT_REQUIRES(context_lock);

 private:
  friend Result<uint32_t> open_window(Communicator& comm, void* base, uint64_t bytes);
  struct Noted {
    int from;
    OpNumber number;
    PutAnnouncement what;
  };
  Status begin(const Noted& noted) WEFT_REQUIRES(context_lock);
  void look_for_signals(Operation& op) const;
  void tell_waiting() WEFT_REQUIRES(context_lock);

  Communicator& comm_;
  Signals signals_;
  uint32_t last_ = 0;  // window's number
  std::map<uint32_t, Window> open_;
  std::vector<Noted> noted_;
  std::shared_ptr<const PlanTables> made_;
};

/// Opens a window, of `bytes` bytes here, and returns its number. A collective of the communicator; waits for
/// all ranks.
Result<uint32_t> open_window(Communicator& comm, void* base, uint64_t bytes);

}  // namespace weft::engine
