// Ranks as processes: forks a process for every rank before any of them has touched the library.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "api/ranks.h"

namespace weft::testing {

/// How many have arrived, of processes that are forked while it lives.
class Arrivals {
 public:
  Arrivals()
      : count_(new (mmap(nullptr, sizeof(*count_), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
                   std::atomic<int>(0)) {}
  ~Arrivals() { munmap(count_, sizeof(*count_)); }
  Arrivals(const Arrivals&) = delete;
  Arrivals& operator=(const Arrivals&) = delete;

  void arrive() { ++*count_; }
  void wait_for(int count) const {
    while (*count_ < count) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

 private:
  std::atomic<int>* const count_;
};

/// Runs `body` in a process for every entry of `nodes`; its return value is the process's exit code. Returns
/// wait statuses, in rank order. A process that hangs is killed before ctest would end the test, however busy
/// the machine. `before` is called with the rank in its process before it creates the communicator; one that
/// cannot says why and exits with 98.
inline std::vector<int> run_processes(const Nodes& nodes, const std::function<int(Rank&)>& body,
                                      const std::function<void(int)>& before = {}) {
  struct Meeting {
    std::atomic<bool> ready;
    weftUniqueId id;
  };
  void* shared = mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* meeting = new (shared) Meeting{};
  std::vector<pid_t> pids;
  for (int rank = 0; rank < static_cast<int>(nodes.size()); ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      if (before) before(rank);
      if (rank == 0) {
        if (weftGetUniqueId(&meeting->id) != weftSuccess)
          fprintf(stderr, "rank 0: %s\n", weftGetLastError(nullptr));
        meeting->ready.store(true);  // without an id, no rank can join
      }
      while (!meeting->ready.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      weftConfig_t config = WEFT_CONFIG_INITIALIZER;
      config.hostId = nodes[rank].c_str();
      Rank self{rank, static_cast<int>(nodes.size()), nullptr};
      if (weftCommInitRankConfig(&self.comm, self.size, meeting->id, rank, &config) != weftSuccess) {
        fprintf(stderr, "rank %d: %s\n", rank, weftGetLastError(nullptr));
        _exit(98);
      }
      _exit(body(self));
    }
    pids.push_back(pid);
  }
  std::vector<int> statuses(pids.size(), -1);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(240);
  size_t left = pids.size();
  while (left > 0) {
    for (size_t rank = 0; rank < pids.size(); ++rank)
      if (statuses[rank] == -1 && waitpid(pids[rank], &statuses[rank], WNOHANG) == pids[rank]) --left;
      else if (statuses[rank] == -1 && std::chrono::steady_clock::now() > end) kill(pids[rank], SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  munmap(shared, sizeof(Meeting));
  return statuses;
}

inline bool exited_with(int status, int code) { return WIFEXITED(status) && WEXITSTATUS(status) == code; }

}  // namespace weft::testing
