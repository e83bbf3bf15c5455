// Helped reads of plain memory: the owner brings pieces, is late, is asked for what it has not exposed, takes
// its memory back. The ranks are processes: ranks of one process map each other's memory.
#include <gtest/gtest.h>

#include <cstring>

#include "device/window.h"
#include "transport/shm_node.h"

namespace weft::transport::shm_test {
namespace {

// Neither starts nor ends with a whole piece.
constexpr uint64_t kOffset = 100, kBytes = (16 << 20) + 12'345;

std::byte value_at(uint64_t i) { return static_cast<std::byte>(i * 2654435761u >> 13); }

/// Rank 1's memory, exposed to rank 0.
class Exposed {
 public:
  explicit Exposed(Rank& self) : self_(self), data_(kOffset + kBytes) {
    if (self.rank == 1) {
      for (uint64_t i = 0; i < data_.size(); ++i) data_[i] = value_at(i);
      auto exposed = self.transport.expose(data_.data(), data_.size());
      EXPECT_TRUE(exposed.ok());
      self.board.buffer[1] = *exposed;
    }
    self.meet();
  }
  std::unique_ptr<Reading> begin() const {
    return self_.transport.begin_reading(1, self_.board.buffer[1], kOffset, kBytes);
  }
  std::byte* data() { return data_.data(); }

