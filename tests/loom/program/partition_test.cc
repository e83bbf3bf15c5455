// Partitions: exact ones are those of brute force, SMP's tree gives what its algorithm gives by hand, and
// what cannot be is refused.
#include "program/partition.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <tuple>

#include "program/generate.h"
#include "support.h"

namespace loom::testing {
namespace {

using namespace loom::program;  // everything here is about it

/// Calls `visit` with every partition into contiguous parts.
void for_each_partition(int units, int parts, const std::function<void(const std::vector<int>&)>& visit) {
  std::vector<int> first = {0};
  const std::function<void()> extend = [&] {
    if (static_cast<int>(first.size()) == parts) return visit(first);
    for (int unit = first.back() + 1; unit < units; ++unit) {
      first.push_back(unit);
      extend();
      first.pop_back();
    }
  };
  extend();
}

/// Whether every stage keeps the limit; parts are dealt out in turn.
bool fits(const PartitionRequest& request, const std::vector<int>& first, int stages) {
  std::vector<double> bytes = request.besides;
  bytes.resize(static_cast<size_t>(stages));
  for (int part = 0; part < request.parts; ++part) {
    const int end = part + 1 < request.parts ? first[part + 1] : static_cast<int>(request.units.size());
    bytes[static_cast<size_t>(part % stages)] += memory_of(request, part, first[part], end);
  }
  return request.memory_limit_bytes == 0 ||
         *std::max_element(bytes.begin(), bytes.end()) <= request.memory_limit_bytes;
}

/// What partitions are judged by, in this order: the largest cost of a stage that has every so many-th part,
/// bytes that cross, the sum of the stages' squared costs.
struct Judged {
  double largest = 1e300, crossing = 1e300, squares = 1e300;
  Judged() = default;
  Judged(const Partition& partition, int stages)
      : largest(0), crossing(partition.crossing_bytes), squares(0) {
    std::vector<double> costs(static_cast<size_t>(stages), 0.0);
    for (size_t part = 0; part < partition.costs.size(); ++part)
      costs[part % costs.size()] += partition.costs[part];
    for (const double cost : costs) largest = std::max(largest, cost), squares += cost * cost;
  }
  bool operator<(const Judged& other) const {
    constexpr double kSame = 1e-9;
    if (std::abs(largest - other.largest) > kSame) return largest < other.largest;
    if (crossing != other.crossing) return crossing < other.crossing;
    return squares < other.squares - kSame;
  }
};

/// The best of all partitions that keep the limit.
Judged best_of(const PartitionRequest& request, int stages) {
  Judged best;
  for_each_partition(static_cast<int>(request.units.size()), request.parts,
                     [&](const std::vector<int>& first) {
                       const Result<Partition> partition = partition_by_hand(request, first);
                       if (!partition.ok() || !fits(request, first, stages)) return;
                       if (const Judged one(*partition, stages); one < best) best = one;
                     });
  return best;
}

void expect_as_good(const Partition& partition, const Judged& best, int stages, int trial) {
  const Judged got(partition, stages);
  EXPECT_NEAR(got.largest, best.largest, 1e-9) << "trial " << trial;
  EXPECT_EQ(got.crossing, best.crossing) << "trial " << trial;
  EXPECT_NEAR(got.squares, best.squares, 1e-8) << "trial " << trial;
}

PartitionRequest random_request(std::mt19937& random) {
  const auto pick = [&](int least, int most) {
    return least + static_cast<int>(random() % (most - least + 1));
  };
  PartitionRequest request;
  const int units = pick(2, 10);
  for (int unit = 0; unit < units; ++unit)
    request.units.push_back({static_cast<double>(pick(0, 9)), static_cast<double>(pick(1, 9)),
                             static_cast<double>(pick(0, 5)), static_cast<double>(pick(1, 3)),
                             static_cast<double>(pick(0, 12))});
  request.parts = pick(1, std::min(units, 5));
  request.memory_weight = pick(0, 4) / 4.0;
  for (int part = 0; part < request.parts; ++part) request.active.push_back(request.parts - part);
  if (pick(0, 2) == 0) request.together.push_back({units / 3, units / 3 + 1});
  if (pick(0, 2) == 0) request.memory_limit_bytes = pick(10, 60);
  if (pick(0, 1) == 0)
    for (int part = 0; part < request.parts; ++part) request.besides.push_back(pick(-3, 9));
  return request;
}

TEST(Partition, IsThatOfBruteForce) {
  std::mt19937 random(3);
  int possible = 0, impossible = 0;
  for (int trial = 0; trial < 400; ++trial) {
    const PartitionRequest request = random_request(random);
    const Judged best = best_of(request, request.parts);
    const Result<Partition> exact = partition_exactly(request);
    ASSERT_EQ(exact.ok(), best.largest < 1e300) << "trial " << trial;
    ++(exact.ok() ? possible : impossible);
    if (!exact.ok()) continue;
    expect_as_good(*exact, best, request.parts, trial);
    EXPECT_TRUE(fits(request, exact->first_units, request.parts));
  }
  EXPECT_GT(possible, 200);
  EXPECT_GT(impossible, 20);
}

TEST(Partition, OfTransientsTheLargestOfAPartCounts) {
  PartitionRequest request;
  request.units = {{0, 1, 2, 0, 10}, {0, 1, 2, 0, 30}, {0, 1, 2, 0, 20}, {0, 1, 2, 0, 0}};
  request.active = {3, 1};
  EXPECT_EQ(memory_of(request, 0, 0, 1), 1 + 3 * 2 + 10);
  EXPECT_EQ(memory_of(request, 0, 0, 2), 2 * (1 + 3 * 2) + 30);
  EXPECT_EQ(memory_of(request, 1, 0, 4), 4 * (1 + 2) + 30);
  EXPECT_EQ(memory_of(request, 1, 3, 4), 3);
  request.memory_weight = 1;
  EXPECT_EQ(cost_of(request, 1, 0, 4), 1) << "all of the model";
}

/// Of four equal units the last needs more while it is computed than two others have.
TEST(Partition, AUnitThatNeedsMuchWhileItIsComputedIsLeftAlone) {
  PartitionRequest request;
  request.units = {{0, 10, 0, 1, 0}, {0, 10, 0, 1, 0}, {0, 10, 0, 1, 0}, {0, 10, 0, 1, 25}};
  request.parts = 2;
  request.memory_weight = 1;
  EXPECT_EQ(partition_exactly(request)->first_units, (std::vector<int>{0, 3}));
  EXPECT_EQ(partition_by_tree(request)->first_units.size(), 2u);
  request.units.back().transient_bytes = 0;
  EXPECT_EQ(partition_exactly(request)->first_units, (std::vector<int>{0, 2}));
}

PartitionRequest timed(std::vector<double> times, int parts) {
  PartitionRequest request;
  for (const double time : times) request.units.push_back({time, 1, 0, 1});
  request.parts = parts;
  request.memory_weight = 0;
  return request;
}

TEST(Partition, MemoryAndTimeAreWeighed) {
  PartitionRequest request = timed({0, 1, 1, 1, 1, 4}, 2);
  EXPECT_EQ(partition_exactly(request)->first_units, (std::vector<int>{0, 5}));
  request.memory_weight = 1;
  EXPECT_EQ(partition_exactly(request)->first_units, (std::vector<int>{0, 3}));
}

TEST(Partition, OfEqualOnesTheLeastCrosses) {
  PartitionRequest request = timed({1, 0, 0, 1}, 2);
  request.units[1].boundary_bytes = 0.5;
  EXPECT_EQ(partition_exactly(request)->first_units, (std::vector<int>{0, 2}));
}

TEST(Partition, ALimitThatNothingKeepsIsRefusedWithTheLeast) {
  PartitionRequest request = timed({1, 1, 1, 1}, 2);
  for (UnitCost& unit : request.units) unit.state_bytes = 1 << 20;
  request.memory_limit_bytes = 1.5 * (1 << 20);
  EXPECT_TRUE(
      fails_with(partition_exactly(request), Code::out_of_memory,
                 "no partition into 2 parts keeps each below 1.5 MiB; the least possible is 2.0 MiB"));
}

TEST(Partition, WhatSharesParametersStaysTogether) {
  PartitionRequest request = timed({1, 1, 1, 1}, 2);
  request.together = {{1, 2}};
  EXPECT_NE(partition_exactly(request)->first_units, (std::vector<int>{0, 2}));
  EXPECT_TRUE(fails_with(partition_by_hand(request, {0, 2}), Code::invalid_argument,
                         "the partition separates units 1 and 2 before unit 2, but they share parameters"));
  EXPECT_NE(partition_by_tree(request)->first_units, (std::vector<int>{0, 2}));
  request.together = {{0, 3}};
  EXPECT_TRUE(fails_with(partition_exactly(request), Code::invalid_argument, "cannot be cut into 2 parts"));
}

TEST(Partition, TheTreeIsCutFromTheRoot) {
  // Root: embedding 1, blocks 8, head 3. Segments of 4 stages: {1}, {8}, {3}; d'Hondt gives 8, 8/2, 3, 8/3:
  // the embedding gets none and joins, the blocks get 3 of 4 stages.
  const Partition four = *partition_by_tree(timed({1, 2, 2, 1, 1, 1, 1, 3}, 4));
  EXPECT_EQ(four.first_units, (std::vector<int>{0, 2, 4, 7}));
  // Two stages: {1, 8} and {3}; of the quotients 9, 4.5 and 3 both stages go to the first, then of 8, 4 and 1
  // both to the blocks: embedding and head join their ends.
  const Partition two = *partition_by_tree(timed({1, 2, 2, 1, 1, 1, 1, 3}, 2));
  EXPECT_EQ(two.first_units, (std::vector<int>{0, 3}));
  EXPECT_LE(partition_exactly(timed({1, 2, 2, 1, 1, 1, 1, 3}, 2))->largest, two.largest);
}

TEST(Partition, TheTreeIsNeverBetterThanTheExactOne) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 200; ++trial) {
    PartitionRequest request = random_request(random);
    request.active.clear();
    request.together.clear();
    request.memory_limit_bytes = 0;
    const Result<Partition> tree = partition_by_tree(request), exact = partition_exactly(request);
    LOOM_ASSERT_OK(tree);
    LOOM_ASSERT_OK(exact);
    EXPECT_GE(tree->largest, exact->largest - 1e-9);
    EXPECT_EQ(tree->first_units.size(), static_cast<size_t>(request.parts));
  }
}

