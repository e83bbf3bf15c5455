#include "run/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

namespace weft::run {
namespace {

struct Pipe {
  UniqueFd read, write;
};

Result<Pipe> make_pipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return fail_errno(errno, "cannot make a pipe for a rank");
  return Pipe{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

/// In the child, between fork and exec: only returns when something failed, with errno set.
void become(const Launch& launch, pid_t launcher, int out, int err) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(1);  // it died before the line above took effect

  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);

  if (!launch.inherit_stdin) {
    const int null = open("/dev/null", O_RDONLY);
    if (null < 0 || dup2(null, STDIN_FILENO) < 0) return;
    if (null != STDIN_FILENO) close(null);
  }
  if (dup2(out, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0) return;

  if (!launch.cpus.empty()) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int cpu : launch.cpus) CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);  // a rank that is not pinned runs all the same
  }
  for (const std::string& variable : launch.environment) putenv(const_cast<char*>(variable.c_str()));

  std::vector<char*> argv;
  for (const std::string& word : launch.command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
}

/// The guard's life. `channel` carries groups to watch; 0 is goodbye, the end of the stream is our death.
[[noreturn]] void stand_guard(int channel) {
  // A session of its own: no signal from the terminal reaches it. It keeps none of our descriptors open but
  // the pipe.
  setsid();
  prctl(PR_SET_NAME, "weft_run guard");
  const int null = open("/dev/null", O_RDWR);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null, fd);
  constexpr int kChannel = STDERR_FILENO + 1;
  dup2(channel, kChannel);
  close_range(kChannel + 1, ~0U, 0);

  std::vector<pid_t> groups;
  for (pid_t group = 0;;) {
    const ssize_t n = read(kChannel, &group, sizeof group);
    if (n < 0 && errno == EINTR) continue;
    if (n != sizeof group) break;
    if (group == 0) _exit(0);
    groups.push_back(group);
  }
  for (const pid_t group : groups) kill(-group, SIGKILL);
  _exit(0);
}

/// The beginning of /proc/`pid`/`name`, "" if the process is gone.
std::string read_of_process(pid_t pid, const char* name) {
  const UniqueFd file(open(fmt::format("/proc/{}/{}", pid, name).c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 4096> text;
  const ssize_t n = file.valid() ? read(file.get(), text.data(), text.size()) : 0;
  return std::string(text.data(), static_cast<size_t>(std::max<ssize_t>(n, 0)));
}

/// visit(pid, parent, group) for every process, zombies included.
template <typename Visit>
void for_each_process(Visit&& visit) {
  const std::unique_ptr<DIR, int (*)(DIR*)> proc(opendir("/proc"), closedir);
  if (!proc) return;
  while (const dirent* entry = readdir(proc.get())) {
    const pid_t pid = static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10));
    if (pid <= 0) continue;
    // "pid (name) state ppid pgrp …", where the name may contain anything: look behind the last parenthesis.
    const std::string stat = read_of_process(pid, "stat");
    const size_t behind_name = stat.rfind(')');
    int parent = 0, group = 0;
    if (behind_name != std::string::npos &&
        std::sscanf(stat.c_str() + behind_name + 1, " %*c %d %d", &parent, &group) == 2)
      visit(pid, parent, group);
  }
}

bool handles(pid_t pid, int signal) {
  constexpr std::string_view kCaught = "\nSigCgt:";
  const std::string status = read_of_process(pid, "status");
  const size_t at = status.find(kCaught);
  if (at == std::string::npos) return false;
  const unsigned long long caught = std::strtoull(status.c_str() + at + kCaught.size(), nullptr, 16);
  return (caught >> (signal - 1) & 1) != 0;
}

}  // namespace

Result<Rank> start(const Launch& launch) {
  Result<Pipe> out = make_pipe(), err = make_pipe(), trouble = make_pipe();
  for (const auto* pipe : {&out, &err, &trouble}) WEFT_TRY(pipe->status());

  const pid_t launcher = getpid();
  const pid_t pid = fork();
  if (pid < 0) return fail_errno(errno, "cannot start a process");
  if (pid == 0) {
    become(launch, launcher, out->write.get(), err->write.get());
    const int error = errno;
    (void)!write(trouble->write.get(), &error, sizeof error);
    _exit(127);
  }
  setpgid(pid, pid);  // on both sides: whoever is first, the group exists before anybody signals it

  // The pipe closes when exec succeeds, and carries errno when it does not.
  trouble->write.reset();
  int error = 0;
  ssize_t n;
  do n = read(trouble->read.get(), &error, sizeof error);
  while (n < 0 && errno == EINTR);
  if (n == sizeof error) {
    waitpid(pid, nullptr, 0);
    return fail(Code::invalid_argument, "cannot run {}: {}", launch.command[0], std::strerror(error));
  }
  return Rank{pid, std::move(out->read), std::move(err->read)};
}

Result<Guard> Guard::start() {
  Result<Pipe> channel = make_pipe();
  WEFT_TRY(channel.status());
  Guard guard;
  guard.pid_ = fork();
  if (guard.pid_ < 0) return fail_errno(errno, "cannot start the guard process");
  if (guard.pid_ > 0) {
    guard.channel_ = std::move(channel->write);
    return guard;
  }
  stand_guard(channel->read.get());
}

void Guard::watch(pid_t group) { (void)!write(channel_.get(), &group, sizeof group); }

void Guard::retire() {
  watch(0);
  channel_.reset();
  waitpid(pid_, nullptr, 0);
}

std::vector<pid_t> children() {
  std::vector<pid_t> found;
  for_each_process([&](pid_t pid, pid_t parent, pid_t) {
    if (parent == getpid()) found.push_back(pid);
  });
  return found;
}

std::vector<pid_t> handlers_of(int signal, const std::vector<pid_t>& groups) {
  std::vector<pid_t> found;
  for_each_process([&](pid_t pid, pid_t, pid_t group) {
    if (std::find(groups.begin(), groups.end(), group) != groups.end() && handles(pid, signal))
      found.push_back(pid);
  });
  return found;
}

}  // namespace weft::run
