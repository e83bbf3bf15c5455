// shm_bench: what a message costs through shared memory, beside the least that two cores can do: hand a cache
// line back and forth. Two ranks, pinned to two CPUs, as threads and as processes. Also: how fast a peer's
// memory can be read, mapped and by single-copy system call. No collectives here.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/thread.h"
#include "device/window.h"
#include "transport/shm.h"

namespace weft::transport {
namespace {

constexpr size_t kBufferBytes = 64 << 20;

/// What the two ranks share besides the transport.
struct Board {
  struct alignas(4096) Line {
    std::atomic<uint64_t> value;
  };
  std::array<Line, 2> line;
  std::array<ShmAddress, 2> address;
  std::array<RemoteBuffer, 2> window, plain;
  std::atomic<int> arrived;

  void meet() {
    const int generation = arrived.fetch_add(1) / 2;
    while (arrived.load() / 2 == generation) std::this_thread::yield();
  }
};

template <typename T>
T must(Result<T> result) {
  if (result.ok()) return result.take();
  fmt::print(stderr, "{}\n", result.status().message());
  std::_Exit(1);
}
void must(const Status& status) { (void)must(status.ok() ? Result<int>(0) : Result<int>(status)); }

/// Counts what arrives, and looks at it as an engine would.
class Counter final : public Sink {
 public:
  void* place(int, const Envelope&) override { return nullptr; }
  void arrived(int, const Envelope& envelope, const void* payload) override {
    std::memcpy(buffer_.data(), payload, envelope.bytes);
    ++count;
  }
  void lost(int, const Status&) override {}
  uint64_t count = 0;

