// Short messages of a burst, which share writes. How long they wait is left out: what is said holds whenever
// they leave.
#include <gtest/gtest.h>

#include "transport/message_burst.h"
#include "transport/tcp_cluster.h"

namespace weft::transport {
namespace {

constexpr uint32_t kEndless = 100'000;

TcpTransport::Options sharing() {
  TcpTransport::Options options = puts_apart();
  options.coalescing.when = tcp::Coalescing::When::in_bursts;
  return options;
}

void send(TcpCluster& cluster, int from, int to, uint32_t op, size_t bytes = 8) {
  const auto payload = pattern(bytes, op);
  ASSERT_EQ(Progress::accepted, *cluster[from].send(to, envelope(kMessage, op, bytes), payload.data()));
}

/// Rank 0 sends to rank 1, and does not poll, until a message waits for others. Returns how many it sent.
uint32_t send_until_one_waits(TcpCluster& cluster) {
  uint32_t sent = 0;
  do send(cluster, 0, 1, sent++);
  while (cluster[0].due_ns() == 0 && sent < kEndless);
  EXPECT_LT(sent, kEndless) << "no message waits";
  return sent;
}

void expect_in_order(const RecordingSink& sink, uint32_t messages) {
  ASSERT_EQ(messages, sink.arrivals.size());
  for (uint32_t op = 0; op < messages; ++op) {
    ASSERT_EQ(op, sink.arrivals[op].envelope.op);
    ASSERT_EQ(pattern(sink.arrivals[op].envelope.bytes, op), sink.arrivals[op].payload) << op;
  }
}

TEST(TcpBurst, BeginsAfterSomeMessagesWithoutAPoll) {
  tcp::MessageBurst burst;
  for (uint32_t i = 0; i < tcp::kBeforeBurst; ++i) EXPECT_FALSE(burst.add(1)) << i;
  EXPECT_TRUE(burst.add(1));
  EXPECT_FALSE(burst.add(2)) << "there was but one since the last poll";
}

TEST(TcpBurst, GoesOnBehindAPollIfSeveralMessagesFollowEach) {
  tcp::MessageBurst burst;
  for (uint32_t i = 0; i < tcp::kBeforeBurst + 2; ++i) burst.add(1);
  EXPECT_TRUE(burst.add(2));
  EXPECT_TRUE(burst.add(2));
  EXPECT_TRUE(burst.add(3));
  EXPECT_FALSE(burst.add(4));
}

TEST(TcpBurst, WhatWaitsLeavesWithTheNextPoll) {
  TcpCluster cluster(2, sharing());
  const uint32_t sent = send_until_one_waits(cluster);
  EXPECT_GT(sent, tcp::kBeforeBurst + 1);
  const uint64_t ticket = cluster[0].ticket();
  EXPECT_FALSE(cluster[0].flushed(ticket));
  ASSERT_TRUE(cluster[0].poll(cluster.sink(0)).ok());
  EXPECT_EQ(cluster[0].due_ns(), 0);
  EXPECT_TRUE(cluster[0].flushed(ticket));
  ASSERT_TRUE(cluster.poll_rank_until(1, [&] { return cluster.sink(1).arrivals.size() == sent; }));
  expect_in_order(cluster.sink(1), sent);
}

TEST(TcpBurst, MessagesThatGoOnAndOnGoWithoutAPoll) {
  TcpCluster cluster(2, sharing());
  uint32_t sent = send_until_one_waits(cluster);
  const uint32_t waits = sent;
  const Deadline deadline = Deadline::in_seconds(10);
  while (cluster.sink(1).arrivals.size() < waits && !deadline.passed()) {
    send(cluster, 0, 1, sent++);
    ASSERT_TRUE(cluster[1].poll(cluster.sink(1)).ok());
  }
  ASSERT_TRUE(cluster[0].poll(cluster.sink(0)).ok());
  ASSERT_TRUE(cluster.poll_rank_until(1, [&] { return cluster.sink(1).arrivals.size() == sent; }));
  expect_in_order(cluster.sink(1), sent);
}

TEST(TcpBurst, ALongMessageGoesAtOnceBehindWhatWaits) {
  TcpCluster cluster(2, sharing());
  const uint32_t sent = send_until_one_waits(cluster);
  send(cluster, 0, 1, sent, tcp::kCoalescedBytes + 1);
  ASSERT_TRUE(cluster.poll_rank_until(1, [&] { return cluster.sink(1).arrivals.size() == sent + 1; }));
  expect_in_order(cluster.sink(1), sent + 1);
}

TEST(TcpBurst, MessagesToAllPeersGoTogether) {
  TcpCluster cluster(3, sharing());
  uint32_t rounds = 0;
  do {
    for (const int to : {1, 2}) send(cluster, 0, to, rounds);
    ++rounds;
  } while (cluster[0].due_ns() == 0 && rounds < kEndless);
  const int64_t due = cluster[0].due_ns();
  // One of them goes, since it is long: no other is left behind.
  send(cluster, 0, 2, rounds, tcp::kCoalescedBytes + 1);
  EXPECT_NE(due, 0);
  EXPECT_EQ(cluster[0].due_ns(), 0);
  ASSERT_TRUE(cluster.poll_rank_until(1, [&] { return cluster.sink(1).arrivals.size() == rounds; }));
  ASSERT_TRUE(cluster.poll_rank_until(2, [&] { return cluster.sink(2).arrivals.size() == rounds + 1; }));
  expect_in_order(cluster.sink(1), rounds);
  expect_in_order(cluster.sink(2), rounds + 1);
}

TEST(TcpBurst, WaitsOnlyWhereItIsAskedFor) {
  TcpCluster cluster(2, puts_apart());
  for (uint32_t op = 0; op < 1000; ++op) send(cluster, 0, 1, op);
  EXPECT_EQ(cluster[0].due_ns(), 0);
  TcpCluster switched_off(2, sharing());
  switched_off[0].share_writes(false);
  for (uint32_t op = 0; op < 1000; ++op) send(switched_off, 0, 1, op);
  EXPECT_EQ(switched_off[0].due_ns(), 0);
}

TEST(TcpBurst, FlushBringsOutWhatWaits) {
  TcpCluster cluster(2, sharing());
  const uint32_t sent = send_until_one_waits(cluster);
  ASSERT_TRUE(cluster[0].flush(Deadline::in_seconds(10)).ok());
  cluster.transports[0].reset();
  ASSERT_TRUE(cluster.poll_rank_until(1, [&] { return cluster.sink(1).arrivals.size() == sent; }));
  expect_in_order(cluster.sink(1), sent);
}

TEST(TcpBurst, NothingWaitsWhileSomebodySleeps) {
  TcpCluster cluster(2, sharing());
  send(cluster, 0, 1, 0);
  ASSERT_TRUE(cluster.poll_until([&] { return cluster[0].prepare_sleep(); }));
  for (uint32_t op = 1; op < 1000; ++op) {
    send(cluster, 0, 1, op);
    ASSERT_EQ(cluster[0].due_ns(), 0);
  }
  cluster[0].finish_sleep();
}

TEST(TcpBurst, APutBringsOutWhatWaits) {
  TcpCluster cluster(2, sharing());
  RecordingSink& receiver = cluster.sink(1);
  receiver.window.assign(1000, std::byte{});
  const RemoteBuffer window = *cluster[1].expose(receiver.window.data(), receiver.window.size());
  const uint32_t sent = send_until_one_waits(cluster);
  const auto source = pattern(receiver.window.size(), sent);
  Completion done;
  ASSERT_TRUE(cluster[0]
                  .put(1, envelope(kPut, sent, source.size()), source.data(), source.size(), window, 0, &done)
                  .ok());
  EXPECT_EQ(cluster[0].due_ns(), 0);
  ASSERT_TRUE(cluster.poll_rank_until(1, [&] { return receiver.arrivals.size() == sent + 1; }));
  EXPECT_EQ(source, receiver.window);
}

TEST(TcpBurst, EndsWithItsPeer) {
  TcpCluster cluster(2, sharing());
  send_until_one_waits(cluster);
  cluster.transports[1].reset();
  ASSERT_TRUE(cluster.poll_rank_until(0, [&] { return cluster.sink(0).losses.contains(1); }));
  EXPECT_EQ(cluster[0].due_ns(), 0);
  EXPECT_TRUE(cluster[0].flushed(cluster[0].ticket()));
}

}  // namespace
}  // namespace weft::transport