double largest_stage(const Partition& partition, int stages) { return Judged(partition, stages).largest; }

TEST(Partition, InterleavedPartsBalanceTheSumsOfStages) {
  std::mt19937 random(9);
  double balanced = 0, exact = 0;
  for (int trial = 0; trial < 100; ++trial) {
    PartitionRequest request = random_request(random);
    request.parts = 4;
    request.active = {2, 1, 2, 1};
    request.memory_limit_bytes = 0;
    if (request.units.size() < 6) continue;
    const Result<Partition> partition = partition_interleaved(request, 2);
    LOOM_ASSERT_OK(partition);
    const double got = largest_stage(*partition, 2), before = largest_stage(*partition_exactly(request), 2);
    EXPECT_LE(got, before + 1e-9);
    expect_as_good(*partition, best_of(request, 2), 2, trial);
    EXPECT_TRUE(partition->proven);
    balanced += got, exact += before;
  }
  EXPECT_LT(balanced, exact);
  // A head as long as four blocks: its stage's other part gives way.
  const Partition partition = *partition_interleaved(timed({1, 1, 1, 1, 1, 1, 1, 1, 4}, 4), 2);
  EXPECT_EQ(largest_stage(partition, 2), 0.5);
}

TEST(Partition, InterleavedOnesKeepLimitsAndWhatBelongsTogether) {
  std::mt19937 random(21);
  int possible = 0, impossible = 0;
  for (int trial = 0; trial < 200; ++trial) {
    PartitionRequest request = random_request(random);
    if (request.units.size() < 6) continue;
    request.parts = 4;
    request.active = {2, 1, 2, 1};
    if (!request.besides.empty()) request.besides.resize(2);
    const Result<Partition> partition = partition_interleaved(request, 2);
    const Judged best = best_of(request, 2);
    ASSERT_EQ(partition.ok(), best.largest < 1e300) << "trial " << trial;
    if (!partition.ok()) {
      ++impossible;
      continue;
    }
    ++possible;
    EXPECT_TRUE(fits(request, partition->first_units, 2));
    expect_as_good(*partition, best, 2, trial);
  }
  EXPECT_GT(possible, 40);
  EXPECT_GT(impossible, 5);
}

