// gpu_ranks: Weft on one GPU, with ranks that are threads of this process. Ranks that are processes take
// turns on a GPU, which costs more than a short operation. The driver is loaded at run time, so the program
// needs no nvcc and runs on the tests' driver, too.
//   gpu_ranks time RANKS COLLECTIVE BYTES...   microseconds of back-to-back calls; BYTES: the longer buffer
//   gpu_ranks random RANKS OPERATIONS          small collectives with random delays, every result checked
//   gpu_ranks abort | deadline [COLLECTIVE]    when the stream of an operation without a peer goes on
//   gpu_ranks copy BYTES | flag                what those times are compared with
// Each result is a line of JSON. Failures are sentences, and exit code 1.
#include <dlfcn.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cuda.h"
#include "weft/weft.h"

namespace {

using weft::perf::Cuda;
using weft::perf::Graph;
using Json = nlohmann::ordered_json;

constexpr size_t kLong = size_t{64} << 20;  // bytes from which on few calls are timed
constexpr double kPatienceS = 60;           // a longer operation has lost a message: the program ends

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "gpu_ranks: %s\n", why.c_str());
  std::_Exit(1);  // work that is stuck in the driver stays there
}
void must(weftResult_t result) {
  if (result != weftSuccess) give_up(weftGetLastError(nullptr));
}
double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
void print(const Json& result) {
  std::printf("%s\n", result.dump().c_str());
  std::fflush(stdout);
}

/// A rank: a thread's own stream and communicator. The communicator is made by join(), on the rank's thread.
struct Rank {
  explicit Rank(int number) : number(number), cuda("gpu_ranks: ") {}
  void join(int ranks, const weftUniqueId& id, double timeout_s) {
    cuda.use(0);
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.device = 0;
    config.timeoutSeconds = timeout_s;
    must(weftCommInitRankConfig(&comm, ranks, id, number, &config));
  }
  float* zeros(size_t bytes) const {
    auto* const memory = reinterpret_cast<float*>(cuda.allocate(bytes));
    const std::vector<std::byte> none(std::min(bytes, kLong));
    for (size_t at = 0; at < bytes; at += none.size())
      cuda.copy(reinterpret_cast<std::byte*>(memory) + at, none.data(), std::min(none.size(), bytes - at));
    return memory;
  }
  weftResult_t call(const std::string& collective, const float* from, float* to, size_t count) const {
    auto* const stream = static_cast<weftStream_t>(cuda.stream());
    if (collective == "all_reduce") return weftAllReduce(from, to, count, weftFloat, weftSum, comm, stream);
    if (collective == "all_gather") return weftAllGather(from, to, count, weftFloat, comm, stream);
    return weftReduceScatter(from, to, count, weftFloat, weftSum, comm, stream);
  }

  int number;
  Cuda cuda;
  weftComm_t comm = nullptr;
};

/// Runs `work` as `ranks` threads, which share a GPU and a communicator. Device memory stays until the
/// process ends: a free would wait for the other ranks' streams.
void on_ranks(int ranks, double timeout_s, const std::function<void(Rank&)>& work) {
  weftUniqueId id;
  must(weftGetUniqueId(&id));
  std::vector<std::thread> threads;
  for (int number = 0; number < ranks; ++number)
    threads.emplace_back([&, number] {
      Rank rank(number);
      rank.join(ranks, id, timeout_s);
      work(rank);
    });
  for (std::thread& thread : threads) thread.join();
}

/// `calls` back-to-back calls, or graphs of `graph` calls that are launched back to back.
class Streak {
 public:
  Streak(Rank& rank, std::function<void()> call, int calls, int graph)
      : rank_(rank), call_(std::move(call)), calls_(calls), per_graph_(graph) {
    if (graph == 0) return;
    graph_.emplace(rank.cuda);
    for (int i = 0; i < graph; ++i) call_();
    graph_->end();
  }
  int calls() const { return per_graph_ ? std::max(1, calls_ / per_graph_) * per_graph_ : calls_; }
  void run() const {
    if (!graph_)
      for (int i = 0; i < calls_; ++i) call_();
    else
      for (int i = 0; i < calls(); i += per_graph_) graph_->launch();
    rank_.cuda.synchronize();
  }

 private:
  Rank& rank_;
  const std::function<void()> call_;
  const int calls_, per_graph_;
  std::optional<Graph> graph_;
};

struct Timed {
  int ranks = 2, graph = 0;
  int calls = 0;  // 0: 200, or 20 long ones
  std::string collective;
  std::vector<size_t> bytes;
};

