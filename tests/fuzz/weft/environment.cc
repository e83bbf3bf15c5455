// The environment: settings, and what launchers say in it.
#include "base/settings.h"
#include "bootstrap/address.h"
#include "bootstrap/launch.h"
#include "fuzz.h"
#include "model/pins.h"
#include "topology/interface_rules.h"

using namespace weft;

FUZZ_TARGET(environment) {
  std::vector<std::string> entries;
  while (!input.empty()) entries.push_back(input.take_until('\n'));
  if (const auto settings = parse_settings(entries); settings.ok()) {
    (void)model::parse_pins(settings->algo);
    const topology::InterfaceFilter filter(settings->socket_ifname);
    (void)filter.takes("eth0");
  }
  if (const auto launch = bootstrap::detect_launch(entries); launch.ok())
    fuzz::require(launch->rank >= 0 && launch->rank < launch->size, "a launched rank is in its job");
  for (const std::string& entry : entries) {
    (void)model::parse_pins(entry);
    (void)model::parse_collective(entry);
    (void)model::parse_bytes(entry);
    (void)bootstrap::first_host(entry);
    (void)bootstrap::SocketAddress::parse(entry);
  }
}
