// The fake driver's graphs: capture, launch, user objects.
#include "cuda/fake_driver/graphs.h"

#include <algorithm>
#include <random>

#include "cuda/fake_driver/entry.h"
#include "cuda/fake_driver/races.h"

using namespace fake;

namespace {

std::mutex g_mutex;  // over all captures, and the streams' part in them
std::set<std::shared_ptr<Capture>> g_captures;
uint64_t g_last_id = 0;
std::mutex g_callback;  // host functions take turns
std::mutex g_objects;

/// Runs what may not call the driver.
void call_back(void (*function)(void*), void* data) {
  const std::lock_guard guard(g_callback);
  t_in_callback = true;
  function(data);
  t_in_callback = false;
}

void release(UserObjectHandle* object, unsigned count) {
  {
    const std::lock_guard guard(g_objects);
    if ((object->references -= count) > 0) return;
  }
  std::thread([object] { call_back(object->destroy, object->data); }).join();
  delete object;
}

void release(const std::map<UserObjectHandle*, unsigned>& objects) {
  for (const auto& [object, count] : objects) release(object, count);
}

// g_mutex: every node must come before the end of the stream where the capture began.
bool is_joined(const GraphHandle& graph, const std::vector<size_t>& last) {
  std::vector<bool> seen(graph.nodes.size());
  std::vector<size_t> open = last;
  while (!open.empty()) {
    const size_t node = open.back();
    open.pop_back();
    if (seen[node]) continue;
    seen[node] = true;
    open.insert(open.end(), graph.nodes[node].after.begin(), graph.nodes[node].after.end());
  }
  return std::all_of(seen.begin(), seen.end(), [](bool reached) { return reached; });
}

/// One launch of a graph, as a piece of its stream's work.
class Launch {
 public:
  Launch(std::shared_ptr<struct Executable> executable, uint64_t serial)
      : executable_(std::move(executable)), serial_(serial) {}
  bool step();

