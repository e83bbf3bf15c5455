#include "engine/run/visits.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/fork.h"
#include "base/membarrier.h"

namespace weft::engine {
namespace {

// Looks at a visitor that is inside; then its owner sleeps between them, since the visitor may need this CPU.
constexpr int kLooks = 1000;
constexpr auto kNap = std::chrono::microseconds(20);

/// The doors and the visitors of this process.
class Household {
 public:
  static Household& instance() {
    static Household* const household = std::make_unique<Household>().release();  // outlives every thread
    return *household;
  }

  void put_up(const Door::Name& name, const std::shared_ptr<Door>& door) {
    std::lock_guard lock(mutex_);
    doors_[name] = door;
  }
  /// What has nobody to hold it any more.
  void take_down(const Door::Name& name) {
    std::lock_guard lock(mutex_);
    const auto found = doors_.find(name);
    if (found != doors_.end() && found->second.expired()) doors_.erase(found);
  }
  std::shared_ptr<Door> find(const Door::Name& name) {
    std::lock_guard lock(mutex_);
    const auto found = doors_.find(name);
    return found == doors_.end() ? nullptr : found->second.lock();
  }

  void add(const std::shared_ptr<VisitorMark>& mark) {
    std::lock_guard lock(mutex_);
    marks_.push_back(mark);
  }
  void remove(const std::shared_ptr<VisitorMark>& mark) {
    std::lock_guard lock(mutex_);
    std::erase(marks_, mark);
  }
  std::vector<std::shared_ptr<VisitorMark>> marks() {
    std::lock_guard lock(mutex_);
    return marks_;
  }

 private:
  ForkSafeMutex mutex_;
  std::map<Door::Name, std::weak_ptr<Door>> doors_;
  std::vector<std::shared_ptr<VisitorMark>> marks_;
};

}  // namespace

std::shared_ptr<Door> Door::open(const Name& name) {
  std::shared_ptr<Door> door(new Door(name));
  Household::instance().put_up(name, door);
  return door;
}

std::shared_ptr<Door> Door::find(const Name& name) {
  if (std::shared_ptr<Door> door = Household::instance().find(name)) return door;
  std::shared_ptr<Door> gone(new Door(name));
  gone->shut_.store(true);
  return gone;
}

Door::~Door() { Household::instance().take_down(name_); }

void Door::shut() {
  if (shut_.exchange(true)) return;
  const std::vector<std::shared_ptr<VisitorMark>> marks = Household::instance().marks();
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

Visitor::Visitor() : mark_(std::make_shared<VisitorMark>()), fences_(!has_membarrier()) {
  mark_->process = getpid();
  Household::instance().add(mark_);
}

Visitor::~Visitor() { Household::instance().remove(mark_); }

}  // namespace weft::engine
