// A node for tests of shared memory: runs the same body for every rank, as threads of this process or as
// processes of their own, with what they need to meet. A failed expectation in a rank's process fails the
// test.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <functional>
#include <new>
#include <numeric>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "transport/shm.h"

namespace weft::transport::shm_test {

inline constexpr int kMostRanks = 64;
inline constexpr double kPatienceSeconds = 60;

/// Memory that all ranks see, whoever they are.
struct Board {
  std::array<ShmAddress, kMostRanks> address;
  std::array<RemoteBuffer, kMostRanks> buffer;
  std::atomic<int> arrived{0};
};

/// Keeps what arrives.
class Inbox : public Sink {
 public:
  struct Message {
    int peer;
    Envelope envelope;
    bool has_payload;
    std::vector<std::byte> payload;
  };
  void* place(int, const Envelope&) override { return nullptr; }
  void arrived(int peer, const Envelope& envelope, const void* payload) override {
    const auto* bytes = static_cast<const std::byte*>(payload);
    messages.push_back({peer, envelope, payload != nullptr, {}});
    if (payload != nullptr) messages.back().payload.assign(bytes, bytes + envelope.bytes);
  }
  void lost(int, const Status&) override {}
  std::vector<Message> messages;
};

/// One rank, as a test's body sees it.
struct Rank {
  int rank;
  int ranks;
  Board& board;
  ShmTransport& transport;

  /// Waits until `ready` is true, polling all the while.
  template <typename Ready>
  [[nodiscard]] bool poll_until(Sink& sink, Ready&& ready) {
    const Deadline deadline = Deadline::in_seconds(kPatienceSeconds);
    while (!ready()) {
      Result<int> events = transport.poll(sink);
      EXPECT_TRUE(events.ok());
      if (events.ok() && *events == 0) std::this_thread::yield();
      if (deadline.passed()) {
        ADD_FAILURE() << "rank " << rank << " waits for ever";
        return false;
      }
    }
    return true;
  }

  /// Sends, polling while there is no room.
  void send(int peer, const Envelope& envelope, const void* payload, Sink& sink) {
    ASSERT_TRUE(poll_until(sink, [&] {
      Result<Progress> sent = transport.send(peer, envelope, payload);
      EXPECT_TRUE(sent.ok()) << sent.status().message();
      return !sent.ok() || *sent == Progress::accepted;
    }));
  }

  /// Waits for all ranks, without polling.
  void meet() const {
    const Deadline deadline = Deadline::in_seconds(kPatienceSeconds);
    const int generation = board.arrived.fetch_add(1) / ranks;
    while (board.arrived.load() / ranks == generation) {
      std::this_thread::yield();
      ASSERT_FALSE(deadline.passed()) << "rank " << rank << " waits for the others for ever";
    }
  }
};

using Body = std::function<void(Rank&)>;

inline void run_rank(Board& board, int rank, int ranks, const ShmTransport::Options& options,
                     const Body& body) {
  std::vector<int> local(static_cast<size_t>(ranks));
  std::iota(local.begin(), local.end(), 0);
  auto transport = ShmTransport::create(rank, ranks, local, options);
  ASSERT_TRUE(transport.ok()) << transport.status().message();
  Rank self{rank, ranks, board, **transport};
  board.address[static_cast<size_t>(rank)] = (*transport)->address();
  self.meet();
  const Status connected = (*transport)->connect({board.address.data(), static_cast<size_t>(ranks)});
  ASSERT_TRUE(connected.ok()) << connected.message();
  body(self);
  self.meet();  // nobody leaves while others still look at its memory
}

struct BoardMemory {
  BoardMemory()
      : board(new (mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
                  Board) {}
  ~BoardMemory() { munmap(board, sizeof(Board)); }
  BoardMemory(const BoardMemory&) = delete;
  Board* board;
};

inline void as_threads(int ranks, const ShmTransport::Options& options, const Body& body) {
  BoardMemory memory;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] { run_rank(*memory.board, rank, ranks, options, body); });
  }
  for (std::thread& thread : threads) thread.join();
}

/// `first` runs in each process before anything else.
inline void as_processes(
    int ranks, const ShmTransport::Options& options, const Body& body,
    const std::function<void()>& first = [] {}) {
  BoardMemory memory;
  std::vector<pid_t> children;
  std::fflush(nullptr);
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      first();
      run_rank(*memory.board, rank, ranks, options, body);
      std::fflush(nullptr);
      _exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "a rank's process failed";
  }
}

inline void as_both(int ranks, const ShmTransport::Options& options, const Body& body) {
  {
    SCOPED_TRACE("as threads");
    as_threads(ranks, options, body);
  }
  SCOPED_TRACE("as processes");
  as_processes(ranks, options, body);
}

}  // namespace weft::transport::shm_test
