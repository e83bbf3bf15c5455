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

  static TcpTransport::Options apart() {
    TcpTransport::Options options;
    options.puts_apart = true;
    return options;
  }

  /// Begins a put to rank 1, which need not take it. False if it was not accepted.
  bool begin_put(TcpCluster& cluster) {
    auto& sink = cluster.sink(1);
    sink.window.assign(source_.size(), std::byte{});
    const RemoteBuffer window = *cluster[1].expose(sink.window.data(), sink.window.size());
    const auto put = cluster[0].put(1, envelope(kPut, 1, source_.size()), source_.data(), source_.size(),
                                    window, 0, &done_);
    return put.ok() && *put == Progress::accepted;
  }

  const std::vector<std::byte> source_ = pattern(16 << 20, 1);
  Completion done_;
};

// Four nodes on a switch, six streams into each: the kernel's choice of 4 MiB a connection filled the
// switch's queue, and AllReduces waited for lost packets longer than for everything else.
TEST_F(TcpFlight, IsBoundedOnLinesThatAreThereAndOnNewOnes) {
  TcpCluster cluster(2, apart());
  ASSERT_EQ(Progress::accepted, *cluster[0].send(1, envelope(kMessage, 1, 0), nullptr));
  ASSERT_EQ(1u, cluster.opened.size());
  cluster[0].bound_flight(kFlightBytes);
  EXPECT_EQ(kFlightBytes, buffer_of(cluster.opened[0].fd));
  ASSERT_TRUE(begin_put(cluster));
  ASSERT_EQ(2u, cluster.opened.size());
  EXPECT_EQ(kFlightBytes, buffer_of(cluster.opened[1].fd));
  ASSERT_TRUE(cluster.poll_until([&] { return cluster.sink(1).arrivals.size() == 2 && done_.done; }));
  EXPECT_EQ(source_, cluster.sink(1).window);
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

// A message of 64 KiB and its header, exchanged by four nodes, took 4 to 32 ms instead of 3.3: BBR had taken
// the rate of its last 400 bytes for the network's.
TEST_F(TcpFlight, IsNotPacedWhereItIsBounded) {
  const auto [mine, theirs] = loopback_connection();
  if (::setsockopt(mine.get(), IPPROTO_TCP, TCP_CONGESTION, "bbr", 3) < 0)
    GTEST_SKIP() << "this host has no BBR";
  tcp::Socket socket(UniqueFd(::dup(mine.get())));
  socket.bound_flight(0);
  EXPECT_EQ("bbr", congestion_control_of(mine.get()));
  socket.bound_flight(kFlightBytes);
  EXPECT_EQ("reno", congestion_control_of(mine.get()));
}

TEST_F(TcpFlight, IsNotPacedInsideAHost) {
  const auto [mine, theirs] = loopback_connection();
  if (::setsockopt(mine.get(), IPPROTO_TCP, TCP_CONGESTION, "bbr", 3) < 0)
    GTEST_SKIP() << "this host has no BBR";
  const UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  tcp::Socket socket(UniqueFd(::dup(mine.get())));
  ASSERT_TRUE(socket.open(epoll.get(), 0, 0).ok());
  EXPECT_EQ("reno", congestion_control_of(mine.get()));
}

}  // namespace
}  // namespace weft::transport
