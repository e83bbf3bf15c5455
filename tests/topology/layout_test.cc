#include "topology/layout.h"

#include <gtest/gtest.h>

namespace weft::topology {
namespace {

TEST(Layout, NumbersNodesByTheirLowestRank) {
  const Layout layout({7, 3, 7, 3, 9});
  EXPECT_EQ(layout.nodes(), 3);
  EXPECT_EQ(layout.node_of(0), 0);
  EXPECT_EQ(layout.node_of(1), 1);
  EXPECT_EQ(layout.node_of(4), 2);
  EXPECT_EQ(layout.on_node(0), (std::vector<int>{0, 2}));
  EXPECT_EQ(layout.local_index(3), 1);
  EXPECT_TRUE(layout.same_node(1, 3));
  EXPECT_FALSE(layout.same_node(0, 1));
}

TEST(Layout, RailPeersWrapAroundOnSmallerNodes) {
  const Layout layout({0, 0, 0, 1, 1});
  EXPECT_EQ(layout.rail_peer(1, 0), 3);
  EXPECT_EQ(layout.rail_peer(1, 2), 3);
  EXPECT_EQ(layout.rail_peer(0, 2), 2);
}

TEST(Layout, SaysWhatItIs) {
  EXPECT_EQ(Layout::blocks(4, 4).to_string(), "16 ranks on 4 nodes (4 each)");
  EXPECT_EQ(Layout({0, 0, 0, 0, 1, 1, 1}).to_string(), "7 ranks on 2 nodes (4+3)");
  EXPECT_EQ(Layout::blocks(1, 1).to_string(), "1 rank on 1 node (1 each)");
}

}  // namespace
}  // namespace weft::topology
