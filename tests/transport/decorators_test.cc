// Faulty and shaped transports, over TCP.
#include <gtest/gtest.h>
#include <sys/epoll.h>

#include <algorithm>

#include "transport/faulty.h"
#include "transport/shaped.h"
#include "transport/tcp_cluster.h"

namespace weft::transport {
namespace {

/// Two ranks of which the second is wrapped (arrivals) and so is the first (sends).
struct Wrapped {
  TcpCluster cluster{2};
  std::vector<std::unique_ptr<Transport>> ranks;

  template <typename Wrap>
  explicit Wrapped(Wrap wrap) {
    // The cluster's connector reaches the inner transports through `cluster`; they move in when all are
    // connected.
    for (int rank = 0; rank < 2; ++rank)
      EXPECT_EQ(Progress::accepted, *cluster[rank].send(1 - rank, envelope(kMessage, 0, 0), nullptr));
    EXPECT_TRUE(cluster.poll_until(
        [&] { return cluster.sink(0).arrivals.size() + cluster.sink(1).arrivals.size() == 2; }));
    for (int rank = 0; rank < 2; ++rank) {
      cluster.sink(rank).arrivals.clear();
      ranks.push_back(wrap(std::move(cluster.transports[static_cast<size_t>(rank)])));
    }
  }
  Transport& operator[](int rank) { return *ranks[static_cast<size_t>(rank)]; }
  RecordingSink& sink(int rank) { return cluster.sink(rank); }

