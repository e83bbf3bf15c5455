// Reaching a peer's memory: put, read and map, of windows and of plain memory, with and without single-copy
// calls.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>

#include <cstring>

#include "device/window.h"
#include "transport/forbid.h"
#include "transport/shm_node.h"

namespace weft::transport::shm_test {
namespace {

enum class Kind { window, plain };

/// Memory of either kind, filled with a rank's number.
class Memory {
 public:
  Memory(Kind kind, size_t bytes, int rank) : plain_(kind == Kind::plain ? bytes : 0) {
    if (kind == Kind::window) window_ = device::window_alloc(bytes).take();
    std::memset(data(), rank + 1, bytes);
  }
  ~Memory() { release(); }
  Memory(const Memory&) = delete;
  std::byte* data() { return window_ != nullptr ? static_cast<std::byte*>(window_) : plain_.data(); }
  void release() { EXPECT_TRUE(device::window_free(std::exchange(window_, nullptr)).ok()); }

 private:
  std::vector<std::byte> plain_;
  void* window_ = nullptr;
};

bool filled(const std::byte* data, size_t bytes, int value) {
  return std::all_of(data, data + bytes, [&](std::byte b) { return b == static_cast<std::byte>(value); });
}

struct Case {
  Kind kind;
  bool cma;
  bool processes;
};

/// Rank 0 puts into the middle of rank 1's memory, rank 1 reads the middle of rank 0's.
Body put_and_read(const Case& c, size_t bytes) {
  return [c, bytes](Rank& self) {
    Memory memory(c.kind, bytes, self.rank);
    auto exposed = self.transport.expose(memory.data(), bytes);
    ASSERT_TRUE(exposed.ok());
    self.board.buffer[static_cast<size_t>(self.rank)] = *exposed;
    self.meet();
    EXPECT_EQ(self.transport.reads_peers(), c.cma);
    const int peer = 1 - self.rank;
    const RemoteBuffer theirs = self.board.buffer[static_cast<size_t>(peer)];
    const std::byte* const mapped = self.transport.map(peer, theirs).address;
    EXPECT_EQ(mapped != nullptr, !c.processes || c.kind == Kind::window);
    EXPECT_TRUE(mapped == nullptr || filled(mapped, bytes, peer + 1));

    std::vector<std::byte> got(bytes / 2);
    const Status read = self.transport.read(peer, theirs, bytes / 4, got.data(), got.size());
    if (mapped != nullptr || c.cma) {
      EXPECT_TRUE(read.ok()) << read.message();
      EXPECT_TRUE(filled(got.data(), got.size(), peer + 1));
    } else {
      EXPECT_EQ(read.code(), Code::unsupported);
    }
    self.meet();

    Inbox inbox;
    if (self.rank == 0) {
      const std::vector<std::byte> source(bytes / 2, std::byte{99});
      Completion done;
      Envelope envelope;
      envelope.op = 7;
      envelope.bytes = static_cast<uint32_t>(source.size());
      ASSERT_TRUE(self.poll_until(inbox, [&] {
        auto put = self.transport.put(1, envelope, source.data(), source.size(), theirs, bytes / 4, &done);
        EXPECT_TRUE(put.ok()) << put.status().message();
        return !put.ok() || *put == Progress::accepted;
      }));
      ASSERT_TRUE(self.poll_until(inbox, [&] { return done.done; }));
      EXPECT_EQ(self.transport.counters().puts, 1u);
    } else {
      ASSERT_TRUE(self.poll_until(inbox, [&] { return !inbox.messages.empty(); }));
      ASSERT_EQ(inbox.messages.size(), 1u);
      EXPECT_EQ(inbox.messages[0].envelope.op, 7u);
      EXPECT_EQ(inbox.messages[0].envelope.bytes, bytes / 2);
      EXPECT_FALSE(inbox.messages[0].has_payload);
      EXPECT_TRUE(filled(memory.data(), bytes / 4, 2));
      EXPECT_TRUE(filled(memory.data() + bytes / 4, bytes / 2, 99));
      EXPECT_TRUE(filled(memory.data() + bytes / 4 + bytes / 2, bytes - bytes / 4 - bytes / 2, 2));
    }
    self.meet();
  };
}

class ShmMemory : public ::testing::TestWithParam<std::tuple<Kind, bool, bool>> {};

TEST_P(ShmMemory, PutAndRead) {
  const Case c{std::get<0>(GetParam()), std::get<1>(GetParam()), std::get<2>(GetParam())};
  for (const size_t bytes : {size_t{1000}, size_t{100'000}, size_t{5'000'001}}) {
    const auto run = [&](const Body& body) {
      c.processes ? as_processes(2, {.cma = c.cma}, body) : as_threads(2, {.cma = c.cma}, body);
    };
    run(put_and_read(c, bytes));
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, ShmMemory,
                         ::testing::Combine(::testing::Values(Kind::window, Kind::plain), ::testing::Bool(),
                                            ::testing::Bool()),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param) == Kind::window ? "Window" : "Plain") +
                                  (std::get<1>(info.param) ? "Cma" : "NoCma") +
                                  (std::get<2>(info.param) ? "Processes" : "Threads");
                         });

TEST(ShmMemory, AKernelThatForbidsSingleCopyIsNoticed) {
  as_processes(2, {.cma = true}, put_and_read({Kind::plain, false, true}, 300'000), [] {
    forbid_system_call(SYS_process_vm_readv, EPERM);
    forbid_system_call(SYS_process_vm_writev, EPERM);
  });
}

TEST(ShmMemory, OnePutWithoutSingleCopyAtATimeAndItCanBeForgotten) {
  as_processes(2, {.cma = false}, [](Rank& self) {
    constexpr size_t kBytes = 1 << 20;
    Memory memory(Kind::plain, kBytes, self.rank);
    self.board.buffer[static_cast<size_t>(self.rank)] = *self.transport.expose(memory.data(), kBytes);
    self.meet();
    Inbox inbox;
    Envelope envelope;
    if (self.rank == 0) {
      const RemoteBuffer theirs = self.board.buffer[1];
      Completion done[2];
      {
        const std::vector<std::byte> source(kBytes, std::byte{99});
        auto first = self.transport.put(1, envelope, source.data(), kBytes, theirs, 0, &done[0]);
        ASSERT_TRUE(first.ok() && *first == Progress::accepted);
        auto second = self.transport.put(1, envelope, source.data(), kBytes, theirs, 0, &done[1]);
        ASSERT_TRUE(second.ok() && *second == Progress::busy);
        self.transport.forget(done, done + 1);
      }  // the source is gone now; nobody may read it any more
      envelope.op = 1;
      self.send(1, envelope, nullptr, inbox);
      EXPECT_FALSE(done[0].done);
    } else {
      ASSERT_TRUE(self.poll_until(inbox, [&] { return !inbox.messages.empty(); }));
      EXPECT_EQ(inbox.messages[0].envelope.op, 1u) << "a forgotten put was announced";
    }
    self.meet();
  });
}

// What a rank had on its way to memory that its owner has taken back since, as after a failure there.
TEST(ShmMemory, APutWithoutSingleCopyIntoMemoryThatIsFreedIsDropped) {
  as_processes(2, {.cma = false}, [](Rank& self) {
    constexpr size_t kBytes = 1 << 20;
    void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    const RemoteBuffer own = *self.transport.expose(memory, kBytes);
    self.board.buffer[static_cast<size_t>(self.rank)] = own;
    self.meet();
    Inbox inbox;
    if (self.rank == 0) {
      const std::vector<std::byte> source(kBytes, std::byte{99});
      Completion done;
      auto put = self.transport.put(1, Envelope(), source.data(), kBytes, self.board.buffer[1], 0, &done);
      ASSERT_TRUE(put.ok() && *put == Progress::accepted);
      self.meet();
      ASSERT_TRUE(self.poll_until(inbox, [&] { return done.done; }));
    } else {
      self.meet();  // the first pieces are here
      self.transport.unexpose(own);
      ASSERT_EQ(munmap(memory, kBytes), 0);
      // Somebody else's now, who has exposed it anew.
      ASSERT_EQ(mmap(memory, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
                memory);
      const RemoteBuffer again = *self.transport.expose(memory, kBytes / 2);
      ASSERT_TRUE(self.poll_until(inbox, [&] { return !inbox.messages.empty(); }));
      EXPECT_TRUE(filled(static_cast<std::byte*>(memory), kBytes, 0));
      self.transport.unexpose(again);
    }
    self.meet();
  });
}

// A peer that learns of a window only after the owner has failed and freed it can map it no more. The address
// is somebody else's.
TEST(ShmMemory, APutIntoAWindowThatWasFreedBeforeItWasMappedIsDropped) {
  as_processes(2, {}, [](Rank& self) {
    constexpr size_t kBytes = 2 << 20;
    const std::vector<std::byte> source(kBytes, std::byte{99});
    Inbox inbox;
    Completion done;
    if (self.rank == 1) {
      void* const window = *device::window_alloc(kBytes);
      const RemoteBuffer own = *self.transport.expose(window, kBytes);
      self.board.buffer[1] = own;
      self.transport.unexpose(own);
      ASSERT_TRUE(device::window_free(window).ok());
      ASSERT_EQ(mmap(window, kBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
                window);
      std::memset(window, 7, kBytes);
      self.meet();
      ASSERT_TRUE(self.poll_until(inbox, [&] { return !inbox.messages.empty(); }));
      EXPECT_TRUE(filled(static_cast<std::byte*>(window), kBytes, 7));
    } else {
      self.meet();
      ASSERT_TRUE(self.poll_until(inbox, [&] {
        auto put = self.transport.put(1, Envelope(), source.data(), kBytes, self.board.buffer[1], 0, &done);
        EXPECT_TRUE(put.ok()) << put.status().message();
        return !put.ok() || *put == Progress::accepted;
      }));
      ASSERT_TRUE(self.poll_until(inbox, [&] { return done.done; }));
    }
    self.meet();
  });
}

// The same for a reader that has no single-copy calls: its peer has died or freed the window.
TEST(ShmMemory, AReadOfAWindowThatIsGoneWithoutSingleCopyIsTheOwnersLoss) {
  as_processes(2, {.cma = false}, [](Rank& self) {
    Memory memory(Kind::window, device::kLargeWindowBytes, self.rank);
    self.board.buffer[static_cast<size_t>(self.rank)] = *self.transport.expose(memory.data(), 64);
    memory.release();
    self.meet();
    const int peer = 1 - self.rank;
    std::byte into[64];
    const Status read =
        self.transport.read(peer, self.board.buffer[static_cast<size_t>(peer)], 0, into, sizeof into);
    EXPECT_EQ(read.code(), Code::remote_error) << read.message();
    EXPECT_NE(read.message().find("rank " + std::to_string(peer)), std::string::npos) << read.message();
    self.meet();
  });
}

TEST(ShmMemory, NothingCanBePutToo) {
  for (const bool cma : {true, false}) {
    as_both(2, {.cma = cma}, [](Rank& self) {
      self.board.buffer[static_cast<size_t>(self.rank)] = *self.transport.expose(nullptr, 0);
      self.meet();
      const int peer = 1 - self.rank;
      Inbox inbox;
      Completion done;
      auto put =
          self.transport.put(peer, {}, nullptr, 0, self.board.buffer[static_cast<size_t>(peer)], 0, &done);
      ASSERT_TRUE(put.ok() && *put == Progress::accepted);
      ASSERT_TRUE(self.poll_until(inbox, [&] { return done.done && !inbox.messages.empty(); }));
    });
  }
}

TEST(ShmMemory, OutOfBoundsIsRefused) {
  as_threads(2, {}, [](Rank& self) {
    std::byte bytes[8];
    const RemoteBuffer buffer = *self.transport.expose(bytes, sizeof(bytes));
    Completion done;
    const int peer = 1 - self.rank;
    EXPECT_EQ(self.transport.read(peer, buffer, 1, bytes, 8).code(), Code::invalid_argument);
    EXPECT_EQ(self.transport.read(peer, buffer, UINT64_MAX, bytes, 2).code(), Code::invalid_argument);
    EXPECT_EQ(self.transport.put(peer, {}, bytes, 9, buffer, 0, &done).status().code(),
              Code::invalid_argument);
    EXPECT_FALSE(done.done);
  });
}

TEST(ShmMemory, AWindowMayBeFreedWhileAPeerMapsIt) {
  as_processes(2, {}, [](Rank& self) {
    constexpr size_t kBytes = 2 << 20;
    Memory memory(Kind::window, kBytes, self.rank);
    self.board.buffer[static_cast<size_t>(self.rank)] = *self.transport.expose(memory.data(), kBytes);
    self.meet();
    const int peer = 1 - self.rank;
    const RemoteBuffer theirs = self.board.buffer[static_cast<size_t>(peer)];
    const std::byte* const mapped = self.transport.map(peer, theirs).address;
    ASSERT_NE(mapped, nullptr);
    EXPECT_TRUE(filled(mapped, kBytes, peer + 1));
    self.meet();
    memory.release();
    self.meet();
    EXPECT_TRUE(filled(mapped, kBytes, 0)) << "the memory did not go back";
    // Its successor may get the same descriptor, and must not be taken for it.
    Memory next(Kind::window, kBytes, self.rank + 10);
    self.board.buffer[static_cast<size_t>(self.rank)] = *self.transport.expose(next.data(), kBytes);
    self.meet();
    const std::byte* const now =
        self.transport.map(peer, self.board.buffer[static_cast<size_t>(peer)]).address;
    ASSERT_NE(now, nullptr);
    EXPECT_TRUE(filled(now, kBytes, peer + 11));
    self.meet();
  });
}

TEST(ShmMemory, MappingsAreBounded) {
  as_processes(2, {}, [](Rank& self) {
    for (size_t i = 0; i < shm::PeerMemory::kMappedSegments + 20; ++i) {
      Memory memory(Kind::window, device::kLargeWindowBytes, static_cast<int>(i % 100));
      self.board.buffer[static_cast<size_t>(self.rank)] = *self.transport.expose(memory.data(), 64);
      self.meet();
      const int peer = 1 - self.rank;
      const std::byte* const mapped =
          self.transport.map(peer, self.board.buffer[static_cast<size_t>(peer)]).address;
      ASSERT_NE(mapped, nullptr) << i;
      EXPECT_EQ(*mapped, static_cast<std::byte>(i % 100 + 1));
      self.meet();
    }
    size_t maps = 0;
    std::FILE* file = std::fopen("/proc/self/maps", "r");
    ASSERT_NE(file, nullptr);
    std::array<char, 512> line;
    while (std::fgets(line.data(), line.size(), file) != nullptr)
      maps += std::strstr(line.data(), "memfd:weft") != nullptr;
    std::fclose(file);
    EXPECT_LE(maps, shm::PeerMemory::kMappedSegments + 10);
    EXPECT_GE(maps, shm::PeerMemory::kMappedSegments / 2) << "this test no longer sees the mappings";
  });
}

TEST(ShmMemory, AMappingThatIsHeldOutlastsAllOthers) {
  as_processes(2, {}, [](Rank& self) {
    const int peer = 1 - self.rank;
    Memory first(Kind::window, device::kLargeWindowBytes, self.rank);
    MappedBuffer held;
    for (size_t i = 0; i < shm::PeerMemory::kMappedSegments + 20; ++i) {
      Memory other(Kind::window, device::kLargeWindowBytes, 50);
      self.board.buffer[static_cast<size_t>(self.rank)] =
          *self.transport.expose(i == 0 ? first.data() : other.data(), 64);
      self.meet();
      MappedBuffer mapped = self.transport.map(peer, self.board.buffer[static_cast<size_t>(peer)]);
      ASSERT_NE(mapped.address, nullptr) << i;
      if (i == 0) held = mapped;
      self.meet();
    }
    EXPECT_TRUE(filled(held.address, device::kLargeWindowBytes, peer + 1));
    self.meet();
  });
}

TEST(ShmMemory, ADeadPeerIsNamed) {
  as_processes(2, {}, [](Rank& self) {
    std::vector<std::byte> plain(100'000);
    self.board.buffer[static_cast<size_t>(self.rank)] = *self.transport.expose(plain.data(), plain.size());
    self.meet();
    const int peer = 1 - self.rank;
    const RemoteBuffer theirs = self.board.buffer[static_cast<size_t>(peer)];
    if (self.rank == 1) {
      Inbox inbox;
      ASSERT_TRUE(self.poll_until(inbox, [&] { return !inbox.messages.empty(); }));
      return;
    }
    const pid_t victim = fork();  // a rank of its own would leave the test's node incomplete
    if (victim == 0) {
      for (;;) pause();
    }
    ShmAddress address = self.board.address[1];
    address.pid = victim;
    shm::PeerMemory memory(1, address, true);
    kill(victim, SIGKILL);
    waitpid(victim, nullptr, 0);
    const Status read = memory.read(theirs, 0, plain.data(), 8);
    EXPECT_EQ(read.code(), Code::remote_error);
    EXPECT_NE(read.message().find("rank 1"), std::string::npos) << read.message();
    EXPECT_EQ(memory.write(theirs, 0, plain.data(), 8).code(), Code::remote_error);
    Inbox inbox;
    self.send(1, Envelope{}, nullptr, inbox);

    // Alive, but nothing there.
    RemoteBuffer nowhere{.address = 4096, .bytes = 8};
    const Status unmapped = self.transport.read(1, nowhere, 0, plain.data(), 8);
    EXPECT_EQ(unmapped.code(), Code::remote_error);
    EXPECT_NE(unmapped.message().find("rank 1"), std::string::npos) << unmapped.message();
  });
}

}  // namespace
}  // namespace weft::transport::shm_test
