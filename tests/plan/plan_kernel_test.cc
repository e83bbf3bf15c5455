// The plan kernel as blocks that take turns: every generator, with the bits of the host.
#include <gtest/gtest.h>

#include <map>

#include "plan_machine.h"

namespace weft::plan::plan_kernel_test {
namespace {

using device::DataType;
using device::ReduceOp;
using testing::Job;
using testing::job_of;
using testing::PlanMachine;

const Limits kEager{.eager_intra_bytes = 1 << 20, .eager_inter_bytes = 1 << 20, .slice_bytes = 4096};
const Limits kExposed{.eager_intra_bytes = 0, .eager_inter_bytes = 0, .slice_bytes = 4096};
constexpr uint64_t kAsStores = 0, kAsPackets = 1 << 20;  // ProgramShape::packet_bytes

/// Four operations in a row, in turns of some seeds.
void expect_right(const Job& job) {
  for (unsigned seed = 1; seed <= (job.ranks() > 4 ? 1u : 3u); ++seed) {
    PlanMachine machine({job, job, job, job});
    EXPECT_EQ(machine.run_in_turns(seed, machine.blocks()), "")
        << testing::describe(*find_algorithm(job.request().collective, job.plans[0].algorithm), job.request(),
                             job.layout, job.limits)
        << ", " << job.shape.blocks << " blocks, packets up to " << job.shape.packet_bytes << " B"
        << (job.in_place ? ", in place" : "") << ", seed " << seed;
  }
}

constexpr uint64_t kSlotBytes = 64 << 10;
const auto kShapes = {std::pair(kEager, kAsPackets), std::pair(kEager, kAsStores),
                      std::pair(kExposed, kAsPackets)};

class PlanKernel : public ::testing::TestWithParam<const Algorithm*> {};

TEST_P(PlanKernel, HasTheHostsBits) {
  const Algorithm& algorithm = *GetParam();
  int eager = 0, exposed = 0;
  for (const int ranks : {2, 3, 4, 5, 8})
    for (const uint64_t count : {1, 300})
      for (const uint32_t blocks : {1, 3})
        for (const auto& [limits, packet_bytes] : kShapes) {
          const Request request{
              .collective = algorithm.collective, .count = count, .element_bytes = 8, .root = ranks - 1};
          auto job = job_of(algorithm, request, ranks, limits,
                            {.blocks = blocks, .slot_bytes = kSlotBytes, .packet_bytes = packet_bytes});
          if (!job) continue;
          ++(limits.eager_intra_bytes > 0 ? eager : exposed);
          job->in_place = count == 300 && blocks == 3;
          expect_right(*job);
          if (HasFailure()) return;
        }
  EXPECT_GE(eager, 16) << "of 40";
  if (algorithm.name != "one_hop" && algorithm.name != "bruck") {
    EXPECT_GE(exposed + eager, 24) << "of 60";
  }
}

std::vector<const Algorithm*> collective_algorithms() {
  std::vector<const Algorithm*> all;
  for (const Algorithm& algorithm : algorithms())
    if (!is_transfer(algorithm.collective) && algorithm.name != "all_to_all" &&
        algorithm.name != "double_tree")
      all.push_back(&algorithm);
  return all;
}
std::string name_of_case(const ::testing::TestParamInfo<const Algorithm*>& info) {
  return fmt::format("{}_{}", name_of(info.param->collective), info.param->name);
}
INSTANTIATE_TEST_SUITE_P(Plan, PlanKernel, ::testing::ValuesIn(collective_algorithms()), name_of_case);

// ---- Several nodes

constexpr uint64_t kProxyBytes = 32 << 10;
const Limits kAcross{.eager_intra_bytes = 1 << 20, .eager_inter_bytes = kProxyBytes, .slice_bytes = 4096};
const Limits kExposedInside{.eager_intra_bytes = 0, .eager_inter_bytes = kProxyBytes, .slice_bytes = 4096};

const std::vector<topology::Layout> kClusters{
    topology::Layout::blocks(2, 1), topology::Layout::blocks(2, 2),    topology::Layout::blocks(2, 4),
    topology::Layout::blocks(3, 1), topology::Layout({0, 0, 0, 1, 1}), topology::Layout({0, 1, 0, 1})};

class PlanKernelAcross : public ::testing::TestWithParam<const Algorithm*> {};

TEST_P(PlanKernelAcross, HasTheHostsBits) {
  const Algorithm& algorithm = *GetParam();
  int done = 0;
  for (const topology::Layout& layout : kClusters)
    for (const uint64_t count : {1, 300})
      for (const uint32_t blocks : {1, 3})
        for (const Limits& limits : {kAcross, kExposedInside}) {
          const Request request{.collective = algorithm.collective,
                                .count = count,
                                .element_bytes = 8,
                                .root = layout.ranks() - 1};
          auto job = job_of(algorithm, request, layout, limits,
                            {.blocks = blocks, .slot_bytes = kSlotBytes, .proxy_slot_bytes = kProxyBytes});
          if (!job) continue;
          ++done;
          job->in_place = count == 300 && blocks == 3;
          expect_right(*job);
          if (HasFailure()) return;
        }
  RecordProperty("of_48", done);
  EXPECT_GE(done, 8) << "of 48";
}

/// All but those that stay on one node, and the one that exposes memory to other nodes whatever its length.
std::vector<const Algorithm*> algorithms_of_clusters() {
  std::vector<const Algorithm*> all;
  for (const Algorithm& algorithm : algorithms()) {
    const bool exposes = algorithm.collective == Collective::all_to_all && algorithm.name == "all_to_all";
    if (!is_transfer(algorithm.collective) && algorithm.name != "direct" && !exposes)
      all.push_back(&algorithm);
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Plan, PlanKernelAcross, ::testing::ValuesIn(algorithms_of_clusters()), name_of_case);

/// A root that nobody keeps back: what it sends must be sent before its slots are written again.
TEST(PlanKernelAcrossRow, OfBroadcastsAndSumsIsRight) {
  std::vector<Job> jobs;
  for (const auto& [collective, name] :
       {std::pair(Collective::broadcast, "one_hop"), std::pair(Collective::all_reduce, "all_to_all"),
        std::pair(Collective::broadcast, "binomial"), std::pair(Collective::scatter, "one_hop")})
    for (int times = 0; times < 4; ++times) {
      const Request request{.collective = collective, .count = 77, .element_bytes = 8, .root = 1};
      auto job = job_of(*find_algorithm(collective, name), request, topology::Layout::blocks(2, 2), kAcross,
                        {.blocks = 2, .slot_bytes = kSlotBytes, .proxy_slot_bytes = kProxyBytes});
      ASSERT_TRUE(job) << name;
      jobs.push_back(*job);
    }
  for (unsigned seed = 1; seed <= 20; ++seed) {
    PlanMachine machine(jobs);
    EXPECT_EQ(machine.run_in_turns(seed, machine.blocks()), "") << "seed " << seed;
    std::shuffle(jobs.begin(), jobs.end(), std::mt19937(seed));
  }
}

/// What a block says that has waited too long for another node, and what it waits for if it has time.
TEST(PlanKernelAcrossRow, AWaitForAnotherNodeThatIsTooLongIsReported) {
  const Request request{.collective = Collective::all_reduce, .count = 64, .element_bytes = 8};
  auto job =
      job_of(*find_algorithm(Collective::all_reduce, "one_hop"), request, topology::Layout::blocks(2, 2),
             kAcross, {.blocks = 2, .slot_bytes = kSlotBytes, .proxy_slot_bytes = kProxyBytes});
  ASSERT_TRUE(job);
  PlanMachine patient({*job});
  EXPECT_EQ(patient.run_in_turns(1, patient.blocks(), 3, 20'000), "");
  EXPECT_EQ(patient.host(0).abort, 0u);
  EXPECT_EQ(patient.host(0).begun, 1u);
  EXPECT_EQ(patient.host(0).ended, 0u);
  PlanMachine machine({*job});
  machine.set_timeout(1'000);
  EXPECT_EQ(machine.run_in_turns(1, machine.blocks(), 3, 20'000), "");
  for (const int rank : {0, 1}) {  // whose node is not that of rank 3
    const device::cuda::PlanHost& host = machine.host(rank);
    EXPECT_EQ(host.ended, 1u);
    ASSERT_EQ(host.reported, 1u);
    EXPECT_EQ(host.report.peer, 3u);
    EXPECT_EQ(host.report.action, static_cast<uint32_t>(device::cuda::PlanAction::wait));
    EXPECT_EQ(host.report.epoch, 1u);
    EXPECT_EQ(host.report.seen, 0u);
  }
}

// ---- Arithmetic

/// An AllReduce and a ReduceScatter, by puts into slots and by reads of peers' memory.
void expect_right_sums(const Request& like, DataType type, ReduceOp op, double scale = 0) {
  for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter})
    for (const auto& [limits, packet_bytes] : kShapes) {
      Request request = like;
      request.collective = collective;
      request.element_bytes = static_cast<uint32_t>(device::size_of(type));
      const char* const name = limits.eager_intra_bytes > 0 ? "one_hop" : "direct";
      auto job = job_of(*find_algorithm(collective, name), request, 5, limits,
                        {.blocks = 2, .slot_bytes = kSlotBytes, .packet_bytes = packet_bytes});
      ASSERT_TRUE(job);
      job->type = type;
      job->op = op;
      job->scale = scale;
      if (scale == 0 || limits.eager_intra_bytes > 0) expect_right(*job);
    }
}

TEST(PlanKernelSums, OfFloatsAreTheHosts) {
  for (const DataType type : {DataType::float32, DataType::bfloat16})
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) expect_right_sums({.count = 131}, type, op);
}
TEST(PlanKernelSums, InStrictOrderAreTheHosts) {
  expect_right_sums({.count = 131, .strict = true}, DataType::float32, ReduceOp::sum);
  expect_right_sums({.count = 131, .strict = true}, DataType::bfloat16, ReduceOp::sum);
}
TEST(PlanKernelSums, AveragesAreTheHosts) {
  for (const DataType type : {DataType::float32, DataType::bfloat16, DataType::int32})
    expect_right_sums({.count = 131}, type, ReduceOp::avg);
}
/// Partial sums of several ranks weigh by their number, and only the last reduction divides.
TEST(PlanKernelSums, AveragesOfPartialSumsAreTheHosts) {
  for (const char* name : {"recursive_doubling", "binomial", "ring"})
    for (const DataType type : {DataType::float32, DataType::int32}) {
      auto job = job_of(*find_algorithm(Collective::all_reduce, name),
                        {.collective = Collective::all_reduce, .count = 131, .element_bytes = 4}, 5, kEager,
                        {.blocks = 2, .slot_bytes = kSlotBytes});
      ASSERT_TRUE(job) << name;
      job->type = type;
      job->op = ReduceOp::avg;
      expect_right(*job);
    }
}
TEST(PlanKernelSums, PreMultipliedAreTheHosts) {
  expect_right_sums({.count = 131}, DataType::float32, ReduceOp::sum, 0.3);
}

// ---- Operations that differ

/// Plans that use other flags, slots and lanes than the operation before.
TEST(PlanKernelRow, OfDifferentOperationsIsRight) {
  std::vector<Job> jobs;
  for (const auto& [collective, name] :
       {std::pair(Collective::broadcast, "one_hop"), std::pair(Collective::all_reduce, "recursive_doubling"),
        std::pair(Collective::all_gather, "ring"), std::pair(Collective::scatter, "one_hop"),
        std::pair(Collective::all_to_all, "bruck"), std::pair(Collective::reduce, "binomial")})
    for (const auto& [limits, packet_bytes] : kShapes)
      for (const uint32_t blocks : {1, 3}) {
        const Request request{.collective = collective, .count = 77, .element_bytes = 8, .root = 2};
        auto job = job_of(*find_algorithm(collective, name), request, 4, limits,
                          {.blocks = blocks, .slot_bytes = kSlotBytes, .packet_bytes = packet_bytes});
        if (job) jobs.push_back(*job);
      }
  ASSERT_GE(jobs.size(), 24u);
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::shuffle(jobs.begin(), jobs.end(), std::mt19937(seed));
    PlanMachine machine(jobs);
    EXPECT_EQ(machine.run_in_turns(seed, machine.blocks()), "") << "seed " << seed;
  }
}

/// With room for fewer blocks than all ranks have, a lane that waits may keep another from starting.
TEST(PlanKernelRow, NeedsRoomForAllBlocks) {
  const Request request{.collective = Collective::all_reduce, .count = 64, .element_bytes = 8};
  auto job = job_of(*find_algorithm(Collective::all_reduce, "one_hop"), request, 4, kEager, {.blocks = 2});
  ASSERT_TRUE(job);
  PlanMachine machine({*job});
  EXPECT_EQ(machine.run_in_turns(1, 2), "stuck in operation 0");
}

}  // namespace
}  // namespace weft::plan::plan_kernel_test
