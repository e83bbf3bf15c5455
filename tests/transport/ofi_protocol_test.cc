// Immediates and incoming puts, without a network.
#include "transport/ofi_protocol.h"

#include <gtest/gtest.h>

namespace weft::transport::ofi {
namespace {

TEST(OfiImmediate, HoldsEveryRankOfEveryJob) {
  for (int ranks : {1, 2, 3, 8, 4095, 4096, 4097, 65'536, 1'000'000}) {
    const Immediate immediate(ranks);
    EXPECT_GE(immediate.window(), 2u) << ranks;
    for (uint32_t sender : {0u, static_cast<uint32_t>(ranks - 1), static_cast<uint32_t>(ranks / 2)})
      for (uint64_t first : {uint64_t{0}, uint64_t{1} << 31, (uint64_t{1} << 40) - 3})
        for (uint64_t ahead : {uint64_t{0}, uint64_t{1}, immediate.window() - 1}) {
          const uint32_t coded = immediate.encode(sender, first + ahead);
          EXPECT_EQ(immediate.sender(coded), sender) << ranks;
          EXPECT_EQ(immediate.sequence(coded, first), first + ahead) << ranks;
        }
  }
}

TEST(OfiIncomingPuts, RetireInOrderWhateverTheOrderOfArrival) {
  IncomingPuts puts;
  puts.finish(*puts.find(2, 8));
  puts.finish(*puts.find(1, 8));
  EXPECT_EQ(puts.first(), 0u);
  puts.finish(*puts.find(0, 8));
  EXPECT_EQ(puts.first(), 3u);
  EXPECT_EQ(puts.find(2, 8), nullptr) << "finished long ago";
  EXPECT_NE(puts.find(3 + 7, 8), nullptr);
  EXPECT_EQ(puts.find(3 + 8, 8), nullptr) << "beyond the window";
}

TEST(OfiIncomingPuts, IsWholeWhenAnnouncedAndAllStripesAreThere) {
  IncomingPut put;
  put.stripes_seen = 2;
  EXPECT_FALSE(put.striped_whole()) << "stripes overtook the announcement";
  put.announced = true;
  put.stripes_expected = 3;
  EXPECT_FALSE(put.striped_whole());
  put.stripes_seen = 3;
  EXPECT_TRUE(put.striped_whole());
}

TEST(OfiGreetings, ThereAreFewForAPeerThatDoesNotLook) {
  constexpr int64_t kMs = 1'000'000;
  Greetings greetings;
  int sent = 0;
  for (int64_t now = kMs; now < int64_t{3600} * 1000 * kMs; now += kMs) {
    if (!greetings.due(now)) continue;
    greetings.sent(now);
    ++sent;
  }
  EXPECT_GE(sent, 300) << "in an hour";
  EXPECT_LE(sent, 400);
}

TEST(OfiGreetings, HurryWhenThePeerIsAwake) {
  Greetings greetings;
  for (int64_t now = 0; now < 1'000'000'000; now += 1'000'000)
    if (greetings.due(now)) greetings.sent(now);
  EXPECT_FALSE(greetings.due(1'000'000'000));
  greetings.hurry();
  EXPECT_TRUE(greetings.due(1'000'000'000));
  greetings.sent(1'000'000'000);
  EXPECT_TRUE(greetings.due(1'005'000'000));
}

}  // namespace
}  // namespace weft::transport::ofi
