// Where fewer ranks than all share a copy of the state, each copy makes its own steps from the same summed
// gradients: masters and moments stay the same to the last bit, or a checkpoint, which has the first copy's,
// would be of another model than the others train.
#include <algorithm>
#include <map>

#include "engine/ranks.h"

namespace loom::testing {
namespace {

struct Copies {
  const char* name;
  int world, degree, stages, tensors, nodes;
  program::Precision precision;
  bool shards_optimizer_alone;
};

class Replicas : public ::testing::TestWithParam<Copies> {};

/// What lies in the arena of all that a step leaves for the next one.
std::map<program::Role, std::string> state_of(engine::Engine& engine) {
  std::map<program::Role, std::string> state;
  const auto bytes_of = [&](program::BufferId buffer) {
    const auto bytes = engine.arena().subspan(
        static_cast<size_t>(engine.memory().offset[static_cast<size_t>(buffer)]),
        static_cast<size_t>(engine.training().buffers[static_cast<size_t>(buffer)].bytes));
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  for (const program::Instruction& i : engine.training().instructions) {
    if (i.op != program::Op::step) continue;
    for (const program::Use& use : i.uses)
      if (use.role == program::Role::master || use.role == program::Role::slot)
        state[use.role] += bytes_of(use.buffer);
    state[program::Role::parameters] += bytes_of(engine.training().shards[static_cast<size_t>(i.unit)]);
  }
  return state;
}

TEST_P(Replicas, HaveTheSameMastersAndMomentsAfterSteps) {
  const Copies& copies = GetParam();
  program::Job job = small_job(copies.world, copies.degree, 2, 0);
  job.pipeline_degree = copies.stages;
  job.tensor_degree = copies.tensors;
  job.precision = copies.precision;
  job.shard_optimizer_only = copies.shards_optimizer_alone;
  job.batch = kSequences * copies.stages * copies.tensors / copies.world / job.microbatches;
  job.spec.residual_dropout = 0.1f;
  std::map<int, std::map<program::Role, std::string>> of_places;
  std::mutex mutex;
  train(
      job, 0, 4, {},
      [&](engine::Engine& engine, const engine::Groups& groups) -> Status {
        const std::lock_guard lock(mutex);
        of_places[groups.place()] = state_of(engine);
        return {};
      },
      copies.nodes);
  const program::Layout layout = job.layout();
  ASSERT_GT(layout.replicas(), 1);
  ASSERT_EQ(of_places.size(), static_cast<size_t>(copies.world));
  for (const auto& [place, state] : of_places) {
    const std::vector<int> peers = layout.peers(program::GroupKind::replication, place);
    ASSERT_EQ(peers.size(), static_cast<size_t>(layout.replicas()));
    for (const auto& [role, bytes] : state) {
      const std::string part = fmt::format("part {} of place {}", static_cast<int>(role), place);
      EXPECT_FALSE(std::all_of(bytes.begin(), bytes.end(), [](char byte) { return byte == 0; })) << part;
      EXPECT_TRUE(bytes == of_places.at(peers.front()).at(role))
          << part << " is not what place " << peers.front() << " has";
    }
    // Another share is another part of the model.
    for (const int peer : layout.peers(program::GroupKind::partition, place))
      EXPECT_EQ(state.at(program::Role::master) == of_places.at(peer).at(program::Role::master),
                peer == place);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Engine, Replicas,
    ::testing::Values(Copies{"FourOfOne", 4, 1, 1, 1, 2, program::Precision::fp32, false},
                      Copies{"TwoOfTwo", 4, 2, 1, 1, 2, program::Precision::fp32, false},
                      Copies{"TwoOfTwoOfMomentsAlone", 4, 2, 1, 1, 1, program::Precision::fp32, true},
                      Copies{"TwoOfTwoInBf16", 4, 2, 1, 1, 2, program::Precision::bf16, false},
                      Copies{"TwoOfTwoStages", 4, 1, 2, 1, 2, program::Precision::fp32, false},
                      Copies{"TwoOfTwoOfTwoStages", 8, 2, 2, 1, 2, program::Precision::fp16, false},
                      Copies{"TwoOfTwoTensorRanks", 4, 1, 1, 2, 2, program::Precision::fp32, false}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace loom::testing
