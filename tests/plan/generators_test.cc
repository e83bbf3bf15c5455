// Every generator, proved by the verifier: all layouts up to a few ranks, and a sample of those up to 16
// nodes × 8 ranks.
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <set>

#include "plan/schedule.h"
#include "plans.h"

namespace weft::plan {
namespace {

using testing::describe;
using testing::make_all;
using topology::Layout;

bool is_pairwise(Collective collective) {
  return collective == Collective::send || collective == Collective::recv;
}

/// Everything eager, nothing eager, only one of the links eager, less where messages meet, and slices short
/// or long.
const std::vector<Limits>& limits_to_try() {
  static const std::vector<Limits> all = {
      {.eager_intra_bytes = 1 << 20, .eager_inter_bytes = 1 << 20, .slice_bytes = 1 << 20},
      {.eager_intra_bytes = 0, .eager_inter_bytes = 0, .slice_bytes = 256},
      {.eager_intra_bytes = 1 << 20, .eager_inter_bytes = 0, .slice_bytes = 512},
      {.eager_intra_bytes = 0, .eager_inter_bytes = 1 << 20, .slice_bytes = 256},
      {.eager_intra_bytes = 64, .eager_inter_bytes = 256, .slice_bytes = 256},
      {.eager_intra_bytes = 64,
       .eager_inter_bytes = 256,
       .eager_incast_bytes = 24,
       .slice_bytes = 512,
       .nic_bound = true},
  };
  return all;
}

std::vector<uint64_t> counts_for(int ranks) {
  const auto n = static_cast<uint64_t>(ranks);
  std::set<uint64_t> counts{0, 1, 7, n, 64 * n + 3};
  counts.insert(n - 1);
  return {counts.begin(), counts.end()};
}

/// How much has been proved, and the first failure.
class Prover {
 public:
  void prove(const Algorithm& algorithm, const Request& request, const Layout& layout, const Limits& limits) {
    if (!algorithm.fits(request, layout, limits).ok()) return;
    if (is_pairwise(algorithm.collective)) return prove_pairs(algorithm, request, layout, limits);
    const auto plans = make_all(algorithm, request, layout, limits);
    for (bool in_place : {false, true}) {
      if (in_place && request.disjoint) continue;
      const Status status = verify(plans, layout, limits, in_place);
      ++proofs_;
      ASSERT_TRUE(status.ok()) << describe(algorithm, request, layout, limits)
                               << (in_place ? ", in place" : "") << ":\n  " << status.message();
    }
  }

  int proofs() const { return proofs_; }

 private:
  /// The peer is the root; every other rank sends to it.
  void prove_pairs(const Algorithm& send, Request request, const Layout& layout, const Limits& limits) {
    if (send.collective != Collective::send) return;
    const Algorithm& recv = *find_algorithm(Collective::recv, send.name);
    const int to = request.root;
    for (int from = 0; from < layout.ranks(); ++from) {
      if (from == to) continue;
      Request received = request;
      received.collective = Collective::recv;
      received.root = from;
      const Status status = verify_pair(send.make(request, layout, limits, from),
                                        recv.make(received, layout, limits, to), layout, limits);
      ++proofs_;
      ASSERT_TRUE(status.ok()) << describe(send, request, layout, limits) << ":\n  " << status.message();
    }
  }

