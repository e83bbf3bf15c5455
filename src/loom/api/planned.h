// What plan(), fit() and what_if() have in common.
#pragma once

#include "api/simulated_step.h"

namespace loom {

/// The model that the config plans: as train::spec_of(), with the dataset's vocabulary or that which is
/// given.
Result<model::ModelSpec> planned_model(const Config& config, int64_t vocabulary);

/// What products reach here, measured, where the cluster does not say what they reach there; else 0.
double planned_flops(const Config& config, const Cluster& cluster);

}  // namespace loom
