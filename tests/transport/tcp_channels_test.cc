// Which channel carries what: messages share one in both directions, puts have their opener's own.
#include <gtest/gtest.h>
#include <linux/tcp.h>

#include <thread>

#include "transport/tcp_cluster.h"

namespace weft::transport {
namespace {

constexpr size_t kPutBytes = 100'000;

class TcpChannels : public testing::Test {
 protected:
  static void send(TcpCluster& cluster, int from, int to, uint32_t op) {
    auto& sink = cluster.sink(to);
    const size_t before = sink.arrivals.size();
    ASSERT_EQ(Progress::accepted, *cluster[from].send(to, envelope(kMessage, op, 0), nullptr));
    ASSERT_TRUE(cluster.poll_until([&] { return sink.arrivals.size() > before; }));
    EXPECT_EQ(op, sink.arrivals.back().envelope.op);
  }

  static void put(TcpCluster& cluster, int from, int to, uint32_t op, size_t bytes = kPutBytes) {
    cluster.put(from, to, op, bytes);
  }

  /// Segments with data that the opener of the channel has sent over it.
  static uint32_t sent_by_opener(const TcpCluster& cluster, size_t channel) {
    tcp_info info{};
    socklen_t length = sizeof(info);
    EXPECT_EQ(0, ::getsockopt(cluster.opened[channel].fd, IPPROTO_TCP, TCP_INFO, &info, &length));
    return info.tcpi_data_segs_out;
  }
};

// Two ranks that began with an exchange wrote on a connection each from then on, whose messages took an
// acknowledgement of their own.
TEST_F(TcpChannels, MessagesShareTheLowerRanksChannelWhenBothHaveOpenedOne) {
  TcpCluster cluster(2, puts_apart());
  ASSERT_EQ(Progress::accepted, *cluster[1].send(0, envelope(kMessage, 1, 0), nullptr));
  ASSERT_EQ(Progress::accepted, *cluster[0].send(1, envelope(kMessage, 1, 0), nullptr));
  ASSERT_TRUE(cluster.poll_until(
      [&] { return cluster.sink(0).arrivals.size() == 1 && cluster.sink(1).arrivals.size() == 1; }));
  ASSERT_EQ(2u, cluster.opened.size());
  ASSERT_EQ(1, cluster.opened[0].from);
  const uint32_t higher = sent_by_opener(cluster, 0), lower = sent_by_opener(cluster, 1);
  for (uint32_t op = 2; op < 12; ++op) {
    send(cluster, 0, 1, op);
    send(cluster, 1, 0, op);
  }
  EXPECT_EQ(higher, sent_by_opener(cluster, 0)) << "rank 1 still uses its own";
  EXPECT_EQ(lower + 10, sent_by_opener(cluster, 1));
  EXPECT_EQ(2u, cluster.opened.size());
}

TEST_F(TcpChannels, WhatIsQueuedOnAChannelThatIsLeftStillArrives) {
  TcpTransport::Options options = puts_apart();
  options.unsent_bytes = 0;
  TcpCluster cluster(2, options);
  const auto payload = pattern(32 << 10, 7);
  uint32_t sent = 0;  // until rank 1's own channel takes no more, and its queue neither
  while (*cluster[1].send(0, envelope(kMessage, sent, payload.size()), payload.data()) == Progress::accepted)
    ++sent;
  ASSERT_EQ(Progress::accepted, *cluster[0].send(1, envelope(kMessage, 1, 0), nullptr));
  ASSERT_TRUE(cluster.poll_rank_until(1, [&] { return cluster.sink(1).arrivals.size() == 1; }));
  ASSERT_EQ(Progress::accepted, *cluster[1].send(0, envelope(kMessage, sent++, 0), nullptr))
      << "the new channel's queue is empty";
  ASSERT_TRUE(cluster.poll_until([&] { return cluster.sink(0).arrivals.size() == sent; }));
  std::vector<bool> here(sent);
  for (const auto& arrival : cluster.sink(0).arrivals) here[arrival.envelope.op] = true;
  EXPECT_EQ(std::vector<bool>(sent, true), here);
}

// A network that is not connected swallows packets. Each peer's first put waited for it, with the lock held.
TEST_F(TcpChannels, ARailThatDoesNotAnswerIsWaitedForOnce) {
  std::vector<UniqueFd> far_ends;
  int waits = 0, others = 0;
  auto made = TcpTransport::create(
      0, 4,
      [&](int, int rail, uint32_t, Deadline by) -> Result<UniqueFd> {
        EXPECT_LT(by.remaining_ms(), rail == 0 ? 11'000 : 4'000);
        if (rail == 1) return ++waits, fail(Code::timeout, "no answer before the deadline");
        auto [mine, theirs] = loopback_connection();
        far_ends.push_back(std::move(theirs));
        return ++others, std::move(mine);
      },
      puts_apart(2));
  ASSERT_TRUE(made.ok());
  const std::vector<std::byte> data(4 << 20);
  const RemoteBuffer window{.address = 0, .bytes = data.size()};
  Completion done[3];
  for (int peer : {1, 2, 3})
    ASSERT_TRUE(
        (*made)
            ->put(peer, envelope(kPut, 1, data.size()), data.data(), data.size(), window, 0, &done[peer - 1])
            .ok());
  EXPECT_EQ(waits, 1);
  EXPECT_EQ(others, 6) << "a channel for messages and one for puts with each";
}

TEST_F(TcpChannels, WhoeverPutsOpensALineForIt) {
  TcpCluster cluster(2, puts_apart());
  send(cluster, 1, 0, 1);
  send(cluster, 0, 1, 2);
  EXPECT_EQ(1u, cluster.opened.size()) << "messages need no second one";
  put(cluster, 0, 1, 3);
  put(cluster, 1, 0, 4);
  ASSERT_EQ(3u, cluster.opened.size());
  const uint32_t messages = sent_by_opener(cluster, 0), puts = sent_by_opener(cluster, 2);
  EXPECT_EQ(0u, cluster.opened[0].channel);
  EXPECT_EQ(1u, cluster.opened[1].channel);
  EXPECT_EQ(1u, cluster.opened[2].channel);
  put(cluster, 1, 0, 5);
  EXPECT_EQ(messages, sent_by_opener(cluster, 0));
  EXPECT_LT(puts, sent_by_opener(cluster, 2));
  EXPECT_EQ(3u, cluster.opened.size());
}

TEST_F(TcpChannels, RailsArePutChannels) {
  TcpCluster cluster(2, puts_apart(3));
  put(cluster, 1, 0, 1, 20 << 20);
  ASSERT_EQ(4u, cluster.opened.size());
  for (uint32_t channel = 0; channel < 4; ++channel) {
    EXPECT_EQ(channel, cluster.opened[channel].channel);
    EXPECT_EQ(channel == 0 ? 0 : static_cast<int>(channel) - 1, cluster.opened[channel].rail);
  }
  send(cluster, 0, 1, 2);
  EXPECT_EQ(4u, cluster.opened.size());
}

TEST_F(TcpChannels, PutsGoBesideMessagesWhereThereCanBeNoOtherChannel) {
  for (const bool lower_puts : {true, false}) {
    TcpCluster cluster(2, puts_apart(2));
    cluster.refuses = [](int, int, int, uint32_t channel) { return channel > 0; };
    const int from = lower_puts ? 0 : 1, to = 1 - from;
    put(cluster, from, to, 1);
    put(cluster, to, from, 2);
    put(cluster, from, to, 3, 8 << 20);
    send(cluster, to, from, 4);
    EXPECT_EQ(1u, cluster.opened.size());
  }
}

// Rank 1 has no other channel for its puts, and then the lower rank opens one for messages.
TEST_F(TcpChannels, PutsGoWithTheMessagesToTheLowerRanksChannel) {
  TcpCluster cluster(2, puts_apart());
  cluster.refuses = [](int, int, int, uint32_t channel) { return channel > 0; };
  const auto source = pattern(kPutBytes, 1);
  auto& sink = cluster.sink(0);
  sink.window.resize(kPutBytes);
  const RemoteBuffer window = *cluster[0].expose(sink.window.data(), kPutBytes);
  Completion done;
  ASSERT_TRUE(
      cluster[1].put(0, envelope(kPut, 1, kPutBytes), source.data(), kPutBytes, window, 0, &done).ok());
  ASSERT_EQ(Progress::accepted, *cluster[0].send(1, envelope(kMessage, 2, 0), nullptr));
  ASSERT_TRUE(cluster.poll_until([&] { return sink.arrivals.size() == 1 && done.done; }));
  ASSERT_EQ(2u, cluster.opened.size());
  EXPECT_EQ(source, sink.window);
  const uint32_t own = sent_by_opener(cluster, 0);
  put(cluster, 1, 0, 3);
  send(cluster, 1, 0, 4);
  EXPECT_EQ(own, sent_by_opener(cluster, 0));
}

TEST_F(TcpChannels, ALineBeyondTheLastIsRefused) {
  TcpCluster cluster(2, puts_apart());
  auto [mine, theirs] = loopback_connection();
  const Status refused = cluster[0].accept(1, 2, std::move(theirs));
  EXPECT_EQ(Code::protocol_error, refused.code());
  EXPECT_NE(std::string::npos, refused.message().find("channel 2, must be in [0, 2)")) << refused.message();
}

}  // namespace
}  // namespace weft::transport
