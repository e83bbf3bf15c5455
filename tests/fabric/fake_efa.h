// For tests over the provider of this folder: puts it in libfabric's way. A process reads the provider's
// settings once, so each of these tests is a process of its own, as ctest runs them.
#pragma once

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace weft::fabric_test {

using Settings = std::vector<std::pair<std::string, std::string>>;

/// Before libfabric is loaded. The names are those of provider/settings.h.
inline void use_fake_efa(const Settings& settings = {}) {
  setenv("FI_PROVIDER_PATH", WEFT_FAKE_EFA, 1);
  for (const auto& [name, value] : settings) setenv(name.c_str(), value.c_str(), 1);
}

}  // namespace weft::fabric_test