void time_collectives(const Timed& asked) {
  const auto [least, most] = std::minmax_element(asked.bytes.begin(), asked.bytes.end());
  const size_t largest = *most;
  if (*least < sizeof(float) * static_cast<size_t>(asked.ranks))
    give_up("BYTES is " + std::to_string(*least) + ", must be at least an element of 4 bytes for each rank");
  std::barrier meet(asked.ranks);
  on_ranks(asked.ranks, kPatienceS, [&](Rank& rank) {
    float *const from = rank.zeros(largest), *const to = rank.zeros(largest);
    for (const size_t bytes : asked.bytes) {
      const size_t parts = asked.collective == "all_reduce" ? 1 : static_cast<size_t>(asked.ranks);
      const size_t count = bytes / sizeof(float) / parts;
      const auto call = [&] { must(rank.call(asked.collective, from, to, count)); };
      for (int i = 0; i < 10; ++i) call();
      rank.cuda.synchronize();
      weftCommStats_t stats = WEFT_COMM_STATS_INITIALIZER;
      must(weftCommGetStats(rank.comm, &stats));
      const int usual = bytes >= kLong ? 20 : 200;
      const Streak streak(rank, call, asked.calls > 0 ? asked.calls : usual, asked.graph);
      streak.run();  // also the graph's first launch, which uploads it
      meet.arrive_and_wait();
      const double begin = now_s();
      streak.run();
      const double us = (now_s() - begin) / streak.calls() * 1e6;
      meet.arrive_and_wait();
      if (rank.number == 0)
        print({{"collective", asked.collective},
               {"ranks", asked.ranks},
               {"bytes", bytes},
               {"us", us},
               {"GB/s", static_cast<double>(bytes) / us / 1e3},
               {"algorithm", stats.lastAlgorithm},
               {"path", stats.intraTransport},
               {"graph", asked.graph}});
    }
    meet.arrive_and_wait();
    must(weftCommDestroy(rank.comm));
  });
}

// ---- small operations with random delays ----

constexpr int kBatch = 64;         // operations between two checks
constexpr size_t kMostCount = 64;  // elements

/// One operation of a batch, the same on all ranks.
struct Drawn {
  int collective;
  size_t count;
};
std::array<Drawn, kBatch> draw(uint64_t batch) {
  std::mt19937_64 random(batch);
  std::array<Drawn, kBatch> all;
  for (Drawn& one : all) one = {static_cast<int>(random() % 3), 1 + random() % kMostCount};
  return all;
}

/// Rank `rank`'s element `i` in operation `slot`: a whole number, so that sums are exact in any order.
float element(uint64_t batch, int slot, int rank, size_t i) {
  return static_cast<float>(
      (batch * 13 + static_cast<uint64_t>(slot) * 7 + static_cast<uint64_t>(rank) * 31 + i * 3) % 1009);
}

/// How many of an operation's results are wrong.
int64_t wrong_in(const float* got, const Drawn& drawn, uint64_t batch, int slot, int rank, int ranks) {
  int64_t wrong = 0;
  const auto sum = [&](size_t i) {
    float total = 0;
    for (int r = 0; r < ranks; ++r) total += element(batch, slot, r, i);
    return total;
  };
  if (drawn.collective == 1) {
    for (int r = 0; r < ranks; ++r)
      for (size_t i = 0; i < drawn.count; ++i)
        wrong += got[static_cast<size_t>(r) * drawn.count + i] != element(batch, slot, r, i);
    return wrong;
  }
  const size_t first = drawn.collective == 2 ? static_cast<size_t>(rank) * drawn.count : 0;
  for (size_t i = 0; i < drawn.count; ++i) wrong += got[i] != sum(first + i);
  return wrong;
}

/// One call in eight comes late: by up to 100 µs, one in 512 by a millisecond.
void perhaps_be_late(std::mt19937_64& random) {
  const uint64_t drawn = random();
  if (drawn % 8 != 0) return;
  const double until = now_s() + (drawn % 512 == 0 ? 1e-3 : 1e-6 * static_cast<double>(drawn / 512 % 100));
  while (now_s() < until) {
  }
}

struct Random {
  int ranks = 2;
  int64_t operations = 1000000;
  double seconds = 100;
};

