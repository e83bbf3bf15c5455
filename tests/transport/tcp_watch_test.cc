// Which connections the epoll instance watches: one that has news again and again is read without being
// watched, as long as nobody sleeps.
#include <gtest/gtest.h>
#include <sys/epoll.h>

#include "transport/tcp_cluster.h"
#include "transport/tcp_transport.h"

namespace weft::transport {
namespace {

constexpr uint32_t kMany = 200;  // messages, after which a connection is not watched any more

/// Sends a message to the last rank.
void send(TcpCluster& cluster, int from, uint32_t op) {
  const int to = static_cast<int>(cluster.transports.size()) - 1;
  ASSERT_EQ(Progress::accepted, *cluster[from].send(to, envelope(kMessage, op, 0), nullptr));
}

/// Sends messages to the last rank, which reads each before the next; senders take turns.
void talk(TcpCluster& cluster, uint32_t messages) {
  const int to = static_cast<int>(cluster.transports.size()) - 1;
  for (uint32_t i = 0; i < messages; ++i) {
    send(cluster, static_cast<int>(i) % to, i);
    const size_t expected = cluster.sink(to).arrivals.size() + 1;
    ASSERT_TRUE(cluster.poll_until([&] { return cluster.sink(to).arrivals.size() == expected; }));
  }
}

/// What would wake rank `rank` if it slept.
UniqueFd alarm(TcpCluster& cluster, int rank) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  EXPECT_TRUE(cluster[rank].watch(epoll.get()).ok());
  return epoll;
}
bool rings(const UniqueFd& alarm) {
  epoll_event event;
  return ::epoll_wait(alarm.get(), &event, 1, 0) == 1;
}

TEST(TcpWatch, WhoHasNewsAgainAndAgainIsNotWatchedUntilSomebodyWouldSleep) {
  TcpCluster cluster(2);
  talk(cluster, kMany);
  const UniqueFd bell = alarm(cluster, 1);
  send(cluster, 0, kMany);
  EXPECT_FALSE(rings(bell));
  EXPECT_FALSE(cluster[1].prepare_sleep());
  EXPECT_TRUE(rings(bell));
  ASSERT_TRUE(cluster.poll_until([&] { return cluster.sink(1).arrivals.size() == kMany + 1; }));
  EXPECT_TRUE(cluster[1].prepare_sleep());
  EXPECT_FALSE(rings(bell));
  send(cluster, 0, kMany + 1);
  EXPECT_TRUE(rings(bell));
}

TEST(TcpWatch, WhatOthersReadWhileOneSleepsStaysWatched) {
  TcpCluster cluster(2);
  talk(cluster, 1);
  const UniqueFd bell = alarm(cluster, 1);
  ASSERT_TRUE(cluster[1].prepare_sleep());
  talk(cluster, kMany);
  EXPECT_FALSE(rings(bell));
  send(cluster, 0, kMany);
  EXPECT_TRUE(rings(bell));
}

TEST(TcpWatch, OnACrowdedHostAllStayWatched) {
  TcpTransport::Options options;
  options.crowded = true;
  TcpCluster cluster(2, options);
  talk(cluster, kMany);
  const UniqueFd bell = alarm(cluster, 1);
  send(cluster, 0, kMany);
  EXPECT_TRUE(rings(bell));
}

TEST(TcpWatch, AConnectionThatFallsSilentIsWatchedAgain) {
  TcpCluster cluster(2);
  talk(cluster, kMany);
  const UniqueFd bell = alarm(cluster, 1);
  for (int i = 0; i < 20'000; ++i) ASSERT_TRUE(cluster[1].poll(cluster.sink(1)).ok());
  send(cluster, 0, kMany);
  EXPECT_TRUE(rings(bell));
}

TEST(TcpWatch, ConnectionsOutOfTurnAreReadToo) {
  TcpCluster cluster(8);  // more senders than may go unwatched
  talk(cluster, 7 * kMany);
  auto& sink = cluster.sink(7);
  for (const int from : {3, 3, 0, 6, 1}) {
    const size_t expected = sink.arrivals.size() + 1;
    send(cluster, from, 0);
    ASSERT_TRUE(cluster.poll_rank_until(7, [&] { return sink.arrivals.size() == expected; })) << from;
    EXPECT_EQ(from, sink.arrivals.back().peer);
  }
}

TEST(TcpWatch, TheEndOfAnUnwatchedConnectionIsNoticed) {
  TcpCluster cluster(3);
  talk(cluster, 2 * kMany);
  cluster.transports[0].reset();
  ASSERT_TRUE(cluster.poll_until([&] { return cluster.sink(2).losses.contains(0); }));
  send(cluster, 1, 1);
  ASSERT_TRUE(cluster.poll_until([&] { return cluster.sink(2).arrivals.size() == 2 * kMany + 1; }));
  EXPECT_TRUE(cluster.poll_until([&] { return cluster[2].prepare_sleep(); }));
}

TEST(TcpWatch, AnUnwatchedConnectionIsToldOfRoom) {
  TcpCluster cluster(2);
  for (uint32_t i = 0; i < kMany; ++i) {  // both ways: rank 0 has news, too
    for (int rank : {0, 1}) {
      ASSERT_EQ(Progress::accepted, *cluster[rank].send(1 - rank, envelope(kMessage, i, 0), nullptr));
      ASSERT_TRUE(cluster.poll_until([&] { return cluster.sink(1 - rank).arrivals.size() == i + 1; }));
    }
  }
  const size_t bytes = 64 << 20;
  cluster.sink(1).window.assign(bytes, std::byte{});
  const RemoteBuffer window = *cluster[1].expose(cluster.sink(1).window.data(), bytes);
  const auto source = pattern(bytes, 5);
  Completion done;
  ASSERT_TRUE(cluster[0].put(1, envelope(kPut, 1, bytes), source.data(), bytes, window, 0, &done).ok());
  ASSERT_TRUE(cluster.poll_until([&] { return done.done && cluster.sink(1).arrivals.size() == kMany + 1; }));
  EXPECT_EQ(source, cluster.sink(1).window);
}

}  // namespace
}  // namespace weft::transport
