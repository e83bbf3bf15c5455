// A connection over TCP that is read again and again comes to allocate nothing, whoever sleeps in between.
#include <gtest/gtest.h>

#include "transport/tcp_cluster.h"
#include "transport/tcp_transport.h"
// clang-format off
#include "allocations.h"  // behind headers that declare what it defines
// clang-format on

namespace weft::transport {
namespace {

#ifdef WEFT_COUNTS_ALLOCATIONS
// The list of connections that are read without being watched lost its memory at each sleep.
TEST(TcpAllocation, AConnectionThatIsReadAgainAfterASleepAllocatesNothing) {
  constexpr uint32_t kMany = 200;  // messages, after which a connection is not watched any more
  TcpCluster cluster(2);
  RecordingSink& sink = cluster.sink(1);
  sink.arrivals.reserve(10 * kMany);
  for (int round = 0; round < 5; ++round) {
    if (round == 2) testing::AllocationCounter::begin();
    for (uint32_t i = 0; i < kMany; ++i) {
      const size_t expected = sink.arrivals.size() + 1;
      ASSERT_EQ(Progress::accepted, *cluster[0].send(1, envelope(kMessage, i, 0), nullptr));
      while (sink.arrivals.size() < expected) {
        ASSERT_TRUE(cluster[0].poll(cluster.sink(0)).ok());
        ASSERT_TRUE(cluster[1].poll(sink).ok());
      }
    }
    ASSERT_TRUE(cluster[1].prepare_sleep());
    cluster[1].finish_sleep();
  }
  EXPECT_EQ(testing::AllocationCounter::end().all(), 0);
}
#endif

}  // namespace
}  // namespace weft::transport
