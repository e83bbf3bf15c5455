// Messages and puts between TCP transports: contents, sizes, rails, back pressure, sleeping, and many ranks
// at once.
#include "transport/tcp_transport.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>

#include <atomic>
#include <random>
#include <thread>

#include "transport/tcp_cluster.h"

namespace weft::transport {
namespace {

RemoteBuffer window_of(TcpCluster& cluster, int rank, size_t bytes) {
  cluster.sink(rank).window.assign(bytes, std::byte{});
  return *cluster[rank].expose(cluster.sink(rank).window.data(), bytes);
}

TEST(TcpTransport, CarriesEnvelopeAndPayload) {
  TcpCluster cluster(2);
  Envelope e = envelope(kMessage, 7, 100, uint64_t{1} << 40);
  e.comm = 3;
  e.signature = 0xdeadbeef;
  e.set_tag(0x12345678);
  e.space = 2;
  const auto payload = pattern(100, 1);
  ASSERT_EQ(Progress::accepted, *cluster[0].send(1, e, payload.data()));
  ASSERT_TRUE(cluster.poll_until([&] { return cluster.sink(1).arrivals.size() == 1; }));
  const auto& arrival = cluster.sink(1).arrivals[0];
  EXPECT_EQ(0, arrival.peer);
  Envelope arrived = arrival.envelope;
  arrived.reserved = 0;
  EXPECT_EQ(0, std::memcmp(&e, &arrived, sizeof(e)));
  EXPECT_EQ(payload, arrival.payload);
  EXPECT_EQ(1u, cluster[0].counters().messages_sent);
  EXPECT_EQ(100u, cluster[0].counters().payload_bytes_sent);
}

TEST(TcpTransport, UsesOneConnectionBothWays) {
  TcpCluster cluster(2);
  ASSERT_EQ(Progress::accepted, *cluster[0].send(1, envelope(kMessage, 1, 0), nullptr));
  ASSERT_TRUE(cluster.poll_until([&] { return !cluster.sink(1).arrivals.empty(); }));
  ASSERT_EQ(Progress::accepted, *cluster[1].send(0, envelope(kMessage, 2, 0), nullptr));
  ASSERT_TRUE(cluster.poll_until([&] { return !cluster.sink(0).arrivals.empty(); }));
  EXPECT_EQ(1, cluster.connections());
}

TEST(TcpTransport, ConnectingFromBothEndsAtOnceLosesNothing) {
  TcpCluster cluster(2);
  ASSERT_EQ(Progress::accepted, *cluster[0].send(1, envelope(kMessage, 1, 0), nullptr));
  ASSERT_EQ(Progress::accepted, *cluster[1].send(0, envelope(kMessage, 2, 0), nullptr));
  EXPECT_EQ(2, cluster.connections());
  for (uint32_t op = 3; op < 20; ++op) {
    ASSERT_EQ(Progress::accepted, *cluster[0].send(1, envelope(kMessage, op, 0), nullptr));
    ASSERT_EQ(Progress::accepted, *cluster[1].send(0, envelope(kMessage, op, 0), nullptr));
  }
  EXPECT_TRUE(cluster.poll_until(
      [&] { return cluster.sink(0).arrivals.size() == 18 && cluster.sink(1).arrivals.size() == 18; }));
  EXPECT_EQ(2, cluster.connections());
}

TEST(TcpTransport, PutsOfManySizesLandWhereTheyBelong) {
  TcpCluster cluster(2);
  constexpr size_t kGap = 64;
  uint32_t op = 0;
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{63}, size_t{32 << 10}, size_t{256 << 10},
                             size_t{(256 << 10) + 1}, size_t{(5 << 20) + 3}, size_t{64 << 20}}) {
    const RemoteBuffer window = window_of(cluster, 1, bytes + 2 * kGap);
    const auto source = pattern(bytes, bytes + 1);
    Completion done;
    ++op;
    ASSERT_EQ(Progress::accepted,
              *cluster[0].put(1, envelope(kPut, op, bytes, kGap), source.data(), bytes, window, kGap, &done));
    auto& sink = cluster.sink(1);
    ASSERT_TRUE(cluster.poll_until([&] { return sink.arrivals.size() == op && done.done; })) << bytes;
    EXPECT_EQ(op, sink.arrivals.back().envelope.op);
    EXPECT_FALSE(sink.arrivals.back().had_payload);
    EXPECT_TRUE(std::equal(source.begin(), source.end(), sink.window.begin() + kGap)) << bytes;
    for (size_t i = 0; i < kGap; ++i) {
      ASSERT_EQ(std::byte{}, sink.window[i]);
      ASSERT_EQ(std::byte{}, sink.window[kGap + bytes + i]);
    }
  }
}

