// Processes: the workers and victims of a soak test. The driver has no thread and never calls the library, so
// that it may fork at any time.
//
// Thread safety: none.
#pragma once

#include <sys/types.h>

#include <array>
#include <string>
#include <vector>

#include "board.h"
#include "environment.h"

namespace soak {

/// The workers of an epoch. They live from round to round.
class Workers {
 public:
  Workers(Board& board, const Environment& environment);
  /// Kills those that still run.
  ~Workers();
  Workers(const Workers&) = delete;

  /// Starts a round in the workers that have ranks of it, and its victims.
  void start(const Round& round);
  /// Stops a worker and lets it go on after a pause.
  void pause(int worker, int ms) const;
  enum class State : uint8_t { running, over, died };
  /// Looks once at the round.
  State poll();
  /// Which process died, and how.
  const std::string& obituary() const { return obituary_; }
  /// Has the processes of a round that hangs write where they are, into files beside `prefix`; names the
  /// files.
  std::string dump(const std::string& prefix) const;
  /// Ends the workers. What was wrong in their ends; empty if nothing was.
  std::string end();

 private:
  struct Process {
    pid_t pid = -1;
    int command = -1, answer = -1;  // pipes
    bool busy = false;
  };
  void fork_worker(int worker);
  void fork_victim(const Round& round, int process);
  [[noreturn]] void work(int worker, int commands, int answers);
  void apply_environment() const;

  Board& board_;
  const Environment environment_;
  std::array<Process, kWorkers> workers_;
  std::vector<pid_t> victims_;
  std::string obituary_;
};

}  // namespace soak