void random_operations(const Random& asked) {
  static constexpr const char* kCollectives[] = {"all_reduce", "all_gather", "reduce_scatter"};
  const size_t slot_floats = kMostCount * static_cast<size_t>(asked.ranks), all_floats = slot_floats * kBatch;
  const double begin = now_s();
  std::atomic<int64_t> wrong{0}, done{0};
  std::atomic<bool> over{false};
  std::barrier meet(asked.ranks, [&]() noexcept {
    over = done >= asked.operations || now_s() - begin > asked.seconds;
    if (!over) done += kBatch;
  });
  on_ranks(asked.ranks, kPatienceS, [&](Rank& rank) {
    float *const from = rank.zeros(all_floats * sizeof(float)), *const to =
                                                                    rank.zeros(all_floats * sizeof(float));
    std::vector<float> host(all_floats);
    std::mt19937_64 random(static_cast<uint64_t>(rank.number));
    for (uint64_t batch = 0;; ++batch) {
      meet.arrive_and_wait();
      if (over) break;
      for (int slot = 0; slot < kBatch; ++slot)
        for (size_t i = 0; i < slot_floats; ++i)
          host[static_cast<size_t>(slot) * slot_floats + i] = element(batch, slot, rank.number, i);
      rank.cuda.copy(from, host.data(), all_floats * sizeof(float));
      const auto drawn = draw(batch);
      for (int slot = 0; slot < kBatch; ++slot) {
        const Drawn& one = drawn[static_cast<size_t>(slot)];
        const size_t at = static_cast<size_t>(slot) * slot_floats;
        perhaps_be_late(random);
        must(rank.call(kCollectives[one.collective], from + at, to + at, one.count));
      }
      rank.cuda.synchronize();
      rank.cuda.copy(host.data(), to, all_floats * sizeof(float));
      for (int slot = 0; slot < kBatch; ++slot)
        wrong += wrong_in(host.data() + static_cast<size_t>(slot) * slot_floats,
                          drawn[static_cast<size_t>(slot)], batch, slot, rank.number, asked.ranks);
    }
    must(weftCommDestroy(rank.comm));
  });
  const double took_s = now_s() - begin;
  print({{"ranks", asked.ranks},
         {"operations", done.load()},
         {"wrong", wrong.load()},
         {"seconds", took_s},
         {"us", took_s / static_cast<double>(std::max<int64_t>(1, done)) * 1e6}});
  if (wrong > 0) give_up(std::to_string(wrong) + " results are wrong");
}

// ---- operations without a peer ----

/// Rank 0 calls a collective that rank 1 never calls, and `end` ends it. Prints when rank 0's stream went on.
void without_a_peer(const std::string& collective, double timeout_s, const std::function<Json(Rank&)>& end) {
  std::barrier meet(2);
  on_ranks(2, timeout_s, [&](Rank& rank) {
    float *const from = rank.zeros(8192), *const to = rank.zeros(8192);
    const auto call = [&] { must(rank.call(collective, from, to, 1024)); };
    for (int i = 0; i < 10; ++i) call();  // later ones return while the stream waits
    rank.cuda.synchronize();
    meet.arrive_and_wait();
    if (rank.number == 0) {
      call();
      weftCommStats_t stats = WEFT_COMM_STATS_INITIALIZER;
      must(weftCommGetStats(rank.comm, &stats));
      Json ended = end(rank);
      ended["algorithm"] = stats.lastAlgorithm;
      print(ended);
    }
    meet.arrive_and_wait();
    if (rank.comm) (void)weftCommAbort(rank.comm);
  });
}

void abort_one(const std::string& collective) {
  without_a_peer(collective, kPatienceS, [](Rank& rank) -> Json {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const double begin = now_s();
    must(weftCommAbort(rank.comm));
    rank.comm = nullptr;
    const double returned = now_s();
    rank.cuda.synchronize();
    return {{"abort returns, ms", (returned - begin) * 1e3}, {"stream goes on, ms", (now_s() - begin) * 1e3}};
  });
}

constexpr double kDeadlineS = 3;  // enough for the creation of a communicator, which it bounds, too

void deadline(const std::string& collective) {
  without_a_peer(collective, kDeadlineS, [](Rank& rank) -> Json {
    const double begin = now_s();
    rank.cuda.synchronize();
    const double took_s = now_s() - begin;
    weftResult_t error = weftSuccess;
    must(weftCommGetAsyncError(rank.comm, &error));
    if (error != weftTimeout)
      give_up(std::string("the error is ") + weftGetErrorString(error) + ", must be a timeout");
    return {
        {"deadline, s", kDeadlineS}, {"stream goes on, s", took_s}, {"error", weftGetLastError(rank.comm)}};
  });
}

// ---- what times are compared with ----

template <typename Function>
Function of_driver(const char* name) {
  const char* const named = std::getenv("WEFT_CUDA_LIBRARY");
  void* const driver = dlopen(named && *named ? named : "libcuda.so.1", RTLD_NOW);
  void* const function = driver ? dlsym(driver, name) : nullptr;
  if (!function) give_up(std::string("the driver has no ") + name);
  return reinterpret_cast<Function>(function);
}
void must_driver(int error) {
  if (error != 0) give_up("the driver says error " + std::to_string(error));
}
unsigned long long address_of(const void* memory) { return reinterpret_cast<uintptr_t>(memory); }