TEST(Partition, OfWhatIsOffloadedOnlyTheStateIsCharged) {
  Job job;
  job.spec.vocabulary = 50;
  job.spec.context = job.tokens = 16;
  job.spec.width = job.spec.feed_forward = 64;
  job.spec.layers = 4;
  job.spec.heads = 2;
  job.world = job.pipeline_degree = 2;
  job.microbatches = 4;
  const PartitionRequest kept = partition_request(job, Machine());
  job.offload = true;
  const PartitionRequest offloaded = partition_request(job, Machine());
  for (size_t unit = 0; unit < kept.units.size(); ++unit) {
    EXPECT_EQ(offloaded.units[unit].activation_bytes, 0) << unit;
    EXPECT_EQ(offloaded.units[unit].state_bytes, kept.units[unit].state_bytes) << unit;
  }
  EXPECT_GT(kept.units[1].activation_bytes, 0);
}

TEST(Partition, NormedRowsThatForwardLeavesForBackwardAreCharged) {
  Job job;
  job.spec.vocabulary = 50;
  job.spec.context = job.tokens = 16;
  job.spec.width = job.spec.feed_forward = 64;
  job.spec.layers = 4;
  job.spec.heads = 2;
  job.batch = 4;
  job.world = 4;
  job.pipeline_degree = job.tensor_degree = 2;
  job.divides_rows = true;
  job.microbatches = 4;
  const model::BufferSizes sizes = sizes_of(job);
  const double normed = 2.0 * 4 * 16 / 2 * 64 * 4;  // what both norms give: own rows in fp32
  const auto charged = [&] { return partition_request(job, Machine()).units[1].activation_bytes; };
  EXPECT_EQ(charged(), normed + static_cast<double>(sizes.activation + sizes.saved));
  job.offload = true;
  EXPECT_EQ(charged(), normed);
  // A program keeps as many in its buffers, which offloading leaves in memory.
  const Program program = *make_program(job, 0);
  double in_program = 0;
  for (const Buffer& buffer : program.buffers)
    if (buffer.name.starts_with("normed 1.0 ")) in_program += static_cast<double>(buffer.bytes);
  EXPECT_EQ(in_program, normed);
  job.checkpoint_group = 1;  // forward leaves nothing but what enters
  EXPECT_EQ(charged(), 0);
}

