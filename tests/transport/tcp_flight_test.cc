// What is on its way at once over a connection.
#include <gtest/gtest.h>

#include <algorithm>

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

  /// Puts of rank 0 to all others, which are long under way.
  class LongPuts {
   public:
    explicit LongPuts(TcpCluster& cluster) : cluster_(cluster), done_(cluster.transports.size() - 1) {
      for (int peer = 1; peer <= static_cast<int>(done_.size()); ++peer) {
        std::vector<std::byte>& memory = cluster_.sink(peer).window;
        memory.assign(source_.size(), std::byte{});
        const RemoteBuffer window = *cluster_[peer].expose(memory.data(), memory.size());
        EXPECT_TRUE(cluster_[0]
                        .put(peer, envelope(kPut, 1, source_.size()), source_.data(), source_.size(), window,
                             0, &done_[static_cast<size_t>(peer - 1)])
                        .ok());
      }
    }
    /// Until they have left.
    bool end() {
      return cluster_.poll_until([&] {
        return std::all_of(done_.begin(), done_.end(), [](const Completion& put) { return put.done; });
      });
    }
    const std::vector<std::byte>& source() const { return source_; }

   private:
    TcpCluster& cluster_;
    const std::vector<std::byte> source_ = pattern(64 << 20, 7);
    std::vector<Completion> done_;
  };
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

// With 1 ms between 8 nodes seven streams of half a MiB each met in a port's queue, and an AlltoAll of 4 MiB
// took twice its time.
TEST_F(TcpFlight, IsSharedByPutsToSeveralPeersWhereItIsMuch) {
  constexpr int kPeers = 4;
  constexpr size_t kMuch = 384 << 10;
  TcpCluster cluster(1 + kPeers, puts_apart());
  cluster[0].bound_flight(kMuch);
  LongPuts puts(cluster);
  std::vector<int> channels;  // for puts, which are opened peer by peer
  for (const auto& channel : cluster.opened)
    if (channel.from == 0 && channel.channel > 0) channels.push_back(channel.fd);
  ASSERT_EQ(channels.size(), size_t{kPeers});
  const auto bound_to = [&](int peer) { return buffer_of(channels[static_cast<size_t>(peer - 1)]); };
  EXPECT_EQ(bound_to(kPeers), 2 * kMuch / kPeers);
  EXPECT_EQ(bound_to(1), kMuch) << "until something more goes there";
  ASSERT_TRUE(puts.end());
  for (int peer = 1; peer <= kPeers; ++peer) {
    ASSERT_TRUE(cluster.poll_until([&] { return !cluster.sink(peer).arrivals.empty(); }));
    EXPECT_EQ(puts.source(), cluster.sink(peer).window);
  }
  cluster.put(0, 1, 2, 1 << 20);
  EXPECT_EQ(bound_to(1), kMuch);
}

// A bound that the host does not allow is none, until puts to several peers have shared it.
TEST_F(TcpFlight, IsWhatTheHostAllowsBehindPutsThatShared) {
  constexpr int kPeers = 3;
  const size_t more = tcp::Socket::largest_flight() + (1 << 20);
  TcpCluster cluster(1 + kPeers, puts_apart());
  cluster[0].bound_flight(more);
  LongPuts puts(cluster);
  const int last = cluster.opened.back().fd;
  EXPECT_LE(buffer_of(last), tcp::Socket::largest_flight());
  ASSERT_TRUE(puts.end());
  cluster.put(0, kPeers, 2, 1 << 20);
  EXPECT_EQ(buffer_of(last), tcp::Socket::largest_flight());
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

}  // namespace
}  // namespace weft::transport
