#include "run/job.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace weft::run {
namespace {

Job job(int ranks, int nodes) {
  Job job;
  job.ranks = ranks;
  job.nodes = nodes;
  return job;
}

TEST(Job, NodesAreBlocksAsEvenAsPossible) {
  for (int ranks = 1; ranks <= 33; ++ranks) {
    for (int nodes = 1; nodes <= ranks; ++nodes) {
      std::vector<int> sizes(static_cast<size_t>(nodes));
      int previous = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Place place = place_of(job(ranks, nodes), rank);
        ASSERT_TRUE(place.node == previous || place.node == previous + 1)
            << rank << " of " << ranks << "/" << nodes;
        ASSERT_LT(place.node, nodes);
        ASSERT_EQ(place.local_rank, sizes[static_cast<size_t>(place.node)]++);
        previous = place.node;
      }
      const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
      EXPECT_LE(*most - *least, 1);
      for (int rank = 0; rank < ranks; ++rank) {
        const Place place = place_of(job(ranks, nodes), rank);
        EXPECT_EQ(place.local_size, sizes[static_cast<size_t>(place.node)]);
      }
    }
  }
}

TEST(Job, OneNodeKeepsTheMachinesName) {
  const auto names_host = [](const Job& job) {
    const auto variables = environment_of(job, {"127.0.0.1:1", "s"}, 1);
    return std::any_of(variables.begin(), variables.end(),
                       [](const std::string& v) { return v.starts_with("WEFT_HOSTID="); });
  };
  EXPECT_FALSE(names_host(job(2, 1)));
  EXPECT_TRUE(names_host(job(2, 2)));
}

TEST(Job, CpusAreSharedOutOnlyWhenThereAreEnough) {
  const std::vector<int> cpus = {0, 2, 4, 6, 8};
  EXPECT_EQ(cpus_of(job(5, 1), cpus, 3), std::vector<int>{6});
  EXPECT_EQ(cpus_of(job(2, 1), cpus, 0), (std::vector<int>{0, 2}));
  EXPECT_EQ(cpus_of(job(2, 1), cpus, 1), (std::vector<int>{4, 6, 8}));
  EXPECT_TRUE(cpus_of(job(6, 1), cpus, 0).empty());
  Job unbound = job(2, 1);
  unbound.bind = false;
  EXPECT_TRUE(cpus_of(unbound, cpus, 0).empty());
}

}  // namespace
}  // namespace weft::run
