// Graphs of the fake driver: streams that are captured, and what runs when a graph is launched. As strict as
// CUDA, or stricter:
//   * While a stream is captured it may not be waited for or asked; a call that is forbidden spoils the
//     capture, and its end says so. Streams come in by events, and must be joined again.
//   * Nodes that do not depend on each other run in any order. Host functions run one at a time, whatever
//   their
//     stream; a call of the driver in one ends the process.
//   * Launches of one executable graph follow each other.
//   * What a user object destroys is destroyed on another thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "device/cuda/driver.h"

namespace fake {

using namespace weft::device::cuda;

constexpr int kIllegalState = 401;
constexpr int kStreamCaptureMerge = 902, kStreamCaptureUnmatched = 903, kStreamCaptureUnjoined = 904,
              kStreamCaptureIsolation = 905, kCapturedEvent = 907, kStreamCaptureWrongThread = 908;

/// A piece of work; false: it has to wait, and is tried again.
using Piece = std::function<bool()>;

struct Node {
  Piece run;
  std::vector<size_t> after;  // nodes
};

/// A capture that is under way, and the streams in it.
struct Capture {
  uint64_t id = 0;
  int mode = 0;
  std::thread::id by;
  StreamHandle* origin = nullptr;
  std::set<StreamHandle*> streams;
  GraphHandle* graph = nullptr;
  bool spoiled = false;
};

/// Whether the thread runs a host function or destroys a user object.
inline thread_local bool t_in_callback = false;
/// The mode of the calling thread (cuThreadExchangeStreamCaptureMode).
inline thread_local int t_capture_mode = 0;

/// Adds work to a stream, or to the graph that is captured on it: 0, or why not.
int submit(StreamHandle* stream, Piece piece);
/// Work of one go.
int submit(StreamHandle* stream, std::function<void()> piece);
/// kStreamCaptureUnsupported, and the end of the capture, where one is under way on the stream; else 0.
int forbidden_in_capture(StreamHandle* stream);
/// What an unsafe call returns on this thread now; the captures that forbid it are spoiled.
int unsafe_during_captures();
/// An event that was last recorded on a captured stream is part of that capture.
int record(EventHandle* event, StreamHandle* stream);
bool is_captured(const EventHandle* event);
void forget(EventHandle* event);

}  // namespace fake

namespace weft::device::cuda {
struct UserObjectHandle {
  void* data;
  void (*destroy)(void* data);
  unsigned references;
};
struct GraphHandle {
  std::vector<fake::Node> nodes;
  std::map<UserObjectHandle*, unsigned> objects;  // and how many references to each
};
}  // namespace weft::device::cuda
