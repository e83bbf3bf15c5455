// The error of transports when a program has freed or unmapped a buffer that they use.
#pragma once

#include "base/status.h"

namespace weft::transport {

/// Transports copy for programs that may unmap their memory at any time. They make longer copies than this by
/// copy_checked(). For shorter ones a system call costs too much; a MemoryWatch guards those.
inline constexpr size_t kUncheckedBytes = 8 << 10;

/// invalid_usage: this process's own memory was unmapped while bytes were on their way from it, or to it.
inline Status memory_is_gone(int peer) {
  return fail(
      Code::invalid_usage,
      "a buffer was freed or unmapped while a message between it and rank {} was under way: buffers must "
      "stay until their operation has ended",
      peer);
}

}  // namespace weft::transport
