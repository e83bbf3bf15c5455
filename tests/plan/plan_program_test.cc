// Programs of the plan kernel: their instructions, and the plans that are refused.
#include "plan/plan_program.h"

#include <gtest/gtest.h>

#include "plan/uneven.h"
#include "plans.h"

namespace weft::plan::plan_program_test {
namespace {

using device::cuda::Instruction;
using device::cuda::PlanAction;
using device::cuda::PlanPlace;
using device::cuda::PlanProgram;
using testing::make_all;
using topology::Layout;

const Limits kEager{.eager_intra_bytes = 1 << 20, .eager_inter_bytes = 1 << 20};

PlanProgram program_of(const std::vector<Plan>& plans, int rank, const Limits& limits,
                       const ProgramShape& shape) {
  auto program = make_program(plans, rank, Layout::blocks(1, static_cast<int>(plans.size())), limits, shape);
  EXPECT_TRUE(program.ok()) << program.status().message();
  return program ? program.take() : PlanProgram{};
}

/// The reason, which every rank gives alike.
std::string refusal_of(const std::vector<Plan>& plans, const Layout& layout, const Limits& limits,
                       const ProgramShape& shape = {}) {
  std::string first;
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    const auto program = make_program(plans, rank, layout, limits, shape);
    EXPECT_EQ(program.status().code(), Code::unsupported);
    if (rank == 0) first = program.status().message();
    EXPECT_EQ(program.status().message(), first);
  }
  return first;
}

TEST(PlanProgram, OfAShortAllReduceHasPacketsInSlots) {
  const Request request{.collective = Collective::all_reduce, .count = 16, .element_bytes = 4};
  const auto plans = make_all("one_hop", request, Layout::blocks(1, 2), kEager);
  const PlanProgram program = program_of(plans, 0, kEager, {.blocks = 2});
  EXPECT_EQ(program.lanes, 1);
  EXPECT_EQ(program.blocks, 2);
  EXPECT_EQ(program.ordered, 0);
  ASSERT_EQ(program.lane_begin[1], 3);
  const Instruction &put = program.step[0], &wait = program.step[1], &reduce = program.step[2];
  EXPECT_EQ(put.action, PlanAction::put);
  EXPECT_EQ(put.flags, device::cuda::kEager | device::cuda::kPackets);
  EXPECT_EQ(put.peer, 1);
  EXPECT_EQ(put.bytes, 64u);
  EXPECT_EQ(put.src.bits, PlanPlace::of(0, 0, 0).bits);
  EXPECT_EQ(wait.action, PlanAction::wait);
  EXPECT_EQ(wait.flags, device::cuda::kEager | device::cuda::kPackets);
  EXPECT_EQ(wait.bytes, 64u);
  EXPECT_EQ(wait.dst.bits, PlanPlace::of(0, 2, 64).bits);  // rank 1's place in the scratch
  EXPECT_EQ(reduce.action, PlanAction::reduce);
  EXPECT_EQ(reduce.flags, device::cuda::kFinal);  // `after` its put: of the same lane, no flag
  EXPECT_EQ(reduce.sources, 2);
  EXPECT_EQ(program.source[1].bits, PlanPlace::of(0, 2, 64).bits);
  EXPECT_EQ(program.weight[1], 1);
}

TEST(PlanProgram, OfAPlanThatExposesTellsTheBuffersPlace) {
  const Request request{.collective = Collective::all_reduce, .count = 100, .element_bytes = 4};
  const auto plans = make_all("direct", request, Layout::blocks(1, 2), {});
  const PlanProgram program = program_of(plans, 0, {}, {});
  int told[2] = {}, learned[2] = {};
  for (int i = 0; i < program.lane_begin[program.lanes]; ++i) {
    const Instruction& step = program.step[i];
    if (!(step.flags & device::cuda::kExposes)) continue;
    EXPECT_EQ(step.dst.rank(), step.action == PlanAction::signal ? 0u : 1u);
    ++(step.action == PlanAction::signal ? told : learned)[step.dst.space()];
  }
  for (const int space : {0, 1}) {  // what the peer adds, and what it copies
    EXPECT_EQ(told[space], 1);
    EXPECT_EQ(learned[space], 1);
  }
}

TEST(PlanProgram, LongerPutsTravelAsStoresAndPutsShareTheSlotsOfAPair) {
  const Request request{.collective = Collective::all_to_all, .count = 5, .element_bytes = 4};
  const auto plans = make_all("bruck", request, Layout::blocks(1, 4), kEager);
  const PlanProgram stores = program_of(plans, 0, kEager, {.packet_bytes = 0});
  const PlanProgram packets = program_of(plans, 0, kEager, {});
  for (int i = 0; i < stores.lane_begin[1]; ++i) {
    const Instruction &one = stores.step[i], &other = packets.step[i];
    EXPECT_EQ(other.flags, one.flags & device::cuda::kEager ? one.flags | device::cuda::kPackets : one.flags);
    EXPECT_EQ(one.slot % 16, 0u);
  }
}

TEST(PlanProgram, AWaitKnowsWhatItsSenderPuts) {
  int pairs = 0;
  for (const Algorithm& algorithm : algorithms()) {
    const Request request{.collective = algorithm.collective, .count = 100, .element_bytes = 8};
    const Layout layout = Layout::blocks(1, 4);
    if (is_transfer(algorithm.collective) || !algorithm.fits(request, layout, kEager).ok()) continue;
    const auto plans = make_all(algorithm, request, layout, kEager);
    if (!make_program(plans, 0, layout, kEager, {}).ok()) continue;
    std::vector<PlanProgram> programs;
    for (int rank = 0; rank < 4; ++rank) programs.push_back(program_of(plans, rank, kEager, {}));
    const auto find = [&](int rank, bool sends, int peer, int tag) -> const Instruction* {
      for (const Instruction& step : programs[static_cast<size_t>(rank)].step)
        if (step.peer == peer && step.tag == tag && (step.action == PlanAction::wait) != sends &&
            (step.action <= PlanAction::wait) && step.peer != rank)
          return &step;
      return nullptr;
    };
    for (int rank = 0; rank < 4; ++rank)
      for (const Instruction& put : programs[static_cast<size_t>(rank)].step) {
        if (put.action != PlanAction::put || put.peer == rank) continue;
        const Instruction* wait = find(put.peer, false, rank, put.tag);
        ASSERT_NE(wait, nullptr) << algorithm.name;
        EXPECT_EQ(wait->slot, put.slot);
        EXPECT_EQ(wait->flags & (device::cuda::kEager | device::cuda::kPackets),
                  put.flags & (device::cuda::kEager | device::cuda::kPackets));
        if (put.flags & device::cuda::kEager) {
          EXPECT_EQ(wait->bytes, put.bytes);
          EXPECT_EQ(wait->dst.bits, put.dst.bits);
        }
        ++pairs;
      }
  }
  EXPECT_GT(pairs, 100);
}

TEST(PlanProgram, IsRefusedByAllRanksWithTheReason) {
  const Request request{.collective = Collective::all_gather, .count = 1 << 20, .element_bytes = 4};
  const auto plans = make_all("ring", request, Layout::blocks(1, 4), kEager);
  EXPECT_NE(refusal_of(plans, Layout::blocks(1, 4), kEager).find("and a plan kernel takes"),
            std::string::npos);
  const Request brief{.collective = Collective::all_gather, .count = 4, .element_bytes = 4};
  const auto two_nodes = make_all("one_hop", brief, Layout::blocks(2, 2), kEager);
  EXPECT_EQ(refusal_of(two_nodes, Layout::blocks(2, 2), kEager),
            "the plan has 16 bytes for one rank of another node, and a plan kernel takes 0");
  const auto long_put = make_all("one_hop", request, Layout::blocks(2, 2),
                                 {.eager_intra_bytes = 8 << 20, .eager_inter_bytes = 8 << 20});
  EXPECT_EQ(refusal_of(long_put, Layout::blocks(2, 2), kEager),
            "one_hop puts 4194304 bytes to another node at once, and a plan kernel 1048576");
  const auto exposing = make_all("ring", brief, Layout::blocks(2, 1), {});
  EXPECT_EQ(refusal_of(exposing, Layout::blocks(2, 1), {}),
            "ring exposes memory to another node, which a plan kernel does not");
  const auto many = make_all("one_hop", brief, Layout::blocks(1, 17), kEager);
  EXPECT_EQ(refusal_of(many, Layout::blocks(1, 17), kEager),
            "the plan has 17 ranks, and a plan kernel takes 16");
  const auto four = make_all("one_hop", brief, Layout::blocks(1, 4), kEager);
  EXPECT_EQ(refusal_of(four, Layout::blocks(1, 4), kEager, {.slot_bytes = 16}),
            "the plan has 32 bytes in slots of one rank, and a plan kernel takes 16");
}

TEST(PlanProgram, OfAPreMultipliedSumReadsAScaledCopy) {
  const Request request{.collective = Collective::reduce_scatter, .count = 4, .element_bytes = 4};
  auto plans = make_all("one_hop", request, Layout::blocks(1, 2), kEager);
  for (Plan& plan : plans) plan = with_scaled_input(plan).take();
  const PlanProgram program = program_of(plans, 1, kEager, {.blocks = 2, .scaled = true});
  EXPECT_EQ(program.step[0].action, PlanAction::scale);
  EXPECT_EQ(program.step[0].bytes, 32u);
  EXPECT_EQ(program.step[1].src.space(), 2u);                  // scratch
  EXPECT_NE(program.step[1].flags & device::cuda::kMeets, 0);  // it reads half of what was scaled
  const auto exposing = make_all("direct", request, Layout::blocks(1, 2), {});
  EXPECT_EQ(with_scaled_input(exposing[0]).status().code(), Code::unsupported);
}

}  // namespace
}  // namespace weft::plan::plan_program_test
