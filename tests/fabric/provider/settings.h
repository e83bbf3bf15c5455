// Settings of the fake provider `efa`, from environment variables. A process reads them once. In brackets:
// the default.
//
//   FAKE_EFA_SEED=n           [1]    seed of all random numbers
//   FAKE_EFA_RAILS=n          [1]    number of domains, 1 to 8. The first domain is the fastest
//   FAKE_EFA_IN_ORDER=1       [0]    nothing is late or out of order, and FAKE_EFA_BUSY does not apply
//   FAKE_EFA_HOLD_US=n        [300]  longest delay of a packet or a completion. For one in a hundred, ten
//                                    times as long. 0: delays are counted in polls only
//   FAKE_EFA_BUSY=n           [10]   percentage of posted operations that get FI_EAGAIN, at most 90
//   FAKE_EFA_LOSE_RAIL=r@n           domain r of this process fails after n posted operations
//   FAKE_EFA_STOP=e@n                endpoint e of this process, counted from 0, stops after n posted
//                                    operations. Its peers get no error
//   FAKE_EFA_REGISTRATIONS=n         only the first n memory registrations of this process succeed
//   FAKE_EFA_OFFSETS=1        [0]    a write names its target by the offset in the registration. EFA uses
//                                    addresses. Tests with the fake CUDA driver need offsets, because its
//                                    device memory has another address on the host
//
// Thread safety: all functions.
#pragma once

#include <cstdint>

namespace weft::fake_efa {

/// A fault that begins after some operations.
struct Fault {
  int which = -1;  // rail or endpoint; -1: none
  uint64_t after = 0;
};

struct Settings {
  uint64_t seed = 1;
  int rails = 1;
  bool in_order = false;
  int64_t hold_us = 300;
  int busy_percent = 10;
  Fault lost_rail, stopped_endpoint;
  uint64_t registrations = UINT64_MAX;
  bool offsets = false;
};

const Settings& settings();

}  // namespace weft::fake_efa
