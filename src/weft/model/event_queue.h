// Events of the simulator, and the order in which they are handled. The order is: time, then at one moment
// the events that were due before those they cause, then kind, place on the node and step, and last the rank.
// So every node has the same order (symmetry.h), and it does not depend on how the queue is built.
//
// Thread safety: none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace weft::model {

enum class EventKind : uint8_t {
  ended,     // a copy, a reduction or a put inside a node is done
  released,  // a put's source may be reused
  taken,     // … by the time its sender's CPU is done with it
  inject,    // the sender's CPU has handed a put to its kernel and network interfaces
  write,     // … which had no room, has some: the sender's CPU writes
  core,      // a stripe's first byte is at the core of the switches
  wire,      // a stripe's first byte is at the receiver's
  land,      // the receiver's CPU can begin to file it
  filed,
  came,    // as filed, of a message whose end came when its receiver's CPU had done all that it could
  found,   // as filed, of a message that was there before its receiver's call
  resume,  // a wait that had yielded its core to another node's has it again
  next,    // a rank goes on to its next call
  first,   // a rank that shares a core would begin its first one
  turn,    // … has its core
};

inline constexpr uint32_t kNoFlight = UINT32_MAX;
inline constexpr uint32_t kGathered = UINT32_MAX - 1;   // no flight either, and shares a packet with others
inline constexpr uint32_t kUnwritten = UINT32_MAX - 2;  // … and waits for room

struct Event {
  double at_us = 0;
  uint64_t order = 0;   // of events at one moment
  double floor_us = 0;  // what was begun upstream ends no sooner
  int32_t rank = 0;     // whose step it is: for messages the sender
  plan::StepId step = 0;
  uint32_t flight = kNoFlight;  // the put that a stripe belongs to, if it has several
  uint16_t rail = 0;
  EventKind kind = EventKind::ended;
  uint8_t call = 0;  // of a streak

  /// By < and >, since != would look for NaNs besides: this is where small simulations spend their time.
  bool before(const Event& other) const {
    if (at_us < other.at_us) return true;
    if (at_us > other.at_us) return false;
    if (order != other.order) return order < other.order;
    return call != other.call ? call < other.call : rank < other.rank;
  }
};

/// A heap of four children a node: half the levels of a binary one, whose siblings share cache lines.
class EventQueue {
 public:
  bool empty() const { return heap_.empty(); }
  uint64_t handled() const { return handled_; }

  /// `local_index` is the rank's place on its node.
  void push(Event event, int local_index) {
    const uint64_t depth = event.at_us == now_us_ ? depth_ + 1 : 0;
    event.order = std::min<uint64_t>(depth, 0xffff) << 48 | static_cast<uint64_t>(event.kind) << 44 |
                  static_cast<uint64_t>(local_index & 0xfff) << 32 | event.step;
    size_t hole = heap_.size();
    heap_.push_back(event);
    while (hole > 0 && event.before(heap_[(hole - 1) / kWays])) {
      heap_[hole] = heap_[(hole - 1) / kWays];
      hole = (hole - 1) / kWays;
    }
    heap_[hole] = event;
  }

  Event pop() {
    const Event first = heap_.front(), last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) sink(last);
    now_us_ = first.at_us;
    depth_ = first.order >> 48;
    ++handled_;
    return first;
  }

 private:
  static constexpr size_t kWays = 4;

  /// Puts `event` where the first was.
  void sink(const Event& event) {
    size_t hole = 0;
    for (;;) {
      const size_t begin = hole * kWays + 1, end = std::min(begin + kWays, heap_.size());
      if (begin >= end) break;
      size_t least = begin;
      for (size_t child = begin + 1; child < end; ++child) {
        if (heap_[child].before(heap_[least])) least = child;
      }
      if (!heap_[least].before(event)) break;
      heap_[hole] = heap_[least];
      hole = least;
    }
    heap_[hole] = event;
  }

  std::vector<Event> heap_;
  double now_us_ = 0;
  uint64_t depth_ = 0, handled_ = 0;
};

}  // namespace weft::model
