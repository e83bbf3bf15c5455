// What the calls of one-sided operations say besides their Call, and the first message of a put.
//
// A put is a send whose receiver does not call. Its first message, the announcement, lets the receiver's
// library begin the matching receive, into the window (Windows). Both ends then run the plans of a transfer,
// as of weftSend and weftRecv. A bare signal is a put of no elements: the announcement alone.
//
// Thread safety: values.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

namespace weft::engine {

/// A counter of signals, which each rank has for each other rank.
struct SignalName {
  uint32_t index = 0, context = 0;
  auto operator<=>(const SignalName&) const = default;
};

/// Signals that a call waits for.
struct AwaitedSignals {
  int peer = 0;
  SignalName name;
  uint64_t count = 0;
  uint64_t up_to = 0;  // how many will have come from the beginning, set when the call is numbered
};

struct OneSided {
  // Of a put.
  uint32_t window = 0;  // number of the window; 0: none, for a put of no elements
  uint64_t offset = 0;  // in the receiver's part of it, bytes
  bool signals = false;
  SignalName signal;
  // The receiver of a put learns both from the announcement.
  uint32_t number = 0;               // of the operation
  std::optional<uint32_t> sequence;  // among the puts of its sender
  // Of a wait.
  std::vector<AwaitedSignals> awaited;
};

struct PutAnnouncement {
  uint64_t offset = 0;
  uint64_t count = 0;
  uint32_t window = 0;
  uint32_t sequence = 0;
  uint32_t signal_index = 0, signal_context = 0;
  uint32_t type = 0;     // device::DataType
  uint32_t signals = 0;  // 1: it ends with a signal
};
static_assert(sizeof(PutAnnouncement) == 40);

}  // namespace weft::engine
