// What transports say when a program has taken a buffer away under them.
#pragma once

#include "base/status.h"

namespace weft::transport {

/// Of the copies that transports make for a program that may do with its memory what it likes, those that are
/// longer are made by copy_checked(): for shorter ones a system call would be felt, and there is a
/// MemoryWatch.
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
