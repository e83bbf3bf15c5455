// AllGatherV, ReduceScatterV and AlltoAllV.
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>

#include "api/ranks.h"

namespace weft::testing {
namespace {

/// Counts of every kind; the same on every rank that draws them with one seed.
std::vector<size_t> counts_of(int ranks, unsigned seed) {
  constexpr size_t kinds[] = {0, 1, 13, 900, 40'000, 300'000};
  std::mt19937 random(seed);
  std::vector<size_t> counts;
  for (int r = 0; r < ranks; ++r) counts.push_back(kinds[random() % 6]);
  return counts;
}

/// Places in the ranks' opposite order, with gaps; of each rank its own.
std::vector<size_t> places_of(const std::vector<size_t>& counts, int rank) {
  std::vector<size_t> places(counts.size());
  size_t next = static_cast<size_t>(rank);
  for (size_t r = counts.size(); r-- > 0;) {
    places[r] = next;
    next += counts[r] + static_cast<size_t>(rank) + 1;
  }
  return places;
}

size_t extent(const std::vector<size_t>& counts, const std::vector<size_t>& places) {
  size_t end = 0;
  for (size_t r = 0; r < counts.size(); ++r) end = std::max(end, places[r] + counts[r]);
  return end + 1;
}

constexpr int32_t kUntouched = -77;

/// Element k of what `from` gives to `to`.
int32_t element(int from, int to, size_t k) {
  return static_cast<int32_t>(from * 1'000'003 + to * 10'007 + static_cast<int>(k % 4096));
}

class Uneven : public ::testing::TestWithParam<Nodes> {};

INSTANTIATE_TEST_SUITE_P(Layouts, Uneven,
                         ::testing::Values(blocks(1, 1), blocks(1, 2), blocks(1, 3), blocks(2, 1),
                                           blocks(2, 2), Nodes{"a", "b", "a", "c"}),
                         [](const auto& layout) {
                           std::string name;
                           for (const auto& node : layout.param) name += node.back();
                           return name;
                         });

TEST_P(Uneven, AllGathers) {
  run_ranks(GetParam(), [](Rank& me) {
    for (unsigned seed = 1; seed <= 6; ++seed) {
      const std::vector<size_t> counts = counts_of(me.size, seed), places = places_of(counts, me.rank);
      std::vector<int32_t> all(extent(counts, places), kUntouched), own(counts[me.rank] + 1);
      for (size_t k = 0; k < counts[me.rank]; ++k) own[k] = element(me.rank, 0, k);
      const bool in_place = seed % 2 == 0;
      if (in_place)
        std::copy_n(own.begin(), counts[me.rank], all.begin() + static_cast<long>(places[me.rank]));
      WEFT_OK(weftAllGatherV(in_place ? &all[places[me.rank]] : own.data(), all.data(), counts.data(),
                             places.data(), weftInt32, me.comm, nullptr));
      size_t written = 0;
      for (int r = 0; r < me.size; ++r)
        for (size_t k = 0; k < counts[r]; ++k, ++written)
          ASSERT_EQ(all[places[r] + k], element(r, 0, k))
              << "seed " << seed << " of rank " << r << " at " << k;
      EXPECT_EQ(static_cast<size_t>(std::count(all.begin(), all.end(), kUntouched)), all.size() - written);
    }
  });
}

TEST_P(Uneven, ReduceScatters) {
  run_ranks(GetParam(), [](Rank& me) {
    for (unsigned seed = 1; seed <= 6; ++seed) {
      const std::vector<size_t> counts = counts_of(me.size, seed), places = places_of(counts, me.rank);
      std::vector<int32_t> in(extent(counts, places), kUntouched), own(counts[me.rank] + 1);
      for (int r = 0; r < me.size; ++r)
        for (size_t k = 0; k < counts[r]; ++k) in[places[r] + k] = element(me.rank, r, k);
      int32_t* const out = seed % 2 == 0 ? &in[places[me.rank]] : own.data();
      WEFT_OK(weftReduceScatterV(in.data(), out, counts.data(), places.data(), weftInt32, weftSum, me.comm,
                                 nullptr));
      for (size_t k = 0; k < counts[me.rank]; ++k) {
        int32_t expected = 0;
        for (int r = 0; r < me.size; ++r) expected += element(r, me.rank, k);
        ASSERT_EQ(out[k], expected) << "seed " << seed << " at " << k;
      }
    }
  });
}

TEST_P(Uneven, AlltoAlls) {
  run_ranks(GetParam(), [](Rank& me) {
    weftStream_t stream;
    WEFT_OK(weftStreamCreate(&stream));
    for (unsigned seed = 1; seed <= 8; ++seed) {
      std::vector<size_t> sends = counts_of(me.size, seed * 100 + static_cast<unsigned>(me.rank)), receives;
      for (int r = 0; r < me.size; ++r)
        receives.push_back(counts_of(me.size, seed * 100 + static_cast<unsigned>(r))[me.rank]);
      std::vector<size_t> from = places_of(sends, me.rank), to = places_of(receives, me.rank + 1);
      std::vector<int32_t> in(extent(sends, from)), out(extent(receives, to), kUntouched);
      for (int r = 0; r < me.size; ++r)
        for (size_t k = 0; k < sends[r]; ++k) in[from[r] + k] = element(me.rank, r, k);
      // Counts are read before the call returns.
      std::vector<size_t> given = sends, taken = receives, given_at = from, taken_at = to;
      WEFT_OK(weftAlltoAllV(in.data(), given.data(), given_at.data(), out.data(), taken.data(),
                            taken_at.data(), weftInt32, me.comm, seed % 2 == 0 ? stream : nullptr));
      std::fill(given.begin(), given.end(), 1);
      std::fill(taken_at.begin(), taken_at.end(), 1);
      WEFT_OK(weftStreamSynchronize(stream));
      size_t written = 0;
      for (int r = 0; r < me.size; ++r)
        for (size_t k = 0; k < receives[r]; ++k, ++written)
          ASSERT_EQ(out[to[r] + k], element(r, me.rank, k))
              << "seed " << seed << " from " << r << " at " << k;
      EXPECT_EQ(static_cast<size_t>(std::count(out.begin(), out.end(), kUntouched)), out.size() - written);
    }
    WEFT_OK(weftStreamDestroy(stream));
  });
}

// Blocks one behind the other, and beside other calls in a group.
TEST_P(Uneven, WorksPackedAndInAGroup) {
  run_ranks(GetParam(), [](Rank& me) {
    std::vector<size_t> counts;
    for (int r = 0; r < me.size; ++r) counts.push_back(static_cast<size_t>(r) * 5);
    const size_t total = std::accumulate(counts.begin(), counts.end(), size_t{0});
    std::vector<double> all(total + 1), own(counts[me.rank] + 1, me.rank), sum(counts[me.rank] + 1),
        in(total + 1, 2);
    float x = 1;
    WEFT_OK(weftGroupStart());
    WEFT_OK(weftAllGatherV(own.data(), all.data(), counts.data(), nullptr, weftDouble, me.comm, nullptr));
    WEFT_OK(weftAllReduce(&x, &x, 1, weftFloat, weftSum, me.comm, nullptr));
    WEFT_OK(weftReduceScatterV(in.data(), sum.data(), counts.data(), nullptr, weftDouble, weftAvg, me.comm,
                               nullptr));
    WEFT_OK(weftGroupEnd());
    size_t at = 0;
    for (int r = 0; r < me.size; ++r)
      for (size_t k = 0; k < counts[r]; ++k) ASSERT_EQ(all[at++], r);
    for (size_t k = 0; k < counts[me.rank]; ++k) ASSERT_EQ(sum[k], 2.0);
    EXPECT_EQ(x, static_cast<float>(me.size));
  });
}

TEST(UnevenReductions, HaveOperatorsWithScalars) {
  run_ranks(blocks(2, 1), [](Rank& me) {
    const size_t counts[] = {3, 50'000};
    float factor = static_cast<float>(me.rank + 1);
    weftRedOp_t op;
    WEFT_OK(weftRedOpCreatePreMulSum(&op, &factor, weftFloat, weftScalarHostImmediate, me.comm));
    std::vector<float> in(50'003, 2.f), out(counts[me.rank]);
    WEFT_OK(weftReduceScatterV(in.data(), out.data(), counts, nullptr, weftFloat, op, me.comm, nullptr));
    for (const float x : out) ASSERT_EQ(x, 6.f);
    WEFT_OK(weftRedOpDestroy(op, me.comm));
  });
}

/// Two blocks of memory, with between them a gap that nobody may read.
class BlocksApart {
 public:
  BlocksApart()
      : data_(mmap(nullptr, 2 * kGap, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    EXPECT_NE(data_, MAP_FAILED);
    for (const size_t place : kPlaces)
      EXPECT_EQ(mprotect(data() + place, kCount * sizeof(float), PROT_READ | PROT_WRITE), 0);
  }
  ~BlocksApart() { munmap(data_, 2 * kGap); }
  BlocksApart(const BlocksApart&) = delete;
  BlocksApart& operator=(const BlocksApart&) = delete;

  float* data() const { return static_cast<float*>(data_); }

  static constexpr size_t kGap = 64 << 20, kCount = 256 << 10;  // bytes; elements
  static constexpr size_t kPlaces[] = {0, kGap / sizeof(float)};

 private:
  void* const data_;
};

TEST(UnevenReductions, ReadNothingBetweenBlocks) {
  for (const Nodes& nodes : {blocks(1, 2), blocks(2, 1)})
    run_ranks(nodes, [](Rank& me) {
      const BlocksApart in;
      for (const size_t place : BlocksApart::kPlaces)
        std::fill_n(in.data() + place, BlocksApart::kCount, 2.f);
      float factor = 3;
      weftRedOp_t scaled;
      WEFT_OK(weftRedOpCreatePreMulSum(&scaled, &factor, weftFloat, weftScalarHostImmediate, me.comm));
      const size_t counts[] = {BlocksApart::kCount, BlocksApart::kCount};
      std::vector<float> out(BlocksApart::kCount);
      for (const weftRedOp_t op : {weftSum, scaled}) {
        WEFT_OK(weftReduceScatterV(in.data(), out.data(), counts, BlocksApart::kPlaces, weftFloat, op,
                                   me.comm, nullptr));
        for (const float x : out) ASSERT_EQ(x, op == scaled ? 12.f : 4.f);
      }
      WEFT_OK(weftRedOpDestroy(scaled, me.comm));
    });
}

/// The ranks' calls do not fit. Each rank's call fails with an error that has `sentence`, and nobody hangs.
/// Some rank's error has `counts`.
void expect_mismatch(const Nodes& nodes, const std::function<weftResult_t(Rank&)>& call, const char* sentence,
                     const std::string& counts) {
  std::atomic<int> told{0}, counted{0};
  run_ranks(nodes, [&](Rank& me) {
    const weftResult_t result = call(me);
    EXPECT_TRUE(result == weftMismatch || result == weftRemoteError) << result;
    const std::string why = weftGetLastError(me.comm);
    told += why.find(sentence) != std::string::npos;
    counted += why.find(counts) != std::string::npos;
    EXPECT_NE(why.find("rank"), std::string::npos);
    WEFT_OK(weftCommAbort(me.comm));
    me.comm = nullptr;
  });
  EXPECT_EQ(told, static_cast<int>(nodes.size()));
  EXPECT_GT(counted, 0) << "nobody said: " << counts;
}

TEST_P(Uneven, CountsThatDoNotMeetAreToldByName) {
  if (GetParam().size() < 2) GTEST_SKIP() << "a rank alone meets nobody";
  for (const size_t wrong : {size_t{0}, size_t{20}, size_t{200'000}})
    expect_mismatch(
        GetParam(),
        [&](Rank& me) {
          std::vector<size_t> sends(static_cast<size_t>(me.size), 10), receives = sends;
          if (me.rank == 0) sends[1] = wrong;
          std::vector<int32_t> in(200'000 + 10 * static_cast<size_t>(me.size)),
              out(10 * static_cast<size_t>(me.size));
          const weftResult_t result = weftAlltoAllV(in.data(), sends.data(), nullptr, out.data(),
                                                    receives.data(), nullptr, weftInt32, me.comm, nullptr);
          if (result != weftSuccess) return result;
          // A pair that fits may be through before the others know.
          return weftAllReduce(in.data(), in.data(), 1, weftInt32, weftSum, me.comm, nullptr);
        },
        "AlltoAllV of int32",
        fmt::format("rank 0 called AlltoAllV of int32 ({} to rank 1, 10 from rank 1)", wrong));
}

TEST(UnevenMismatch, OfAnEvenCall) {
  expect_mismatch(
      blocks(2, 1),
      [](Rank& me) {
        const size_t counts[] = {5, 5};
        std::vector<int32_t> in(5), out(10);
        return me.rank == 0
                   ? weftAllGather(in.data(), out.data(), 5, weftInt32, me.comm, nullptr)
                   : weftAllGatherV(in.data(), out.data(), counts, nullptr, weftInt32, me.comm, nullptr);
      },
      "AllGatherV of 10 int32", "rank 1 called AllGatherV of 10 int32 (5, 5)");
}

TEST(UnevenMismatch, OfTheCountsOfAnAllGather) {
  expect_mismatch(
      blocks(1, 2),
      [](Rank& me) {
        const size_t counts[] = {me.rank == 0 ? 5u : 6u, me.rank == 0 ? 6u : 5u};
        std::vector<int32_t> in(6), out(11);
        return weftAllGatherV(in.data(), out.data(), counts, nullptr, weftInt32, me.comm, nullptr);
      },
      "AllGatherV of 11 int32", "rank 1 called AllGatherV of 11 int32 (6, 5)");
}

TEST(UnevenArguments, ThatMakeNoSenseAreRefused) {
  run_ranks(blocks(1, 2), [](Rank& me) {
    std::vector<int32_t> in(100), out(100);
    const size_t counts[] = {10, 10}, over[] = {0, 5}, huge[] = {size_t{1} << 62, 1};
    const auto says = [](const char* text) {
      return std::string(weftGetLastError(nullptr)).find(text) != std::string::npos;
    };
    EXPECT_EQ(weftAllGatherV(in.data(), out.data(), nullptr, nullptr, weftInt32, me.comm, nullptr),
              weftInvalidPointer);
    EXPECT_TRUE(says("recvcounts is NULL, must point to 2 counts")) << weftGetLastError(nullptr);
    EXPECT_EQ(weftAllGatherV(in.data(), out.data(), counts, over, weftInt32, me.comm, nullptr),
              weftInvalidArgument);
    EXPECT_TRUE(says("displs[1] is 5, inside of the block of rank 0, [0, 10)")) << weftGetLastError(nullptr);
    EXPECT_EQ(weftAllGatherV(in.data(), out.data(), huge, nullptr, weftInt32, me.comm, nullptr),
              weftInvalidCount);
    EXPECT_EQ(weftAllGatherV(nullptr, out.data(), counts, nullptr, weftInt32, me.comm, nullptr),
              weftInvalidPointer);
    EXPECT_EQ(weftAllGatherV(in.data(), out.data(), counts, nullptr, static_cast<weftDataType_t>(40), me.comm,
                             nullptr),
              weftInvalidType);
    EXPECT_EQ(weftAllGatherV(in.data(), out.data(), counts, nullptr, weftInt32, nullptr, nullptr),
              weftInvalidComm);
    EXPECT_EQ(weftReduceScatterV(in.data(), nullptr, counts, nullptr, weftInt32, weftSum, me.comm, nullptr),
              weftInvalidPointer);
    EXPECT_EQ(
        weftReduceScatterV(in.data(), out.data(), counts, nullptr, weftFloat, weftBand, me.comm, nullptr),
        weftInvalidOp);
    EXPECT_EQ(
        weftAlltoAllV(in.data(), counts, nullptr, in.data(), counts, nullptr, weftInt32, me.comm, nullptr),
        weftInvalidArgument);
    EXPECT_TRUE(says("cannot be in place")) << weftGetLastError(nullptr);
    size_t mine[] = {10, 10};
    mine[me.rank] = 9;
    EXPECT_EQ(
        weftAlltoAllV(in.data(), mine, nullptr, out.data(), counts, nullptr, weftInt32, me.comm, nullptr),
        weftInvalidArgument);
    EXPECT_TRUE(says("they must be equal")) << weftGetLastError(nullptr);
    // Nothing of that has begun.
    WEFT_OK(weftAllReduce(in.data(), in.data(), 1, weftInt32, weftSum, me.comm, nullptr));
  });
}

}  // namespace
}  // namespace weft::testing