TEST(TcpTransport, StripesALongPutOverRailsAndShortOnesNot) {
  TcpTransport::Options options;
  options.rails = 3;
  TcpCluster cluster(2, options);
  const size_t bytes = (20 << 20) + 17;
  const RemoteBuffer window = window_of(cluster, 1, bytes);
  const auto source = pattern(bytes, 5);
  Completion done;
  ASSERT_TRUE(cluster[0].put(1, envelope(kPut, 1, 1000), source.data(), 1000, window, 0, &done).ok());
  EXPECT_EQ(1, cluster.connections());
  done.done = false;
  ASSERT_TRUE(cluster[0].put(1, envelope(kPut, 2, bytes), source.data(), bytes, window, 0, &done).ok());
  EXPECT_EQ(3, cluster.connections());
  auto& sink = cluster.sink(1);
  ASSERT_TRUE(cluster.poll_until([&] { return sink.arrivals.size() == 2 && done.done; }));
  EXPECT_EQ(source, sink.window);
}

TEST(TcpTransport, GoesOnOverTheRailsThatThereAre) {
  TcpTransport::Options options;
  options.rails = 3;
  TcpCluster cluster(2, options);
  cluster.refuses = [](int, int, int rail, uint32_t) { return rail == 1; };
  const size_t bytes = 8 << 20;
  const RemoteBuffer window = window_of(cluster, 1, bytes);
  const auto source = pattern(bytes, 5);
  Completion done;
  ASSERT_TRUE(cluster[0].put(1, envelope(kPut, 1, bytes), source.data(), bytes, window, 0, &done).ok());
  ASSERT_TRUE(cluster.poll_until([&] { return cluster.sink(1).arrivals.size() == 1; }));
  EXPECT_EQ(source, cluster.sink(1).window);
}

TEST(TcpTransport, AMessageOvertakesALongPut) {
  TcpCluster cluster(2);
  const size_t bytes = 64 << 20;
  const RemoteBuffer window = window_of(cluster, 1, bytes);
  const auto source = pattern(bytes, 5);
  Completion done;
  ASSERT_TRUE(cluster[0].put(1, envelope(kPut, 1, bytes), source.data(), bytes, window, 0, &done).ok());
  ASSERT_EQ(Progress::accepted, *cluster[0].send(1, envelope(kMessage, 2, 0), nullptr));
  auto& sink = cluster.sink(1);
  ASSERT_TRUE(cluster.poll_until([&] { return !sink.arrivals.empty(); }));
  EXPECT_EQ(2u, sink.arrivals[0].envelope.op);
  EXPECT_FALSE(done.done);
  ASSERT_TRUE(cluster.poll_until([&] { return sink.arrivals.size() == 2; }));
  EXPECT_EQ(source, sink.window);
}

