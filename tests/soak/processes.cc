#include "processes.h"

#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "rank.h"

namespace soak {
namespace {

std::string end_of(int status) {
  return WIFSIGNALED(status) ? "was killed by signal " + std::to_string(WTERMSIG(status))
                             : "exited with " + std::to_string(WEXITSTATUS(status));
}

/// An arena of the allocator keeps up to 64 MiB, and every thread may have an arena. What Weft keeps would
/// not show beside that.
void return_freed_memory() {
  (void)mallopt(M_MMAP_THRESHOLD, 128 << 10);
  (void)mallopt(M_TRIM_THRESHOLD, 128 << 10);
}

}  // namespace

Workers::Workers(Board& board, const Environment& environment) : board_(board), environment_(environment) {
  for (int worker = 0; worker < kWorkers; ++worker) fork_worker(worker);
}

Workers::~Workers() {
  for (Process& worker : workers_) {
    if (worker.pid > 0) {
      (void)kill(worker.pid, SIGKILL);
      (void)waitpid(worker.pid, nullptr, 0);
    }
    close(worker.command);
    close(worker.answer);
  }
  for (const pid_t victim : victims_) {
    (void)kill(victim, SIGKILL);
    (void)waitpid(victim, nullptr, 0);
  }
}

void Workers::apply_environment() const {
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const auto& [name, value] : environment_) setenv(name.c_str(), value.c_str(), 1);
}

void Workers::fork_worker(int worker) {
  int commands[2], answers[2];
  if (pipe2(commands, O_CLOEXEC) != 0 || pipe2(answers, O_CLOEXEC) != 0) std::abort();
  const pid_t pid = fork();
  if (pid < 0) std::abort();
  if (pid == 0) {
    close(commands[1]);
    close(answers[0]);
    for (int before = 0; before < worker; ++before) {
      close(workers_[static_cast<size_t>(before)].command);
      close(workers_[static_cast<size_t>(before)].answer);
    }
    work(worker, commands[0], answers[1]);
  }
  close(commands[0]);
  close(answers[1]);
  workers_[static_cast<size_t>(worker)] = {pid, commands[1], answers[0], false};
}

void Workers::work(int worker, int commands, int answers) {
  apply_environment();
  return_freed_memory();
  char command = 0;
  while (read(commands, &command, 1) == 1) {
    board_.usage[static_cast<size_t>(worker)] = measure_usage();
    run_ranks(board_, make_round(board_.seed), worker);
    if (write(answers, &command, 1) != 1) break;
  }
  std::exit(0);
}

void Workers::fork_victim(const Round& round, int process) {
  const pid_t pid = fork();
  if (pid < 0) std::abort();
  if (pid == 0) {
    for (const Process& worker : workers_) {
      close(worker.command);
      close(worker.answer);
    }
    apply_environment();
    run_ranks(board_, round, process);
    _exit(0);
  }
  victims_.push_back(pid);
}

void Workers::start(const Round& round) {
  for (int process = kWorkers; process < kWorkers + kVictims; ++process)
    if (round.uses(process)) fork_victim(round, process);
  for (int worker = 0; worker < kWorkers; ++worker) {
    if (!round.uses(worker)) continue;
    Process& process = workers_[static_cast<size_t>(worker)];
    process.busy = write(process.command, "r", 1) == 1;
  }
}

void Workers::pause(int worker, int ms) const {
  const pid_t pid = workers_[static_cast<size_t>(worker)].pid;
  if (pid <= 0) return;
  (void)kill(pid, SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
  (void)kill(pid, SIGCONT);
}

Workers::State Workers::poll() {
  bool busy = false;
  for (int worker = 0; worker < kWorkers; ++worker) {
    Process& process = workers_[static_cast<size_t>(worker)];
    int status = 0;
    if (process.pid > 0 && waitpid(process.pid, &status, WNOHANG) == process.pid) {
      process.pid = -1;
      obituary_ = "worker " + std::to_string(worker) + " " + end_of(status);
      return State::died;
    }
    if (!process.busy) continue;
    (void)fcntl(process.answer, F_SETFL, O_NONBLOCK);
    char answer = 0;
    if (read(process.answer, &answer, 1) == 1) process.busy = false;
    busy |= process.busy;
  }
  std::erase_if(victims_, [this](pid_t victim) {
    int status = 0;
    if (waitpid(victim, &status, WNOHANG) != victim) return false;
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (!killed && obituary_.empty()) obituary_ = "a victim, before its time, " + end_of(status);
    return true;
  });
  if (!obituary_.empty()) return State::died;
  return busy || !victims_.empty() ? State::running : State::over;
}

std::string Workers::dump(const std::string& prefix) const {
  std::string files;
  for (const Process& process : workers_) {
    if (process.pid <= 0) continue;
    (void)kill(process.pid, SIGUSR2);  // the flight recorders, into WEFT_RECORDER_DIR
    const std::string file = prefix + std::to_string(process.pid) + ".txt";
    const std::string command = "timeout 60 gdb -batch -ex 'thread apply all bt' -p " +
                                std::to_string(process.pid) + " > " + file + " 2>&1";
    if (std::system(command.c_str()) == 0) files += " " + file;
  }
  return files;
}

std::string Workers::end() {
  std::string wrong;
  for (int worker = 0; worker < kWorkers; ++worker) {
    Process& process = workers_[static_cast<size_t>(worker)];
    close(process.command);
    process.command = -1;
    int status = 0;
    if (process.pid > 0 && waitpid(process.pid, &status, 0) == process.pid && status != 0 && wrong.empty())
      wrong = "worker " + std::to_string(worker) + ", at its end, " + end_of(status);
    process.pid = -1;
  }
  return wrong;
}

}  // namespace soak