 private:
  Rank& self_;
  std::vector<std::byte> data_;
};

void expect_as_exposed(const std::vector<std::byte>& got) {
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < got.size(); ++i) wrong += got[i] != value_at(kOffset + i);
  EXPECT_EQ(wrong, 0u);
}

/// Reads all that is left of it; returns how many pieces the owner brought. Waits for each if `patient`.
uint64_t read_all(Rank& self, Reading& reading, std::vector<std::byte>& got, bool patient) {
  Inbox inbox;
  uint64_t brought = 0;
  while (const uint64_t piece = reading.piece()) {
    got.resize(got.size() + piece);
    std::byte* const into = got.data() + got.size() - piece;
    if (patient && !self.poll_until(inbox, [&] { return reading.ready() != nullptr; })) return brought;
    if (const std::byte* there = reading.ready()) {
      std::memcpy(into, there, piece);
      ++brought;
    } else {
      const Status fetched = reading.fetch(into);
      EXPECT_TRUE(fetched.ok()) << fetched.message();
    }
    reading.take();
  }
  return brought;
}

/// Rank 1 polls until rank 0 has sent it a message.
void serve(Rank& self) {
  Inbox inbox;
  ASSERT_TRUE(self.poll_until(inbox, [&] { return !inbox.messages.empty(); }));
}

void say_done(Rank& self) {
  Inbox inbox;
  self.send(1, Envelope{}, nullptr, inbox);
}

TEST(ShmHelp, TheOwnerBringsEveryPiece) {
  as_processes(2, {}, [](Rank& self) {
    const Exposed memory(self);
    if (self.rank == 1) return serve(self);
    for (int round = 0; round < 3; ++round) {
      std::vector<std::byte> got;
      auto reading = memory.begin();
      ASSERT_NE(reading, nullptr);
      const uint64_t brought = read_all(self, *reading, got, true);
      EXPECT_EQ(brought, (kBytes + shm::kChunkBytes - 1) / shm::kChunkBytes);
      ASSERT_EQ(got.size(), kBytes);
      expect_as_exposed(got);
    }
    EXPECT_EQ(self.transport.counters().bytes_read, 3 * kBytes);
    say_done(self);
  });
}

TEST(ShmHelp, AnOwnerThatDoesNotLookCostsNothing) {
  as_processes(2, {}, [](Rank& self) {
    const Exposed memory(self);
    if (self.rank == 0) {
      std::vector<std::byte> got;
      auto reading = memory.begin();
      ASSERT_NE(reading, nullptr);
      EXPECT_EQ(read_all(self, *reading, got, false), 0u);
      ASSERT_EQ(got.size(), kBytes);
      expect_as_exposed(got);
    }
    self.meet();
  });
}

TEST(ShmHelp, AReaderThatIsAheadGetsTheRightPiecesAfterwards) {
  as_processes(2, {}, [](Rank& self) {
    const Exposed memory(self);
    if (self.rank == 1) {
      self.meet();
      return serve(self);
    }
    std::vector<std::byte> got(10 * shm::kChunkBytes);
    auto reading = memory.begin();
    ASSERT_NE(reading, nullptr);
    for (int i = 0; i < 10; ++i) {
      ASSERT_TRUE(reading->fetch(got.data() + i * shm::kChunkBytes).ok());
      reading->take();
    }
    self.meet();
    // The owner leaves a piece that the reader may be in the middle of to it, so no piece is waited for long.
    Inbox inbox;
    uint64_t brought = 0;
    while (const uint64_t piece = reading->piece()) {
      const Deadline soon = Deadline::in_seconds(0.02);
      while (reading->ready() == nullptr && !soon.passed()) ASSERT_TRUE(self.transport.poll(inbox).ok());
      got.resize(got.size() + piece);
      std::byte* const into = got.data() + got.size() - piece;
      if (const std::byte* there = reading->ready()) {
        std::memcpy(into, there, piece);
        ++brought;
      } else {
        ASSERT_TRUE(reading->fetch(into).ok());
      }
      reading->take();
    }
    EXPECT_GT(brought, 0u);
    ASSERT_EQ(got.size(), kBytes);
    expect_as_exposed(got);
    say_done(self);
  });
}

TEST(ShmHelp, AReadingThatIsGivenUpDoesNotDisturbTheNext) {
  as_processes(2, {}, [](Rank& self) {
    const Exposed memory(self);
    if (self.rank == 1) return serve(self);
    for (int round = 0; round < 20; ++round) {
      auto given_up = memory.begin();
      ASSERT_NE(given_up, nullptr);
      Inbox inbox;
      const bool waits = round % 2 == 1;
      ASSERT_TRUE(self.poll_until(inbox, [&] { return !waits || given_up->ready() != nullptr; }));
    }
    std::vector<std::byte> got;
    auto reading = memory.begin();
    ASSERT_NE(reading, nullptr);
    read_all(self, *reading, got, true);
    expect_as_exposed(got);
    say_done(self);
  });
}

bool worth(Reading& reading) { return reading.judge(100, 100); }
bool in_vain(Reading& reading) { return reading.judge(200, 100); }

TEST(ShmHelp, WhatAPieceCostsAloneIsRememberedForAWhile) {
  shm::HelpRings rings;
  EXPECT_FALSE(rings.judge(100, 6400));
  EXPECT_FALSE(rings.judge(6450, 100'000)) << "6500 at most, since a piece took 6400";
  EXPECT_FALSE(rings.judge(20'000, 100'000));
  EXPECT_TRUE(rings.judge(20'000, 100'000));
  int judgements = 0;
  while (judgements < 1000 && !rings.judge(20'000, 100'000)) ++judgements;
  EXPECT_EQ(judgements, 1) << "twice in a row again";
  for (int i = 0; i < 100; ++i) rings.judge(20'000, 100'000);
  EXPECT_FALSE(rings.judge(20'000, 100'000));
  EXPECT_FALSE(rings.judge(20'000, 100'000)) << "what was possible once is forgotten";
}

TEST(ShmHelp, HelpInVainEndsAndTheNextReadingsHaveNone) {
  as_processes(2, {}, [](Rank& self) {
    const Exposed memory(self);
    if (self.rank == 1) return serve(self);
    Inbox inbox;
    int without = 0;
    const auto begin = [&] {
      std::unique_ptr<Reading> reading;
      for (without = 0; without < 1000 && reading == nullptr; ++without) reading = memory.begin();
      --without;
      return reading;
    };
    for (const int rest : {0, 1, 2, 4, 8, 16, 32, 64, 64}) {
      auto reading = begin();
      EXPECT_EQ(without, rest);
      ASSERT_TRUE(self.poll_until(inbox, [&] { return reading->ready() != nullptr; }));
      EXPECT_GT(reading->bringing_ns(), 0);
      EXPECT_TRUE(in_vain(*reading)) << "once is no reason";
      EXPECT_NE(reading->ready(), nullptr);
      EXPECT_FALSE(in_vain(*reading));
      EXPECT_FALSE(worth(*reading)) << "it has ended";
      std::vector<std::byte> got;
      EXPECT_EQ(read_all(self, *reading, got, false), 0u);
      ASSERT_EQ(got.size(), kBytes);
      expect_as_exposed(got);
    }
    worth(*begin());
    EXPECT_EQ(without, 64);
    for (int i = 0; i < 4; ++i) (i % 2 == 0 ? worth : in_vain)(*begin());  // in vain, but not twice in a row
    EXPECT_EQ(without, 0);
    auto reading = begin();
    in_vain(*reading);
    in_vain(*reading);
    EXPECT_NE(begin(), nullptr);
    EXPECT_EQ(without, 1);
    say_done(self);
  });
}

TEST(ShmHelp, SeveralReadingsOfOneOwnerRunSideBySideAndThereIsAnEndToThem) {
  as_processes(2, {}, [](Rank& self) {
    const Exposed memory(self);
    if (self.rank == 1) return serve(self);
    std::vector<std::unique_ptr<Reading>> readings;
    while (auto reading = memory.begin()) readings.push_back(std::move(reading));
    EXPECT_EQ(readings.size(), 4u);
    Inbox inbox;
    for (int piece = 0; piece < 3; ++piece)
      for (auto& reading : readings) {
        ASSERT_TRUE(self.poll_until(inbox, [&] { return reading->ready() != nullptr; }));
        EXPECT_EQ(reading->ready()[7], value_at(kOffset + piece * shm::kChunkBytes + 7));
        reading->take();
      }
    readings.pop_back();
    EXPECT_NE(memory.begin(), nullptr);
    say_done(self);
  });
}

TEST(ShmHelp, MemoryThatIsTakenBackIsNotTouchedAgain) {
  as_processes(2, {}, [](Rank& self) {
    Exposed memory(self);
    Inbox inbox;
    if (self.rank == 0) {
      auto reading = memory.begin();
      ASSERT_NE(reading, nullptr);
      ASSERT_TRUE(self.poll_until(inbox, [&] { return reading->ready() != nullptr; }));
      say_done(self);
      self.meet();
      for (uint64_t i = 0; i < shm::kChunks; ++i) {  // what was brought before
        ASSERT_NE(reading->ready(), nullptr);
        reading->take();
      }
      self.meet();
      self.meet();
      EXPECT_EQ(reading->ready(), nullptr);
      auto later = memory.begin();  // the owner drops the request
      self.meet();
      self.meet();
      EXPECT_TRUE(later == nullptr || later->ready() == nullptr);
      return;
    }
    ASSERT_TRUE(self.poll_until(inbox, [&] { return !inbox.messages.empty(); }));
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(self.transport.poll(inbox).ok());
    self.transport.unexpose(self.board.buffer[1]);
    self.meet();
    self.meet();
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(self.transport.poll(inbox).ok());
    self.meet();
    self.meet();
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(self.transport.poll(inbox).ok());
    self.meet();
  });
}

TEST(ShmHelp, NothingOutsideOfWhatIsExposedIsBrought) {
  as_processes(2, {}, [](Rank& self) {
    const Exposed memory(self);
    if (self.rank == 1) return serve(self);
    RemoteBuffer hostile = self.board.buffer[1];
    hostile.address += 4096;  // reaches beyond the end
    auto reading = self.transport.begin_reading(1, hostile, kOffset, kBytes);
    ASSERT_NE(reading, nullptr);
    RemoteBuffer huge = self.board.buffer[1];
    huge.address -= 4096;
    auto before = self.transport.begin_reading(1, huge, 0, kBytes);
    ASSERT_NE(before, nullptr);
    auto honest = memory.begin();
    ASSERT_NE(honest, nullptr);
    Inbox inbox;
    ASSERT_TRUE(self.poll_until(inbox, [&] { return honest->ready() != nullptr; }));
    EXPECT_EQ(reading->ready(), nullptr);
    EXPECT_EQ(before->ready(), nullptr);
    EXPECT_EQ(self.transport.begin_reading(1, self.board.buffer[1], kOffset + 1, kBytes), nullptr);
    say_done(self);
  });
}

TEST(ShmHelp, ShortReadsWindowsAndRanksOfTheSameProcessNeedNone) {
  as_threads(2, {}, [](Rank& self) {
    const Exposed memory(self);
    if (self.rank == 0) {
      EXPECT_EQ(memory.begin(), nullptr);
    }
    self.meet();
  });
  as_processes(2, {}, [](Rank& self) {
    void* window = device::window_alloc(kBytes).take();
    self.board.buffer[static_cast<size_t>(self.rank)] = *self.transport.expose(window, kBytes);
    self.meet();
    const RemoteBuffer theirs = self.board.buffer[static_cast<size_t>(1 - self.rank)];
    EXPECT_EQ(self.transport.begin_reading(1 - self.rank, theirs, 0, kBytes), nullptr);
    EXPECT_EQ(self.transport.begin_reading(1 - self.rank, theirs, 0, 1000), nullptr);
    self.meet();
    EXPECT_TRUE(device::window_free(window).ok());
  });
}

}  // namespace
}  // namespace weft::transport::shm_test