TEST(TcpTransport, FirstWritesToDifferentPeersInterleave) {
  TcpCluster cluster(3);
  const size_t bytes = 32 << 20;
  const RemoteBuffer window = window_of(cluster, 1, bytes);
  window_of(cluster, 2, bytes);
  const auto source = pattern(bytes, 5);
  Completion done[2];
  ASSERT_TRUE(cluster[0].put(1, envelope(kPut, 1, bytes), source.data(), bytes, window, 0, &done[0]).ok());
  ASSERT_TRUE(cluster[0].put(2, envelope(kPut, 1, bytes), source.data(), bytes, window, 0, &done[1]).ok());
  bool second_began = false;
  auto into = cluster.sink(2).placing;
  cluster.sink(2).placing = [&](int peer, const Envelope& e) {
    second_began = true;
    return into(peer, e);
  };
  ASSERT_TRUE(cluster.poll_until([&] { return second_began; }));
  EXPECT_FALSE(done[0].done) << "the second peer got nothing before the first had all";
  ASSERT_TRUE(cluster.poll_until(
      [&] { return cluster.sink(1).arrivals.size() == 1 && cluster.sink(2).arrivals.size() == 1; }));
  EXPECT_EQ(source, cluster.sink(1).window);
  EXPECT_EQ(source, cluster.sink(2).window);
}

TEST(TcpTransport, AnswersBusyWhileTheReceiverDoesNotPoll) {
  TcpCluster cluster(2);
  const size_t bytes = cluster[0].eager_bytes();
  uint32_t sent = 0;
  int refused = 0;
  while (refused < 100) {  // the kernel may find a little more room after a while
    ASSERT_LT(sent, 4096u) << "256 MiB were taken with nobody reading";
    const auto payload = pattern(bytes, sent);
    const Result<Progress> progress = cluster[0].send(1, envelope(kMessage, sent, bytes), payload.data());
    ASSERT_TRUE(progress.ok());
    if (*progress == Progress::accepted) ++sent;
    else ++refused;
    ASSERT_TRUE(cluster[0].poll(cluster.sink(0)).ok());
  }
  auto& sink = cluster.sink(1);
  ASSERT_TRUE(cluster.poll_until([&] { return sink.arrivals.size() == sent; }));
  for (uint32_t i = 0; i < sent; ++i) {
    ASSERT_EQ(i, sink.arrivals[i].envelope.op);
    ASSERT_EQ(pattern(bytes, i), sink.arrivals[i].payload);
  }
  EXPECT_EQ(Progress::accepted, *cluster[0].send(1, envelope(kMessage, 0, 0), nullptr));
}

