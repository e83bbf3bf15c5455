// Layouts: who is where, for every placement, by the arithmetic of the SageMaker model parallel library.
#include "program/layout.h"

#include <set>

#include "support.h"

namespace loom::testing {
namespace {

using program::Coordinates;
using program::GroupKind;
using program::Layout;

TEST(Layout, ClusterAndSpreadHaveSmpsArithmetic) {
  const int D = 4, P = 3, T = 2;
  Layout layout{D, P, T, 2, "cluster"};
  for (int r = 0; r < D * P * T; ++r)
    EXPECT_EQ(layout.coordinates(r), (Coordinates{r / (T * P), (r / T) % P, r % T})) << r;
  layout.placement = "spread";  // TPD
  for (int r = 0; r < D * P * T; ++r)
    EXPECT_EQ(layout.coordinates(r), (Coordinates{r % D, (r / D) % P, r / (D * P)})) << r;
  layout.placement = "PTD";
  for (int r = 0; r < D * P * T; ++r)
    EXPECT_EQ(layout.coordinates(r), (Coordinates{r % D, r / (D * T), (r / D) % T})) << r;
}

TEST(Layout, PlacesAndCoordinatesAreInverse) {
  for (const char* placement : {"DPT", "DTP", "PDT", "PTD", "TDP", "TPD"}) {
    const Layout layout{4, 3, 2, 2, placement};
    std::set<std::tuple<int, int, int>> seen;
    for (int place = 0; place < layout.ranks(); ++place) {
      const Coordinates at = layout.coordinates(place);
      EXPECT_EQ(layout.place(at), place) << placement;
      seen.insert({at.data, at.stage, at.tensor});
    }
    EXPECT_EQ(seen.size(), 24u) << placement;
  }
}

TEST(Layout, GroupsOfAKindDivideTheRanks) {
  for (const char* placement : {"DPT", "DTP", "PDT", "PTD", "TDP", "TPD"}) {
    const Layout layout{4, 3, 2, 2, placement};
    const std::pair<GroupKind, size_t> sizes[] = {{GroupKind::partition, 2},
                                                  {GroupKind::replication, 2},
                                                  {GroupKind::pipeline, 3},
                                                  {GroupKind::tensor, 2},
                                                  {GroupKind::model, 12}};
    for (const auto& [kind, size] : sizes)
      for (int place = 0; place < layout.ranks(); ++place) {
        const std::vector<int> peers = layout.peers(kind, place);
        ASSERT_EQ(peers.size(), size) << placement << " " << program::group_name(kind);
        EXPECT_EQ(std::count(peers.begin(), peers.end(), place), 1);
        for (const int peer : peers) EXPECT_EQ(layout.peers(kind, peer), peers);
      }
    for (int place = 0; place < layout.ranks(); ++place)
      EXPECT_EQ(layout.peers(GroupKind::ends, place).size(), layout.coordinates(place).stage == 1 ? 1u : 2u);
  }
}

TEST(Layout, PartitionGroupsAreDataRanksNextToEachOther) {
  const Layout layout{4, 1, 1, 2, "cluster"};
  EXPECT_EQ(layout.peers(GroupKind::partition, 3), (std::vector<int>{2, 3}));
  EXPECT_EQ(layout.peers(GroupKind::replication, 3), (std::vector<int>{1, 3}));
  EXPECT_EQ(layout.group(3), 1);
  EXPECT_EQ(layout.member(3), 1);
  EXPECT_FALSE(layout.spans_nodes(GroupKind::partition, 0, 2));
  EXPECT_TRUE(layout.spans_nodes(GroupKind::replication, 0, 2));
}

/// Partition groups that lie on more than one node, of ranks on these nodes.
int groups_apart(const Layout& layout, const std::vector<int>& node_of) {
  const std::vector<int> places = layout.places(node_of);
  std::vector<int> rank_at(places.size(), -1);
  for (size_t rank = 0; rank < places.size(); ++rank) rank_at.at(places[rank]) = static_cast<int>(rank);
  std::set<std::vector<int>> apart;
  for (int place = 0; place < layout.ranks(); ++place) {
    const std::vector<int> peers = layout.peers(GroupKind::partition, place);
    for (const int peer : peers)
      if (node_of[rank_at[peer]] != node_of[rank_at[peers.front()]]) apart.insert(peers);
  }
  return static_cast<int>(apart.size());
}

TEST(Layout, PartitionGroupsLieInsideNodesWhereverTheyFit) {
  struct Case {
    const char* what;
    std::vector<int> node_of;
    int pipeline, tensor, shard;
    int apart;
    const char* placement = "cluster";
  };
  for (const Case& c : {
           Case{"one node after the other", {0, 0, 1, 1}, 1, 1, 2, 0},
           {"round robin", {0, 1, 0, 1}, 1, 1, 2, 0},
           {"round robin, three nodes", {0, 1, 2, 0, 1, 2}, 1, 1, 2, 0},
           {"round robin, groups of four", {0, 1, 0, 1, 0, 1, 0, 1}, 1, 1, 4, 0},
           {"round robin, with stages", {0, 1, 0, 1, 0, 1, 0, 1}, 2, 1, 2, 0},
           {"round robin, with tensor ranks", {0, 1, 0, 1, 0, 1, 0, 1}, 1, 2, 2, 0},
           {"round robin, data ranks next to each other", {0, 1, 0, 1, 0, 1, 0, 1}, 2, 2, 2, 0, "spread"},
           {"at random", {1, 0, 0, 1, 1, 0}, 1, 1, 2, 1},  // three and three, and no pairs of three
           {"three and one", {0, 0, 0, 1}, 1, 1, 2, 1},
           {"three and one, mixed", {0, 1, 0, 0}, 1, 1, 2, 1},
           {"five and three", {0, 0, 0, 0, 0, 1, 1, 1}, 1, 1, 2, 1},
           {"three, two and three", {0, 0, 0, 1, 1, 2, 2, 2}, 1, 1, 2, 1},
           {"three, two and three, mixed", {0, 1, 2, 0, 1, 2, 0, 2}, 1, 1, 2, 1},
           {"five, six and five", {0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2}, 1, 1, 4, 1},
           {"two and four, stages", {0, 0, 1, 1, 1, 1, 2, 2}, 2, 1, 2, 2},
           {"groups larger than nodes", {0, 0, 1, 1}, 1, 1, 4, 1},
       }) {
    const int data = static_cast<int>(c.node_of.size()) / (c.pipeline * c.tensor);
    EXPECT_EQ(groups_apart({data, c.pipeline, c.tensor, c.shard, c.placement}, c.node_of), c.apart) << c.what;
  }
}

TEST(Layout, RanksOfEvenNodesArePlacedNodeByNode) {
  const Layout layout{.data = 6, .shard = 2};
  EXPECT_EQ(layout.places({0, 0, 0, 1, 1, 1}), (std::vector<int>{0, 1, 2, 3, 4, 5}))
      << "though a group spans";
  EXPECT_EQ(layout.places({0, 1, 0, 1, 0, 1}), (std::vector<int>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(layout.places({1, 1, 1, 0, 0, 0}), (std::vector<int>{3, 4, 5, 0, 1, 2}));
  EXPECT_EQ(layout.places({0, 0, 0, 1, 0, 1}), (std::vector<int>{0, 1, 2, 4, 3, 5})) << "two groups, and one";
}

TEST(Layout, IsDrawn) {
  const Layout layout{2, 2, 1, 1, "cluster"};
  EXPECT_EQ(program::picture(layout, 2), "node   0:  d0p0t0  d0p1t0\nnode   1:  d1p0t0  d1p1t0\n");
  EXPECT_NE(program::groups_text(layout).find("pipeline       2 of 2    {0 1} {2 3}"), std::string::npos);
  EXPECT_EQ(program::to_string(layout), "4 ranks (D 2, P 2, T 1, p 1, DPT)");
}

TEST(Layout, DataRanksAreDrawnWithTheirPartitionGroups) {
  const Layout layout{4, 1, 1, 2, "cluster"};
  EXPECT_EQ(program::picture(layout, 2), "node   0:  g0m0  g0m1\nnode   1:  g1m0  g1m1\n");
  EXPECT_EQ(program::groups_text(layout),
            "partition      2 of 2    {0 1} {2 3}\nreplication    2 of 2    {0 2} {1 3}\n");
}

TEST(Layout, ManyRanksAreDrawnShortened) {
  const Layout layout{512, 1, 1, 128, "cluster"};
  const std::string text = program::picture(layout, 8);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 9);
  EXPECT_NE(text.find("node   6:  g0m48  g0m49"), std::string::npos) << text;
  EXPECT_NE(text.find("\n… 56 nodes\nnode  63:  g3m120  g3m121"), std::string::npos) << text;
  EXPECT_NE(program::groups_text(layout).find("partition      4 of 128  {0 1 2 3 4 5 6 7 …} {128 "),
            std::string::npos)
      << program::groups_text(layout);
  EXPECT_NE(program::groups_text(layout).find("replication  128 of 4    {0 128 256 384} {1 129 "),
            std::string::npos);

  const std::string wide = program::picture(layout, 512);
  EXPECT_EQ(std::count(wide.begin(), wide.end(), '\n'), 1);
  EXPECT_NE(wide.find("g0m14  …  g3m127\n"), std::string::npos) << wide;
}

TEST(Layout, SaysWhatCannotBe) {
  EXPECT_TRUE(
      fails_with(Layout{.data = 4, .shard = 3}.check(), Code::invalid_argument,
                 "parallel.sharded_data_parallel_degree is 3, must divide the number of data ranks, 4"));
  EXPECT_TRUE(fails_with(Layout{.placement = "DPP"}.check(), Code::invalid_argument,
                         "placement is \"DPP\", must be cluster, spread, or the letters D, P and T"));
  EXPECT_TRUE(fails_with(Layout{.pipeline = 0}.check(), Code::invalid_argument, "pipeline_degree is 0"));
}

}  // namespace
}  // namespace loom::testing
