#include "run/supervisor.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace weft::run {
namespace {

// How long output is awaited once nobody who could write it should be left.
constexpr double kDrainSeconds = 1;
constexpr double kStrayCheckSeconds = 0.05;
constexpr int kTimedOut = 124;  // as timeout(1)

/// A TCP port that is kept from others, ephemeral use included, until rank 0 listens on it: bound, but not
/// listening, which SO_REUSEADDR on both sides allows to share.
struct Port {
  UniqueFd reservation;
  int number = 0;
};

/// On every address, as rank 0 listens: a port that is free on one alone may be the end of a connection,
/// under way or just closed, on another.
Result<Port> reserve_port() {
  const int on = 1, off = 0;
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  sockaddr_in four{};
  four.sin_family = AF_INET;
  for (const bool with_six : {true, false}) {  // a kernel may have no IPv6
    Port port{UniqueFd(socket(with_six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))};
    if (!port.reservation.valid()) continue;
    const int fd = port.reservation.get();
    auto* const address = with_six ? reinterpret_cast<sockaddr*>(&six) : reinterpret_cast<sockaddr*>(&four);
    socklen_t size = with_six ? sizeof six : sizeof four;
    if (with_six) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 || bind(fd, address, size) != 0 ||
        getsockname(fd, address, &size) != 0)
      continue;
    port.number = ntohs(with_six ? six.sin6_port : four.sin_port);
    return port;
  }
  return fail_errno(errno, "cannot find a free port for the ranks to meet");
}

Result<std::string> random_secret() {
  std::array<unsigned char, 32> bytes;
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return fail_errno(errno, "cannot draw the job's secret");
  }
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

std::vector<int> available_cpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

/// Two pipes a rank: the usual limit of 1024 descriptors is soon reached.
void allow_many_descriptors() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

/// Signals that programs take for requests, as Weft does for its flight recorders (WEFT_RECORDER_SIGNAL).
bool is_request(int signal) { return signal == SIGUSR1 || signal == SIGUSR2 || signal == SIGQUIT; }

template <typename... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  const std::string line = "weft_run: " + fmt::format(format, std::forward<Args>(args)...) + "\n";
  (void)!write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

Result<int> Supervisor::run() {
  WEFT_TRY(take_charge());
  Result<Port> port = reserve_port();
  WEFT_TRY(port.status());
  Result<std::string> secret = random_secret();
  WEFT_TRY(secret.status());

  const Status started = start_ranks({fmt::format("127.0.0.1:{}", port->number), secret.take()});
  if (started && job_.timeout_s > 0) end_ = Deadline::in_seconds(job_.timeout_s);
  while (running_ > 0) take_turn(Deadline::never());
  clear_up();
  if (!started) return started;
  return code_.value_or(0);
}

/// Signals become readable, orphaned grandchildren become ours, and a guard outlives us.
Status Supervisor::take_charge() {
  allow_many_descriptors();
  signal(SIGPIPE, SIG_IGN);
  signal(SIGCHLD, SIG_DFL);  // who ignores it, as our parent may, is told of no ends
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGCHLD);
  for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGQUIT}) {
    struct sigaction now;  // what nohup or a shell has told us to ignore stays ignored
    if (sigaction(s, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) sigaddset(&mask, s);
  }
  if (sigprocmask(SIG_BLOCK, &mask, nullptr) != 0) return fail_errno(errno, "cannot block signals");
  signals_.reset(signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_.valid()) return fail_errno(errno, "cannot wait for signals");
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return fail_errno(errno, "cannot adopt orphans of ranks");
  Result<Guard> guard = Guard::start();
  WEFT_TRY(guard.status());
  guard_ = guard.take();
  return {};
}

Status Supervisor::start_ranks(const Meeting& meeting) {
  const std::vector<int> cpus = available_cpus();
  for (int rank = 0; rank < job_.ranks; ++rank) {
    // A terminal is not passed on: ranks are not in its foreground, and would be stopped when they read.
    const bool inherit_stdin = rank == 0 && !isatty(STDIN_FILENO);
    Result<Rank> started =
        start({job_.command, environment_of(job_, meeting, rank), cpus_of(job_, cpus, rank), inherit_stdin});
    if (!started) {
      stop(SIGKILL, 1);
      return started.status();
    }
    guard_.watch(started->pid);
    members_.push_back({started->pid});
    ++running_;
    const std::string label = job_.label ? fmt::format("[{}] ", rank) : "";
    const auto room = [this](int sink) { return await_room(sink); };
    relays_.emplace_back(std::move(started->out), STDOUT_FILENO, label, room);
    relays_.emplace_back(std::move(started->err), STDERR_FILENO, label, room);
  }
  return {};
}

/// Sleeps until there is output, a signal, or `until`; relays and heeds.
void Supervisor::take_turn(Deadline until) {
  std::vector<pollfd> watched = {{signals_.get(), POLLIN, 0}};
  for (const LineRelay& relay : relays_) watched.push_back({relay.fd(), POLLIN, 0});
  if (poll(watched.data(), watched.size(), earliest(until).remaining_ms()) > 0) {
    for (size_t i = 0; i < relays_.size(); ++i) {
      if (watched[i + 1].revents != 0) relays_[i].pump();
    }
    if (watched[0].revents != 0) heed_signals();
  }
  heed_clock();
}

/// Waits until `sink` takes something, and meanwhile heeds signals and the clock: whoever reads our output
/// may never go on. False if it takes nothing though ranks are being killed.
bool Supervisor::await_room(int sink) {
  for (;;) {
    pollfd watched[] = {{sink, POLLOUT, 0}, {signals_.get(), POLLIN, 0}};
    const bool something = poll(watched, 2, earliest(give_up_at_).remaining_ms()) > 0;
    if (something && watched[1].revents != 0) heed_signals();
    heed_clock();
    if (something && watched[0].revents != 0) return true;
    if (give_up_at_.passed()) return false;
  }
}

