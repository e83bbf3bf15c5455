// Ranks that come to nodes in any order, and unequal numbers of them: partition groups lie inside nodes where
// they fit, and training is what it was.
#include "engine/ranks.h"

namespace loom::testing {
namespace {

struct Case {
  const char* what;
  std::vector<int> node_of;
  int pipeline, tensor, degree;
  int apart;  // ranks whose partition group lies on more than one node
};

program::Job job_of(const Case& c) {
  const int ranks = static_cast<int>(c.node_of.size()), data = ranks / (c.pipeline * c.tensor);
  program::Job job = small_job(ranks, c.degree, kSequences / data, 1);
  job.pipeline_degree = c.pipeline;
  job.tensor_degree = c.tensor;
  job.strict = true;
  return job;
}

TEST(Placement, GroupsAreInsideNodesWhereTheyFitAndLossesAreThoseOfOneRank) {
  const std::vector<double> one = train(job_of({"", {0}, 1, 1, 1, 0}), 0, 4);
  for (const Case& c : {Case{"round robin", {0, 1, 0, 1}, 1, 1, 2, 0},
                        {"round robin with stages", {0, 1, 0, 1, 0, 1, 0, 1}, 2, 1, 2, 0},
                        {"round robin with tensor ranks", {0, 1, 0, 1}, 1, 2, 2, 4},
                        {"three and one", {0, 0, 0, 1}, 1, 1, 2, 2},
                        {"three and one, mixed", {0, 1, 0, 0}, 2, 1, 1, 0},
                        {"three, two and three", {0, 1, 2, 0, 1, 2, 0, 2}, 1, 1, 2, 2}}) {
    SCOPED_TRACE(c.what);
    std::atomic<int> apart{0};
    const auto look = [&](engine::Engine&, const engine::Groups& groups) -> Status {
      if (groups.partition() == nullptr) return {};
      weftCommStats_t stats = WEFT_COMM_STATS_INITIALIZER;
      EXPECT_EQ(weftCommGetStats(groups.partition(), &stats), weftSuccess);
      apart += stats.nodes > 1;
      return {};
    };
    const std::vector<double> losses = train(job_of(c), 0, 4, {}, look, Nodes(c.node_of));
    EXPECT_EQ(apart, c.apart);
    for (size_t step = 0; step < losses.size(); ++step)  // tensor ranks add in another order
      EXPECT_NEAR(losses[step], one[step], c.tensor == 1 ? 0 : 1e-5 * one[step]) << "step " << step;
  }
}

}  // namespace
}  // namespace loom::testing
