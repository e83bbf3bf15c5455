// Interfaces as servers: what they carry at once after a pause.
#include "model/network.h"

#include <gtest/gtest.h>

#include "model/plain_machine.h"

namespace weft::model {
namespace {

constexpr double kBytes = 1000;  // 10 µs at the plain machine's rate

double end_of(Network& network, double at_us, double bytes = kBytes) {
  return network.egress(0, 0, 1, at_us, bytes).end_us;
}

Network network_with(double burst_bytes) {
  Machine machine = plain_machine();
  machine.burst_bytes = burst_bytes;
  return Network(machine, 2, {});
}

// A shaped line lets what nobody sent be sent later: exchanges of 16 KiB on four and eight nodes take what
// their bytes do, and were predicted to take their latencies besides.
TEST(Network, ABurstMakesUpForIdleTime) {
  Network network = network_with(kBytes / 2);
  EXPECT_DOUBLE_EQ(10, end_of(network, 0)) << "nothing was saved before the beginning";
  EXPECT_DOUBLE_EQ(20, end_of(network, 13)) << "3 µs of idle time";
  EXPECT_DOUBLE_EQ(105, end_of(network, 100)) << "no more than half of the bytes";
  EXPECT_DOUBLE_EQ(115, end_of(network, 100)) << "the next one waits as ever";
}

TEST(Network, ABurstIsNotTakenByNotifications) {
  Network network = network_with(kBytes);
  EXPECT_DOUBLE_EQ(100, network.egress(0, 0, 1, 100, 0).end_us);
  EXPECT_DOUBLE_EQ(100, end_of(network, 100));
}

TEST(Network, WithoutBurstsIdleTimeIsLost) {
  Network network = network_with(0);
  EXPECT_DOUBLE_EQ(10, end_of(network, 0));
  EXPECT_DOUBLE_EQ(23, end_of(network, 13));
}

}  // namespace
}  // namespace weft::model