/// `until`, or when the clock has to be heeded before.
Deadline Supervisor::earliest(Deadline until) const {
  Deadline next = until;
  if (running_ > 0 && end_.at_ns() < next.at_ns()) next = end_;
  if (kill_at_ && kill_at_->at_ns() < next.at_ns()) next = *kill_at_;
  return next;
}

/// Stops the ranks when their time is over, kills them when the grace period is.
void Supervisor::heed_clock() {
  if (running_ > 0 && end_.passed()) {
    end_ = Deadline::never();
    say("{} of {} ranks are still running after {} s; stopping them", running_, job_.ranks, job_.timeout_s);
    stop(SIGTERM, kTimedOut);
  }
  if (kill_at_ && kill_at_->passed()) {
    killing_ = true;
    kill_at_ = Deadline::never();
    give_up_at_ = Deadline::in_seconds(kDrainSeconds);
    signal_all(SIGKILL);
  }
}

void Supervisor::heed_signals() {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof info) == sizeof info) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) continue;
    if (is_request(signal) && pass_on(signal)) continue;
    if (kill_at_) {
      say("{} again; killing the ranks", strsignal(signal));
      kill_at_ = Deadline::in_seconds(0);
    } else {
      say("{}; stopping the ranks, which have {} s; once more kills them", strsignal(signal), job_.grace_s);
      stop(signal, 128 + signal);
    }
  }
  notice_ends();
}

/// Ranks that have ended stay zombies until the job is over, so that nobody else can get their number, and a
/// signal to their group reaches nobody else's. Orphans are reaped at once.
void Supervisor::notice_ends() {
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    siginfo_t info{};
    if (members_[rank].ended) continue;
    if (waitid(P_PID, static_cast<id_t>(members_[rank].pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
      if (errno != ECHILD) continue;
      info.si_code = CLD_EXITED;  // somebody else has taken its end away: with what code we do not know
      info.si_status = 1;
    } else if (info.si_pid == 0) {
      continue;
    }
    members_[rank].ended = true;
    --running_;
    note_end(static_cast<int>(rank), info.si_code, info.si_status);
  }
  strays();
}

void Supervisor::note_end(int rank, int how, int value) {
  const bool exited = how == CLD_EXITED;
  if (exited && value == 0) return;
  if (kill_at_) return;  // we are the reason
  const bool others = running_ > 0;
  const char* const consequence = !others           ? ""
                                  : job_.keep_going ? "; the others run on"
                                                    : "; stopping the others";
  if (exited) {
    say("rank {} exited with code {}{}", rank, value, consequence);
  } else {
    say("rank {} was killed by signal {} ({}){}", rank, value, strsignal(value), consequence);
  }
  const int code = exited ? value : 128 + value;
  if (!code_) code_ = code;
  if (others && !job_.keep_going) stop(SIGTERM, code);
}

/// To those who handle it: the shell around a program would only die of it, and the job with it. False if it
/// was meant to end the job.
bool Supervisor::pass_on(int signal) {
  std::vector<pid_t> groups;
  for (const Member& member : members_) groups.push_back(member.pid);
  const std::vector<pid_t> handlers = handlers_of(signal, groups);
  for (const pid_t pid : handlers) kill(pid, signal);
  if (handlers.empty() && signal == SIGQUIT) return false;
  if (handlers.empty()) say("{}; no rank handles it, nothing was done", strsignal(signal));
  else say("{}; passed on to the ranks", strsignal(signal));
  return true;
}

void Supervisor::stop(int signal, int code) {
  if (!code_) code_ = code;
  signal_all(signal);
  if (!kill_at_) kill_at_ = Deadline::in_seconds(job_.grace_s);
}

void Supervisor::signal_all(int signal) {
  for (const Member& member : members_) kill(-member.pid, signal);
  for (const pid_t stray : strays()) kill(stray, signal);
}

/// Ends what ranks have left behind, wherever it went: whatever loses its parent becomes our child, so all
/// are gone when we have no other children than the ranks' remains. Then empties the pipes and buries the
/// ranks.
void Supervisor::clear_up() {
  std::vector<pid_t> told;
  for (std::vector<pid_t> left = strays(); !left.empty(); left = strays()) {
    if (!kill_at_) kill_at_ = Deadline::in_seconds(job_.grace_s);
    for (const pid_t stray : left) {
      const bool known = std::find(told.begin(), told.end(), stray) != told.end();
      if (killing_ || !known) kill(stray, killing_ ? SIGKILL : SIGTERM);
      if (!known) told.push_back(stray);
    }
    take_turn(Deadline::in_seconds(kStrayCheckSeconds));
  }
  const Deadline drained = Deadline::in_seconds(kDrainSeconds);
  while (relaying() && !drained.passed()) take_turn(drained);
  for (LineRelay& relay : relays_) relay.finish();
  for (const Member& member : members_) waitpid(member.pid, nullptr, 0);
  guard_.retire();
}

/// Our children but for the ranks and the guard; those that have ended are reaped.
std::vector<pid_t> Supervisor::strays() {
  std::vector<pid_t> found;
  for (const pid_t child : children()) {
    const bool is_rank =
        std::any_of(members_.begin(), members_.end(), [child](const Member& m) { return m.pid == child; });
    if (child != guard_.pid() && !is_rank && waitpid(child, nullptr, WNOHANG) == 0) found.push_back(child);
  }
  return found;
}

bool Supervisor::relaying() const {
  return std::any_of(relays_.begin(), relays_.end(), [](const LineRelay& relay) { return !relay.done(); });
}

}  // namespace weft::run
