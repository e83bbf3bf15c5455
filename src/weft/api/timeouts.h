// The longest time that operations may take: of a communicator, and of a thread's calls.
#pragma once

namespace weft::api {

/// What weftSetCallTimeout() has set on this thread, s; 0: nothing. Every call reads it: found without a call
/// of the dynamic linker.
[[gnu::tls_model("initial-exec")]] extern thread_local double t_call_timeout_s;

/// What weft.h promises: in nanoseconds, and added to a time, it still fits 64 bits.
inline constexpr double kLongestTimeout_s = 1e9;

}  // namespace weft::api
