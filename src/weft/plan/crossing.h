// The part of a plan that crosses nodes. A plan kernel does the steps inside a node by itself, and a CPU the
// others beside it: the kernel's *proxy*. The proxy moves what the kernel has put into the proxy memory, and
// what has arrived there. So of a plan its puts, signals and waits between nodes are left.
//
// Thread safety: pure functions.
#pragma once

#include "plan/plan.h"

namespace weft::plan {

/// Whether a proxy can do what crosses nodes: eager puts, and signals that expose nothing. Errors:
/// unsupported, with the reason.
Status check_crossing(const Plan& plan, const topology::Layout& layout, const Limits& limits);

/// The steps between nodes, in the lanes of `plan`, under another name. They wait for each other as little as
/// in `plan`: a step that comes after one inside a node waits for the kernel.
Plan crossing_part(const Plan& plan, const topology::Layout& layout, std::string_view name);

}  // namespace weft::plan
