// Growth: whether a process that makes and destroys communicators uses more and more.
#pragma once

#include <string>
#include <vector>

#include "board.h"

namespace soak {

/// What has grown over the rounds of a worker, a sentence; empty if nothing has. Every sample of the last
/// quarter must be above every sample of the second one, by more than a slack: caches fill in the first
/// quarter, and single rounds are no trend.
std::string growth_of(const std::vector<Usage>& samples);

}  // namespace soak
