// Every algorithm the library has, and the rules that all of them share.
#include <vector>

#include "plan/schedule.h"

namespace weft::plan {
namespace {

std::vector<Algorithm> join_tables() {
  std::vector<Algorithm> all;
  for (auto table : {one_hop_algorithms(), direct_algorithms(), all_to_all_algorithms(), ring_algorithms(),
                     recursive_doubling_algorithms(), recursive_halving_algorithms(), binomial_algorithms(),
                     binomial_all_algorithms(), double_tree_algorithms(), bruck_algorithms(),
                     point_to_point_algorithms()}) {
    all.insert(all.end(), table.begin(), table.end());
  }
  return all;
}

}  // namespace

std::span<const Algorithm> algorithms() {
  static const std::vector<Algorithm> all = join_tables();
  return all;
}

const Algorithm* find_algorithm(Collective collective, std::string_view name) {
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.collective == collective && algorithm.name == name) return &algorithm;
  }
  return nullptr;
}

Status fits_any(const Request& request, const topology::Layout& layout) {
  const bool names_rank = has_root(request.collective) || is_transfer(request.collective);
  if (request.uneven)
    return fail(Code::unsupported, "blocks of different sizes, which uneven collectives alone have");
  if (request.element_bytes == 0)
    return fail(Code::invalid_type, "an element of 0 bytes, must be at least 1");
  if (names_rank && (request.root < 0 || request.root >= layout.ranks())) {
    return fail(Code::invalid_root, "{}: rank {} named, must be in [0, {})", name_of(request.collective),
                request.root, layout.ranks());
  }
  if (layout.ranks() > kMostRanks) {
    return fail(Code::unsupported, "{} ranks, plans are made for at most {}", layout.ranks(), kMostRanks);
  }
  return {};
}

Status refuse_strict(const Request& request, std::string_view algorithm) {
  if (!request.strict || !reduces(request.collective)) return {};
  return fail(Code::unsupported, "{} adds partial sums; strict order needs one_hop, direct or all_to_all",
              algorithm);
}

Status refuse_long(const Request& request, uint64_t blocks, const topology::Layout& layout,
                   const Limits& limits, std::string_view algorithm) {
  const bool several = layout.nodes() > 1;
  const uint64_t most =
      several ? std::min(limits.eager_inter_bytes, limits.eager_intra_bytes) : limits.eager_intra_bytes;
  if (blocks == 0 || request.bytes() <= most / blocks) return {};
  return fail(Code::unsupported, "{} sends {} blocks of {} bytes at once, at most {} bytes go eagerly {}",
              algorithm, blocks, request.bytes(), most, several ? "everywhere" : "inside a node");
}

void plan_alone(const Task& task, Builder& builder) {
  const Region input = builder.input(), output = builder.output();
  const Collective collective = task.request.collective;
  if (is_transfer(collective)) return;
  if (reduces(collective)) {
    const Source only{input};
    builder.reduce(0, {&only, 1}, output, task.bytes());
  } else {
    builder.copy(0, input, output, task.bytes());
  }
}

}  // namespace weft::plan
