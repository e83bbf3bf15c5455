// The machine that a plan simulates: a cluster's rates, with those of the engine that is assumed.
//
// Thread safety: pure functions.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "loom/plan.h"
#include "program/machine.h"
#include "train/config.h"

namespace loom {

/// What a cluster must have, by itself and for the engine. Errors: invalid_argument, as plan() says.
Status check(const Cluster& cluster, const Assumptions& assumptions);

/// "weft", which every cluster has, or one that it describes; the cluster must be right.
EngineRates engine_of(const Cluster& cluster, const std::string& name);

/// A collective that Weft's simulator refused, with the reason, by the name of its kind.
using Unplanned = std::map<std::string, std::string>;

/// `unplanned`: where the machine's plans note what Weft refuses; may be empty. `product_flops`: what large
/// products reach, of a rank, per second; 0: as the cluster says.
program::Machine machine_of(const Cluster& cluster, const Assumptions& assumptions, double product_flops,
                            program::Precision precision,
                            const std::shared_ptr<Unplanned>& unplanned = nullptr);
/// The peak of a rank at this precision, per second; 0 where the cluster does not say.
double peak_of(const Cluster& cluster, program::Precision precision);

/// "Weft's plans, simulated" …: where a machine's collectives have their times from, the formula included.
std::string collectives_text(const Cluster& cluster, const Assumptions& assumptions,
                             const Unplanned& unplanned);

}  // namespace loom
