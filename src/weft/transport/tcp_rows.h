// Which messages over TCP share writes in a row (tcp_transport.h). Here because the model and what measures
// for it must know what the transport does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace weft::transport::tcp {

/// How many messages go to a peer one upon the other, without a look in between, before they are a row: a
/// caller that stops then has delayed none of them.
inline constexpr uint32_t kBeforeRow = 16;
/// How long messages of a row wait for others, and the longest that do: for a few writes' time, so that
/// little of it goes into them.
inline constexpr int64_t kRowWaitNs = 20'000;
inline constexpr size_t kGatheredBytes = 4 << 10;
/// What messages to a peer come to when they wait no longer.
inline constexpr size_t kGatherQueueBytes = 16 << 10;

/// The messages of a rank to a peer, as far as they follow each other. A row goes on behind a look if there
/// were several since the one before, as where each look brings some that are passed on.
class Row {
 public:
  /// One that has gone on for some time.
  static Row long_since() {
    Row row;
    row.messages_ = kBeforeRow + 2;
    return row;
  }
  /// One more, by a rank that has looked so often. Whether it is one of a row.
  bool add(uint64_t looks) {
    if (std::exchange(looks_, looks) != looks) messages_ = messages_ > kBeforeRow + 1 ? kBeforeRow : 0;
    return ++messages_ > kBeforeRow;
  }

 private:
  uint64_t looks_ = 0;
  uint32_t messages_ = 0;
};

}  // namespace weft::transport::tcp
