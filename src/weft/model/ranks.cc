#include "model/ranks.h"

namespace weft::model {

Ranks::Ranks(std::span<const plan::Plan> plans, const topology::Layout& layout, Symmetry symmetry,
             bool one_node)
    : layout_(layout), symmetry_(symmetry), one_node_(one_node), per_node_(layout.ranks() / layout.nodes()) {
  scripts_.reserve(plans.size());
  for (const plan::Plan& plan : plans) scripts_.emplace_back(plan, layout);
  const int ranks = one_node ? per_node_ : layout.ranks();
  const auto script_of = [&](int rank) -> const Script& {
    return scripts_[static_cast<size_t>(rank) % scripts_.size()];
  };
  size_t words = 0;
  for (int rank = 0; rank < ranks; ++rank) words += Lanes::words_of(script_of(rank));
  lanes_.resize(words);
  std::span<uint32_t> memory = lanes_;
  states_.reserve(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    const Script& script = script_of(rank);
    const int local = layout.local_index(rank);
    states_.push_back({.rank = rank,
                       .node = layout.node_of(rank),
                       .local = local,
                       .worker = states_.size(),
                       .next_rail = static_cast<uint64_t>(local),
                       .lanes = Lanes(script, memory)});
    memory = memory.subspan(Lanes::words_of(script));
  }
}

}  // namespace weft::model
