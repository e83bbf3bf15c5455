// How a TCP transport ends: peers that die or send garbage, puts that are given up, and an orderly finish.
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <thread>

#include "transport/tcp_cluster.h"
#include "transport/tcp_frame.h"

namespace weft::transport {
namespace {

bool mentions(const Status& status, const std::string& words) {
  return status.message().find(words) != std::string::npos;
}

/// Rank 0 of two, whose peer is this test with a bare socket.
struct Lonely {
  Lonely() {
    auto made = TcpTransport::create(0, 2,
                                     [](int, int, uint32_t, Deadline) -> Result<UniqueFd> {
                                       return fail(Code::system_error, "nobody listens");
                                     },
                                     {});
    EXPECT_TRUE(made.ok());
    transport = made.take();
    auto [mine, theirs] = loopback_connection();
    EXPECT_TRUE(transport->accept(1, 0, std::move(theirs)).ok());
    peer = std::move(mine);
    sink.placing = [](int, const Envelope&) -> void* { return nullptr; };
  }
  void write(const void* data, size_t bytes) {
    ASSERT_EQ(static_cast<ssize_t>(bytes), ::write(peer.get(), data, bytes));
  }
  bool poll_until_lost() {
    const Deadline deadline = Deadline::in_seconds(10);
    while (sink.loss_calls == 0 && !deadline.passed()) EXPECT_TRUE(transport->poll(sink).ok());
    for (int i = 0; i < 10; ++i) EXPECT_TRUE(transport->poll(sink).ok());
    return sink.loss_calls == 1;
  }

