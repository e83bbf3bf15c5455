// How data is cut, which algorithms fit, and how long plans get.
#include "plan/schedule.h"

#include <gtest/gtest.h>

#include "plan/fold.h"
#include "plan/hierarchy.h"
#include "plans.h"

namespace weft::plan {
namespace {

using testing::kShortIsEager;
using testing::make_all;
using topology::Layout;

TEST(Blocks, CoverTheMessageInWholeCacheLines) {
  for (uint32_t element_bytes : {1, 2, 4, 8}) {
    for (uint64_t count : {0, 1, 7, 63, 64, 65, 1000, 12345}) {
      for (int parts : {1, 2, 3, 7, 16, 100}) {
        const uint64_t bytes = count * element_bytes;
        const Blocks blocks = Blocks::divide(bytes, element_bytes, parts);
        EXPECT_EQ(blocks.begin(0), 0u);
        EXPECT_EQ(blocks.begin(parts), bytes);
        for (int part = 0; part < parts; ++part) {
          EXPECT_LE(blocks.bytes(part), blocks.largest());
          EXPECT_TRUE(blocks.begin(part) % 64 == 0 || blocks.begin(part) == bytes);
          EXPECT_LE(blocks.largest() / 64,
                    blocks.bytes(part) / 64 + 1 + (blocks.begin(part + 1) == bytes ? bytes : 0));
        }
      }
    }
  }
}

TEST(Slices, AreAtMost64AndAligned) {
  const Layout layout = Layout::blocks(1, 2);
  const Request request{.element_bytes = 4};
  const Limits limits{.slice_bytes = 1000};
  const Task task{request, layout, limits, 0};
  EXPECT_EQ(Slices(0, task).count(), 0);
  EXPECT_EQ(Slices(1000, task).count(), 1);
  EXPECT_EQ(Slices(1004, task).count(), 2);
  for (uint64_t bytes : {1004u, 50000u, 1u << 20, 123456788u}) {
    const Slices slices(bytes, task);
    EXPECT_LE(slices.count(), Slices::kMost);
    EXPECT_EQ(slices.begin(slices.count()), bytes);
    EXPECT_GT(slices.bytes(slices.count() - 1), 0u);
    EXPECT_EQ(slices.begin(1) % 256, 0u);
  }
  const Slices cuts = Slices(50000, task);
  EXPECT_EQ(cuts.of(1030).begin(1), cuts.begin(1)) << "a shorter transfer is cut at the same places";
  EXPECT_EQ(cuts.whole().count(), 1);
}

TEST(Fold, SpeaksForEveryRankOnce) {
  for (int ranks = 1; ranks <= 40; ++ranks) {
    const Fold fold(ranks);
    EXPECT_EQ(fold.rank_of(fold.participants()), ranks);
    int counted = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      if (fold.is_ward(rank)) continue;
      EXPECT_EQ(fold.rank_of(fold.participant(rank)), rank);
      counted += 1 + fold.has_ward(rank);
    }
    EXPECT_EQ(counted, ranks);
  }
}

TEST(Fold, MatesDifferInTheHighestBits) {
  for (const Layout& layout : {Layout::blocks(4, 2), Layout::blocks(2, 8), Layout(std::vector{0, 1, 1, 0})}) {
    const Fold fold(layout);
    EXPECT_FALSE(fold.in_order());
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      EXPECT_EQ(fold.rank_of(fold.participant(rank)), rank);
      const int across = fold.rank_of(fold.participant(rank) ^ 1);
      EXPECT_FALSE(layout.same_node(rank, across));
      const int mate = fold.rank_of(fold.participant(rank) ^ layout.ranks() / 2);
      EXPECT_TRUE(layout.same_node(rank, mate));
    }
  }
  for (const Layout& layout : {Layout::blocks(3, 2), Layout::blocks(8, 1), Layout::blocks(1, 8),
                               Layout(std::vector{0, 1, 0, 1}), Layout(std::vector{0, 0, 0, 1})})
    EXPECT_TRUE(Fold(layout).in_order()) << layout.to_string();
}