void copy(size_t bytes) {
  constexpr int kRounds = 20;
  Rank rank(0);
  rank.cuda.use(0);
  const auto queue =
      of_driver<int (*)(unsigned long long, unsigned long long, size_t, void*)>("cuMemcpyAsync");
  float *const from = rank.zeros(bytes), *const to = rank.zeros(bytes);
  double begin = 0;
  for (int round = -3; round < kRounds; ++round) {
    if (round == 0) rank.cuda.synchronize(), begin = now_s();
    must_driver(queue(address_of(to), address_of(from), bytes, rank.cuda.stream()));
  }
  rank.cuda.synchronize();
  const double us = (now_s() - begin) / kRounds * 1e6;
  print({{"bytes", bytes}, {"us", us}, {"GB/s", static_cast<double>(bytes) / us / 1e3}});
}

/// The stream writes "ready" and waits for "done", which this thread writes.
void flag() {
  using Flagged = int (*)(void*, unsigned long long, uint32_t, unsigned);
  constexpr uint32_t kRounds = 2000;
  constexpr unsigned kMapped = 2, kAtLeast = 0;  // CU_MEMHOSTALLOC_DEVICEMAP, CU_STREAM_WAIT_VALUE_GEQ
  Rank rank(0);
  rank.cuda.use(0);
  const auto write_value = of_driver<Flagged>("cuStreamWriteValue32_v2");
  const auto wait_value = of_driver<Flagged>("cuStreamWaitValue32_v2");
  void* flags = nullptr;
  must_driver(of_driver<int (*)(void**, size_t, unsigned)>("cuMemHostAlloc")(&flags, 128, kMapped));
  std::fill_n(static_cast<std::byte*>(flags), 128, std::byte{0});
  auto* const ready = static_cast<std::atomic<uint32_t>*>(flags);
  auto* const done = ready + 16;
  const double begin = now_s();
  for (uint32_t round = 1; round <= kRounds; ++round) {
    must_driver(write_value(rank.cuda.stream(), address_of(ready), round, 0));
    must_driver(wait_value(rank.cuda.stream(), address_of(done), round, kAtLeast));
    while (ready->load(std::memory_order_acquire) != round) {
    }
    done->store(round, std::memory_order_release);
  }
  rank.cuda.synchronize();
  print({{"us", (now_s() - begin) / kRounds * 1e6}});
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Weft on one GPU, the ranks being threads of this process; each result is a line of JSON"};
  app.require_subcommand(1);
  const CLI::Range some_ranks(2, 64);
  Timed timed;
  Random random;
  size_t bytes = 0;
  auto* const time = app.add_subcommand("time", "Microseconds of back-to-back calls of a collective");
  time->add_option("ranks", timed.ranks)->required()->check(some_ranks);
  time->add_option("collective", timed.collective)
      ->required()
      ->check(CLI::IsMember({"all_reduce", "all_gather", "reduce_scatter"}));
  time->add_option("bytes", timed.bytes, "Lengths of the longer buffer")
      ->required()
      ->check(CLI::Range(size_t{8}, size_t{1} << 40));
  time->add_option("--calls", timed.calls, "Back-to-back calls; 0: 200, or 20 long ones")
      ->check(CLI::Range(0, 1000000));
  time->add_option("--graph", timed.graph, "Calls in a CUDA graph; 0: no graph")->check(CLI::Range(0, 1000));
  auto* const mixed =
      app.add_subcommand("random", "Small collectives with random delays, every result checked");
  mixed->add_option("ranks", random.ranks)->required()->check(some_ranks);
  mixed->add_option("operations", random.operations)->required()->check(CLI::PositiveNumber);
  mixed->add_option("--seconds", random.seconds, "Ends after so long, with fewer operations")
      ->capture_default_str();
  auto* const aborted = app.add_subcommand("abort", "When the stream of an aborted operation goes on");
  auto* const late =
      app.add_subcommand("deadline", "When the stream of an operation goes on whose peer never comes");
  const CLI::IsMember collectives({"all_reduce", "all_gather", "reduce_scatter"});
  std::string without_peer = "all_reduce";
  for (auto* const command : {aborted, late})
    command->add_option("collective", without_peer)->capture_default_str()->check(collectives);
  auto* const copied = app.add_subcommand("copy", "Bandwidth of a copy inside the device");
  copied->add_option("bytes", bytes)->required()->check(CLI::PositiveNumber);
  auto* const flagged = app.add_subcommand("flag", "Round trip between a stream and a CPU thread, by flags");
  CLI11_PARSE(app, argc, argv);
  if (*time) time_collectives(timed);
  if (*mixed) random_operations(random);
  if (*aborted) abort_one(without_peer);
  if (*late) deadline(without_peer);
  if (*copied) copy(bytes);
  if (*flagged) flag();
  return 0;
}