  int proofs_ = 0;
};

std::vector<int> roots_for(const Algorithm& algorithm, int ranks) {
  if (!has_root(algorithm.collective) && !is_pairwise(algorithm.collective)) return {0};
  std::vector<int> roots;
  for (int root = 0; root < ranks; ++root) roots.push_back(root);
  return roots;
}

/// Both variants of requests that have any.
std::vector<Request> variants(Request request) {
  std::vector<Request> all{request};
  if (reduces(request.collective)) all.push_back(request), all.back().strict = true;
  if (request.collective == Collective::all_to_all) all.push_back(request), all.back().disjoint = true;
  if (is_transfer(request.collective)) all.push_back(request), all.back().announced = true;
  return all;
}

void prove_everything(Prover& prover, const Algorithm& algorithm, const Layout& layout) {
  for (const Limits& limits : limits_to_try()) {
    for (uint64_t count : counts_for(layout.ranks())) {
      for (int root : roots_for(algorithm, layout.ranks())) {
        for (const Request& request : variants(
                 {.collective = algorithm.collective, .count = count, .element_bytes = 4, .root = root})) {
          prover.prove(algorithm, request, layout, limits);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

/// All ways to put `ranks` ranks on nodes, up to the names of nodes: restricted growth strings.
std::vector<Layout> all_layouts(int ranks) {
  std::vector<Layout> layouts;
  std::vector<int> node(static_cast<size_t>(ranks), 0);
  const auto grow = [&](auto& self, int rank, int nodes) -> void {
    if (rank == ranks) return layouts.emplace_back(node), void();
    for (node[rank] = 0; node[rank] <= nodes; ++node[rank])
      self(self, rank + 1, std::max(nodes, node[rank] + 1));
  };
  grow(grow, 0, 0);
  return layouts;
}

// 28 streams of a node overran the queue in front of its interface: an AlltoAll of 4 MiB on 8 nodes of two
// ranks took 210 to 250 ms, of which the line needs 117.
TEST(Exchange, AsksForAFewBlocksAtATimeWhereWaysAreNarrow) {
  const Algorithm& algorithm = *find_algorithm(Collective::all_to_all, "all_to_all");
  Limits limits{.eager_intra_bytes = 16 << 10, .eager_inter_bytes = 64 << 10, .slice_bytes = 512 << 10};
  Prover prover;
  const Layout uneven({0, 0, 0, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9, 9});
  std::vector<Request> requests;
  for (const auto& [count, bytes] : {std::pair(24u << 10, 4u), std::pair(100'003u, 1u)})
    for (const Request& request :
         variants({.collective = Collective::all_to_all, .count = count, .element_bytes = bytes}))
      requests.push_back(request);
  for (const Layout& layout : {Layout::blocks(8, 2), Layout::blocks(12, 1), Layout::blocks(4, 2), uneven}) {
    for (const Request& request : requests) {
      for (const bool narrow : {false, true}) {
        limits.nic_bound = narrow;
        prover.prove(algorithm, request, layout, limits);
        if (::testing::Test::HasFatalFailure()) return;
        const Plan plan = algorithm.make(request, layout, limits, 0);
        int remote = 0, at_once = 0;
        for (int rank = 1; rank < layout.ranks(); ++rank) remote += !layout.same_node(0, rank);
        for (const Step& step : plan.steps)
          at_once += step.kind == StepKind::signal && step.exposes == Space::output && step.lane == 0;
        const int mates = static_cast<int>(layout.on_node(0).size());
        EXPECT_EQ(at_once, narrow ? std::min(remote, std::max(8 / mates, 4)) : remote) << layout.to_string();
      }
    }
  }
  EXPECT_EQ(prover.proofs(), 4 * 2 * 2 * 3);
}

/// A strict sender once went the other way round than its receivers asked: all waited in a circle.
TEST(AllToAll, AsksForAFewBlocksAtATimeWhereWaysAreNarrow) {
  const Layout uneven({0, 0, 0, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9, 9});
  Prover prover;
  for (const Collective collective :
       {Collective::all_gather, Collective::reduce_scatter, Collective::all_reduce, Collective::reduce}) {
    const Algorithm& algorithm = *find_algorithm(collective, "all_to_all");
    const bool one_part = collective == Collective::all_reduce || collective == Collective::reduce;
    for (const Layout& layout : {Layout::blocks(8, 2), Layout::blocks(12, 1), Layout::blocks(4, 2), uneven}) {
      const auto parts = static_cast<uint64_t>(one_part ? layout.ranks() : 1);
      // Blocks that are cut into two slices, and into more than need no credits.
      for (const uint64_t slice_bytes : {512 << 10, 12 << 10}) {
        const Limits limits{.eager_intra_bytes = 16 << 10,
                            .eager_inter_bytes = 64 << 10,
                            .slice_bytes = slice_bytes,
                            .nic_bound = true};
        for (const Request& request :
             variants({.collective = collective, .count = 36'001 * parts, .element_bytes = 4, .root = 1})) {
          prover.prove(algorithm, request, layout, limits);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
  EXPECT_EQ(prover.proofs(), 4 * 2 * 2 * (1 + 3 * 2));
  const auto asked_first = [](Collective collective, Space space, bool narrow) {
    const Plan plan = make_all(*find_algorithm(collective, "all_to_all"),
                               {.collective = collective, .count = 64 << 10, .element_bytes = 4},
                               Layout::blocks(8, 2), {.nic_bound = narrow})[0];
    int lane = -1, count = 0;
    for (const Step& step : plan.steps) {
      if (step.kind != StepKind::signal || step.exposes != space || step.peer == 1) continue;
      if (lane < 0) lane = step.lane;
      count += step.lane == lane;
    }
    return count;
  };
  EXPECT_EQ(asked_first(Collective::all_gather, Space::output, false), 7);
  EXPECT_EQ(asked_first(Collective::all_gather, Space::output, true), 4);
  EXPECT_EQ(asked_first(Collective::reduce_scatter, Space::scratch, false), 7);
  EXPECT_EQ(asked_first(Collective::reduce_scatter, Space::scratch, true), 4);
}

class EveryAlgorithm : public ::testing::TestWithParam<const Algorithm*> {};

TEST_P(EveryAlgorithm, IsRightOnEveryLayoutOfFewRanks) {
  Prover prover;
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (const Layout& layout : all_layouts(ranks)) {
      prove_everything(prover, *GetParam(), layout);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(prover.proofs(), GetParam()->collective == Collective::recv ? -1 : 0);
}

/// Blocks, dealt round, of unequal sizes, or at random.
Layout sample_layout(int nodes, int ranks_per_node, std::mt19937& random) {
  std::vector<int> node_of;
  const int style = static_cast<int>(random() % 4);
  for (int node = 0; node < nodes; ++node) {
    const int size = style < 2 ? ranks_per_node : 1 + static_cast<int>(random() % ranks_per_node);
    node_of.insert(node_of.end(), static_cast<size_t>(size), node);
  }
  if (style == 1) {
    for (size_t rank = 0; rank < node_of.size(); ++rank) node_of[rank] = static_cast<int>(rank) % nodes;
  }
  if (style == 3) std::shuffle(node_of.begin(), node_of.end(), random);
  return Layout(node_of);
}

TEST_P(EveryAlgorithm, IsRightOnASampleUpTo16NodesOf8Ranks) {
  const Algorithm& algorithm = *GetParam();
  std::mt19937 random(1);
  Prover prover;
  for (int nodes = 1; nodes <= 16; ++nodes) {
    for (int ranks_per_node = 1; ranks_per_node <= 8; ++ranks_per_node) {
      if (nodes * ranks_per_node > 48 && random() % 3 != 0) continue;
      const Layout layout = sample_layout(nodes, ranks_per_node, random);
      const auto counts = counts_for(layout.ranks());
      // Long messages only on few ranks: what they add does not depend on how many there are.
      const uint64_t count = counts[random() % (layout.ranks() > 40 ? counts.size() - 1 : counts.size())];
      const Limits& limits = limits_to_try()[random() % limits_to_try().size()];
      const int root = static_cast<int>(random() % static_cast<unsigned>(layout.ranks()));
      const bool flip = random() % 2 == 0;
      const Request request{.collective = algorithm.collective,
                            .count = count,
                            .element_bytes = 4,
                            .root = root,
                            .strict = flip && reduces(algorithm.collective),
                            .disjoint = flip && algorithm.collective == Collective::all_to_all};
      prover.prove(algorithm, request, layout, limits);
      if (HasFatalFailure()) return;
    }
  }
}

/// More slices than the window of a transfer holds, and elements of every size.
TEST_P(EveryAlgorithm, IsRightForManySlices) {
  const Algorithm& algorithm = *GetParam();
  Prover prover;
  for (const Layout& layout : {Layout::blocks(1, 4), Layout::blocks(3, 2), Layout::blocks(4, 2),
                               Layout(std::vector{0, 1, 1, 0, 2})}) {
    for (uint32_t element_bytes : {1, 2, 4, 8}) {
      for (Limits limits : limits_to_try()) {
        limits.slice_bytes = 64 * element_bytes;
        for (const Request& request : variants({.collective = algorithm.collective,
                                      .count = 64 * 70 + 3,
                                      .element_bytes = element_bytes,
                                      .root = 1})) {
          prover.prove(algorithm, request, layout, limits);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

/// Blocks so long that a ring has fewer places for sums than rounds, and must wait for credits; and blocks
/// that go round in groups of slices, of which the last is shorter or as long as the others.
TEST(Ring, IsRightWhereSumsWaitForPlaces) {
  Prover prover;
  for (const Collective collective : {Collective::reduce_scatter, Collective::all_reduce}) {
    for (const Layout& layout : {Layout::blocks(1, 2), Layout::blocks(3, 1), Layout::blocks(3, 2)}) {
      for (const uint64_t megabytes : {1, 2, 3, 5, 8}) {
        const auto blocks = static_cast<uint64_t>(collective == Collective::all_reduce ? layout.ranks() : 1);
        prover.prove(*find_algorithm(collective, "ring"),
                     {.collective = collective, .count = (megabytes << 18) * blocks, .element_bytes = 4},
                     layout, {.eager_intra_bytes = 0, .eager_inter_bytes = 0});
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_EQ(prover.proofs(), 60);
}

/// Later blocks are a line shorter, and one of them has nothing in its last slice.
TEST(Ring, IsRightWhereBlocksOfGroupsDiffer) {
  Prover prover;
  for (const uint64_t lines : {3 * 40960 + 1, 3 * 40960 + 2, 3 * 65536 + 1})
    prover.prove(*find_algorithm(Collective::all_reduce, "ring"),
                 {.collective = Collective::all_reduce, .count = lines * 16, .element_bytes = 4},
                 Layout::blocks(1, 3), {.eager_intra_bytes = 0, .eager_inter_bytes = 0});
  EXPECT_EQ(prover.proofs(), 6);
}

/// What the fast path asks of a plan (PlanTables::fast).
void expect_fast(Collective collective, std::string_view algorithm) {
  const Request request{.collective = collective, .count = 2, .element_bytes = 4, .root = 1};
  for (const Plan& plan : make_all(algorithm, request, topology::Layout::blocks(1, 4))) {
    EXPECT_EQ(plan.lanes(), 1) << algorithm << ", rank " << plan.rank;
    EXPECT_LE(plan.scratch_bytes, 4096u) << algorithm << ", rank " << plan.rank;
  }
}

TEST(Ring, ShortMessagesInsideANodeNeedOneLaneAndLittleScratch) {
  expect_fast(Collective::all_gather, "ring");
  expect_fast(Collective::reduce_scatter, "ring");
  expect_fast(Collective::all_reduce, "ring");
  expect_fast(Collective::broadcast, "ring");
}

TEST(Binomial, AShortBroadcastInsideANodeNeedsOneLane) { expect_fast(Collective::broadcast, "binomial"); }

/// That is what it is there for.
TEST(Binomial, SendsNoMoreMessagesWithoutARootThanUpATreeAndDown) {
  for (const Collective collective :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all}) {
    for (const int ranks : {3, 4, 5, 7, 8, 9, 16, 23}) {
      const Request request{.collective = collective, .count = 2, .element_bytes = 4};
      int messages = 0;
      for (const Plan& plan : make_all("binomial", request, topology::Layout::blocks(ranks, 1))) {
        EXPECT_EQ(plan.lanes(), 1);
        for (const Step& step : plan.steps)
          messages += step.kind == StepKind::put || step.kind == StepKind::signal;
      }
      EXPECT_EQ(messages, 2 * ranks - 2) << name_of(collective);
    }
  }
}

TEST(Binomial, BroadcastsToOtherNodesAndLongOnesGoToAllChildrenAtOnce) {
  const Request brief{.collective = Collective::broadcast, .count = 2, .element_bytes = 4};
  EXPECT_GT(make_all("binomial", brief, topology::Layout::blocks(4, 1))[0].lanes(), 2);
  const Request longer{.collective = Collective::broadcast, .count = 1 << 20, .element_bytes = 4};
  EXPECT_GT(make_all("binomial", longer, topology::Layout::blocks(1, 4))[0].lanes(), 2);
}

std::set<int> lanes_of(const Plan& plan, StepKind kind, const std::function<bool(const Step&)>& which) {
  std::set<int> lanes;
  for (const Step& step : plan.steps)
    if (step.kind == kind && which(step)) lanes.insert(step.lane);
  return lanes;
}

/// The first step's lane was once the first new one, and everything waited for the copy.
TEST(Ring, AnAllGatherCopiesBesideItsPuts) {
  const auto any = [](const Step&) { return true; };
  for (const auto& [count, layout] :
       {std::pair(1 << 20, topology::Layout::blocks(1, 4)), std::pair(2, topology::Layout::blocks(4, 1))}) {
    const Request request{
        .collective = Collective::all_gather, .count = static_cast<uint64_t>(count), .element_bytes = 4};
    for (const Plan& plan : make_all("ring", request, layout)) {
      const std::set<int> puts = lanes_of(plan, StepKind::put, any);
      for (const int lane : lanes_of(plan, StepKind::copy, any)) EXPECT_FALSE(puts.contains(lane));
    }
  }
}

TEST(Binomial, NodeMatesDoNotWaitForOtherNodes) {
  const topology::Layout layout = topology::Layout::blocks(2, 4);
  const Request request{.collective = Collective::broadcast, .count = 3 << 10, .element_bytes = 4};
  const Limits limits{.eager_intra_bytes = 16 << 10, .eager_inter_bytes = 8 << 10};
  const Plan root = make_all("binomial", request, layout, limits)[0];
  const auto near = lanes_of(root, StepKind::put, [](const Step& step) { return step.peer < 4; });
  const auto far = lanes_of(root, StepKind::put, [](const Step& step) { return step.peer >= 4; });
  EXPECT_EQ(near, std::set<int>{0});
  ASSERT_EQ(far.size(), 1u);
  EXPECT_NE(*far.begin(), 0);
}

TEST(Ring, ScratchOfLongMessagesIsWhatCachesHold) {
  for (const Collective collective : {Collective::reduce_scatter, Collective::all_reduce}) {
    const Request request{.collective = collective, .count = 64 << 20, .element_bytes = 4};
    const Plan plan = find_algorithm(collective, "ring")->make(request, Layout::blocks(1, 2), {}, 0);
    EXPECT_LE(plan.scratch_bytes, 4u << 20);
  }
}

std::string name_of_case(const ::testing::TestParamInfo<const Algorithm*>& info) {
  return fmt::format("{}_{}", name_of(info.param->collective), info.param->name);
}
std::vector<const Algorithm*> all_algorithms() {
  std::vector<const Algorithm*> all;
  for (const Algorithm& algorithm : algorithms()) all.push_back(&algorithm);
  return all;
}
INSTANTIATE_TEST_SUITE_P(Plan, EveryAlgorithm, ::testing::ValuesIn(all_algorithms()), name_of_case);

}  // namespace
}  // namespace weft::plan