TEST(Fold, OfBlocksIsInOrderForLittleDataAndForShortBlocks) {
  const auto in_order = [](int nodes, uint64_t all_bytes, bool narrow = true) {
    const int each = nodes == 4 ? 2 : 8;
    return fold_of_blocks(Layout::blocks(nodes, each), {.nic_bound = narrow}, all_bytes).in_order();
  };
  EXPECT_FALSE(in_order(4, 4096));
  EXPECT_TRUE(in_order(4, 4095));
  EXPECT_FALSE(in_order(32, 256 * 256));
  EXPECT_TRUE(in_order(32, 256 * 256 - 1));
  EXPECT_TRUE(in_order(4, 1 << 20, false)) << "copies may cost more than the way";
}

TEST(Hierarchy, EveryRankOfOtherNodesIsAnOriginOnceOnEachNode) {
  const Layout layout(std::vector{0, 1, 1, 2, 0, 1, 2, 2, 2});
  const Request request;
  const Limits limits;
  for (int node = 0; node < layout.nodes(); ++node) {
    std::vector<int> found;
    for (int member : layout.on_node(node)) {
      const Task task{request, layout, limits, member};
      for (int origin : origins(task, member)) {
        found.push_back(origin);
        const auto peers = rail_peers({request, layout, limits, origin});
        EXPECT_NE(std::find(peers.begin(), peers.end(), member), peers.end());
      }
    }
    std::sort(found.begin(), found.end());
    EXPECT_EQ(std::unique(found.begin(), found.end()), found.end());
    EXPECT_EQ(found.size() + layout.on_node(node).size(), static_cast<size_t>(layout.ranks()));
  }
}

TEST(Fits, SaysWhyNot) {
  const auto why = [](std::string_view name, const Request& request, const Layout& layout,
                      const Limits& limits = kShortIsEager) {
    return find_algorithm(request.collective, name)->fits(request, layout, limits).message();
  };
  const Layout cluster = Layout::blocks(2, 2), node = Layout::blocks(1, 4);
  const Request small{.collective = Collective::all_reduce, .count = 4};
  const Request large{.collective = Collective::all_reduce, .count = 1 << 20};
  const Request strict{.collective = Collective::all_reduce, .count = 4, .strict = true};
  EXPECT_EQ(why("one_hop", small, cluster), "");
  EXPECT_EQ(why("one_hop", large, node),
            "one_hop sends 4194304 bytes at once, at most 8192 go eagerly inside a node");
  EXPECT_EQ(why("one_hop", small, cluster, {.eager_intra_bytes = 16, .eager_inter_bytes = 15}),
            "one_hop sends 16 bytes at once, at most 15 go eagerly between nodes");
  const Request blocks{.collective = Collective::all_to_all, .count = 1};
  EXPECT_EQ(why("binomial", blocks, node, {.eager_intra_bytes = 16}), "");
  EXPECT_EQ(why("binomial", blocks, node, {.eager_intra_bytes = 15}),
            "binomial sends 4 blocks of 4 bytes at once, at most 15 bytes go eagerly inside a node");
  EXPECT_EQ(why("binomial", blocks, Layout::blocks(1, 5), {.eager_intra_bytes = 40}), "");
  EXPECT_NE(why("binomial", blocks, Layout::blocks(1, 5), {.eager_intra_bytes = 39}), "");
  const Request absurd{.collective = Collective::all_to_all, .count = UINT64_MAX / 4};
  EXPECT_NE(why("binomial", absurd, node), "") << "its longest message's bytes are more than 64 bits hold";
  EXPECT_EQ(why("bruck", blocks, cluster, {.eager_intra_bytes = 8, .eager_inter_bytes = 7}),
            "bruck sends 2 blocks of 4 bytes at once, at most 7 bytes go eagerly everywhere");
  EXPECT_EQ(why("direct", large, cluster),
            "direct reads the memory of peers, which 4 ranks on 2 nodes (2 each) cannot");
  EXPECT_EQ(why("all_to_all", large, node),
            "all_to_all is for several nodes, not 4 ranks on 1 node (4 each); direct serves one");
  for (auto name : {"ring", "recursive_doubling", "recursive_halving"}) {
    EXPECT_EQ(why(name, strict, node),
              fmt::format("{} adds partial sums; strict order needs one_hop, direct or all_to_all", name));
  }
  for (auto name : {"one_hop", "direct"}) EXPECT_EQ(why(name, strict, node), "");
  EXPECT_EQ(why("all_to_all", strict, cluster), "");
  const Request no_root{.collective = Collective::broadcast, .count = 4, .root = 4};
  EXPECT_EQ(why("binomial", no_root, node), "Broadcast: rank 4 named, must be in [0, 4)");
}

