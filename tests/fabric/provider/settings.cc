#include "settings.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace weft::fake_efa {
namespace {

uint64_t number(const char* name, uint64_t otherwise) {
  const char* given = std::getenv(name);
  return given && *given ? std::strtoull(given, nullptr, 10) : otherwise;
}

Fault fault(const char* name) {
  Fault fault;
  unsigned long long after = 0;
  const char* given = std::getenv(name);
  if (given && std::sscanf(given, "%d@%llu", &fault.which, &after) != 2) fault.which = -1;
  fault.after = after;
  return fault;
}

Settings read() {
  Settings read;
  read.seed = number("FAKE_EFA_SEED", read.seed);
  read.rails = static_cast<int>(std::clamp<uint64_t>(number("FAKE_EFA_RAILS", 1), 1, 8));
  read.in_order = number("FAKE_EFA_IN_ORDER", 0) != 0;
  read.hold_us = static_cast<int64_t>(number("FAKE_EFA_HOLD_US", static_cast<uint64_t>(read.hold_us)));
  read.busy_percent =
      read.in_order ? 0 : static_cast<int>(std::min<uint64_t>(number("FAKE_EFA_BUSY", 10), 90));
  read.lost_rail = fault("FAKE_EFA_LOSE_RAIL");
  read.stopped_endpoint = fault("FAKE_EFA_STOP");
  read.registrations = number("FAKE_EFA_REGISTRATIONS", read.registrations);
  read.offsets = number("FAKE_EFA_OFFSETS", 0) != 0;
  return read;
}

}  // namespace

const Settings& settings() {
  static const Settings once = read();
  return once;
}

}  // namespace weft::fake_efa
