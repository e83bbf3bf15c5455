// What the tests of plans share: plans of all ranks of a request, and the layouts and limits worth trying.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"
#include "plan/verify.h"

namespace weft::plan::testing {

/// Of the size that transports' limits have, and another for each kind of link.
inline constexpr Limits kShortIsEager{.eager_intra_bytes = 8 << 10, .eager_inter_bytes = 16 << 10};

inline std::vector<Plan> make_all(const Algorithm& algorithm, const Request& request,
                                  const topology::Layout& layout, const Limits& limits) {
  std::vector<Plan> plans;
  for (int rank = 0; rank < layout.ranks(); ++rank)
    plans.push_back(algorithm.make(request, layout, limits, rank));
  return plans;
}

inline std::vector<Plan> make_all(std::string_view name, const Request& request,
                                  const topology::Layout& layout, const Limits& limits = kShortIsEager) {
  return make_all(*find_algorithm(request.collective, name), request, layout, limits);
}

/// "AllReduce by ring, 7 elements of 4 B, root 0, 4 ranks on 2 nodes (2 each), eager 0/0, slices of 512 B".
inline std::string describe(const Algorithm& algorithm, const Request& request,
                            const topology::Layout& layout, const Limits& limits) {
  return fmt::format("{} by {}, {} elements of {} B, root {}{}{}, {}, eager {}/{}, slices of {} B",
                     name_of(request.collective), algorithm.name, request.count, request.element_bytes,
                     request.root, request.strict ? ", strict" : "", request.disjoint ? ", disjoint" : "",
                     layout.to_string(), limits.eager_intra_bytes, limits.eager_inter_bytes,
                     limits.slice_bytes);
}

}  // namespace weft::plan::testing
