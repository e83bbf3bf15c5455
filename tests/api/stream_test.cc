// Waiting for a part of a stream.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <latch>

#include "api/ranks.h"

namespace weft::testing {
namespace {

TEST(Streams, SynchronizeToLeavesLaterOperationsAlone) {
  std::atomic<bool> first_is_over{false};
  run_ranks(blocks(2, 1), [&](Rank& me) {
    weftStream_t stream;
    WEFT_OK(weftStreamCreate(&stream));
    uint64_t none = 1, first = 0, second = 0;
    WEFT_OK(weftStreamGetPosition(stream, &none));
    EXPECT_EQ(none, 0u);
    WEFT_OK(weftStreamSynchronizeTo(stream, none));
    std::vector<float> x(1000, 1.f), y(100000, static_cast<float>(me.rank));
    WEFT_OK(weftAllReduce(x.data(), x.data(), x.size(), weftFloat, weftSum, me.comm, stream));
    WEFT_OK(weftStreamGetPosition(stream, &first));
    // Rank 1 joins in the second operation only when rank 0 has been told of the first one's end.
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (me.rank == 1 && !first_is_over && std::chrono::steady_clock::now() < limit)
      std::this_thread::yield();
    EXPECT_TRUE(me.rank == 0 || first_is_over);
    WEFT_OK(weftAllReduce(y.data(), y.data(), y.size(), weftFloat, weftMax, me.comm, stream));
    WEFT_OK(weftStreamGetPosition(stream, &second));
    EXPECT_EQ(first, 1u);
    EXPECT_EQ(second, 2u);
    WEFT_OK(weftStreamSynchronizeTo(stream, first));
    EXPECT_EQ(x[999], 2.f);
    if (me.rank == 0) {
      EXPECT_EQ(weftStreamQuery(stream), weftInProgress);
      first_is_over = true;
    }
    WEFT_OK(weftStreamSynchronizeTo(stream, second));
    EXPECT_EQ(y.back(), 1.f);
    WEFT_OK(weftStreamDestroy(stream));
  });
}

// Such a call may be over when it returns, or go on as any other; the stream counts it in both cases.
TEST(Streams, ShortCallsAmongOthersKeepTheirOrder) {
  run_ranks(blocks(1, 2), [](Rank& me) {
    weftStream_t stream;
    WEFT_OK(weftStreamCreate(&stream));
    std::vector<float> long_one(40000);
    std::atomic<int> called{0};
    for (uint64_t round = 1; round <= 300; ++round) {
      const auto value = static_cast<float>(round);
      float reduced = value, root_value = me.rank == 0 ? value : 0, other = 1;
      std::fill(long_one.begin(), long_one.end(), value);
      if (round % 40 == 0 && me.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      WEFT_OK(weftAllReduce(&reduced, &reduced, 1, weftFloat, weftSum, me.comm, stream));
      WEFT_OK(weftBcast(&root_value, 1, weftFloat, 0, me.comm, stream));
      WEFT_OK(weftAllReduce(long_one.data(), long_one.data(), round % 7 == 0 ? long_one.size() : 1, weftFloat,
                            weftSum, me.comm, stream));
      WEFT_OK(weftStreamNotify(
          stream,
          [](weftResult_t result, void* arg) {
            EXPECT_EQ(result, weftSuccess);
            ++*static_cast<std::atomic<int>*>(arg);
          },
          &called));
      WEFT_OK(weftAllReduce(&other, &other, 1, weftFloat, weftMax, me.comm, nullptr));
      uint64_t position = 0;
      WEFT_OK(weftStreamGetPosition(stream, &position));
      ASSERT_EQ(position, 3 * round);
      WEFT_OK(weftStreamSynchronizeTo(stream, position));
      ASSERT_EQ(reduced, 2 * value);
      ASSERT_EQ(root_value, value);
      ASSERT_EQ(long_one[0], 2 * value);
    }
    WEFT_OK(weftStreamDestroy(stream));
    EXPECT_EQ(called, 300);
  });
}

TEST(Streams, AFailureOfAShortCallIsToldByTheStream) {
  std::latch succeeded(2);
  run_ranks(blocks(1, 2), [&](Rank& me) {
    weftStream_t stream;
    WEFT_OK(weftStreamCreate(&stream));
    float value = 1;
    for (int i = 0; i < 20; ++i)
      WEFT_OK(weftAllReduce(&value, &value, 1, weftFloat, weftMax, me.comm, stream));
    WEFT_OK(weftStreamSynchronize(stream));
    succeeded.arrive_and_wait();
    if (me.rank == 1) {
      WEFT_OK(weftCommAbort(me.comm));
      me.comm = nullptr;
    } else {
      const weftResult_t called = weftAllReduce(&value, &value, 1, weftFloat, weftMax, me.comm, stream);
      EXPECT_EQ(called != weftSuccess ? called : weftStreamSynchronize(stream), weftRemoteError);
    }
    WEFT_OK(weftStreamDestroy(stream));
  });
}

TEST(Streams, APositionThatTheStreamHasNotHadIsRefused) {
  weftStream_t stream;
  WEFT_OK(weftStreamCreate(&stream));
  EXPECT_EQ(weftStreamSynchronizeTo(stream, 1), weftInvalidArgument);
  EXPECT_NE(std::string(weftGetLastError(nullptr)).find("has had 0 operations"), std::string::npos)
      << weftGetLastError(nullptr);
  EXPECT_EQ(weftStreamGetPosition(stream, nullptr), weftInvalidPointer);
  EXPECT_EQ(weftStreamSynchronizeTo(nullptr, 0), weftInvalidPointer);
  WEFT_OK(weftStreamDestroy(stream));
}

}  // namespace
}  // namespace weft::testing