 private:
  std::shared_ptr<struct Executable> executable_;
  uint64_t serial_;
  std::vector<bool> done_;
};

struct Executable {
  std::vector<Node> nodes;
  std::map<UserObjectHandle*, unsigned> objects;
  std::atomic<uint64_t> launched{0}, ended{0};
  ~Executable() { release(objects); }
};

bool Launch::step() {
  if (executable_->ended.load() != serial_) return false;  // an earlier launch is under way
  const std::vector<Node>& nodes = executable_->nodes;
  done_.resize(nodes.size());
  std::vector<size_t> order(nodes.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  thread_local std::minstd_rand random(std::random_device{}());
  std::shuffle(order.begin(), order.end(), random);
  bool moved = true;
  while (moved) {
    moved = false;
    for (const size_t i : order) {
      if (done_[i] || !std::all_of(nodes[i].after.begin(), nodes[i].after.end(),
                                   [this](size_t node) { return done_[node]; }))
        continue;
      World::instance().pause();
      if (!nodes[i].run()) continue;
      done_[i] = true;
      moved = true;
    }
  }
  if (!std::all_of(done_.begin(), done_.end(), [](bool done) { return done; })) return false;
  executable_->ended.fetch_add(1);
  return true;
}

struct Launchable {
  std::shared_ptr<Executable> executable;
};

}  // namespace

namespace fake {

int submit(StreamHandle* stream, Piece piece) {
  {
    const std::lock_guard guard(g_mutex);
    if (stream->capture) {
      Capture& capture = *stream->capture;
      if (capture.spoiled) return kStreamCaptureInvalidated;
      capture.graph->nodes.push_back({std::move(piece), stream->frontier});
      stream->frontier = {capture.graph->nodes.size() - 1};
      return kSuccess;
    }
  }
  stream->push(std::move(piece));
  return kSuccess;
}

int submit(StreamHandle* stream, std::function<void()> piece) {
  return submit(stream, Piece([piece = std::move(piece)] {
                  piece();
                  return true;
                }));
}

int forbidden_in_capture(StreamHandle* stream) {
  const std::lock_guard guard(g_mutex);
  if (!stream->capture) return kSuccess;
  stream->capture->spoiled = true;
  return kStreamCaptureUnsupported;
}

int unsafe_during_captures() {
  if (t_capture_mode == kCaptureModeRelaxed) return kSuccess;
  int forbidden = kSuccess;
  const std::lock_guard guard(g_mutex);
  for (const auto& capture : g_captures) {
    const bool own = capture->by == std::this_thread::get_id() && capture->mode != kCaptureModeRelaxed;
    if (!own && (capture->mode != kCaptureModeGlobal || t_capture_mode != kCaptureModeGlobal)) continue;
    capture->spoiled = true;
    forbidden = kStreamCaptureUnsupported;
  }
  return forbidden;
}

int record(EventHandle* event, StreamHandle* stream) {
  {
    const std::lock_guard guard(g_mutex);
    event->capture = stream->capture;
    event->nodes = stream->frontier;
    if (stream->capture) return stream->capture->spoiled ? kStreamCaptureInvalidated : kSuccess;
  }
  const uint64_t serial = event->recorded.fetch_add(1) + 1;
  stream->push([reached = event->reached, at = event->reached_at, serial] {
    note_record(reached.get(), serial);
    at->store(std::chrono::steady_clock::now());
    reached->store(serial);
    return true;
  });
  return kSuccess;
}

bool is_captured(const EventHandle* event) {
  const std::lock_guard guard(g_mutex);
  return event->capture != nullptr;
}

void forget(EventHandle* event) {
  const std::lock_guard guard(g_mutex);
  event->capture.reset();
}

}  // namespace fake

// ---- Capture

FAKE_API int cuStreamBeginCapture_v2(StreamHandle* handle, int mode) {
  ENTER(cuStreamBeginCapture);
  NEED_CONTEXT();
  if (reinterpret_cast<uintptr_t>(handle) <= 1)
    return kStreamCaptureUnsupported;  // the legacy default stream
  StreamHandle* const stream = resolve(handle);
  if (!stream) return kInvalidHandle;
  const std::lock_guard guard(g_mutex);
  if (stream->capture) return kIllegalState;
  auto capture = std::make_shared<Capture>();
  capture->id = ++g_last_id;
  capture->mode = mode;
  capture->by = std::this_thread::get_id();
  capture->origin = stream;
  capture->streams = {stream};
  capture->graph = new GraphHandle;
  stream->capture = capture;
  stream->frontier.clear();
  g_captures.insert(std::move(capture));
  return kSuccess;
}
FAKE_API int cuStreamEndCapture(StreamHandle* handle, GraphHandle** graph) {
  ENTER(cuStreamEndCapture);
  NEED_CONTEXT();
  StreamHandle* const stream = resolve(handle);
  if (!stream) return kInvalidHandle;
  std::unique_lock lock(g_mutex);
  const auto capture = stream->capture;
  if (!capture) return kIllegalState;
  if (capture->origin != stream) return kStreamCaptureUnmatched;
  if (capture->mode != kCaptureModeRelaxed && capture->by != std::this_thread::get_id())
    return kStreamCaptureWrongThread;
  const int error = capture->spoiled                                ? int{kStreamCaptureInvalidated}
                    : !is_joined(*capture->graph, stream->frontier) ? kStreamCaptureUnjoined
                                                                    : int{kSuccess};
  for (StreamHandle* member : capture->streams) {
    member->capture.reset();
    member->frontier.clear();
  }
  g_captures.erase(capture);
  *graph = error ? nullptr : capture->graph;
  lock.unlock();
  if (!error) return kSuccess;
  release(capture->graph->objects);
  delete capture->graph;
  return error;
}
FAKE_API int cuStreamIsCapturing(StreamHandle* handle, int* status) {
  ENTER(cuStreamIsCapturing);
  NEED_CONTEXT();
  StreamHandle* const stream = resolve(handle);
  if (!stream) return kInvalidHandle;
  const std::lock_guard guard(g_mutex);
  *status = !stream->capture ? kCaptureNone : stream->capture->spoiled ? kCaptureInvalidated : kCaptureActive;
  return kSuccess;
}
FAKE_API int cuStreamGetCaptureInfo_v2(StreamHandle* handle, int* status, uint64_t* id, GraphHandle** graph,
                                       GraphNodeHandle* const** dependencies, size_t* dependency_count) {
  ENTER(cuStreamGetCaptureInfo);
  NEED_CONTEXT();
  if (dependencies || dependency_count) return kNotSupported;
  StreamHandle* const stream = resolve(handle);
  if (!stream) return kInvalidHandle;
  const std::lock_guard guard(g_mutex);
  *status = !stream->capture ? kCaptureNone : stream->capture->spoiled ? kCaptureInvalidated : kCaptureActive;
  if (*status != kCaptureActive) return kSuccess;
  if (id) *id = stream->capture->id;
  if (graph) *graph = stream->capture->graph;
  return kSuccess;
}
FAKE_API int cuThreadExchangeStreamCaptureMode(int* mode) {
  ENTER(cuThreadExchangeStreamCaptureMode);
  std::swap(t_capture_mode, *mode);
  return kSuccess;
}
FAKE_API int cuStreamWaitEvent(StreamHandle* handle, EventHandle* event, unsigned flags) {
  ENTER(cuStreamWaitEvent);
  NEED_CONTEXT();
  StreamHandle* const stream = resolve(handle);
  if (!stream || flags != 0) return stream ? kInvalidValue : kInvalidHandle;
  {
    const std::lock_guard guard(g_mutex);
    if (stream->capture && !event->capture) {
      stream->capture->spoiled = true;
      return kStreamCaptureIsolation;
    }
    if (event->capture) {
      if (!g_captures.contains(event->capture)) return kInvalidValue;
      if (!stream->capture) {
        stream->capture = event->capture;
        stream->frontier.clear();
        event->capture->streams.insert(stream);
      } else if (stream->capture != event->capture) {
        stream->capture->spoiled = event->capture->spoiled = true;
        return kStreamCaptureMerge;
      }
      stream->frontier.insert(stream->frontier.end(), event->nodes.begin(), event->nodes.end());
      return stream->capture->spoiled ? kStreamCaptureInvalidated : kSuccess;
    }
  }
  if (World::instance().leaves_out_wait()) return kSuccess;
  const uint64_t serial = event->recorded.load();
  return submit(stream, Piece([reached = event->reached, serial] {
                  if (reached->load() < serial) return false;
                  note_wait(reached.get(), serial);
                  return true;
                }));
}
FAKE_API int cuLaunchHostFunc(StreamHandle* handle, void (*function)(void*), void* data) {
  ENTER(cuLaunchHostFunc);
  NEED_CONTEXT();
  StreamHandle* const stream = resolve(handle);
  if (!stream || !function) return stream ? kInvalidValue : kInvalidHandle;
  return submit(stream, [function, data] { call_back(function, data); });
}

// ---- Graphs

FAKE_API int cuGraphInstantiateWithFlags(void** executable, GraphHandle* graph, unsigned long long flags) {
  ENTER(cuGraphInstantiate);
  if (!graph || flags != 0) return kInvalidValue;
  auto made = std::make_shared<Executable>();
  made->nodes = graph->nodes;
  made->objects = graph->objects;
  {
    const std::lock_guard guard(g_objects);
    for (const auto& [object, count] : made->objects) object->references += count;
  }
  *executable = new Launchable{std::move(made)};
  return kSuccess;
}
FAKE_API int cuGraphLaunch(void* executable, StreamHandle* handle) {
  ENTER(cuGraphLaunch);
  NEED_CONTEXT();
  StreamHandle* const stream = resolve(handle);
  if (!stream) return kInvalidHandle;
  if (const int forbidden = forbidden_in_capture(stream)) return forbidden;
  const auto& graph = static_cast<Launchable*>(executable)->executable;
  const auto launch = std::make_shared<Launch>(graph, graph->launched.fetch_add(1));
  return submit(stream, Piece([launch] { return launch->step(); }));
}
FAKE_API int cuGraphExecDestroy(void* executable) {
  ENTER(cuGraphExecDestroy);
  delete static_cast<Launchable*>(executable);
  return kSuccess;
}
FAKE_API int cuGraphDestroy(GraphHandle* graph) {
  ENTER(cuGraphDestroy);
  {
    const std::lock_guard guard(g_mutex);
    for (const auto& capture : g_captures)
      if (capture->graph == graph) return kInvalidValue;
  }
  release(graph->objects);
  delete graph;
  return kSuccess;
}

// ---- User objects

FAKE_API int cuUserObjectCreate(UserObjectHandle** object, void* data, void (*destroy)(void*),
                                unsigned references, unsigned flags) {
  ENTER(cuUserObjectCreate);
  if (!destroy || references == 0 || flags != kUserObjectNoDestructorSync) return kInvalidValue;
  *object = new UserObjectHandle{data, destroy, references};
  return kSuccess;
}
FAKE_API int cuUserObjectRelease(UserObjectHandle* object, unsigned count) {
  ENTER(cuUserObjectRelease);
  release(object, count);
  return kSuccess;
}
FAKE_API int cuGraphRetainUserObject(GraphHandle* graph, UserObjectHandle* object, unsigned count,
                                     unsigned flags) {
  ENTER(cuGraphRetainUserObject);
  if (!graph || count == 0) return kInvalidValue;
  graph->objects[object] += count;
  if (flags == kUserObjectMove) return kSuccess;
  const std::lock_guard guard(g_objects);
  object->references += count;
  return kSuccess;
}