/// A hundred unequal units in 64 parts: more partitions than anybody can look at.
TEST(Partition, TooManyInterleavedOnesAreGivenUp) {
  std::mt19937 random(2);
  PartitionRequest request = timed({}, 64);
  for (int unit = 0; unit < 100; ++unit)
    request.units.push_back({1 + static_cast<double>(random() % 1000) / 100, 1, 0, 1});
  const Result<Partition> partition = partition_interleaved(request, 16);
  LOOM_ASSERT_OK(partition);
  EXPECT_FALSE(partition->proven);
  EXPECT_LE(largest_stage(*partition, 16), largest_stage(*partition_exactly(request), 16) + 1e-9);
}

TEST(Partition, OfAModelBalancesTheHead) {
  Job job;
  job.spec.vocabulary = 50257;
  job.spec.context = 512;
  job.spec.width = 768;
  job.spec.layers = job.spec.heads = 12;
  job.spec.feed_forward = 3072;
  job.tokens = 512;
  job.world = job.pipeline_degree = 2;
  job.microbatches = 8;
  PartitionRequest request = partition_request(job, Machine());
  request.memory_weight = 0;
  const Partition partition = *partition_exactly(request);
  // The head computes as much as about 5 blocks.
  EXPECT_EQ(partition.first_units, (std::vector<int>{0, 10}));
  const std::string text = to_string(job, request, partition);
  EXPECT_NE(text.find("block 9 to head"), std::string::npos) << text;
  EXPECT_NE(text.find("KiB cross for each microbatch"), std::string::npos);
  // Measured times win over the model's.
  request = partition_request(job, Machine(), MeasuredUnits(14, {.us = 1}));
  request.memory_weight = 0;
  EXPECT_EQ(partition_exactly(request)->first_units, (std::vector<int>{0, 7}));
}

TEST(Partition, ATableThatNoMachineHasIsRefused) {
  PartitionRequest request;
  request.parts = 2;
  request.units.assign(65538, {1, 1, 1, 1});
  EXPECT_TRUE(fails_with(partition_exactly(request), Code::invalid_argument, "65538 units into 2 parts"));
}

/// Their number does not fit 32 bits: it would be none.
TEST(Partition, MorePartsThanUnitsAreRefusedHoweverMany) {
  Job job;
  job.spec.vocabulary = job.spec.context = 8;
  job.spec.width = job.spec.heads = job.spec.feed_forward = 8;
  job.spec.layers = 2;
  job.schedule = Schedule::interleaved;
  job.world = job.pipeline_degree = job.microbatches = 1 << 12;
  job.virtual_stages = 1 << 20;
  EXPECT_TRUE(fails_with(job.check(), Code::invalid_argument, "4096 stages times 1048576 virtual ones"));
}

}  // namespace
}  // namespace loom::testing
