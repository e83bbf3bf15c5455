// Visits: how ranks that are threads of one process touch each other's memory without finding it freed. Where
// ranks are processes, a copy by the kernel fails on memory that is gone, and a mapping outlives its owner;
// in one process a load or store would end it. So each touch of a peer's memory is a *visit*, and a rank
// whose communicator has failed shuts its *door* before its operations end and its callers get their buffers
// back: nobody is inside any more then, and nobody comes in again.
//
//   visitor   says that it is inside     looks at the door     copies a piece              says that it left
//   owner                     shuts the door     fence     waits for those inside                     goes on
//
// That is Dekker's protocol. The owner pays for both fences with membarrier(2), so that a visit costs two
// plain stores to a line of its own and a load of one that changes only at a failure. Where the kernel has no
// membarrier, the visitor uses a read-modify-write.
//
// Invariants: a visitor waits for nobody while it is inside, and an owner that shuts its door is not inside
// anywhere itself; so the owner waits for one piece of a copy or reduction, or one put, and never in a
// circle. A visitor that finds a door shut leaves its step where it is: why the owner has failed comes to it
// as news.
//
// Thread safety: shut(), and a Visitor with its visits, under their context's lock; the rest from any thread.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <compare>
#include <cstdint>
#include <memory>

namespace weft::engine {

/// One rank's communicator, as its peers of the same process find it.
class Door {
 public:
  struct Name {
    uint64_t job = 0;
    uint32_t comm = 0;
    int rank = 0;  // of the job
    auto operator<=>(const Name&) const = default;
  };

  /// Opens a door under this name, which it has as long as anybody holds it, or until another takes it over.
  static std::shared_ptr<Door> open(const Name& name);
  /// The door of that name; if there is none any more, one that is shut.
  static std::shared_ptr<Door> find(const Name& name);

  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  /// Lets nobody in any more, and returns when nobody is inside.
  void shut();

 private:
  friend class Visit;
  explicit Door(const Name& name) : name_(name) {}

  const Name name_;
  std::atomic<bool> shut_{false};
};

/// A rank's mark, at which doors look.
struct alignas(64) VisitorMark {
  std::atomic<uint64_t> steps{0};  // into somebody's memory and out of it; odd while inside
  pid_t process = 0;               // a forked child has marks of its parent, which nobody will ever change
};

/// One rank, as it visits others.
class Visitor {
 public:
  Visitor();
  ~Visitor();
  Visitor(const Visitor&) = delete;
  Visitor& operator=(const Visitor&) = delete;

 private:
  friend class Visit;
  const std::shared_ptr<VisitorMark> mark_;
  const bool fences_;  // nobody can do it for us
};

/// From entering to leaving.
class Visit {
 public:
  explicit Visit(Visitor& visitor) : visitor_(visitor) {
    std::atomic<uint64_t>& steps = visitor_.mark_->steps;
    if (visitor_.fences_) [[unlikely]] {
      steps.fetch_add(1, std::memory_order_seq_cst);
    } else {
      steps.store(steps.load(std::memory_order_relaxed) + 1, std::memory_order_release);
      std::atomic_signal_fence(std::memory_order_seq_cst);  // the other half is the owner's membarrier
    }
  }
  ~Visit() {
    std::atomic<uint64_t>& steps = visitor_.mark_->steps;
    steps.store(steps.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

  /// Whether the memory behind a door may be touched until the visit ends. Null: memory that nobody frees.
  bool admitted(const Door* door) const { return !door || !door->shut_.load(std::memory_order_seq_cst); }

 private:
  Visitor& visitor_;
};

}  // namespace weft::engine