TEST(Registry, EveryCollectiveHasAnAlgorithmForEverySizeAndLayout) {
  for (int c = 0; c < kCollectives; ++c) {
    for (const Layout& layout : {Layout::blocks(1, 1), Layout::blocks(1, 3), Layout(std::vector{0, 1, 0})}) {
      for (bool strict : {false, true}) {
        const Request request{.collective = static_cast<Collective>(c), .count = 1 << 28, .strict = strict};
        const auto all = algorithms();
        EXPECT_TRUE(std::any_of(all.begin(), all.end(),
                                [&](const Algorithm& a) {
                                  return a.collective == request.collective &&
                                         a.fits(request, layout, kShortIsEager).ok();
                                }))
            << name_of(request.collective) << " on " << layout.to_string();
      }
    }
  }
  EXPECT_EQ(find_algorithm(Collective::all_reduce, "no such"), nullptr);
}

/// So a communicator on one node, and who plans for one, may name any network.
TEST(Registry, OnOneNodeTheNetworksLimitCountsForNothing) {
  const Layout node = Layout::blocks(1, 4);
  const Limits limits{.eager_intra_bytes = 4096, .eager_inter_bytes = 0},
      others{.eager_intra_bytes = 4096, .eager_inter_bytes = 1 << 20};
  for (const Algorithm& algorithm : algorithms()) {
    for (const uint64_t count : {1, 1000, 1 << 20}) {
      const Request request{.collective = algorithm.collective, .count = count, .root = 1};
      ASSERT_EQ(algorithm.fits(request, node, limits).ok(), algorithm.fits(request, node, others).ok())
          << name_of(algorithm.collective) << " by " << algorithm.name;
      if (!algorithm.fits(request, node, others).ok()) continue;
      EXPECT_EQ(to_string(algorithm.make(request, node, limits, 2)),
                to_string(algorithm.make(request, node, others, 2)));
    }
  }
}

/// Plans of long messages stay bounded, and puts stay below 4 GiB: slices grow.
TEST(Registry, PlansOfLongMessagesAreShort) {
  const Layout cluster = Layout::blocks(16, 8), node = Layout::blocks(1, 8);
  for (const Algorithm& algorithm : algorithms()) {
    const Layout& layout = algorithm.name == "direct" ? node : cluster;
    const Request request{.collective = algorithm.collective, .count = uint64_t{1} << 28, .root = 1};
    if (!algorithm.fits(request, layout, kShortIsEager).ok()) continue;
    const Plan plan = algorithm.make(request, layout, kShortIsEager, 5);
    EXPECT_LT(plan.steps.size(), 45000u) << name_of(algorithm.collective) << " by " << algorithm.name;
    for (const Step& step : plan.steps) {
      EXPECT_TRUE(step.kind != StepKind::put || step.bytes < uint64_t{1} << 32) << algorithm.name;
    }
  }
}

}  // namespace
}  // namespace weft::plan
