// Plans that are written by hand, and what simulating them says.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "model/plain_machine.h"
#include "model/simulate.h"

namespace weft::model {

inline const plan::Request kRequest{
    .collective = plan::Collective::all_reduce, .count = 1000, .element_bytes = 1};
/// Nothing is eager: every put inside a node is one copy by its sender.
inline const plan::Limits kLimits{.eager_intra_bytes = 0, .eager_inter_bytes = 0, .slice_bytes = 1 << 20};

/// What `generate` makes of each rank.
inline std::vector<plan::Plan> plans_of(int ranks, const std::function<void(plan::Builder&)>& generate) {
  std::vector<plan::Plan> plans;
  for (int rank = 0; rank < ranks; ++rank) {
    plan::Builder builder("by hand", kRequest, ranks, rank);
    generate(builder);
    plans.push_back(builder.finish());
  }
  return plans;
}

inline plan::Region at(int rank, plan::Space space, uint64_t offset = 0) { return {rank, space, offset}; }

/// Simulates one call of them, and keeps its steps.
inline Simulation run(const std::vector<plan::Plan>& plans, const topology::Layout& layout,
                      const Machine& machine = plain_machine(), const plan::Limits& limits = kLimits) {
  const Result<Simulation> result = simulate(plans, layout, machine, limits, {.keep_steps = true});
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? *result : Simulation{};
}

/// Rank 0 puts `bytes` to rank 1.
inline std::vector<plan::Plan> one_put(uint64_t bytes) {
  return plans_of(2, [=](plan::Builder& b) {
    if (b.rank() == 0) b.put(0, 1, b.input(), at(1, plan::Space::output), bytes, 0);
    else b.wait(0, 0, 0);
  });
}

/// n - 1 rounds; in each every rank passes `bytes` on to the next.
inline std::vector<plan::Plan> ring(int ranks, uint64_t bytes) {
  return plans_of(ranks, [=](plan::Builder& b) {
    const int next = (b.rank() + 1) % ranks, before = (b.rank() + ranks - 1) % ranks;
    for (int round = 0; round + 1 < ranks; ++round) {
      const uint64_t block = bytes * ((b.rank() + ranks - round) % ranks);
      b.put(0, next, b.output(block), at(next, plan::Space::output, block), bytes, round);
      b.wait(0, before, round);
    }
  });
}

}  // namespace weft::model
