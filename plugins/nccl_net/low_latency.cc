#include "low_latency.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <mutex>
#include <set>
#include <sstream>

#include "report.h"

namespace weft::nccl_net::low_latency {
namespace {

constexpr char kSetting[] = "NCCL_PROTO";

/// Whether a list of NCCL's leaves them out: by naming `simple` alone, or by excluding both ("^LL,LL128").
bool leaves_out(std::string list) {
  std::ranges::transform(list, list.begin(), [](unsigned char letter) { return std::tolower(letter); });
  const bool excludes = list.starts_with('^');
  std::istringstream names(list.substr(excludes ? 1 : 0));
  std::set<std::string> named;
  for (std::string name; std::getline(names, name, ',');) named.insert(name);
  return excludes ? named.contains("ll") && named.contains("ll128")
                  : named == std::set<std::string>{"simple"};
}

void keep_off_once(const Device& device, const Status& why) {
  const char* const given = std::getenv(kSetting);
  if (given && leaves_out(given)) return;
  if (given)
    return warn(
        fmt::format("{} stays {}, but over device {} the low-latency protocols (LL, LL128) may read wrong "
                    "data: {}",
                    kSetting, given, device.name, why.message()));
  setenv(kSetting, "simple", 0);
  inform(fmt::format(
      "{} is set to simple, without the low-latency protocols (LL, LL128), because of device {}: {}",
      kSetting, device.name, why.message()));
}

}  // namespace

void keep_off(const Device& device, const Status& why) {
  static std::once_flag once;
  std::call_once(once, keep_off_once, device, why);
}

}  // namespace weft::nccl_net::low_latency
