// The chain of causes that determined when a simulation ended. Private to model/.
#pragma once

#include <span>
#include <vector>

#include "model/simulate.h"

namespace weft::model {

CriticalPath find_critical_path(std::span<const plan::Plan> plans, const topology::Layout& layout,
                                const std::vector<std::vector<StepTimes>>& steps);

}  // namespace weft::model
