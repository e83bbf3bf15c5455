// Supervisor: starts the ranks of a job, relays their output, and makes sure that all of them end.
//
// A job ends when every rank has ended. The first failure cuts it short (unless the job keeps going), as do
// its timeout, SIGINT, SIGTERM and SIGHUP. Ranks and their children then get SIGTERM (or the signal itself),
// and SIGKILL after the grace period. Afterwards no descendant is left. SIGUSR1, SIGUSR2 and SIGQUIT are
// passed to ranks that handle them, because a user knows this process's pid.
//
// Not thread-safe; one per process, since it owns the process's signals and children.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "run/job.h"
#include "run/line_relay.h"
#include "run/process.h"

namespace weft::run {

class Supervisor {
 public:
  explicit Supervisor(const Job& job) : job_(job) {}

  /// Runs the job. The exit code is 0 if every rank ended with 0, else that of the first failure, where a
  /// signal n counts as 128+n. It is 124 after the timeout, and 128+n if signal n told this process to stop.
  /// An error means that the job could not be started; no process is left then either.
  Result<int> run();

 private:
  struct Member {
    pid_t pid;
    bool ended = false;
  };

  Status take_charge();
  Status start_ranks(const Meeting& meeting);
  void take_turn(Deadline until);
  bool await_room(int sink);
  Deadline earliest(Deadline until) const;
  void heed_clock();
  void heed_signals();
  bool pass_on(int signal);
  void notice_ends();
  void note_end(int rank, int how, int value);
  /// Begins to end the job: `signal` now, SIGKILL after the grace period. The first reason decides the exit
  /// code.
  void stop(int signal, int code);
  void signal_all(int signal);
  void clear_up();
  std::vector<pid_t> strays();
  bool relaying() const;

  const Job job_;
  UniqueFd signals_;
  Guard guard_;
  std::vector<Member> members_;
  std::vector<LineRelay> relays_;
  int running_ = 0;
  std::optional<int> code_;                  // of the first failure
  Deadline end_ = Deadline::never();         // of the ranks' time
  std::optional<Deadline> kill_at_;          // set once we are stopping
  bool killing_ = false;                     // the grace period is over
  Deadline give_up_at_ = Deadline::never();  // on output that nobody reads; set with killing_
};

}  // namespace weft::run
