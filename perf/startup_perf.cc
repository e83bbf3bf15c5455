// startup_perf: how long ranks take to come together, from the call that creates the communicator until it
// returns. Ranks are the processes of a launch, or, with --threads N, threads of this one process.
#include <sys/resource.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "options.h"
#include "session.h"
#include "weft/weft.h"

namespace {

constexpr int kCallFailed = 3;

double now_us() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
}

void must(weftResult_t result, const char* what) {
  if (result == weftSuccess) return;
  std::fprintf(stderr, "%s\n", weft::perf::told_by(what, weftGetLastError(nullptr)).c_str());
  std::_Exit(kCallFailed);
}

void print(const std::vector<double>& us, bool json) {
  double sum = 0;
  for (const double one : us) sum += one;
  const double mean = sum / static_cast<double>(us.size()), most = *std::max_element(us.begin(), us.end());
  if (json) {
    std::printf("{\"startup_us\": %.1f, \"slowest_us\": %.1f, \"ranks\": %zu}\n", mean, most, us.size());
  } else {
    std::printf("%zu ranks: %.2f ms, the slowest %.2f ms\n", us.size(), mean / 1e3, most / 1e3);
  }
}

/// Every rank a thread; each has a communicator of its own.
void threads_of_this_process(int ranks, bool json) {
  rlimit files{};  // sockets of all ranks are in this process
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  weftUniqueId id;
  must(weftGetUniqueId(&id), "weftGetUniqueId");
  std::vector<double> us(static_cast<size_t>(ranks));
  const auto each = [ranks](const auto& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(body, rank);
    for (std::thread& thread : threads) thread.join();
  };
  std::vector<weftComm_t> comms(us.size());
  each([&](int rank) {
    const auto at = static_cast<size_t>(rank);
    const double begin = now_us();
    must(weftCommInitRank(&comms[at], ranks, id, rank), "weftCommInitRank");
    us[at] = now_us() - begin;
  });
  print(us, json);
  each([&](int rank) { must(weftCommDestroy(comms[static_cast<size_t>(rank)]), "weftCommDestroy"); });
}

void processes(bool json) {
  const double begin = now_us();
  weftComm_t comm;
  must(weftCommInitEnv(&comm), "weftCommInitEnv");
  const double mine = now_us() - begin;
  int rank = 0, ranks = 0;
  must(weftCommUserRank(comm, &rank), "weftCommUserRank");
  must(weftCommCount(comm, &ranks), "weftCommCount");
  std::vector<double> us(static_cast<size_t>(ranks));
  must(weftAllGather(&mine, us.data(), 1, weftFloat64, comm, nullptr), "weftAllGather");
  if (rank == 0) print(us, json);
  must(weftCommDestroy(comm), "weftCommDestroy");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "The time that ranks take to come together. Start ranks with weft_run -n, mpirun or srun.\n"
      "Exit code: 0; 2 when the command line is wrong; 3 when a call fails.");
  int threads = 0;
  bool json = false;
  app.add_option("--threads", threads, "Ranks are so many threads of this one process")
      ->check(CLI::Range(1, 4096));
  app.add_flag("--json", json, "Print a line of JSON");
  app.set_version_flag("--version", weft::perf::version_of(argv[0]), "Print the version and end");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForVersion& version) {
    if (weft::perf::is_first_of_launch()) std::printf("%s\n", version.what());
    return 0;
  } catch (const CLI::CallForHelp&) {
    if (weft::perf::is_first_of_launch()) std::fputs(app.help().c_str(), stdout);
    return 0;
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 2;
  }
  if (threads > 0) {
    threads_of_this_process(threads, json);
  } else {
    processes(json);
  }
  return 0;
}
