// delay_switch: an Ethernet switch for emulated clusters whose frames take time, for kernels that have no
// netem.
//
//   delay_switch --delay_us 1000 --rate_mbit 500 PORT…
//
// Each port is a TAP interface that this program makes and scripts/cluster.sh moves into a node. A frame
// waits for its turn on the port it leaves by, which sends at the given rate, and then for the delay. A port
// with more than kBacklogNs of frames waiting drops the next one, as switches do. Prints "ready" when all
// ports are there; runs until it gets SIGTERM or SIGINT.
//
// A network takes no turns with what runs on the nodes, so the one thread has real-time priority where it
// may. As any other program it was displaced by each rank that its frame woke, and frames were 11 ms late.
// While frames wait it looks for others at ticks: woken by each, it would interrupt a sender as often as that
// one sends. So a frame is late by up to two ticks, and never early.
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <queue>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"

namespace {

using weft::now_ns;
using weft::UniqueFd;

constexpr int64_t kBacklogNs = 20'000'000;  // as the 20 ms of latency of the other clusters' token buckets
constexpr size_t kHeader =
    10;  // virtio_net_hdr before each frame: how a segment is to be cut (linux/virtio_net.h is no C++)
constexpr size_t kLargestFrame = kHeader + 65536 + 64;
constexpr size_t kSegment = 1448, kSegmentOverhead = 66;  // of TCP on Ethernet, for frames that are cut later
constexpr int kFramesAtOnce = 1000;                       // of a port, before others have their turn
constexpr int64_t kShortestTickNs = 10'000, kLongestTickNs = 50'000;

volatile sig_atomic_t stopped = 0;

using Address = std::array<unsigned char, 6>;

struct Frame {
  int64_t due_ns;
  uint64_t order;  // frames that are due at one time leave in the order in which they came
  size_t port;
  std::vector<char> data;
  bool operator<(const Frame& other) const {
    return due_ns != other.due_ns ? due_ns > other.due_ns : order > other.order;  // the earliest is on top
  }
};

class Switch {
 public:
  Switch(double delay_us, double rate_mbit)
      : delay_ns_(static_cast<int64_t>(delay_us * 1e3)),
        tick_ns_(std::clamp(delay_ns_ / 20, kShortestTickNs, kLongestTickNs)),
        ns_per_byte_(rate_mbit > 0 ? 8e3 / rate_mbit : 0) {}

  bool open(const std::vector<std::string>& names);
  void run();

 private:
  bool open_port(const std::string& name);
  void watch(int fd, uint64_t label);
  void receive(size_t port, int64_t now);
  void unplug(size_t port);
  void queue(size_t port, const char* data, size_t bytes, int64_t now);
  void send_due();

  const int64_t delay_ns_, tick_ns_;
  const double ns_per_byte_;
  UniqueFd epoll_;
  std::vector<UniqueFd> ports_;
  std::vector<int64_t> free_ns_;  // when each port has sent what waits there
  std::map<Address, size_t> learned_;
  std::priority_queue<Frame> waiting_;
  uint64_t frames_ = 0;
};

void sleep_until(int64_t ns) {
  const timespec when{.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, nullptr);
}

bool fail(const std::string& what) {
  fmt::print(stderr, "delay_switch: {}: {}\n", what, strerror(errno));
  return false;
}

bool Switch::open_port(const std::string& name) {
  UniqueFd fd(::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!fd.valid()) return fail("/dev/net/tun");
  ifreq request{};
  if (name.size() >= sizeof request.ifr_name) {
    fmt::print(stderr, "delay_switch: {} is too long for the name of an interface\n", name);
    return false;
  }
  std::memcpy(request.ifr_name, name.c_str(), name.size());
  request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
  if (ioctl(fd.get(), TUNSETIFF, &request) != 0) return fail(name);
  // Segments may stay whole: cutting them would cost more CPU than the network.
  if (ioctl(fd.get(), TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6) != 0) return fail(name);
  watch(fd.get(), ports_.size());
  ports_.push_back(std::move(fd));
  free_ns_.push_back(0);
  return true;
}

bool Switch::open(const std::vector<std::string>& names) {
  epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.valid()) return fail("epoll");
  for (const std::string& name : names) {
    if (!open_port(name)) return false;
  }
  return true;
}

