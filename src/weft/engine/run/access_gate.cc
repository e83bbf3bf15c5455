#include "engine/run/access_gate.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/fork.h"
#include "base/membarrier.h"
#include "base/mutex.h"

namespace weft::engine {
namespace {

// Looks at an accessor that is inside; then its owner sleeps between them, since the accessor may need this
// CPU.
constexpr int kLooks = 1000;
constexpr auto kNap = std::chrono::microseconds(20);

/// The gates and the accessors' marks of this process.
class GateRegistry {
 public:
  static GateRegistry& instance() {
    static GateRegistry* const registry =
        std::make_unique<GateRegistry>().release();  // outlives every thread
    return *registry;
  }

  void put_up(const AccessGate::Name& name, const std::shared_ptr<AccessGate>& gate) {
    const MutexLock lock(mutex_);
    gates_[name] = gate;
  }
  /// What has nobody to hold it any more.
  void take_down(const AccessGate::Name& name) {
    const MutexLock lock(mutex_);
    const auto found = gates_.find(name);
    if (found != gates_.end() && found->second.expired()) gates_.erase(found);
  }
  std::shared_ptr<AccessGate> find(const AccessGate::Name& name) {
    const MutexLock lock(mutex_);
    const auto found = gates_.find(name);
    return found == gates_.end() ? nullptr : found->second.lock();
  }

  void add(const std::shared_ptr<AccessMark>& mark) {
    const MutexLock lock(mutex_);
    marks_.push_back(mark);
  }
  void remove(const std::shared_ptr<AccessMark>& mark) {
    const MutexLock lock(mutex_);
    std::erase(marks_, mark);
  }
  std::vector<std::shared_ptr<AccessMark>> marks() {
    const MutexLock lock(mutex_);
    return marks_;
  }

 private:
  ForkSafeMutex mutex_;
  std::map<AccessGate::Name, std::weak_ptr<AccessGate>> gates_ WEFT_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<AccessMark>> marks_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace

std::shared_ptr<AccessGate> AccessGate::open(const Name& name) {
  std::shared_ptr<AccessGate> gate(new AccessGate(name));
  GateRegistry::instance().put_up(name, gate);
  return gate;
}

std::shared_ptr<AccessGate> AccessGate::find(const Name& name) {
  if (std::shared_ptr<AccessGate> gate = GateRegistry::instance().find(name)) return gate;
  std::shared_ptr<AccessGate> gone(new AccessGate(name));
  gone->shut_.store(true);
  return gone;
}

AccessGate::~AccessGate() { GateRegistry::instance().take_down(name_); }

void AccessGate::shut() {
  if (shut_.exchange(true)) return;
  const std::vector<std::shared_ptr<AccessMark>> marks = GateRegistry::instance().marks();
  if (has_membarrier()) membarrier();
  for (const auto& mark : marks) {
    const uint64_t seen = mark->steps.load();
    if (seen % 2 == 0 || mark->process != getpid()) continue;
    for (int looks = 0; mark->steps.load(std::memory_order_acquire) == seen; ++looks) {
      if (looks < kLooks) cpu_relax();
      else std::this_thread::sleep_for(kNap);
    }
  }
}

Accessor::Accessor() : mark_(std::make_shared<AccessMark>()), fences_(!has_membarrier()) {
  mark_->process = getpid();
  GateRegistry::instance().add(mark_);
}

Accessor::~Accessor() { GateRegistry::instance().remove(mark_); }

CommGates::CommGates(uint64_t job, uint32_t comm, const Membership& members)
    : job_(job),
      comm_(comm),
      members_(members),
      own_(AccessGate::open({job, comm, members.world_rank(members.rank())})),
      peers_(static_cast<size_t>(members.size())) {}

const AccessGate* CommGates::of(int rank) {
  std::shared_ptr<const AccessGate>& gate = peers_[static_cast<size_t>(rank)];
  const int world = members_.world_rank(rank);
  if (!gate && transport::in_same_process(*members_.route(rank), world))
    gate = AccessGate::find({job_, comm_, world});
  return gate.get();
}

}  // namespace weft::engine
