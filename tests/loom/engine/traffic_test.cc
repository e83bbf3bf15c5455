// Bytes between nodes are MiCS's, and memory is the planned.
#include <cstdlib>

#include "engine/ranks.h"
#include "program/simulate.h"

namespace loom::testing::traffic_test {
namespace {

program::Job wide_job(int world, int degree) {
  program::Job job = small_job(world, degree, 2, 1);
  job.spec.width = 256;
  job.spec.feed_forward = 1024;
  job.spec.vocabulary = 512;
  return job;
}

/// bytes_between_nodes() by MiCS's formulas, from the model's sizes alone: every node takes in, of each
/// gather, what its own ranks do not have; reductions are the mirror; the boundary's AllReduce moves each
/// shard twice between the nodes that have it, which with p = 1 is all there is. A microbatch needs a unit's
/// parameters twice, forward and backward; the head has both at once, and the tied embedding's are needed
/// forward and by the head. The last block's stay meanwhile, and the first one's for the next microbatch.
double by_formula(const program::Job& job, int nodes) {
  const int nodes_of_group = std::max(1, job.degree * nodes / job.world);
  const int groups = job.world / job.degree, nodes_of_replicas = std::min(groups, nodes);
  double bytes = 0;
  for (const model::Unit& unit : model::units_of(job.spec)) {
    double whole = 0;  // bytes
    for (const model::Parameter& parameter : unit.parameters)
      whole += 4.0 * static_cast<double>(parameter.elements());
    int gathers = job.microbatches * (unit.kind == model::UnitKind::head ? 1 : 2);
    if (unit.index == 1) gathers -= job.microbatches - 1;
    if (unit.index == job.spec.layers) gathers -= job.microbatches;
    bytes += (gathers + job.microbatches) * groups * whole * (nodes_of_group - 1);
    bytes += 2 * whole * (nodes_of_replicas - 1);
  }
  return bytes;
}

struct Layout {
  int world, degree, nodes;
};

class Traffic : public ::testing::TestWithParam<Layout> {
 protected:
  /// The formulas are of exchanges that bring each byte to a node once. Where nodes are pretended on few
  /// cores the tuner may take others.
  static void SetUpTestSuite() {
    ::setenv("WEFT_ALGO", "allgather=all_to_all;reducescatter=all_to_all;allreduce=all_to_all", 1);
  }
  static void TearDownTestSuite() { ::unsetenv("WEFT_ALGO"); }
};

TEST_P(Traffic, BetweenNodesIsMiCSs) {
  const auto [world, degree, nodes] = GetParam();
  const program::Job job = wide_job(world, degree);
  const double wanted = by_formula(job, nodes);
  EXPECT_GT(wanted, 1e6);
  EXPECT_NEAR(bytes_between_nodes(job, nodes), wanted, 0.02 * wanted);
}

// Flat gathers over nodes of one rank, hierarchical ones over nodes of two; p = n and p < n, with groups that
// fit a node and groups that do not.
INSTANTIATE_TEST_SUITE_P(Engine, Traffic,
                         ::testing::Values(Layout{4, 4, 4}, Layout{4, 2, 4}, Layout{4, 4, 2}, Layout{4, 2, 2},
                                           Layout{8, 4, 4}, Layout{2, 1, 2}, Layout{4, 1, 4},
                                           Layout{4, 1, 2}),
                         [](const auto& info) {
                           return fmt::format("{}ranks{}degree{}nodes", info.param.world, info.param.degree,
                                              info.param.nodes);
                         });

TEST(Engine, MemoryIsWhatWasPlanned) {
  const program::Job job = wide_job(1, 1);
  train(job, 0, 3, {}, [&](engine::Engine& engine, const engine::Groups&) -> Status {
    const int64_t planned = engine.memory().bytes;
    EXPECT_LE(planned, engine.memory_bytes());
    EXPECT_LT(static_cast<double>(engine.memory_bytes()), 1.05 * static_cast<double>(planned));
    return {};
  });
}

}  // namespace
}  // namespace loom::testing::traffic_test
