// AccessGate: how ranks that are threads of one process touch each other's memory without finding it freed.
// Where ranks are processes, a copy by the kernel fails on memory that is gone, and a mapping outlives its
// owner. A reader checks afterwards whether the memory has changed (transport/shm_revocations.h). In one
// process a load or store would end it.
//
// So each access to a peer's memory is inside an AccessGuard, which marks the rank as inside and looks at
// the owner's gate. A rank whose communicator has failed shuts its gate before its operations end and its
// callers get their buffers back. From then on no rank is inside, and none comes in again. That is Dekker's
// protocol:
//
//   accessor   marks itself inside; looks at the gate; copies a piece; marks itself outside
//   owner      shuts the gate; fence; waits for those inside; goes on
//
// The owner pays for both fences with membarrier(2), so that an access costs two plain stores to a line of
// its own and a load of one that changes only at a failure. Where the kernel has no membarrier, the
// accessor uses a read-modify-write.
//
// Invariants: An accessor waits for nothing while it is inside, and an owner that shuts its gate is inside
// nowhere itself. So the owner waits for one piece of a copy or reduction, or one put, and never in a
// circle. An accessor that finds a gate shut leaves its step where it is; a report tells it later why the
// owner has failed.
//
// Thread safety: shut(), CommGates, and an Accessor with its guards, under their context's lock; the rest
// from any thread.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <compare>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/run/membership.h"

namespace weft::engine {

/// One rank's communicator, as its peers of the same process find it.
class AccessGate {
 public:
  struct Name {
    uint64_t job = 0;
    uint32_t comm = 0;
    int rank = 0;  // of the job
    auto operator<=>(const Name&) const = default;
  };

  /// Opens a gate under this name, which it has as long as anybody holds it, or until another takes it over.
  static std::shared_ptr<AccessGate> open(const Name& name);
  /// The gate of that name; if there is none any more, one that is shut.
  static std::shared_ptr<AccessGate> find(const Name& name);

  ~AccessGate();
  AccessGate(const AccessGate&) = delete;
  AccessGate& operator=(const AccessGate&) = delete;

  /// Lets nobody in any more, and returns when nobody is inside.
  void shut();

 private:
  friend class AccessGuard;
  explicit AccessGate(const Name& name) : name_(name) {}

  const Name name_;
  std::atomic<bool> shut_{false};
};

/// The gates of one communicator: this rank's, and those of its peers that are threads of this process.
class CommGates {
 public:
  /// `members` outlives this.
  CommGates(uint64_t job, uint32_t comm, const Membership& members);

  /// The gate of a peer; null of one in another process. The peer has exposed memory here.
  const AccessGate* of(int rank);
  void shut() { own_->shut(); }

 private:
  const uint64_t job_;
  const uint32_t comm_;
  const Membership& members_;
  const std::shared_ptr<AccessGate> own_;
  std::vector<std::shared_ptr<const AccessGate>> peers_;  // by rank; null: not looked for yet
};

/// A rank's mark, at which gates look.
struct alignas(64) AccessMark {
  std::atomic<uint64_t> steps{0};  // into somebody's memory and out of it; odd while inside
  pid_t process = 0;               // a forked child has marks of its parent, which nobody will ever change
};

/// One rank, as it accesses the memory of others.
class Accessor {
 public:
  Accessor();
  ~Accessor();
  Accessor(const Accessor&) = delete;
  Accessor& operator=(const Accessor&) = delete;

 private:
  friend class AccessGuard;
  const std::shared_ptr<AccessMark> mark_;
  const bool fences_;  // nobody can do it for us
};

/// One access, from entering to leaving.
class AccessGuard {
 public:
  explicit AccessGuard(Accessor& accessor) : accessor_(accessor) {
    std::atomic<uint64_t>& steps = accessor_.mark_->steps;
    if (accessor_.fences_) [[unlikely]] {
      steps.fetch_add(1, std::memory_order_seq_cst);
    } else {
      steps.store(steps.load(std::memory_order_relaxed) + 1, std::memory_order_release);
      std::atomic_signal_fence(std::memory_order_seq_cst);  // the other half is the owner's membarrier
    }
  }
  ~AccessGuard() {
    std::atomic<uint64_t>& steps = accessor_.mark_->steps;
    steps.store(steps.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  AccessGuard(const AccessGuard&) = delete;
  AccessGuard& operator=(const AccessGuard&) = delete;

  /// Whether the memory behind a gate may be touched while the guard lives. Null: memory that nobody frees.
  bool admitted(const AccessGate* gate) const {
    return !gate || !gate->shut_.load(std::memory_order_seq_cst);
  }

 private:
  Accessor& accessor_;
};

}  // namespace weft::engine