  void poll() {
    for (int rank = 0; rank < 2; ++rank) ASSERT_TRUE((*this)[rank].poll(sink(rank)).ok());
  }
  bool poll_until(const std::function<bool()>& done) {
    const Deadline deadline = Deadline::in_seconds(10);
    while (!done() && !deadline.passed()) poll();
    return done();
  }
};

auto faulty(const FaultyTransport::Options& options) {
  return [options](std::unique_ptr<Transport> inner) {
    return std::make_unique<FaultyTransport>(std::move(inner), options);
  };
}
auto shaped(const ShapedTransport::Options& options) {
  return [options](std::unique_ptr<Transport> inner) {
    auto made = ShapedTransport::create(std::move(inner), options);
    EXPECT_TRUE(made.ok());
    return made.take();
  };
}

constexpr uint32_t kMessages = 200;
constexpr size_t kPutBytes = 10'000;

/// Sends messages and puts, each with contents of its own, and waits for them.
void exchange(Wrapped& ranks, int* busy = nullptr) {
  RecordingSink& sink = ranks.sink(1);
  sink.window.resize(kMessages * kPutBytes);
  const RemoteBuffer window = *ranks[1].expose(sink.window.data(), sink.window.size());
  std::vector<std::vector<std::byte>> sources;
  std::vector<Completion> done(kMessages);
  const auto insist = [&](const std::function<Result<Progress>()>& call) {
    for (;;) {
      const Result<Progress> progress = call();
      ASSERT_TRUE(progress.ok()) << progress.status().message();
      if (*progress == Progress::accepted) return;
      if (busy != nullptr) ++*busy;
      ranks.poll();
    }
  };
  for (uint32_t op = 0; op < kMessages; ++op) {
    sources.push_back(pattern(kPutBytes, 1000 + op));
    const auto text = pattern(op * 10, op);
    insist([&] { return ranks[0].send(1, envelope(kMessage, op, text.size()), text.data()); });
    insist([&] {
      return ranks[0].put(1, envelope(kPut, op, kPutBytes, op * kPutBytes), sources.back().data(), kPutBytes,
                          window, op * kPutBytes, &done[op]);
    });
  }
  ASSERT_TRUE(ranks.poll_until([&] {
    return sink.arrivals.size() == 2 * kMessages &&
           std::all_of(done.begin(), done.end(), [](const Completion& c) { return c.done; });
  }));
  std::vector<int> seen(2 * kMessages);
  for (const auto& arrival : sink.arrivals) {
    const uint32_t op = arrival.envelope.op;
    ++seen[op * 2 + arrival.envelope.kind];
    if (arrival.envelope.kind == kMessage) EXPECT_EQ(pattern(op * 10, op), arrival.payload);
    else EXPECT_EQ(0, std::memcmp(sink.window.data() + op * kPutBytes, sources[op].data(), kPutBytes));
  }
  EXPECT_EQ(std::vector<int>(2 * kMessages, 1), seen);
}

/// Of messages: they overtake puts without any decorator.
bool in_order(const RecordingSink& sink) {
  std::vector<uint32_t> ops;
  for (const auto& arrival : sink.arrivals)
    if (arrival.envelope.kind == kMessage) ops.push_back(arrival.envelope.op);
  return std::is_sorted(ops.begin(), ops.end());
}

TEST(FaultyTransport, WithoutFaultsChangesNothing) {
  Wrapped ranks(faulty({}));
  exchange(ranks);
  EXPECT_TRUE(in_order(ranks.sink(1)));
}

TEST(FaultyTransport, BusyAndReorderingKeepEveryByte) {
  FaultyTransport::Options options;
  options.busy = 0.3;
  options.hold = 0.5;
  for (options.seed = 1; options.seed <= 5; ++options.seed) {
    Wrapped ranks(faulty(options));
    int busy = 0;
    exchange(ranks, &busy);
    EXPECT_GT(busy, 0);
    EXPECT_FALSE(in_order(ranks.sink(1)));
  }
}

TEST(FaultyTransport, DoesNotSleepOverWhatItHolds) {
  FaultyTransport::Options options;
  options.hold = 1;
  options.hold_polls = 1'000'000;
  Wrapped ranks(faulty(options));
  ASSERT_EQ(Progress::accepted, *ranks[0].send(1, envelope(kMessage, 1, 0), nullptr));
  // The message is held for a long time: rank 1 goes from sleepy to wide awake without an arrival.
  const Deadline deadline = Deadline::in_seconds(10);
  int awake = 0;
  while (awake < 100 && !deadline.passed()) {
    ranks.poll();
    awake = ranks[1].prepare_sleep() ? 0 : awake + 1;
  }
  EXPECT_EQ(100, awake);
}

TEST(FaultyTransport, PretendsThatAPeerIsGone) {
  FaultyTransport::Options options;
  options.lose_peer = 0;
  options.lose_after = 5;
  Wrapped ranks(faulty(options));
  for (uint32_t op = 0; op < 10; ++op)
    ASSERT_EQ(Progress::accepted, *ranks[0].send(1, envelope(kMessage, op, 0), nullptr));
  ASSERT_TRUE(ranks.poll_until([&] { return ranks.sink(1).loss_calls > 0; }));
  for (int i = 0; i < 20; ++i) ranks.poll();
  EXPECT_EQ(1, ranks.sink(1).loss_calls);
  EXPECT_EQ(Code::remote_error, ranks.sink(1).losses[0].code());
  EXPECT_GE(ranks.sink(1).arrivals.size(), 5u);
  const size_t before = ranks.sink(1).arrivals.size();
  ASSERT_EQ(Progress::accepted, *ranks[0].send(1, envelope(kMessage, 11, 0), nullptr));
  for (int i = 0; i < 50; ++i) ranks.poll();
  EXPECT_EQ(before, ranks.sink(1).arrivals.size());
  EXPECT_EQ(Code::remote_error, ranks[1].send(0, envelope(kMessage, 1, 0), nullptr).status().code());
}

TEST(ShapedTransport, KeepsEveryByte) {
  ShapedTransport::Options options;
  options.bytes_per_s = 100e6;
  options.latency_s = 100e-6;
  options.queue_bytes = 10'000;
  Wrapped ranks(shaped(options));
  int busy = 0;
  exchange(ranks, &busy);
  EXPECT_GT(busy, 0);
}

TEST(ShapedTransport, NothingArrivesBeforeItsTime) {
  ShapedTransport::Options options;
  options.bytes_per_s = 100e6;
  options.latency_s = 5e-3;
  Wrapped ranks(shaped(options));
  RecordingSink& sink = ranks.sink(1);
  const size_t bytes = 1 << 20;
  sink.window.resize(bytes);
  const RemoteBuffer window = *ranks[1].expose(sink.window.data(), bytes);
  const auto source = pattern(bytes, 3);
  Completion done;
  const int64_t start = now_ns();
  ASSERT_TRUE(ranks[0].put(1, envelope(kPut, 1, bytes), source.data(), bytes, window, 0, &done).ok());
  ASSERT_TRUE(ranks[0].send(1, envelope(kMessage, 2, 0), nullptr).ok());
  ASSERT_TRUE(ranks.poll_until([&] { return sink.arrivals.size() == 2; }));
  EXPECT_GE(now_ns() - start, 15'400'000) << "1 MiB at 100 MB/s and 5 ms";
  EXPECT_EQ(source, sink.window);
}

TEST(ShapedTransport, WakesASleeperWhenSomethingIsDue) {
  ShapedTransport::Options options;
  options.latency_s = 20e-3;
  Wrapped ranks(shaped(options));
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  ASSERT_TRUE(ranks[0].watch(epoll.get()).ok());
  ASSERT_TRUE(ranks[0].send(1, envelope(kMessage, 1, 0), nullptr).ok());
  const Deadline deadline = Deadline::in_seconds(10);
  while (!ranks[0].prepare_sleep() && !deadline.passed()) ranks.poll();
  epoll_event event;
  EXPECT_EQ(1, ::epoll_wait(epoll.get(), &event, 1, 10'000));
  EXPECT_FALSE(ranks[0].prepare_sleep());
  EXPECT_TRUE(ranks.poll_until([&] { return ranks.sink(1).arrivals.size() == 1; }));
}

TEST(ShapedTransport, ForgetsWhatIsStillOnItsWay) {
  ShapedTransport::Options options;
  options.latency_s = 10e-3;
  Wrapped ranks(shaped(options));
  const auto source = pattern(100, 3);
  ranks.sink(1).window.resize(100);
  const RemoteBuffer window = *ranks[1].expose(ranks.sink(1).window.data(), 100);
  Completion done;
  ASSERT_TRUE(ranks[0].put(1, envelope(kPut, 1, 100), source.data(), 100, window, 0, &done).ok());
  ranks[0].forget(&done, &done + 1);
  ASSERT_TRUE(ranks[0].send(1, envelope(kMessage, 2, 0), nullptr).ok());
  ASSERT_TRUE(ranks.poll_until([&] { return !ranks.sink(1).arrivals.empty(); }));
  EXPECT_EQ(2u, ranks.sink(1).arrivals[0].envelope.op);
  EXPECT_FALSE(done.done);
}

}  // namespace
}  // namespace weft::transport