void Switch::watch(int fd, uint64_t label) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = label;
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
}

void Switch::run() {
  std::vector<epoll_event> events(ports_.size());
  while (!stopped) {
    const bool idle = waiting_.empty();
    if (!idle) sleep_until(now_ns() + tick_ns_);
    const int count =
        epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), idle ? 1000 : 0);
    const int64_t now = now_ns();
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      (event.events & (EPOLLERR | EPOLLHUP)) != 0 ? unplug(event.data.u64) : receive(event.data.u64, now);
    }
    send_due();
  }
}

/// Its node is gone; nothing else would end the news of that.
void Switch::unplug(size_t port) { epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, ports_[port].get(), nullptr); }

void Switch::receive(size_t port, int64_t now) {
  static std::array<char, kLargestFrame> buffer;
  for (int i = 0; i < kFramesAtOnce; ++i) {
    const ssize_t bytes = read(ports_[port].get(), buffer.data(), buffer.size());
    if (bytes < static_cast<ssize_t>(kHeader + 2 * sizeof(Address))) return;
    Address to, from;
    std::memcpy(to.data(), buffer.data() + kHeader, sizeof to);
    std::memcpy(from.data(), buffer.data() + kHeader + sizeof to, sizeof from);
    learned_[from] = port;
    const auto known = learned_.find(to);
    const bool everybody = (to[0] & 1) != 0 || known == learned_.end();
    for (size_t out = 0; out < ports_.size(); ++out) {
      if (out != port && (everybody || known->second == out))
        queue(out, buffer.data(), static_cast<size_t>(bytes), now);
    }
  }
}

void Switch::queue(size_t port, const char* data, size_t bytes, int64_t now) {
  const size_t on_the_wire = bytes - kHeader + bytes / kSegment * kSegmentOverhead;
  const int64_t begin = std::max(now, free_ns_[port]);
  if (begin - now > kBacklogNs) return;
  free_ns_[port] = begin + static_cast<int64_t>(static_cast<double>(on_the_wire) * ns_per_byte_);
  waiting_.push({free_ns_[port] + delay_ns_, frames_++, port, std::vector<char>(data, data + bytes)});
}

void Switch::send_due() {
  const int64_t now = now_ns();
  while (!waiting_.empty() && waiting_.top().due_ns <= now) {
    const Frame& frame = waiting_.top();
    // An interface that is still down refuses frames: they are lost, as on a cable that is not plugged in.
    if (write(ports_[frame.port].get(), frame.data.data(), frame.data.size()) < 0) errno = 0;
    waiting_.pop();
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("An Ethernet switch of TAP interfaces whose frames take time");
  double delay_us = 1000, rate_mbit = 0;
  std::vector<std::string> names;
  app.add_option("--delay_us", delay_us, "What every frame takes, in one direction")
      ->check(CLI::Range(0.0, 1e7));
  app.add_option("--rate_mbit", rate_mbit, "Of each port; 0: unlimited")->check(CLI::Range(0.0, 1e6));
  app.add_option("ports", names, "Names of the interfaces to make")->required();
  CLI11_PARSE(app, argc, argv);

  prctl(PR_SET_TIMERSLACK, 1);
  const sched_param lowest{.sched_priority = 1};
  if (sched_setscheduler(0, SCHED_FIFO, &lowest) != 0)
    fmt::print(stderr, "delay_switch: no real-time priority, frames may be late: {}\n", strerror(errno));
  struct sigaction action {};
  action.sa_handler = [](int) { stopped = 1; };
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  Switch the_switch(delay_us, rate_mbit);
  if (!the_switch.open(names)) return 1;
  fmt::print("ready\n");
  std::fflush(stdout);
  the_switch.run();
  return 0;
}