 private:
  std::vector<std::byte> buffer_ = std::vector<std::byte>(64 << 10);
};

/// Half a round trip in nanoseconds, where `run` does `rounds` of them: the best of many short repetitions,
/// so that a busy machine does not matter much.
double one_way_ns(Board& board, uint64_t rounds, const std::function<void(uint64_t)>& run) {
  double best = 1e18;
  for (int repetition = 0; repetition < 100; ++repetition) {
    board.meet();
    const int64_t start = now_ns();
    run(rounds);
    best = std::min(best, static_cast<double>(now_ns() - start) / static_cast<double>(2 * rounds));
  }
  return best;
}

/// There and back, `rounds` times, from the turn that both know.
void hand_lines_over(Board& board, int rank, uint64_t& turn, uint64_t rounds) {
  auto& own = board.line[static_cast<size_t>(rank)].value;
  auto& other = board.line[static_cast<size_t>(1 - rank)].value;
  for (uint64_t i = 0; i < rounds; ++i) {
    ++turn;
    if (rank == 0) own.store(turn, std::memory_order_release);
    while (other.load(std::memory_order_acquire) != turn) {
    }
    if (rank == 1) own.store(turn, std::memory_order_release);
  }
}

double raw_ping_pong(Board& board, int rank) {
  uint64_t turn = 0;
  return one_way_ns(board, 1000, [&](uint64_t rounds) { hand_lines_over(board, rank, turn, rounds); });
}

double raw_exchange(Board& board, int rank) {
  uint64_t turn = 0;
  board.meet();
  board.line[static_cast<size_t>(rank)].value.store(0);
  return 2 * one_way_ns(board, 1000, [&](uint64_t rounds) {
           for (uint64_t i = 0; i < rounds; ++i) {
             ++turn;
             board.line[static_cast<size_t>(rank)].value.store(turn, std::memory_order_release);
             while (board.line[static_cast<size_t>(1 - rank)].value.load(std::memory_order_acquire) < turn) {
             }
           }
         });
}

/// As raw_ping_pong, in some milliseconds: the median of repetitions, since this is about where the CPUs are
/// now.
double apart_ns(Board& board, const std::array<int, 2>& cpus) {
  constexpr uint64_t kRounds = 1000;
  constexpr size_t kRepetitions = 21;
  std::array<double, kRepetitions> found;
  const auto run = [&](int rank) {
    pin_thread(cpus[static_cast<size_t>(rank)]);
    uint64_t turn = 0;
    for (double& each : found) {
      const int64_t start = now_ns();
      hand_lines_over(board, rank, turn, kRounds);
      if (rank == 0) each = static_cast<double>(now_ns() - start) / (2 * kRounds);
    }
  };
  std::thread second(run, 1);
  run(0);
  second.join();
  std::nth_element(found.begin(), found.begin() + kRepetitions / 2, found.end());
  return found[kRepetitions / 2];
}

void send(Transport& transport, int peer, uint32_t bytes, const void* payload, Sink& sink) {
  Envelope envelope;
  envelope.comm = 1;
  envelope.bytes = bytes;
  while (must(transport.send(peer, envelope, payload)) == Progress::busy) (void)transport.poll(sink);
}

double ping_pong(Board& board, Transport& transport, int rank, uint32_t bytes, uint64_t rounds) {
  Counter sink;
  uint64_t turn = 0;
  std::vector<std::byte> payload(bytes);
  return one_way_ns(board, rounds, [&](uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      ++turn;
      if (rank == 0) send(transport, 1, bytes, payload.data(), sink);
      while (sink.count < turn) (void)transport.poll(sink);
      if (rank == 1) send(transport, 0, bytes, payload.data(), sink);
    }
  });
}

/// Both send at once and wait for each other: what a two-rank AllReduce of that size does.
double exchange(Board& board, Transport& transport, int rank, uint32_t bytes, uint64_t rounds) {
  Counter sink;
  uint64_t turn = 0;
  std::vector<std::byte> payload(bytes);
  return 2 * one_way_ns(board, rounds, [&](uint64_t count) {
           for (uint64_t i = 0; i < count; ++i) {
             ++turn;
             send(transport, 1 - rank, bytes, payload.data(), sink);
             while (sink.count < turn) (void)transport.poll(sink);
           }
         });
}

/// Nanoseconds a message when one side only sends and the other only receives.
double stream(Board& board, Transport& transport, int rank, uint32_t bytes, uint64_t messages) {
  Counter sink;
  uint64_t total = 0;
  std::vector<std::byte> payload(bytes);
  return 2 * one_way_ns(board, messages, [&](uint64_t count) {
           total += count;
           if (rank == 0) {
             for (uint64_t i = 0; i < count; ++i) send(transport, 1, bytes, payload.data(), sink);
           } else {
             while (sink.count < total) (void)transport.poll(sink);
           }
           board.meet();
         });
}

double read_gb_s(PeerMapping& transport, const RemoteBuffer& from, size_t bytes) {
  std::vector<std::byte> into(bytes);
  const size_t times = std::max<size_t>(4, (256 << 20) / bytes / 4);
  int64_t best = INT64_MAX;
  for (int repetition = 0; repetition < 3; ++repetition) {
    const int64_t start = now_ns();
    for (size_t i = 0; i < times; ++i) must(transport.read(1, from, 0, into.data(), bytes));
    best = std::min(best, now_ns() - start);
  }
  return static_cast<double>(bytes * times) / static_cast<double>(best);
}

void run_rank(Board& board, int rank, int cpu, const char* title) {
  pin_thread(cpu);
  const int locals[] = {0, 1};
  auto transport = must(ShmTransport::create(rank, 2, locals, {}));
  const auto mine = static_cast<size_t>(rank);
  void* window = must(device::window_alloc(kBufferBytes));
  std::vector<std::byte> plain(kBufferBytes, std::byte{1});
  std::memset(window, 1, kBufferBytes);
  board.address[mine] = transport->address();
  board.window[mine] = must(transport->expose(window, kBufferBytes));
  board.plain[mine] = must(transport->expose(plain.data(), kBufferBytes));
  board.meet();
  must(transport->connect(board.address));
  board.meet();

  const auto report = [&](const std::string& line) {
    if (rank != 0) return;
    fmt::print("{:<10} {}\n", title, line);
    std::fflush(stdout);
  };
  const double raw_one_way = raw_ping_pong(board, rank);
  report(fmt::format("cache lines       8 B   {:8.1f} ns one way, {:8.1f} ns exchange", raw_one_way,
                     raw_exchange(board, rank)));
  for (const uint32_t bytes : {8u, 32u, 128u, 1024u, 4096u, 16384u}) {
    const uint64_t rounds = bytes <= 1024 ? 1000 : 200;
    const double one_way = ping_pong(board, *transport, rank, bytes, rounds);
    const double both = exchange(board, *transport, rank, bytes, rounds);
    const double flow = stream(board, *transport, rank, bytes, rounds);
    report(fmt::format(
        "message     {:>6} B   {:8.1f} ns one way, {:8.1f} ns exchange, {:8.1f} ns each in a stream", bytes,
        one_way, both, flow));
  }
  if (rank == 0) {
    for (const size_t bytes : {size_t{64} << 10, size_t{1} << 20, kBufferBytes}) {
      std::string line = fmt::format("read {:>9} B   window {:6.2f} GB/s", bytes,
                                     read_gb_s(*transport, board.window[1], bytes));
      if (transport->reads_peers()) {
        line += fmt::format(", plain memory {:6.2f} GB/s", read_gb_s(*transport, board.plain[1], bytes));
      }
      report(line);
    }
  }
  board.meet();
  must(device::window_free(window));
}

}  // namespace
}  // namespace weft::transport

int main(int argc, char** argv) {
  using weft::transport::Board;
  CLI::App app("latency and bandwidth of shared memory between two ranks");
  std::array<int, 2> cpus{0, 1};
  bool apart = false;
  app.add_option("--cpus", cpus, "the two CPUs to pin the ranks to")->capture_default_str();
  app.add_flag("--apart", apart,
               "say only how far apart the CPUs are now: what a cache line takes one way, in ns");
  CLI11_PARSE(app, argc, argv);

  const auto make_board = [] {
    void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? nullptr : new (memory) Board{};
  };
  Board* const between_processes = make_board();
  Board* const between_threads = make_board();
  if (between_processes == nullptr || between_threads == nullptr) return 1;
  if (apart) {
    fmt::print("{:.1f}\n", weft::transport::apart_ns(*between_threads, cpus));
    return 0;
  }
  for (int rank = 0; rank < 2; ++rank) {
    if (fork() != 0) continue;
    weft::transport::run_rank(*between_processes, rank, cpus[static_cast<size_t>(rank)], "processes");
    _exit(0);
  }
  bool good = true;
  int status = 0;
  while (wait(&status) > 0) good = good && WIFEXITED(status) && WEXITSTATUS(status) == 0;

  std::thread second([&] { weft::transport::run_rank(*between_threads, 1, cpus[1], "threads"); });
  weft::transport::run_rank(*between_threads, 0, cpus[0], "threads");
  second.join();
  return good ? 0 : 1;
}
