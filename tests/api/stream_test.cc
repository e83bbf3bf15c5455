// Waiting for a part of a stream.
#include <atomic>
#include <chrono>

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
