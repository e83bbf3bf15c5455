// SourceReading: a source region of an active step that lies in plain memory of a peer, and is long enough
// that its owner can help (transport::Reading). It decides how long to wait for a piece before it reads the
// piece without help. The owner may be in the middle of a turn of its own. After an owner was late, the
// reader does not wait again until the owner has caught up.
//
// It also measures whether help pays. Between caches that are far apart, a piece that the owner brings takes
// longer than one that the kernel copies. So the first piece is read without help, for comparison, and now
// and then another.
//
// Thread safety: none; under the context's lock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "transport/transport.h"

namespace weft::engine {

class SourceReading {
 public:
  /// `clock` gives nanoseconds, for tests another time than the real one.
  SourceReading(uint32_t region, std::unique_ptr<transport::Reading> reading, int64_t (*clock)() = now_ns)
      : region_(region), reading_(std::move(reading)), clock_(clock) {}

  uint32_t region() const { return region_; }
  uint64_t piece() const { return reading_->piece(); }

  /// Whether the next piece is there, or is to be read without help.
  bool may_go_on() {
    if (goes_alone()) return true;
    if (reading_->ready() != nullptr) {
      relied_on_ = true;
      waiting_ns_ = 0;
      return true;
    }
    if (!relied_on_) return true;
    const int64_t now = clock_();
    if (waiting_ns_ == 0) waiting_ns_ = now;
    relied_on_ = now - waiting_ns_ < kPatienceNs;
    return !relied_on_;
  }

  /// The next piece: where it has been brought, or read into `bounce`. Good until finish().
  Result<const std::byte*> start(void* bounce) {
    started_ns_ = clock_();
    const std::byte* const there = goes_alone() ? nullptr : reading_->ready();
    brought_ = there != nullptr;
    if (brought_) return there;
    WEFT_TRY(reading_->fetch(bounce));
    return static_cast<const std::byte*>(bounce);
  }
  /// The piece of start() has been used, with those of so many readings `together`.
  void finish(int together) {
    const int64_t took_ns = (clock_() - started_ns_) / together;
    const int64_t both_ns = took_ns + (brought_ ? reading_->bringing_ns() : 0);
    if (!brought_) alone_ns_ = std::clamp<int64_t>(took_ns, 1, alone_ns_);
    reading_->take();
    ++pieces_;
    if (brought_) judge(both_ns);
  }

 private:
  bool goes_alone() const { return pieces_ == 0 || pieces_ % kAloneEvery == kAloneFirst; }

  void judge(int64_t both_ns) {
    brought_ns_ += both_ns;
    longest_ns_ = std::max(longest_ns_, both_ns);
    if (++judged_ < kJudged) return;
    relied_on_ = reading_->judge((brought_ns_ - longest_ns_) / (kJudged - 1), alone_ns_);
    brought_ns_ = longest_ns_ = judged_ = 0;
  }

  static constexpr int64_t kPatienceNs = 30'000;
  static constexpr int kJudged = 8;  // pieces together, of which all but the longest count
  static constexpr int kAloneFirst = 16, kAloneEvery = 128;  // the first one may be slow

  uint32_t region_;  // number in Plan::regions
  std::unique_ptr<transport::Reading> reading_;
  int64_t (*clock_)();
  bool relied_on_ = true;
  bool brought_ = false;
  int64_t waiting_ns_ = 0;  // since when the piece is waited for; 0: it is not
  int64_t started_ns_ = 0;
  int64_t pieces_ = 0;                       // so far
  int64_t alone_ns_ = INT64_MAX;             // the least that a piece took which was read without help
  int64_t brought_ns_ = 0, longest_ns_ = 0;  // both ranks' time for pieces that were brought
  int judged_ = 0;
};

/// Those of an operation; few.
class SourceReadings {
 public:
  bool empty() const { return readings_.empty(); }
  void add(uint32_t region, std::unique_ptr<transport::Reading> reading) {
    readings_.emplace_back(region, std::move(reading));
  }
  SourceReading* find(uint32_t region) {
    for (SourceReading& reading : readings_)
      if (reading.region() == region) return &reading;
    return nullptr;
  }
  /// Ends those of regions [first, first + count).
  void end(uint32_t first, uint32_t count) {
    std::erase_if(readings_, [&](const SourceReading& r) { return r.region() - first < count; });
  }
  void clear() { readings_.clear(); }

 private:
  std::vector<SourceReading> readings_;
};

}  // namespace weft::engine
