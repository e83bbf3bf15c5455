// Settings of the provider `efa` of these tests, from the environment. A process reads them once.
//
//   FAKE_EFA_SEED=n             of all random numbers; 1
//   FAKE_EFA_RAILS=n            domains that are offered, 1 to 8; 1. The first is the fastest
//   FAKE_EFA_IN_ORDER=1         nothing is late or out of order, and nobody is busy without need
//   FAKE_EFA_HOLD_US=n          longest time that a packet or a completion is held back; 300. One in a
//   hundred
//                               is held ten times longer. 0: only the number of polls counts
//   FAKE_EFA_BUSY=n             how many in a hundred posted operations are answered FI_EAGAIN; 10
//   FAKE_EFA_LOSE_RAIL=r@n      domain r fails in this process once it has been given n operations
//   FAKE_EFA_STOP=e@n           endpoint e of this process, counted from 0, does nothing any more once it has
//                               been given n operations. Its peers see that it is there
//   FAKE_EFA_REGISTRATIONS=n    so many registrations succeed in this process, counted as they are made
//   FAKE_EFA_OFFSETS=1          targets of writes count from the beginning of their registration, unlike
//   EFA's:
//                               for device memory of the fake driver, whose host memory is elsewhere
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
