// membarrier(2): a full fence in every thread of every process that takes part, paid for by the caller alone.
// So a rare event pays for the fence that frequent ones then do without: see base/biased_mutex.h, base/gate.h
// and transport/shm_segment.h.
//
// Thread safety: all functions.
#pragma once

namespace weft {

/// Whether to rely on such barriers between threads: the thread sanitizer does not know what they order.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kTrustsMembarrier = false;
#else
inline constexpr bool kTrustsMembarrier = true;
#endif

/// Whether this process takes part in such barriers. Registers it, which costs nothing the second time; a
/// forked child must not rely on its parent's registration.
bool has_membarrier();

/// Returns when every running thread of the processes that take part has passed a full fence since the call.
/// Only where has_membarrier() was true.
void membarrier();

}  // namespace weft