// A rank kept all early messages of one that was ahead, until its communicator failed.
TEST(TcpTransport, WhatTheSinkDoesNotTakeKeepsItsSenderWaiting) {
  constexpr size_t kBytes = 16 << 10;
  TcpCluster cluster(2);
  bool takes = false;
  cluster.sink(1).taking = [&] { return takes; };
  const auto payload = pattern(kBytes, 1);
  uint32_t sent = 0;
  for (int in_vain = 0; in_vain < 1000;) {
    const Result<Progress> progress = cluster[0].send(1, envelope(kMessage, sent, kBytes), payload.data());
    ASSERT_TRUE(progress.ok());
    *progress == Progress::accepted ? ++sent : ++in_vain;
    ASSERT_LT(sent, 10'000u) << "nobody makes it wait";
    for (int rank : {0, 1}) ASSERT_TRUE(cluster[rank].poll(cluster.sink(rank)).ok());
  }
  EXPECT_TRUE(cluster.sink(1).arrivals.empty());
  takes = true;
  ASSERT_TRUE(cluster.poll_until([&] { return cluster.sink(1).arrivals.size() == sent; }));
  for (uint32_t i = 0; i < sent; ++i) EXPECT_EQ(i, cluster.sink(1).arrivals[i].envelope.op);
}

// What was left unread of a peer that has gone would be lost with its connection, 100 ms later.
TEST(TcpTransport, OfAPeerThatHasGoneAllIsTaken) {
  constexpr size_t kBytes = 12 << 10;
  constexpr uint32_t kMessages = 4;
  TcpCluster cluster(2, puts_apart());
  cluster.put(0, 1, 99, 1 << 20);  // opens a channel for puts
  RecordingSink& receiver = cluster.sink(1);
  receiver.arrivals.clear();
  const auto payload = pattern(kBytes, 1);
  for (uint32_t op = 0; op < kMessages; ++op)
    ASSERT_EQ(Progress::accepted, *cluster[0].send(1, envelope(kMessage, op, kBytes), payload.data()));
  ASSERT_TRUE(cluster[0].flush(Deadline::in_seconds(10)).ok());
  cluster.transports[0].reset();
  // The channel of puts is read to its end, of the other one a part at most.
  int asked = 0;
  receiver.taking = [&] { return ++asked == 1 || asked == 3; };
  ASSERT_TRUE(cluster.poll_rank_until(1, [&] { return receiver.loss_calls > 0; }));
  ASSERT_EQ(kMessages, receiver.arrivals.size());
  for (uint32_t op = 0; op < kMessages; ++op) EXPECT_EQ(payload, receiver.arrivals[op].payload);
}

TEST(TcpTransport, ThousandsOfSmallMessagesComeInFewPolls) {
  TcpCluster cluster(2);
  constexpr uint32_t kMessages = 10'000;
  for (uint32_t op = 0; op < kMessages; ++op)
    ASSERT_EQ(Progress::accepted, *cluster[0].send(1, envelope(kMessage, op, sizeof(op)), &op));
  int polls = 0;
  auto& sink = cluster.sink(1);
  ASSERT_TRUE(cluster.poll_until([&] { return ++polls, sink.arrivals.size() == kMessages; }));
  EXPECT_LT(polls, 1000);
  for (uint32_t op = 0; op < kMessages; ++op)
    ASSERT_EQ(0, std::memcmp(&op, sink.arrivals[op].payload.data(), sizeof(op)));
}

// After every message of a stream the receiver looks in vain, and rests.
TEST(TcpTransport, WhatFollowsAStreamIsFoundAndKeepsAwake) {
  TcpCluster cluster(2);
  auto& sink = cluster.sink(1);
  uint32_t op = 0;
  const auto send = [&] {
    EXPECT_EQ(Progress::accepted, *cluster[0].send(1, envelope(kMessage, ++op, 0), nullptr));
  };
  const auto received = [&] { return sink.arrivals.size() == op; };
  for (int i = 0; i < 100; ++i) {
    send();
    ASSERT_TRUE(cluster.poll_rank_until(1, received));
    EXPECT_EQ(0, *cluster[1].poll(sink));
  }
  send();
  EXPECT_FALSE(cluster[1].prepare_sleep());
  EXPECT_TRUE(cluster.poll_rank_until(1, received));
}

TEST(TcpTransport, PlacesAMessageThatIsExpectedAndHoldsOneThatIsNot) {
  TcpCluster cluster(2);
  const size_t bytes = 64 << 10;  // more than one read brings
  std::vector<std::byte> expected(bytes);
  cluster.sink(1).placing = [&](int, const Envelope& e) { return e.op == 1 ? expected.data() : nullptr; };
  for (uint32_t op : {1u, 2u})
    ASSERT_EQ(Progress::accepted,
              *cluster[0].send(1, envelope(kMessage, op, bytes), pattern(bytes, op).data()));
  auto& sink = cluster.sink(1);
  ASSERT_TRUE(cluster.poll_until([&] { return sink.arrivals.size() == 2; }));
  EXPECT_EQ(pattern(bytes, 1), sink.arrivals[0].had_payload ? sink.arrivals[0].payload : expected);
  EXPECT_TRUE(sink.arrivals[1].had_payload);
  EXPECT_EQ(pattern(bytes, 2), sink.arrivals[1].payload);
}

TEST(TcpTransport, ThrowsAwayAPutThatHasNoPlace) {
  TcpCluster cluster(2);
  cluster.sink(1).placing = [](int, const Envelope&) -> void* { return nullptr; };
  const size_t bytes = 3 << 20;
  const RemoteBuffer window = window_of(cluster, 1, bytes);
  const auto source = pattern(bytes, 5);
  Completion done;
  ASSERT_TRUE(cluster[0].put(1, envelope(kPut, 1, bytes), source.data(), bytes, window, 0, &done).ok());
  ASSERT_EQ(Progress::accepted, *cluster[0].send(1, envelope(kMessage, 2, 4), "abc"));
  auto& sink = cluster.sink(1);
  ASSERT_TRUE(cluster.poll_until([&] { return sink.arrivals.size() == 2; }));
  EXPECT_FALSE(sink.arrivals[1].had_payload);
  EXPECT_EQ(std::vector<std::byte>(bytes), sink.window);
}

TEST(TcpTransport, WritesNothingMoreOnceThePlaceIsGone) {
  TcpCluster cluster(2);
  const size_t bytes = 32 << 20;
  const RemoteBuffer window = window_of(cluster, 1, bytes);
  auto& sink = cluster.sink(1);
  int asked = 0;
  sink.placing = [&](int, const Envelope&) -> void* {
    if (++asked < 4) return sink.window.data();
    std::vector<std::byte>().swap(sink.window);  // a write to it now would be found by the address sanitizer
    return nullptr;
  };
  const auto source = pattern(bytes, 5);
  Completion done;
  ASSERT_TRUE(cluster[0].put(1, envelope(kPut, 1, bytes), source.data(), bytes, window, 0, &done).ok());
  ASSERT_TRUE(cluster.poll_until([&] { return sink.arrivals.size() == 1; }));
  EXPECT_GE(asked, 4);
}

// Random traffic of everybody with everybody, each rank a thread: every byte is checked.
void all_to_all_traffic(int ranks, TcpTransport::Options options, int rounds) {
  TcpCluster cluster(ranks, options);
  constexpr size_t kSlot = 3 << 20;
  std::vector<RemoteBuffer> windows;
  for (int rank = 0; rank < ranks; ++rank)
    windows.push_back(window_of(cluster, rank, kSlot * static_cast<size_t>(ranks)));
  // Sizes are known to both ends: a function of who, to whom and when.
  const auto size_of = [&](TestKind kind, int from, int to, int round) {
    std::mt19937_64 random(static_cast<uint64_t>(((from * 64 + to) * 1024 + round) * 2 + kind));
    const size_t top = kind == kMessage ? options.eager_bytes : random() % 4 ? 100 << 10 : kSlot;
    return random() % (top + 1);
  };
  const auto seed_of = [](TestKind kind, int from, int to, int round) {
    return static_cast<uint64_t>(((from * 64 + to) * 1024 + round) * 2 + kind);
  };
  std::atomic<int> failures{0};
  const auto body = [&](int rank) {
    TcpTransport& transport = cluster[rank];
    RecordingSink& sink = cluster.sink(rank);
    const Deadline deadline = Deadline::in_seconds(60);
    const auto poll = [&] {
      const Result<int> moved = transport.poll(sink);
      if (!moved.ok() || deadline.passed()) ++failures;
      else if (*moved == 0) std::this_thread::yield();
    };
    for (int round = 0; round < rounds && failures == 0; ++round) {
      std::vector<Completion> done(static_cast<size_t>(ranks));
      std::vector<std::vector<std::byte>> sources(static_cast<size_t>(ranks));
      for (int step = 1; step < ranks; ++step) {
        const int to = (rank + step) % ranks;
        auto& source = sources[static_cast<size_t>(to)] =
            pattern(size_of(kPut, rank, to, round), seed_of(kPut, rank, to, round));
        const uint64_t offset = kSlot * static_cast<size_t>(rank);
        const auto put = transport.put(
            to, envelope(kPut, static_cast<uint32_t>(round), source.size(), offset), source.data(),
            source.size(), windows[static_cast<size_t>(to)], offset, &done[static_cast<size_t>(to)]);
        if (!put.ok()) ++failures;
        const auto text = pattern(size_of(kMessage, rank, to, round), seed_of(kMessage, rank, to, round));
        for (;;) {
          const auto sent =
              transport.send(to, envelope(kMessage, static_cast<uint32_t>(round), text.size()), text.data());
          if (!sent.ok()) ++failures;
          if (!sent.ok() || *sent == Progress::accepted || failures > 0) break;
          poll();
        }
      }
      const auto complete = [&] {
        size_t here = 0;
        for (const auto& a : sink.arrivals) here += a.envelope.op == static_cast<uint32_t>(round);
        if (here != static_cast<size_t>(2 * (ranks - 1))) return false;
        for (int to = 0; to < ranks; ++to)
          if (to != rank && !done[static_cast<size_t>(to)].done) return false;
        return true;
      };
      while (!complete() && failures == 0) poll();
      for (const auto& arrival : sink.arrivals) {
        if (arrival.envelope.op != static_cast<uint32_t>(round)) continue;
        const auto kind = static_cast<TestKind>(arrival.envelope.kind);
        const auto right =
            pattern(size_of(kind, arrival.peer, rank, round), seed_of(kind, arrival.peer, rank, round));
        const bool same = kind == kMessage ? arrival.payload == right
                                           : std::memcmp(sink.window.data() + arrival.envelope.offset,
                                                         right.data(), right.size()) == 0;
        if (!same) ++failures;
      }
      std::erase_if(sink.arrivals,
                    [&](const auto& a) { return a.envelope.op == static_cast<uint32_t>(round); });
      // A window is used again in the next round: tell the peers, and wait until they have told us.
      for (int step = 1; step < ranks; ++step) {
        const Envelope ready = envelope(kMessage, 1'000'000 + static_cast<uint32_t>(round), 0);
        while (failures == 0) {
          const auto sent = transport.send((rank + step) % ranks, ready, nullptr);
          if (!sent.ok()) ++failures;
          else if (*sent == Progress::accepted) break;
          poll();
        }
      }
      const auto all_ready = [&] {
        int here = 0;
        for (const auto& a : sink.arrivals) here += a.envelope.op == 1'000'000 + static_cast<uint32_t>(round);
        return here == ranks - 1;
      };
      while (!all_ready() && failures == 0) poll();
    }
    // What is still queued must get out even though nobody polls here any more.
    if (failures == 0 && !transport.flush(Deadline::in_seconds(20)).ok()) ++failures;
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(0, failures);
}

TEST(TcpTransport, TwoRanksExchangeAnything) { all_to_all_traffic(2, {}, 40); }
TEST(TcpTransport, FiveRanksExchangeAnythingOverThreeRails) {
  TcpTransport::Options options;
  options.rails = 3;
  options.segment_bytes = 64 << 10;
  all_to_all_traffic(5, options, 4);
}
TEST(TcpTransport, EightRanksExchangeAnything) { all_to_all_traffic(8, {}, 3); }
TEST(TcpTransport, FiveRanksExchangeAnythingWithPutsApart) {
  TcpTransport::Options options;
  options.puts_apart = true;
  options.segment_bytes = 64 << 10;
  all_to_all_traffic(5, options, 4);
  options.rails = 3;
  options.queue_bytes = 70 << 10;
  all_to_all_traffic(5, options, 4);
}
TEST(TcpTransport, OddSegmentsAndAShortQueueChangeNothing) {
  TcpTransport::Options options;
  options.rails = 2;
  options.segment_bytes = 7777;
  options.queue_bytes = 70 << 10;
  options.unsent_bytes = 16 << 10;
  all_to_all_traffic(3, options, 8);
}

TEST(TcpTransport, GatheringAndPatienceChangeNothing) {
  TcpTransport::Options options;
  options.rails = 2;
  options.coalescing = {.when = tcp::Coalescing::When::after_writes, .window_ns = 20'000};
  options.patient = true;
  all_to_all_traffic(3, options, 8);
}

TEST(TcpTransport, SleepsOnlyWhenThereIsNothingAndIsWoken) {
  TcpCluster cluster(2);
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  ASSERT_TRUE(cluster[1].watch(epoll.get()).ok());
  EXPECT_TRUE(cluster[1].prepare_sleep());
  cluster[1].finish_sleep();
  epoll_event event;
  EXPECT_EQ(0, ::epoll_wait(epoll.get(), &event, 1, 0));
  for (uint32_t op = 1; op <= 3; ++op) {
    std::thread sender([&] { EXPECT_TRUE(cluster[0].send(1, envelope(kMessage, op, 0), nullptr).ok()); });
    EXPECT_EQ(1, ::epoll_wait(epoll.get(), &event, 1, 10'000));
    sender.join();
    EXPECT_FALSE(cluster[1].prepare_sleep());
    ASSERT_TRUE(cluster.poll_rank_until(1, [&] { return cluster.sink(1).arrivals.size() == op; }));
    ASSERT_TRUE(cluster.poll_rank_until(1, [&] { return cluster[1].prepare_sleep(); }));
  }
}

TEST(TcpTransport, ASleepingSenderIsWokenWhenThereIsRoomAgain) {
  TcpCluster cluster(2);
  const size_t bytes = 64 << 20;
  const RemoteBuffer window = window_of(cluster, 1, bytes);
  const auto source = pattern(bytes, 5);
  Completion done;
  ASSERT_TRUE(cluster[0].put(1, envelope(kPut, 1, bytes), source.data(), bytes, window, 0, &done).ok());
  ASSERT_TRUE(cluster.poll_rank_until(0, [&] { return cluster[0].prepare_sleep(); })) << "never out of room";
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  ASSERT_TRUE(cluster[0].watch(epoll.get()).ok());
  std::thread receiver(
      [&] { EXPECT_TRUE(cluster.poll_rank_until(1, [&] { return !cluster.sink(1).arrivals.empty(); })); });
  while (!done.done) {
    if (cluster[0].prepare_sleep()) {
      epoll_event event;
      const bool woken = ::epoll_wait(epoll.get(), &event, 1, 10'000) == 1;
      EXPECT_TRUE(woken);
      if (!woken) break;
    }
    ASSERT_TRUE(cluster[0].poll(cluster.sink(0)).ok());
  }
  receiver.join();
  EXPECT_EQ(source, cluster.sink(1).window);
  EXPECT_TRUE(cluster.poll_rank_until(0, [&] { return cluster[0].prepare_sleep(); }))
      << "still asks for room";
}

TEST(TcpTransport, NamesWrongArguments) {
  const Connector none = [](int, int, uint32_t, Deadline) -> Result<UniqueFd> {
    return fail(Code::system_error, "none");
  };
  TcpTransport::Options options;
  EXPECT_EQ(Code::invalid_argument, TcpTransport::create(2, 2, none, options).status().code());
  options.rails = 0;
  EXPECT_EQ(Code::invalid_argument, TcpTransport::create(0, 2, none, options).status().code());
  options = {};
  options.segment_bytes = 0;
  EXPECT_EQ(Code::invalid_argument, TcpTransport::create(0, 2, none, options).status().code());

  TcpCluster cluster(2);
  const Envelope empty = envelope(kMessage, 1, 0);
  for (int peer : {-1, 0, 2}) {
    EXPECT_EQ(Code::invalid_argument, cluster[0].send(peer, empty, nullptr).status().code()) << peer;
    EXPECT_EQ(Code::invalid_argument, cluster[0].accept(peer, 0, UniqueFd()).code()) << peer;
  }
  EXPECT_EQ(Code::protocol_error, cluster[0].accept(1, 1, UniqueFd()).code());
  const size_t too_long = cluster[0].eager_bytes() + 1;
  EXPECT_EQ(Code::invalid_argument, cluster[0].send(1, envelope(kMessage, 1, too_long), "").status().code());
  const RemoteBuffer window = window_of(cluster, 1, 100);
  Completion done;
  for (const auto& [offset, bytes] : {std::pair<uint64_t, size_t>{0, 101}, {60, 41}, {UINT64_MAX, 2}})
    EXPECT_EQ(Code::invalid_argument,
              cluster[0].put(1, envelope(kPut, 1, bytes), "", bytes, window, offset, &done).status().code());
}

}  // namespace
}  // namespace weft::transport
