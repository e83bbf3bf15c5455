// Flight recorder: the last operations of a communicator, always on. Writing a record costs a few stores.
// Dumps and traces read it (dump.h, trace.h).
//
// Thread safety: records are written under the context's lock. A reader without the lock (a signal, a crash)
// may see the newest record half written, never anything outside the ring.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "device/types.h"
#include "engine/run/call.h"
#include "plan/plan.h"

namespace weft::engine {

struct Operation;

/// One operation: the call, and how it ended. Times are clock ticks (base/clock.h).
struct Record {
  uint32_t number = 0;  // operation number on its communicator; see operation.h
  plan::Collective collective = plan::Collective::all_reduce;
  device::DataType type = device::DataType::float32;
  device::ReduceOp op = device::ReduceOp::sum;
  bool in_place = false;  // of an AlltoAll: as its plan is made, the same on all ranks
  bool on_stream = false;
  bool strict = false;  // reduces in an order that no layout changes
  Purpose purpose = Purpose::caller;
  bool uneven = false;  // its blocks have sizes of their own: an AlltoAll has no count then
  Code outcome = Code::in_progress;
  int32_t root = 0;
  uint64_t count = 0;
  std::string_view algorithm;
  float predicted_us = 0;  // of one call of its streak
  uint64_t queued = 0, started = 0, done = 0;
  const Operation* of = nullptr;  // for comparison only: the operation may be gone

  /// For example "AllReduce of 1024 float (sum)", "AllReduce of 1024 float (sum, strict order)", "Broadcast
  /// of 8 double from root 3", "AlltoAll of 8 float in place", "AllGatherV of 30 float", "AlltoAllV of
  /// float", "Split", "Put of 8 float to rank 3". Ranks with the same call have the same text.
  std::string describe() const;
};

class Recorder {
 public:
  explicit Recorder(int capacity)
      : ring_(static_cast<size_t>(capacity < 1 ? 1 : capacity)),
        capacity_(ring_.size()),
        latest_(capacity_ - 1) {}

  /// The slot for the next operation; valid until `capacity` more have been taken.
  Record& next() {
    latest_ = latest_ + 1 == capacity_ ? 0 : latest_ + 1;
    ++taken_;
    return ring_[latest_];
  }
  /// Oldest first.
  std::vector<Record> snapshot() const;
  uint64_t total() const { return taken_; }
  /// The operation that was called last; null before the first one.
  const Record* latest() const { return taken_ == 0 ? nullptr : &ring_[latest_]; }

 private:
  std::vector<Record> ring_;
  size_t capacity_;  // the ring's size, which takes a division
  size_t latest_;    // the slot taken last
  uint64_t taken_ = 0;
};

}  // namespace weft::engine
