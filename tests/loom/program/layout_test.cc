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
  EXPECT_TRUE(fails_with(Layout{.data = 4, .shard = 3}.check(), Code::invalid_argument,
                         "sharded_data_parallel_degree is 3, must divide the 4 data ranks"));
  EXPECT_TRUE(fails_with(Layout{.placement = "DPP"}.check(), Code::invalid_argument,
                         "placement is \"DPP\", must be cluster, spread, or the letters D, P and T"));
  EXPECT_TRUE(fails_with(Layout{.pipeline = 0}.check(), Code::invalid_argument, "pipeline_degree is 0"));
}

}  // namespace
}  // namespace loom::testing
