// Sleeping and waking: no message may be overlooked by a rank that goes to sleep at that very moment.
#include <errno.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/syscall.h>

#include "base/fd.h"
#include "transport/forbid.h"
#include "transport/shm_node.h"

namespace weft::transport::shm_test {
namespace {

/// Waits for `ready` by sleeping on the transport's doorbell alone, never by spinning. A lost wake-up shows
/// as a failure after some seconds.
template <typename Ready>
void sleep_until(Rank& self, int epoll, Sink& sink, Ready&& ready) {
  while (!ready()) {
    Result<int> events = self.transport.poll(sink);
    ASSERT_TRUE(events.ok());
    if (*events > 0) continue;
    if (!self.transport.prepare_sleep()) continue;
    epoll_event event;
    const int woken = epoll_wait(epoll, &event, 1, 20'000);
    self.transport.finish_sleep();
    ASSERT_EQ(woken, 1) << "rank " << self.rank << " was never woken";
  }
}

UniqueFd watch(Rank& self) {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  EXPECT_TRUE(self.transport.watch(epoll.get()).ok());
  return epoll;
}

Body ping_pong(uint64_t rounds) {
  return [rounds](Rank& self) {
    const UniqueFd epoll = watch(self);
    Inbox inbox;
    const int peer = 1 - self.rank;
    for (uint64_t round = 0; round < rounds; ++round) {
      Envelope envelope;
      envelope.offset = round;
      envelope.bytes = 8;
      if (self.rank == 0) self.send(peer, envelope, &round, inbox);
      sleep_until(self, epoll.get(), inbox, [&] { return !inbox.messages.empty(); });
      ASSERT_EQ(inbox.messages.size(), 1u);
      EXPECT_EQ(inbox.messages[0].envelope.offset, round);
      inbox.messages.clear();
      if (self.rank == 1) self.send(peer, envelope, &round, inbox);
    }
  };
}

/// Both at once: going to sleep races with the other's message all the time.
Body exchange(uint64_t rounds) {
  return [rounds](Rank& self) {
    const UniqueFd epoll = watch(self);
    Inbox inbox;
    uint64_t received = 0;
    for (uint64_t round = 0; round < rounds; ++round) {
      for (int peer = 0; peer < self.ranks; ++peer) {
        if (peer != self.rank) self.send(peer, Envelope{}, nullptr, inbox);
      }
      const uint64_t expected = (round + 1) * static_cast<uint64_t>(self.ranks - 1);
      sleep_until(self, epoll.get(), inbox, [&] {
        received += inbox.messages.size();
        inbox.messages.clear();
        return received >= expected;
      });
    }
  };
}

TEST(ShmSleep, PingPong) { as_both(2, {}, ping_pong(5000)); }
TEST(ShmSleep, Exchange) { as_both(2, {}, exchange(5000)); }
TEST(ShmSleep, FourRanksExchange) { as_both(4, {}, exchange(1000)); }

TEST(ShmSleep, WithoutMembarrier) {
  const auto forbid = [] { forbid_system_call(SYS_membarrier, ENOSYS); };
  as_processes(2, {}, ping_pong(2000), forbid);
  as_processes(2, {}, exchange(2000), forbid);
}

TEST(ShmSleep, WhereOnlyOneSideHasMembarrier) {
  std::atomic<int>* turn = static_cast<std::atomic<int>*>(
      mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  as_processes(2, {}, exchange(2000), [turn] {
    if (turn->fetch_add(1) == 0) forbid_system_call(SYS_membarrier, ENOSYS);
  });
  munmap(turn, sizeof(*turn));
}

TEST(ShmSleep, NotWithAMessageAtTheDoor) {
  as_threads(2, {}, [](Rank& self) {
    Inbox inbox;
    self.send(1 - self.rank, Envelope{}, nullptr, inbox);
    self.meet();
    inbox.messages.clear();
    // Both may have been polled in already by send(); then the next one is at the door.
    self.send(1 - self.rank, Envelope{}, nullptr, inbox);
    self.meet();
    EXPECT_FALSE(self.transport.prepare_sleep());
    ASSERT_TRUE(self.poll_until(inbox, [&] { return inbox.messages.size() == 2; }));
    EXPECT_TRUE(self.transport.prepare_sleep());
    self.transport.finish_sleep();
  });
}

TEST(ShmSleep, NotWithRoomForWhatWasRefused) {
  as_threads(2, {}, [](Rank& self) {
    Inbox inbox;
    uint32_t sent = 0;
    for (; self.rank == 0; ++sent) {
      auto progress = self.transport.send(1, Envelope{}, nullptr);
      ASSERT_TRUE(progress.ok());
      if (*progress == Progress::busy) break;
    }
    self.meet();
    if (self.rank == 0) {
      EXPECT_TRUE(self.transport.prepare_sleep());
      self.transport.finish_sleep();
      self.board.buffer[0].bytes = sent;
    }
    self.meet();
    if (self.rank == 1) {
      ASSERT_TRUE(
          self.poll_until(inbox, [&] { return inbox.messages.size() == self.board.buffer[0].bytes; }));
    }
    self.meet();
    EXPECT_TRUE(self.rank == 1 || !self.transport.prepare_sleep());
  });
}

// A sender that sleeps because its FIFO is full must hear of room, though nobody sends it anything.
TEST(ShmSleep, RoomWakesASender) {
  as_both(2, {}, [](Rank& self) {
    const UniqueFd epoll = watch(self);
    Inbox inbox;
    constexpr uint32_t kMessages = 3000;
    if (self.rank == 1) {
      ASSERT_TRUE(self.poll_until(inbox, [&] { return inbox.messages.size() == kMessages; }));
      return;
    }
    const std::vector<std::byte> payload(5000);
    for (uint32_t i = 0; i < kMessages; ++i) {
      Envelope envelope;
      envelope.bytes = i % 2 == 0 ? 5000 : 3;
      sleep_until(self, epoll.get(), inbox, [&] {
        auto sent = self.transport.send(1, envelope, payload.data());
        EXPECT_TRUE(sent.ok());
        return !sent.ok() || *sent == Progress::accepted;
      });
    }
  });
}

// Likewise for a put that goes through the FIFO in pieces.
TEST(ShmSleep, RoomWakesAPutInPieces) {
  as_processes(2, {.cma = false}, [](Rank& self) {
    const UniqueFd epoll = watch(self);
    Inbox inbox;
    std::vector<std::byte> memory(3'000'000, static_cast<std::byte>(self.rank));
    self.board.buffer[static_cast<size_t>(self.rank)] = *self.transport.expose(memory.data(), memory.size());
    self.meet();
    if (self.rank == 1) {
      sleep_until(self, epoll.get(), inbox, [&] { return !inbox.messages.empty(); });
      EXPECT_EQ(memory.front(), std::byte{0});
      EXPECT_EQ(memory.back(), std::byte{0});
    } else {
      Completion done;
      auto put = self.transport.put(1, {}, memory.data(), memory.size(), self.board.buffer[1], 0, &done);
      ASSERT_TRUE(put.ok() && *put == Progress::accepted);
      sleep_until(self, epoll.get(), inbox, [&] { return done.done; });
    }
    self.meet();
  });
}

}  // namespace
}  // namespace weft::transport::shm_test
