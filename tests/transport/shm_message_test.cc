// Messages through shared memory: between threads, between processes, and what is refused.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "transport/eager.h"
#include "transport/shm_node.h"

namespace weft::transport::shm_test {
namespace {

std::vector<std::byte> payload(uint32_t seed, size_t bytes) {
  std::vector<std::byte> made(bytes);
  for (size_t i = 0; i < bytes; ++i) made[i] = static_cast<std::byte>(seed * 31 + i * 5 + i / 256);
  return made;
}

/// The i-th message from one rank to another: both ends can say what it must be.
size_t size_of(int from, int to, uint32_t i) {
  std::mt19937 random(static_cast<uint32_t>(from * 1000 + to * 10) + i * 7919);
  const uint32_t dice = random() % 10;
  return dice < 5 ? random() % 33 : dice < 9 ? random() % 1000 : random() % (shm_eager_bytes() + 1);
}
uint32_t seed_of(int from, int to, uint32_t i) { return static_cast<uint32_t>(from * 64 + to) * 1000 + i; }

Envelope envelope(uint32_t op, size_t bytes) {
  Envelope made;
  made.comm = 3;
  made.op = op;
  made.kind = 9;
  made.bytes = static_cast<uint32_t>(bytes);
  return made;
}

/// Everybody sends `count` messages of random sizes to everybody, mixed, and checks what it gets.
Body all_to_all(uint32_t count) {
  return [count](Rank& self) {
    Inbox inbox;
    std::vector<uint32_t> next(static_cast<size_t>(self.ranks));
    uint64_t received = 0;
    const auto check = [&] {
      for (const auto& message : inbox.messages) {
        const uint32_t i = next[static_cast<size_t>(message.peer)]++;
        ASSERT_EQ(message.envelope.op, i);
        ASSERT_EQ(message.envelope.kind, 9);
        ASSERT_EQ(message.payload,
                  payload(seed_of(message.peer, self.rank, i), size_of(message.peer, self.rank, i)));
        ++received;
      }
      inbox.messages.clear();
    };
    for (uint32_t i = 0; i < count; ++i) {
      for (int step = 1; step < self.ranks; ++step) {
        const int peer = (self.rank + step) % self.ranks;
        const auto sent = payload(seed_of(self.rank, peer, i), size_of(self.rank, peer, i));
        self.send(peer, envelope(i, sent.size()), sent.data(), inbox);
      }
      check();
    }
    const uint64_t all = uint64_t{count} * static_cast<uint64_t>(self.ranks - 1);
    ASSERT_TRUE(self.poll_until(inbox, [&] {
      check();
      return received == all;
    }));
    EXPECT_EQ(self.transport.counters().messages_sent, all);
  };
}

TEST(ShmMessage, TwoRanks) { as_both(2, {}, all_to_all(3000)); }
TEST(ShmMessage, FourRanks) { as_both(4, {}, all_to_all(500)); }
TEST(ShmMessage, EightRanks) { as_both(8, {}, all_to_all(100)); }
TEST(ShmMessage, SixtyFourThreads) { as_threads(64, {}, all_to_all(2)); }

TEST(ShmMessage, EverySizeUpToTheLimit) {
  for (const size_t limit : {size_t{1}, size_t{100}, shm_eager_bytes(), ShmTransport::kLargestEagerBytes}) {
    as_threads(2, {.eager_bytes = limit}, [limit](Rank& self) {
      EXPECT_EQ(self.transport.eager_bytes(), limit);
      Inbox inbox;
      const int peer = 1 - self.rank;
      for (const size_t bytes : {size_t{0}, size_t{1}, limit / 2, limit - 1, limit}) {
        const auto sent = payload(5, bytes);
        self.send(peer, envelope(1, bytes), sent.data(), inbox);
        ASSERT_TRUE(self.poll_until(inbox, [&] { return !inbox.messages.empty(); }));
        EXPECT_EQ(inbox.messages[0].payload, sent);
        inbox.messages.erase(inbox.messages.begin());
      }
      const auto refused = self.transport.send(peer, envelope(1, limit + 1), nullptr);
      ASSERT_FALSE(refused.ok());
      EXPECT_EQ(refused.status().code(), Code::invalid_argument);
    });
  }
}

TEST(ShmMessage, BusyWhenTheReceiverDoesNotPollAndNothingIsLost) {
  as_both(2, {}, [](Rank& self) {
    Inbox inbox;
    uint32_t sent = 0;
    if (self.rank == 0) {
      for (;; ++sent) {
        auto progress = self.transport.send(1, envelope(sent, 4), &sent);
        ASSERT_TRUE(progress.ok());
        if (*progress == Progress::busy) break;
        ASSERT_LT(sent, 100'000u) << "never busy";
      }
      self.board.buffer[0].bytes = sent;
    }
    self.meet();
    if (self.rank == 0) {
      self.send(1, envelope(sent, 4), &sent, inbox);
      return;
    }
    const size_t expected = self.board.buffer[0].bytes + 1;
    ASSERT_TRUE(self.poll_until(inbox, [&] { return inbox.messages.size() == expected; }));
    for (uint32_t i = 0; i < expected; ++i) {
      EXPECT_EQ(inbox.messages[i].envelope.op, i);
      EXPECT_EQ(std::memcmp(inbox.messages[i].payload.data(), &i, 4), 0);
    }
  });
}

/// Sends on whatever arrives, from inside arrived().
class Forwarder final : public Inbox {
 public:
  explicit Forwarder(Transport& transport, int to) : transport_(transport), to_(to) {}
  void arrived(int peer, const Envelope& envelope, const void* payload) override {
    Inbox::arrived(peer, envelope, payload);
    if (to_ < 0) return;
    auto sent = transport_.send(to_, envelope, payload);
    EXPECT_TRUE(sent.ok() && *sent == Progress::accepted);
  }

 private:
  Transport& transport_;
  int to_;
};

TEST(ShmMessage, ASinkMaySend) {
  as_threads(3, {}, [](Rank& self) {
    Forwarder sink(self.transport, self.rank == 2 ? -1 : self.rank + 1);
    const auto sent = payload(1, 300);
    for (int i = 0; i < 10 && self.rank == 0; ++i) self.send(1, envelope(0, 300), sent.data(), sink);
    if (self.rank == 0) return;
    ASSERT_TRUE(self.poll_until(sink, [&] { return sink.messages.size() == 10; }));
    EXPECT_EQ(sink.messages[9].payload, sent);
  });
}

TEST(ShmMessage, OnlyOtherRanksOfTheNodeCanBeSentTo) {
  const int local[] = {2, 5};
  auto transport = ShmTransport::create(5, 8, local, {});
  ASSERT_TRUE(transport.ok());
  for (const int peer : {5, 0, 7, 8, -1}) {
    const auto sent = (*transport)->send(peer, Envelope{}, nullptr);
    ASSERT_FALSE(sent.ok()) << peer;
    EXPECT_EQ(sent.status().code(), Code::invalid_argument);
    EXPECT_NE(sent.status().message().find(std::to_string(peer)), std::string::npos);
  }
}

TEST(ShmCreate, WrongArgumentsAreNamed) {
  const int local[] = {0, 1};
  EXPECT_EQ(ShmTransport::create(2, 3, local, {}).status().code(), Code::invalid_argument);
  EXPECT_EQ(ShmTransport::create(0, 1, local, {}).status().code(), Code::invalid_argument);
  const auto greedy =
      ShmTransport::create(0, 2, local, {.eager_bytes = ShmTransport::kLargestEagerBytes + 1});
  EXPECT_EQ(greedy.status().code(), Code::invalid_argument);
  EXPECT_NE(greedy.status().message().find("1048576"), std::string::npos) << greedy.status().message();
}

/// Two ranks of this process, not yet connected.
struct Pair {
  explicit Pair(const ShmTransport::Options& second = {}) {
    const int local[] = {0, 1};
    a = ShmTransport::create(0, 2, local, {}).take();
    b = ShmTransport::create(1, 2, local, second).take();
    addresses = {a->address(), b->address()};
  }
  std::unique_ptr<ShmTransport> a, b;
  std::array<ShmAddress, 2> addresses;
};

TEST(ShmConnect, SomebodyElseInThePeersPlaceIsNoticed) {
  Pair pair;
  pair.addresses[1].nonce ^= 1;
  const Status same_process = pair.a->connect(pair.addresses);
  EXPECT_EQ(same_process.code(), Code::remote_error);
  EXPECT_NE(same_process.message().find("rank 1"), std::string::npos) << same_process.message();

  // Another process that has a segment at that descriptor, with another nonce.
  BoardMemory memory;
  const ShmAddress address = pair.addresses[0];
  const pid_t child = fork();
  if (child == 0) {
    ShmAddress changed[] = {address, {}};
    changed[0].nonce ^= 1;
    const int local[] = {0, 1};
    auto transport = ShmTransport::create(1, 2, local, {}).take();
    _exit(transport->connect(changed).code() == Code::remote_error ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(ShmConnect, DifferentLimitsAreAMismatch) {
  Pair pair({.eager_bytes = 100'000});
  const Status status = pair.a->connect(pair.addresses);
  EXPECT_EQ(status.code(), Code::mismatch);
  EXPECT_NE(status.message().find("rank 1"), std::string::npos) << status.message();
  EXPECT_EQ(pair.a->connect({pair.addresses.data(), 1}).code(), Code::invalid_argument);
}

TEST(ShmConnect, APeerThatIsGoneIsNamed) {
  BoardMemory memory;
  const int local[] = {0, 1};
  const pid_t child = fork();
  if (child == 0) {
    memory.board->address[1] = ShmTransport::create(1, 2, local, {}).take()->address();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  auto transport = ShmTransport::create(0, 2, local, {}).take();
  const Status connected = transport->connect({memory.board->address.data(), 2});
  EXPECT_EQ(connected.code(), Code::remote_error);
  EXPECT_NE(connected.message().find("rank 1"), std::string::npos) << connected.message();
}

TEST(ShmConnect, APeerThatLeavesBeforeTheFirstMessageIsNamed) {
  Pair pair;
  ASSERT_TRUE(pair.a->connect(pair.addresses).ok());
  pair.b.reset();
  const auto sent = pair.a->send(1, Envelope{}, nullptr);
  ASSERT_FALSE(sent.ok());
  EXPECT_EQ(sent.status().code(), Code::remote_error);
  EXPECT_NE(sent.status().message().find("rank 1"), std::string::npos) << sent.status().message();
}

TEST(ShmConnect, APeerThatLeavesLaterBlocksNothing) {
  Pair pair;
  ASSERT_TRUE(pair.a->connect(pair.addresses).ok());
  ASSERT_TRUE(pair.a->send(1, Envelope{}, nullptr).ok());
  pair.b.reset();
  Progress last = Progress::accepted;
  for (int i = 0; i < 1000 && last == Progress::accepted; ++i) {
    auto sent = pair.a->send(1, Envelope{}, nullptr);
    ASSERT_TRUE(sent.ok());
    last = *sent;
  }
  EXPECT_EQ(last, Progress::busy);
}

}  // namespace
}  // namespace weft::transport::shm_test
