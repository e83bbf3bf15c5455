// Environment: the settings under which the processes of an epoch run.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace soak {

using Environment = std::vector<std::pair<std::string, std::string>>;

/// Follows from the seed alone.
Environment make_environment(uint64_t seed);
std::string describe(const Environment& environment);

}  // namespace soak
