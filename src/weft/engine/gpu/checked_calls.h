// CheckedCalls: the driver's answers about streams and buffers of calls that the calling thread has checked
// and not yet run. So the run of a call, or of a group, need not ask again.
//
// Thread safety: every function; each thread has its own.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "device/cuda/capture.h"
#include "device/cuda/device.h"

namespace weft::engine {

namespace cuda = device::cuda;

class CheckedCalls {
 public:
  static CheckedCalls& of_this_thread();

  void note_capture(const cuda::Capture& capture) { capture_ = capture; }
  void note_buffer(const void* address, const cuda::Place& place);
  /// The capture of the call that was checked last. Only the first question gets it.
  std::optional<cuda::Capture> take_capture() { return std::exchange(capture_, std::nullopt); }
  /// The memory at an address, or at its latest check; null: ask the driver.
  const cuda::Place* find(const void* address) const;
  /// The calls have been run.
  void forget();

 private:
  // Calls of one group share few buffers, or are so many that asking costs little beside them.
  static constexpr size_t kKept = 32;

  std::optional<cuda::Capture> capture_;
  std::vector<std::pair<const void*, cuda::Place>> buffers_;
};

/// Forgets the thread's checked calls at the end of their run, however it ends.
struct ForgetCheckedCalls {
  ~ForgetCheckedCalls() { CheckedCalls::of_this_thread().forget(); }
};

}  // namespace weft::engine
