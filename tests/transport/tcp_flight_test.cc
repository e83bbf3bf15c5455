// What is on its way at once over a connection, and who decides how fast it goes.
#include <gtest/gtest.h>
#include <linux/tcp.h>

#include <string>

#include "transport/tcp_cluster.h"

namespace weft::transport {
namespace {

constexpr size_t kFlightBytes = 128 << 10;

class TcpFlight : public testing::Test {
 protected:
  static size_t buffer_of(int fd) {
    int bytes = 0;
    socklen_t length = sizeof(bytes);
    EXPECT_EQ(0, ::getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, &length));
    return static_cast<size_t>(bytes);
  }

  static std::string congestion_control_of(int fd) {
    char name[16] = {};
    socklen_t length = sizeof(name) - 1;
    EXPECT_EQ(0, ::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length));
    return name;
  }
};

// Four nodes on a switch, six streams into each: the kernel's choice of 4 MiB a connection filled the
// switch's queue, and AllReduces waited for lost packets longer than for everything else.
TEST_F(TcpFlight, IsBoundedOnLinesThatAreThereAndOnNewOnes) {
  TcpCluster cluster(2, puts_apart());
  ASSERT_EQ(Progress::accepted, *cluster[0].send(1, envelope(kMessage, 1, 0), nullptr));
  ASSERT_EQ(1u, cluster.opened.size());
  cluster[0].bound_flight(kFlightBytes);
  EXPECT_EQ(kFlightBytes, buffer_of(cluster.opened[0].fd));
  cluster.put(0, 1, 2, 16 << 20);
  ASSERT_EQ(2u, cluster.opened.size());
  EXPECT_EQ(kFlightBytes, buffer_of(cluster.opened[1].fd));
}

// 64 KiB and a header do not fit into 64 KiB: AllReduces of 1 MiB on 8 nodes of two ranks, whose messages
// have 64 KiB each, waited for a round trip through full queues in every message.
TEST_F(TcpFlight, OfMessagesHasRoomForTwoOfTheLongest) {
  TcpCluster cluster(2, puts_apart());
  cluster[0].bound_flight(kFlightBytes / 2);
  ASSERT_EQ(Progress::accepted, *cluster[0].send(1, envelope(kMessage, 1, 0), nullptr));
  ASSERT_TRUE(cluster.poll_until([&] { return cluster.sink(1).arrivals.size() == 1; }));
  cluster.put(0, 1, 2, 16 << 20);
  ASSERT_EQ(2u, cluster.opened.size());
  EXPECT_EQ(2 * cluster[0].eager_bytes(), buffer_of(cluster.opened[0].fd));
  EXPECT_EQ(kFlightBytes / 2, buffer_of(cluster.opened[1].fd));
}

TEST_F(TcpFlight, IsTheKernelsChoiceWithoutABound) {
  TcpCluster cluster(2);
  ASSERT_EQ(Progress::accepted, *cluster[0].send(1, envelope(kMessage, 1, 0), nullptr));
  const size_t before = buffer_of(cluster.opened[0].fd);
  cluster[0].bound_flight(0);
  EXPECT_EQ(before, buffer_of(cluster.opened[0].fd));
  // More than any host allows: a buffer as large as it does allow would be the wrong bound.
  cluster[0].bound_flight(size_t{1} << 40);
  EXPECT_EQ(before, buffer_of(cluster.opened[0].fd));
}

/// A connection that has BBR before it is anybody's.
class TcpFlightUnderBbr : public TcpFlight {
 protected:
  void SetUp() override {
    if (::setsockopt(ends_.first.get(), IPPROTO_TCP, TCP_CONGESTION, "bbr", 3) < 0)
      GTEST_SKIP() << "this host has no BBR";
  }
  std::string congestion_control() const { return congestion_control_of(ends_.first.get()); }

  const std::pair<UniqueFd, UniqueFd> ends_ = loopback_connection();
  tcp::Socket socket_{UniqueFd(::dup(ends_.first.get()))};
};

// A message of 64 KiB and its header, exchanged by four nodes, took 4 to 32 ms instead of 3.3: BBR had taken
// the rate of its last 400 bytes for the network's.
TEST_F(TcpFlightUnderBbr, IsNotPacedWhereItIsBounded) {
  socket_.bound_flight(0);
  EXPECT_EQ("bbr", congestion_control());
  socket_.bound_flight(kFlightBytes);
  EXPECT_EQ("reno", congestion_control());
}

TEST_F(TcpFlightUnderBbr, IsNotPacedInsideAHost) {
  const UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  ASSERT_TRUE(socket_.open(epoll.get(), 0, 0).ok());
  EXPECT_EQ("reno", congestion_control());
}

}  // namespace
}  // namespace weft::transport