  std::unique_ptr<TcpTransport> transport;
  UniqueFd peer;
  RecordingSink sink;
};

TEST(TcpLoss, GarbageClosesTheConnectionAndSaysWhatWasWrong) {
  const std::string text =
      "GET / HTTP/1.1\r\nHost: example.com\r\nUser-Agent: somebody who took a wrong turn\r\n\r\n";
  Lonely rank;
  rank.write(text.data(), text.size());
  ASSERT_TRUE(rank.poll_until_lost());
  EXPECT_EQ(Code::protocol_error, rank.sink.losses[1].code());
  EXPECT_TRUE(mentions(rank.sink.losses[1], "rank 1")) << rank.sink.losses[1].message();
  EXPECT_TRUE(mentions(rank.sink.losses[1], "0x20544547")) << rank.sink.losses[1].message();
  char byte;
  EXPECT_LE(::read(rank.peer.get(), &byte, 1), 0) << "the connection is still open";
}

TEST(TcpLoss, AnImpossibleLengthTakesNoMemory) {
  Envelope header = tcp::message_header({});
  header.bytes = UINT32_MAX;
  Lonely rank;
  rank.write(&header, sizeof(header));
  ASSERT_TRUE(rank.poll_until_lost());
  EXPECT_TRUE(mentions(rank.sink.losses[1], "announces 4294967295 bytes")) << rank.sink.losses[1].message();
}

TEST(TcpLoss, DeliversWhatCameBeforeTheEndAndReportsItOnce) {
  const auto payload = pattern(10, 1);
  const Envelope header = tcp::message_header(envelope(kMessage, 5, 10));
  Lonely rank;
  rank.write(&header, sizeof(header));
  rank.write(payload.data(), payload.size());
  rank.write(&header, 20);  // and a part of another
  rank.peer.reset();
  ASSERT_TRUE(rank.poll_until_lost());
  ASSERT_EQ(1u, rank.sink.arrivals.size());
  EXPECT_EQ(payload, rank.sink.arrivals[0].payload);
  EXPECT_EQ(Code::remote_error, rank.sink.losses[1].code());
  EXPECT_TRUE(mentions(rank.sink.losses[1], "rank 1"));
  for (int i = 0; i < 2; ++i) {
    const Status refused = rank.transport->send(1, envelope(kMessage, 1, 0), nullptr).status();
    EXPECT_EQ(Code::remote_error, refused.code());
    EXPECT_TRUE(mentions(refused, "rank 1")) << refused.message();
  }
}

// A rank sends its last message over a connection of its own and leaves. We hear of the end of ours first.
TEST(TcpLoss, AConnectionThatIsHandedOverAfterAnotherHasEndedIsRead) {
  auto [mine, theirs] = loopback_connection();
  auto made = TcpTransport::create(
      0, 2, [&](int, int, uint32_t, Deadline) -> Result<UniqueFd> { return std::move(mine); }, {});
  ASSERT_TRUE(made.ok());
  TcpTransport& transport = **made;
  RecordingSink sink;
  sink.placing = [](int, const Envelope&) -> void* { return nullptr; };
  ASSERT_EQ(Progress::accepted, *transport.send(1, envelope(kMessage, 1, 0), nullptr));
  Envelope received;
  ASSERT_EQ(static_cast<ssize_t>(sizeof received), ::read(theirs.get(), &received, sizeof received));
  theirs.reset();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(transport.poll(sink).ok());
  EXPECT_EQ(Code::remote_error, transport.send(1, envelope(kMessage, 2, 0), nullptr).status().code())
      << "the end has not been seen";

  const auto payload = pattern(10, 1);
  const Envelope header = tcp::message_header(envelope(kMessage, 5, 10));
  auto [late, ours] = loopback_connection();
  ASSERT_EQ(static_cast<ssize_t>(sizeof header), ::write(late.get(), &header, sizeof header));
  ASSERT_EQ(10, ::write(late.get(), payload.data(), payload.size()));
  late.reset();
  ASSERT_TRUE(transport.accept(1, 0, std::move(ours)).ok());
  const Deadline deadline = Deadline::in_seconds(10);
  while (sink.loss_calls == 0 && !deadline.passed()) ASSERT_TRUE(transport.poll(sink).ok());
  EXPECT_EQ(1, sink.loss_calls);
  ASSERT_EQ(1u, sink.arrivals.size());
  EXPECT_EQ(payload, sink.arrivals[0].payload);
}

// A rank that was not scheduled for a while took a peer that had left in order for lost, with its data
// unread.
TEST(TcpLoss, APauseOfTheReaderLosesNothingThatHasArrived) {
  auto made = TcpTransport::create(
      0, 2,
      [](int, int, uint32_t, Deadline) -> Result<UniqueFd> {
        return fail(Code::system_error, "nobody listens");
      },
      puts_apart());
  ASSERT_TRUE(made.ok());
  TcpTransport& transport = **made;
  RecordingSink sink;
  auto [messages, theirs] = loopback_connection();
  auto [puts, of_puts] = loopback_connection();
  const int room = 16 << 20;
  ASSERT_EQ(0, ::setsockopt(puts.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room));
  ASSERT_TRUE(transport.accept(1, 0, std::move(theirs)).ok());
  ASSERT_TRUE(transport.accept(1, 1, std::move(of_puts)).ok());
  ASSERT_TRUE(transport.poll(sink).ok());
  constexpr size_t kPayload = 1000, kFrame = tcp::kMessageHeader + kPayload;
  const Envelope header = tcp::message_header(envelope(kMessage, 5, kPayload));
  std::vector<std::byte> frame(kFrame);
  std::memcpy(frame.data(), &header, sizeof header);
  size_t sent = 0;  // more than a poll reads
  while (::send(puts.get(), frame.data(), frame.size(), MSG_DONTWAIT) == static_cast<ssize_t>(kFrame)) ++sent;
  if (sent * kFrame < (3 << 20)) GTEST_SKIP() << "the kernel keeps only " << sent * kFrame << " bytes";
  messages.reset();
  // What did not fit whole ends the connection in the middle of a frame, after all that did.
  puts.reset();
  while (sink.loss_calls == 0) {
    ASSERT_TRUE(transport.poll(sink).ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(110));
  }
  EXPECT_EQ(sink.arrivals.size(), sent);
}

TEST(TcpLoss, EveryByteMayComeAlone) {
  const auto payload = pattern(100, 1);
  const Envelope header = tcp::message_header(envelope(kMessage, 5, 100));
  std::vector<std::byte> wire(sizeof(header) + 100);
  std::memcpy(wire.data(), &header, sizeof(header));
  std::memcpy(wire.data() + sizeof(header), payload.data(), 100);
  Lonely rank;
  for (const std::byte byte : wire) {
    rank.write(&byte, 1);
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(rank.transport->poll(rank.sink).ok());
  }
  const Deadline deadline = Deadline::in_seconds(10);
  while (rank.sink.arrivals.empty() && !deadline.passed()) ASSERT_TRUE(rank.transport->poll(rank.sink).ok());
  ASSERT_EQ(1u, rank.sink.arrivals.size());
  EXPECT_EQ(payload, rank.sink.arrivals[0].payload);
}

TEST(TcpLoss, APeerThatCannotBeReachedIsLost) {
  TcpCluster cluster(3);
  cluster.refuses = [](int, int to, int, uint32_t) { return to == 2; };
  const Status status = cluster[0].send(2, envelope(kMessage, 1, 0), nullptr).status();
  EXPECT_EQ(Code::remote_error, status.code());
  EXPECT_TRUE(mentions(status, "rank 2") && mentions(status, "no route")) << status.message();
  ASSERT_TRUE(cluster.poll_until([&] { return cluster.sink(0).loss_calls > 0; }));
  EXPECT_EQ(1u, cluster.sink(0).losses.count(2));
  EXPECT_EQ(Progress::accepted, *cluster[0].send(1, envelope(kMessage, 1, 0), nullptr));
}

void peer_dies_inside_a_put(int rails, bool receiver, bool puts_apart = false) {
  TcpTransport::Options options;
  options.puts_apart = puts_apart;
  options.rails = rails;
  TcpCluster cluster(3, options);
  const size_t bytes = 64 << 20;
  cluster.sink(1).window.resize(bytes);
  const RemoteBuffer window = *cluster[1].expose(cluster.sink(1).window.data(), bytes);
  const auto source = pattern(bytes, 5);
  Completion done;
  ASSERT_TRUE(cluster[0].put(1, envelope(kPut, 1, bytes), source.data(), bytes, window, 0, &done).ok());
  for (int i = 0; i < 5; ++i)
    for (int rank = 0; rank < 2; ++rank) ASSERT_TRUE(cluster[rank].poll(cluster.sink(rank)).ok());
  const int dead = receiver ? 1 : 0, alive = 1 - dead;
  cluster.transports[static_cast<size_t>(dead)].reset();
  ASSERT_TRUE(cluster.poll_until([&] { return cluster.sink(alive).loss_calls > 0; }));
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(cluster[alive].poll(cluster.sink(alive)).ok());
  EXPECT_EQ(1, cluster.sink(alive).loss_calls);
  const Status& why = cluster.sink(alive).losses[dead];
  EXPECT_EQ(Code::remote_error, why.code());
  EXPECT_TRUE(mentions(why, fmt::format("rank {}", dead))) << why.message();
  EXPECT_TRUE(cluster.sink(alive).arrivals.empty());
  Completion again;
  EXPECT_EQ(
      Code::remote_error,
      cluster[alive].put(dead, envelope(kPut, 2, 8), source.data(), 8, window, 0, &again).status().code());
  // The others are not concerned.
  ASSERT_EQ(Progress::accepted, *cluster[alive].send(2, envelope(kMessage, 3, 0), nullptr));
  EXPECT_TRUE(cluster.poll_until([&] { return cluster.sink(2).arrivals.size() == 1; }));
}

TEST(TcpLoss, TheReceiverDiesInsideAPut) { peer_dies_inside_a_put(1, true); }
TEST(TcpLoss, TheSenderDiesInsideAPut) { peer_dies_inside_a_put(1, false); }
TEST(TcpLoss, TheReceiverDiesInsideAStripedPut) { peer_dies_inside_a_put(3, true); }
TEST(TcpLoss, TheSenderDiesInsideAStripedPut) { peer_dies_inside_a_put(3, false); }
TEST(TcpLoss, TheReceiverDiesInsideAPutApart) { peer_dies_inside_a_put(1, true, true); }
TEST(TcpLoss, TheSenderDiesInsideAPutApart) { peer_dies_inside_a_put(2, false, true); }

// The receiver still waits for the put: it must get neither a part of it nor its envelope, and all that
// follows.
void forget_inside_a_put(int rails, size_t bytes, bool puts_apart = false) {
  TcpTransport::Options options;
  options.puts_apart = puts_apart;
  options.rails = rails;
  options.segment_bytes = 4 << 20;  // longer than what the kernel takes: certainly inside a segment
  TcpCluster cluster(2, options);
  auto& sink = cluster.sink(1);
  sink.window.resize(bytes);
  const RemoteBuffer window = *cluster[1].expose(sink.window.data(), bytes);
  std::array<Completion, 3> done;
  auto source = std::make_unique<std::vector<std::byte>>(pattern(bytes, 5));
  for (Completion& each : done)
    ASSERT_TRUE(cluster[0].put(1, envelope(kPut, 1, bytes), source->data(), bytes, window, 0, &each).ok());
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(cluster[0].poll(cluster.sink(0)).ok());
  ASSERT_FALSE(done[0].done);
  cluster[0].forget(done.data(), done.data() + done.size());
  source.reset();  // a read of it now would be found by the address sanitizer
  ASSERT_EQ(Progress::accepted, *cluster[0].send(1, envelope(kMessage, 2, 4), "abc"));
  ASSERT_TRUE(cluster.poll_until([&] { return !sink.arrivals.empty(); }));
  EXPECT_EQ(2u, sink.arrivals[0].envelope.op);

  const auto next = pattern(bytes, 6);
  Completion next_done;
  ASSERT_TRUE(cluster[0].put(1, envelope(kPut, 3, bytes), next.data(), bytes, window, 0, &next_done).ok());
  ASSERT_TRUE(cluster.poll_until([&] { return sink.arrivals.size() == 2; }));
  EXPECT_EQ(3u, sink.arrivals[1].envelope.op);
  EXPECT_EQ(next, sink.window);
  EXPECT_FALSE(done[0].done || done[1].done || done[2].done);
}

TEST(TcpForget, StopsReadingTheSourceInsideASegment) { forget_inside_a_put(1, 16 << 20); }
TEST(TcpForget, StopsReadingTheSourceOnAllRails) { forget_inside_a_put(3, 32 << 20); }
TEST(TcpForget, TheLastSegmentOfAPutIsNoException) { forget_inside_a_put(1, 4 << 20); }
TEST(TcpForget, PutsApartAreNoException) { forget_inside_a_put(1, 16 << 20, true); }

TEST(TcpForget, LeavesOtherPutsAlone) {
  TcpCluster cluster(2);
  const size_t bytes = 16 << 20;
  auto& sink = cluster.sink(1);
  sink.window.resize(2 * bytes);
  const RemoteBuffer window = *cluster[1].expose(sink.window.data(), 2 * bytes);
  const auto source = pattern(bytes, 5);
  std::array<Completion, 2> done;
  for (uint32_t i = 0; i < 2; ++i)
    ASSERT_TRUE(
        cluster[0]
            .put(1, envelope(kPut, i, bytes, i * bytes), source.data(), bytes, window, i * bytes, &done[i])
            .ok());
  cluster[0].forget(&done[0], &done[1]);
  ASSERT_TRUE(cluster.poll_until([&] { return sink.arrivals.size() == 1 && done[1].done; }));
  EXPECT_EQ(1u, sink.arrivals[0].envelope.op);
  EXPECT_EQ(0, std::memcmp(sink.window.data() + bytes, source.data(), bytes));
}

TEST(TcpFlush, EverythingArrivesThoughTheSenderIsGoneWithUnreadInput) {
  TcpCluster cluster(2);
  constexpr uint32_t kMessages = 20;
  const size_t bytes = 64 << 10;
  // Rank 1 has said something on the same connection that rank 0 never reads: closing it resets the
  // connection.
  ASSERT_EQ(Progress::accepted, *cluster[0].send(1, envelope(kMessage, 100, 0), nullptr));
  ASSERT_TRUE(cluster.poll_rank_until(1, [&] { return !cluster.sink(1).arrivals.empty(); }));
  ASSERT_EQ(Progress::accepted, *cluster[1].send(0, envelope(kMessage, 0, 0), nullptr));
  ASSERT_TRUE(cluster[1].flush(Deadline::in_seconds(10)).ok());
  std::thread sender([&] {
    for (uint32_t op = 0; op < kMessages; ++op) {
      Result<Progress> sent = cluster[0].send(1, envelope(kMessage, op, bytes), pattern(bytes, op).data());
      while (sent.ok() && *sent == Progress::busy) {
        EXPECT_TRUE(cluster[0].flush(Deadline::in_seconds(10)).ok());
        sent = cluster[0].send(1, envelope(kMessage, op, bytes), pattern(bytes, op).data());
      }
      EXPECT_TRUE(sent.ok());
    }
    EXPECT_TRUE(cluster[0].flush(Deadline::in_seconds(10)).ok());
    cluster.transports[0].reset();
  });
  auto& sink = cluster.sink(1);
  EXPECT_TRUE(cluster.poll_rank_until(1, [&] { return sink.loss_calls > 0; }));
  sender.join();
  ASSERT_EQ(kMessages + 1, sink.arrivals.size());
  for (uint32_t op = 0; op < kMessages; ++op) EXPECT_EQ(pattern(bytes, op), sink.arrivals[op + 1].payload);
}

TEST(TcpFlush, NamesTheRankThatDoesNotRead) {
  TcpCluster cluster(2);
  const size_t bytes = 64 << 20;
  const std::vector<std::byte> source(bytes);
  RemoteBuffer window;
  window.bytes = bytes;
  Completion done;
  ASSERT_TRUE(cluster[0].put(1, envelope(kPut, 1, bytes), source.data(), bytes, window, 0, &done).ok());
  const Status status = cluster[0].flush(Deadline::in_seconds(0.05));
  EXPECT_EQ(Code::timeout, status.code());
  EXPECT_TRUE(mentions(status, "rank 1")) << status.message();
}

}  // namespace
}  // namespace weft::transport
