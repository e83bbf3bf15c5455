// Exposures that their owner revokes: what readers hear of them, and when.
#include "transport/shm_revocations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "device/window.h"
#include "transport/shm_node.h"

namespace weft::transport::shm_test {
namespace {

TEST(ShmRevocations, AreOfOneExposureOfAMemoryAndNotOfOthers) {
  as_both(2, {}, [](Rank& self) {
    std::vector<std::byte> memory(100'000);
    const auto expose = [&] { return *self.transport.expose(memory.data(), memory.size()); };
    if (self.rank == 0) {
      const RemoteBuffer first = expose(), second = expose();
      self.board.buffer[0] = first;
      self.board.buffer[1] = second;
      self.meet();
      self.meet();
      self.transport.revoke(first);
      self.transport.unexpose(first);
      self.board.buffer[2] = expose();
      self.meet();
      self.meet();
      self.transport.unexpose(second);  // in order: nothing is revoked
      self.meet();
    } else {
      const auto revoked = [&](int buffer) { return self.transport.revoked(0, self.board.buffer[buffer]); };
      self.meet();
      EXPECT_FALSE(revoked(0) || revoked(1));
      self.meet();
      self.meet();
      EXPECT_TRUE(revoked(0));
      EXPECT_FALSE(revoked(1) || revoked(2));
      self.meet();
      self.meet();
      EXPECT_TRUE(revoked(0));
      EXPECT_FALSE(revoked(1) || revoked(2));
    }
    self.meet();
  });
}

TEST(ShmRevocations, CountTheOldestExposuresAsRevokedWhenTheirListIsFull) {
  const auto list = std::make_unique<shm::Revocations>();
  for (uint64_t exposure = 1; exposure < shm::Revocations::kMost; ++exposure) list->add(exposure);
  const uint64_t held = UINT64_MAX;
  EXPECT_FALSE(list->contain(held, 0));
  EXPECT_TRUE(list->contain(1, 0));
  list->add(shm::Revocations::kMost);
  EXPECT_TRUE(list->contain(held, 0));
  EXPECT_FALSE(list->contain(held, 1));
  EXPECT_TRUE(list->contain(shm::Revocations::kMost, 1));
  EXPECT_FALSE(list->contain(held, list->count()));
}

// The owner overwrites its memory at any moment of the read.
TEST(ShmRevocations, AreSeenByWhoeverHasReadAChangedByte) {
  for (const bool window : {false, true}) {
    as_processes(2, {}, [window](Rank& self) {
      constexpr size_t kBytes = device::kLargeWindowBytes;
      constexpr int kRounds = 200;
      std::vector<std::byte> plain(kBytes), got(kBytes);
      std::byte* const memory =
          window ? static_cast<std::byte*>(device::window_alloc(kBytes).take()) : plain.data();
      for (int round = 0; round < kRounds; ++round) {
        if (self.rank == 0) {
          std::memset(memory, round, kBytes);
          self.board.buffer[0] = *self.transport.expose(memory, kBytes);
          self.meet();
          for (int pauses = round * 50; pauses > 0; --pauses) cpu_relax();
          self.transport.revoke(self.board.buffer[0]);
          std::memset(memory, 255, kBytes);
          self.transport.unexpose(self.board.buffer[0]);
          self.meet();
          continue;
        }
        self.meet();
        const RemoteBuffer theirs = self.board.buffer[0];
        const Status read = self.transport.read(0, theirs, 0, got.data(), kBytes);
        EXPECT_TRUE(read.ok()) << read.message();
        const bool revoked = self.transport.revoked(0, theirs);
        const bool right =
            std::ranges::all_of(got, [&](std::byte b) { return b == static_cast<std::byte>(round); });
        EXPECT_TRUE(right || revoked) << "in round " << round;
        self.meet();
        EXPECT_TRUE(self.transport.revoked(0, theirs));
      }
      EXPECT_TRUE(!window || device::window_free(memory).ok());
    });
  }
}

}  // namespace
}  // namespace weft::transport::shm_test
