// The schedule of uneven collectives: proved by the verifier and executed on data, for blocks of all sizes.
#include "plan/uneven.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "plan/execute.h"
#include "plan/plans.h"

namespace weft::plan {
namespace {

using testing::Bytes;
using topology::Layout;

const Layout kLayouts[] = {Layout({0}),
                           Layout({0, 0}),
                           Layout({0, 1}),
                           Layout({0, 0, 0, 0}),
                           Layout({0, 1, 0, 1}),
                           Layout({0, 0, 1, 2, 2, 2}),
                           Layout({0, 1, 2, 3, 4})};
const Limits kLimits[] = {
    testing::kShortIsEager,
    {.eager_intra_bytes = 0, .eager_inter_bytes = 0, .slice_bytes = 512},
    {.eager_intra_bytes = 1 << 20, .eager_inter_bytes = 64, .eager_incast_bytes = 32, .slice_bytes = 1024}};
constexpr uint32_t kElement = 4;

/// Counts of every kind: none, short, and long ones.
std::vector<uint64_t> random_counts(size_t n, std::mt19937& random) {
  constexpr uint64_t kinds[] = {0, 1, 7, 300, 3000};
  std::vector<uint64_t> counts;
  for (size_t i = 0; i < n; ++i) counts.push_back(kinds[random() % 5]);
  return counts;
}

/// Places with gaps between the blocks, in another order than the ranks'.
std::vector<uint64_t> places_of(const std::vector<uint64_t>& counts, std::mt19937& random) {
  std::vector<size_t> order(counts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  std::vector<uint64_t> begins(counts.size());
  uint64_t next = 0;
  for (const size_t r : order) {
    next += random() % 3;
    begins[r] = next;
    next += counts[r];
  }
  return begins;
}

/// What all ranks are asked for, and what each of them counts.
struct Call {
  std::vector<Request> requests;
  std::vector<std::vector<uint64_t>> counts;  // [from][to]
};

Call random_call(Collective collective, int ranks, std::mt19937& random) {
  const auto n = static_cast<size_t>(ranks);
  Call call;
  const std::vector<uint64_t> same = random_counts(n, random);
  for (size_t from = 0; from < n; ++from)
    call.counts.push_back(collective == Collective::all_gather       ? std::vector<uint64_t>(n, same[from])
                          : collective == Collective::reduce_scatter ? same
                                                                     : random_counts(n, random));
  for (size_t r = 0; r < n; ++r) {
    const std::vector<uint64_t> begins = places_of(same, random);
    const auto blocks = blocks_of(same.data(), begins.data(), ranks);
    if (collective == Collective::all_gather) {
      call.requests.push_back(uneven_gather(blocks, kElement, static_cast<int>(r)));
    } else if (collective == Collective::reduce_scatter) {
      call.requests.push_back(uneven_reduce_scatter(blocks, kElement, static_cast<int>(r)));
    } else {
      std::vector<uint64_t> taken;
      for (size_t from = 0; from < n; ++from) taken.push_back(call.counts[from][r]);
      const std::vector<uint64_t>& given = call.counts[r];
      const auto given_at = places_of(given, random), taken_at = places_of(taken, random);
      call.requests.push_back(uneven_all_to_all(blocks_of(given.data(), given_at.data(), ranks),
                                                blocks_of(taken.data(), taken_at.data(), ranks), kElement));
    }
  }
  return call;
}

std::vector<Plan> plans_of(const Call& call, const Layout& layout, const Limits& limits) {
  std::vector<Plan> plans;
  for (int rank = 0; rank < layout.ranks(); ++rank)
    plans.push_back(make_uneven(call.requests[static_cast<size_t>(rank)], layout, limits, rank));
  return plans;
}

class UnevenPlans : public ::testing::TestWithParam<Collective> {};
INSTANTIATE_TEST_SUITE_P(Every, UnevenPlans,
                         ::testing::Values(Collective::all_gather, Collective::reduce_scatter,
                                           Collective::all_to_all),
                         [](const auto& collective) { return name_of(collective.param); });

TEST_P(UnevenPlans, AreProved) {
  std::mt19937 random(7);
  for (const Layout& layout : kLayouts)
    for (const Limits& limits : kLimits)
      for (int round = 0; round < 12; ++round) {
        Call call = random_call(GetParam(), layout.ranks(), random);
        for (Request& request : call.requests) request.strict = round % 2 == 1 && reduces(GetParam());
        const std::vector<Plan> plans = plans_of(call, layout, limits);
        for (const bool in_place : {false, true}) {
          if (in_place && GetParam() == Collective::all_to_all) continue;
          const Status proved = verify(plans, layout, limits, in_place);
          ASSERT_TRUE(proved.ok()) << proved.message() << "\n" << layout.to_string() << to_string(plans[0]);
        }
      }
}

/// Element k of what `from` gives to `to`.
int32_t element(int from, int to, uint64_t k) {
  return static_cast<int32_t>(from * 1'000'003 + to * 10'007 + static_cast<int>(k));
}

TEST_P(UnevenPlans, GiveEveryoneWhatBelongsThere) {
  std::mt19937 random(8);
  for (const Layout& layout : kLayouts)
    for (const Limits& limits : kLimits) {
      const Call call = random_call(GetParam(), layout.ranks(), random);
      const int ranks = layout.ranks();
      std::vector<Bytes> inputs;
      for (int r = 0; r < ranks; ++r) {
        const Request& request = call.requests[static_cast<size_t>(r)];
        Bytes input(input_bytes(request, ranks, r), '\x55');
        for (int to = 0; to < ranks; ++to) {
          const SharedBlock block = shared_block(request, Space::input, to);
          for (uint64_t k = 0; k < block.bytes / kElement; ++k) {
            const int32_t value = element(r, GetParam() == Collective::all_gather ? 0 : to, k);
            std::memcpy(&input[block.begin + k * kElement], &value, kElement);
          }
        }
        inputs.push_back(std::move(input));
      }
      const std::vector<Bytes> outputs = testing::Execution(plans_of(call, layout, limits), inputs,
                                                            device::DataType::int32, device::ReduceOp::sum)
                                             .run();
      for (int r = 0; r < ranks; ++r)
        for (int from = 0; from < ranks; ++from) {
          const SharedBlock block = shared_block(call.requests[static_cast<size_t>(r)], Space::output, from);
          for (uint64_t k = 0; k < block.bytes / kElement; ++k) {
            int32_t expected = element(from, GetParam() == Collective::all_gather ? 0 : r, k), got = 0;
            if (GetParam() == Collective::reduce_scatter) {
              expected = 0;
              for (int q = 0; q < ranks; ++q) expected += element(q, r, k);
            }
            std::memcpy(&got, &outputs[static_cast<size_t>(r)][block.begin + k * kElement], kElement);
            ASSERT_EQ(got, expected) << layout.to_string() << " rank " << r << " from " << from << " at "
                                     << k;
          }
        }
    }
}

// ---- What the verifier sees

TEST(UnevenVerifier, SeesCountsThatDoNotMeet) {
  const Layout layout({0, 0});
  const uint64_t three[] = {3, 3};
  const Call call{{uneven_all_to_all(blocks_of(three, nullptr, 2), blocks_of(three, nullptr, 2), kElement),
                   uneven_all_to_all(blocks_of(three, nullptr, 2), blocks_of(three, nullptr, 2), kElement)},
                  {}};
  EXPECT_TRUE(verify(plans_of(call, layout, kLimits[0]), layout, kLimits[0], false).ok());
  const uint64_t five[] = {5, 3};
  const Call wrong{{call.requests[0],
                    uneven_all_to_all(blocks_of(five, nullptr, 2), blocks_of(three, nullptr, 2), kElement)},
                   {}};
  const Status refused = verify(plans_of(wrong, layout, kLimits[0]), layout, kLimits[0], false);
  EXPECT_EQ(refused.code(), Code::mismatch);
  EXPECT_NE(refused.message().find("rank 1 gives 5 elements to rank 0, which takes 3"), std::string::npos)
      << refused.message();
}

// A region of a peer is counted from the shared block: what is right for the whole buffer is out of bounds.
TEST(UnevenVerifier, SeesWhatLeavesTheSharedBlock) {
  const Layout layout({0, 0});
  const uint64_t counts[] = {4, 4};
  Call call;
  for (int rank = 0; rank < 2; ++rank)
    call.requests.push_back(uneven_gather(blocks_of(counts, nullptr, 2), kElement, rank));
  std::vector<Plan> plans = plans_of(call, layout, testing::kShortIsEager);
  ASSERT_TRUE(verify(plans, layout, testing::kShortIsEager, false).ok());
  for (Step& step : plans[1].steps)
    if (step.kind == StepKind::put) step.dst.offset = 16;
  const Status refused = verify(plans, layout, testing::kShortIsEager, false);
  EXPECT_NE(refused.message().find("out of bounds, the buffer has 16 bytes"), std::string::npos)
      << refused.message();
}

// What lies between the blocks of an input was never given to anybody.
TEST(UnevenVerifier, SeesWhatIsReadBetweenBlocks) {
  const Layout layout({0, 1});
  const uint64_t counts[] = {4, 4}, begins[] = {0, 6};
  Call call;
  for (int rank = 0; rank < 2; ++rank)
    call.requests.push_back(uneven_reduce_scatter(blocks_of(counts, begins, 2), kElement, rank));
  std::vector<Plan> plans = plans_of(call, layout, testing::kShortIsEager);
  ASSERT_TRUE(verify(plans, layout, testing::kShortIsEager, false).ok());
  for (const Step& step : plans[0].steps)
    if (step.kind == StepKind::put) plans[0].regions[step.sources].offset -= kElement;
  const Status refused = verify(plans, layout, testing::kShortIsEager, false);
  EXPECT_NE(refused.message().find("which was never written"), std::string::npos) << refused.message();
}

TEST(UnevenPlan, IsAskedForByNoOtherAlgorithm) {
  const uint64_t counts[] = {4, 4};
  const Request request = uneven_gather(blocks_of(counts, nullptr, 2), kElement, 0);
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.collective != request.collective) continue;
    EXPECT_EQ(algorithm.fits(request, Layout({0, 0}), kLimits[0]).code(), Code::unsupported)
        << algorithm.name;
  }
}

TEST(UnevenCounts, AreDescribedToEachPeer) {
  const auto blocks = [](std::vector<uint64_t> counts) {
    return blocks_of(counts.data(), nullptr, static_cast<int>(counts.size()));
  };
  const Request of_0 = uneven_all_to_all(blocks({1, 2, 3}), blocks({1, 5, 6}), 4);
  EXPECT_EQ(describe_counts(of_0, 1), " (2 to rank 1, 5 from rank 1)");
  EXPECT_EQ(describe_counts_of_peer(of_0, 0, 1), " (5 to rank 0, 2 from rank 0)");
  const Request gather = uneven_gather(blocks({4, 0, 7}), 4, 2);
  EXPECT_EQ(describe_counts(gather, 1), " (4, 0, 7)");
  EXPECT_EQ(describe_counts_of_peer(gather, 2, 1), " (4, 0, 7)");
  EXPECT_EQ(describe_counts(uneven_reduce_scatter(blocks({4, 0, 7}), 4, 2), 1), " (4, 0, 7)");
  EXPECT_EQ(describe_counts(uneven_gather(blocks(std::vector<uint64_t>(17, 1)), 4, 0), 1),
            " (1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, …)");
  EXPECT_EQ(describe_counts({}, 1), "");
}

}  // namespace
}  // namespace weft::plan
