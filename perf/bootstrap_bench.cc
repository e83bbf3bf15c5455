// How long ranks take to join, to gather and to leave, all of them threads of this one process: the work of a
// whole cluster's bootstrap on a single machine. Prints a line a size; times are the best of the repetitions.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "bootstrap/bootstrap.h"

namespace {

using namespace weft;

constexpr size_t kGatheredBytes = 256;
constexpr double kPatienceSeconds = 120;

struct Times_s {
  double join, gather, leave;
};

template <typename Body>
double on_each_rank(int ranks, const Body& body) {
  const int64_t begin_ns = now_ns();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
  return static_cast<double>(now_ns() - begin_ns) / 1e9;
}

Result<Times_s> measure(int ranks) {
  const auto patience = [] { return Deadline::in_seconds(kPatienceSeconds); };
  Result<bootstrap::UniqueId> id = bootstrap::create_unique_id("127.0.0.1");
  if (!id.ok()) return id.status();
  std::vector<std::unique_ptr<bootstrap::Bootstrap>> members(static_cast<size_t>(ranks));
  std::vector<Status> outcome(static_cast<size_t>(ranks));
  const auto failure = [&] {
    const auto bad = std::find_if(outcome.begin(), outcome.end(), [](const Status& s) { return !s.ok(); });
    return bad == outcome.end() ? Status() : *bad;
  };
  Times_s times{};
  times.join = on_each_rank(ranks, [&](int rank) {
    auto joined = bootstrap::Bootstrap::join(*id, rank, ranks, patience());
    outcome[static_cast<size_t>(rank)] = joined.status();
    if (joined.ok()) members[static_cast<size_t>(rank)] = joined.take();
  });
  WEFT_TRY(failure());
  times.gather = on_each_rank(ranks, [&](int rank) {
    const std::vector<std::byte> mine(kGatheredBytes, static_cast<std::byte>(rank));
    outcome[static_cast<size_t>(rank)] =
        members[static_cast<size_t>(rank)]->all_gather(mine, patience()).status();
  });
  WEFT_TRY(failure());
  for (auto& member : members) WEFT_TRY(member->start({}));
  times.leave = on_each_rank(ranks, [&](int rank) { members[static_cast<size_t>(rank)].reset(); });
  return times;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Time to join, gather and leave, with ranks as threads of one process");
  std::vector<int> sizes = {8, 64, 256, 1000};
  int repetitions = 5;
  app.add_option("-n,--ranks", sizes, "numbers of ranks")->check(CLI::Range(1, 100000));
  app.add_option("-r,--repetitions", repetitions, "measurements of each, of which the best is shown")
      ->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);

  fmt::print("{:>6}  {:>10}  {:>22}  {:>10}\n", "ranks", "join (ms)", "all-gather 256 B (ms)", "leave (ms)");
  for (const int ranks : sizes) {
    constexpr double kNever = std::numeric_limits<double>::infinity();
    Times_s best{kNever, kNever, kNever};
    for (int i = 0; i < repetitions; ++i) {
      Result<Times_s> times = measure(ranks);
      if (!times.ok()) {
        fmt::print(stderr, "{} ranks: {}\n", ranks, times.status().message());
        return 1;
      }
      best = {std::min(best.join, times->join), std::min(best.gather, times->gather),
              std::min(best.leave, times->leave)};
    }
    fmt::print("{:>6}  {:>10.1f}  {:>22.1f}  {:>10.1f}\n", ranks, best.join * 1e3, best.gather * 1e3,
               best.leave * 1e3);
    std::fflush(stdout);
  }
  return 0;
}
