// The machine that a plan simulates: a cluster's rates, with those of the engine that is assumed.
//
// Thread safety: pure functions.
#pragma once

#include "loom/plan.h"
#include "program/machine.h"
#include "train/config.h"

namespace loom {

/// What a cluster must have, by itself and for the engine. Errors: invalid_argument, as plan() says.
Status check(const Cluster& cluster, const Assumptions& assumptions);

/// "weft", which every cluster has, or one that it describes; the cluster must be right.
EngineRates engine_of(const Cluster& cluster, const std::string& name);

/// `product_flops`: what large products reach, of a rank, per second; 0: as the cluster says.
program::Machine machine_of(const Cluster& cluster, const Assumptions& assumptions, double product_flops,
                            program::Precision precision);
/// The peak of a rank at this precision, per second; 0 where the cluster does not say.
double peak_of(const Cluster& cluster, program::Precision precision);

/// "Weft's plans, simulated" …: where a machine's collectives have their times from.
std::string collectives_text(const Cluster& cluster, const Assumptions& assumptions);

}  // namespace loom
