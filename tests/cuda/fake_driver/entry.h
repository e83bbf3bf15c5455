// What every exported function of the fake driver begins with, and the state of the calling thread.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "cuda/fake_driver/graphs.h"
#include "cuda/fake_driver/world.h"

#define FAKE_API extern "C" __attribute__((visibility("default")))
// Each function first counts itself, and fails if it was told to, or before cuInit.
#define ENTER(function)                                                   \
  do {                                                                    \
    if (!World::instance().initialized.load()) return kNotInitialized;    \
    refuse_in_host_function(#function);                                   \
    if (const int told = World::instance().enter(#function)) return told; \
  } while (0)
// What would disturb a capture, which is forbidden unless the thread has relaxed that.
#define NEED_NO_CAPTURE()                                                 \
  do {                                                                    \
    if (const int forbidden = unsafe_during_captures()) return forbidden; \
  } while (0)
#define NEED_CONTEXT()                      \
  ContextHandle* const context = current(); \
  if (!context) return kInvalidContext;     \
  if (const int error = context->asynchronous_error.load()) return error

namespace fake {

/// The contexts of a thread, the current one on top. Without a destructor, because objects that a program
/// frees at its end call the driver after the thread's own objects are gone.
struct ContextStack {
  static constexpr size_t kDepth = 64;
  ContextHandle* contexts[kDepth];
  size_t depth;

  bool push(ContextHandle* context) {
    if (depth == kDepth) return false;
    contexts[depth++] = context;
    return true;
  }
  ContextHandle* pop() { return depth == 0 ? nullptr : contexts[--depth]; }
  ContextHandle* top() const { return depth == 0 ? nullptr : contexts[depth - 1]; }
};
inline thread_local ContextStack t_contexts{};

inline ContextHandle* current() { return t_contexts.top(); }

/// The calling thread's default stream of a device. It stays when the thread has ended.
inline StreamHandle* default_stream_of_thread(int ordinal) {
  constexpr int kMostDevices = 16;
  static thread_local StreamHandle* own[kMostDevices];
  StreamHandle*& stream = own[ordinal % kMostDevices];
  if (!stream) stream = World::instance().add_stream(ordinal);
  return stream;
}

/// The stream that a handle names for the calling thread; null for a handle of no stream, or of another
/// device.
inline StreamHandle* resolve(StreamHandle* stream) {
  constexpr uintptr_t kOfThread = 2;
  const auto handle = reinterpret_cast<uintptr_t>(stream);
  if (handle < kOfThread) return World::instance().default_stream(current()->ordinal);
  if (handle == kOfThread) return default_stream_of_thread(current()->ordinal);
  if (!World::instance().knows(stream) || stream->ordinal != current()->ordinal) return nullptr;
  return stream;
}

/// CUDA leaves what becomes of such a call open; here it ends the process.
inline void refuse_in_host_function(const char* function) {
  if (!t_in_callback) return;
  std::fprintf(stderr, "the fake driver: %s was called from a function that may not call CUDA\n", function);
  std::abort();
}

}  // namespace fake
