// Which ranks come to one node, by what each has found of the others.
#include "engine/context/sharing.h"

#include <gtest/gtest.h>

#include <set>

namespace weft::engine {
namespace {

using topology::Layout;
using Pairs = std::set<std::pair<int, int>>;  // (from, to): ranks

/// All ranks' reports if everybody reaches and reads everybody, but for these.
std::vector<ReachReport> reports(const Layout& layout, const Pairs& unreached, const Pairs& unread = {}) {
  std::vector<ReachReport> all;
  for (int from = 0; from < layout.ranks(); ++from) {
    ReachReport mine(largest_node(layout));
    for (const int to : layout.on_node(layout.node_of(from)))
      if (from != to && !unreached.contains({from, to}))
        mine.add(static_cast<size_t>(layout.local_index(to)), !unread.contains({from, to}));
    all.emplace_back(mine.bytes());
  }
  return all;
}

TEST(Sharing, NodesWhoseRanksReachEachOtherStayAsTheyAre) {
  const Layout layout = Layout::blocks(3, 9);
  EXPECT_EQ(split_by_reach(layout, reports(layout, {})), layout);
}

TEST(Sharing, ARankThatCannotBeReachedIsANodeOfItsOwn) {
  const Layout layout = Layout::blocks(2, 4);
  EXPECT_EQ(split_by_reach(layout, reports(layout, {{0, 1}, {2, 1}, {3, 1}})),
            Layout({0, 1, 0, 0, 2, 2, 2, 2}));
}

TEST(Sharing, OneDirectionIsNotEnough) {
  const Layout layout({0, 0});
  EXPECT_EQ(split_by_reach(layout, reports(layout, {{1, 0}})), Layout({0, 1}));
}

TEST(Sharing, RanksOfTwoUsersAreTwoNodes) {
  const Layout layout = Layout::blocks(1, 10);
  Pairs apart;
  std::vector<int> users;
  for (int a = 0; a < 10; ++a) {
    users.push_back(a % 3 == 0);
    for (int b = 0; b < 10; ++b)
      if ((a % 3 == 0) != (b % 3 == 0)) apart.insert({a, b});
  }
  EXPECT_EQ(split_by_reach(layout, reports(layout, apart)), Layout(users));
}

TEST(Sharing, TheFirstThatLacksSomebodySaysSo) {
  const Layout layout = Layout::blocks(2, 3);
  const auto all = reports(layout, {{1, 2}, {2, 1}});
  std::vector<int> speakers;
  for (int rank = 0; rank < 6; ++rank)
    if (is_first_to_lack(layout, rank, all)) speakers.push_back(rank);
  EXPECT_EQ(speakers, std::vector<int>{1});
}

// A rank may read others that may not read it; plain memory is exposed only where all read it.
TEST(Sharing, PlainMemoryIsReadWhereAllOfANodeReadAll) {
  const Layout before = Layout::blocks(2, 3);
  const auto all = reports(before, {{0, 2}}, {{0, 1}, {4, 5}});
  const Layout after = split_by_reach(before, all);
  ASSERT_EQ(after, Layout({0, 0, 1, 2, 2, 2}));
  EXPECT_FALSE(all_read(after, 0, before, all));
  EXPECT_FALSE(all_read(after, 1, before, all)) << "the same on all ranks of the node";
  EXPECT_TRUE(all_read(after, 2, before, all));
  EXPECT_FALSE(all_read(after, 3, before, all));
}

}  // namespace
}  // namespace weft::engine
