// nccl_net_bench: the plugin for NCCL, called through its ABI as NCCL's proxy thread does, beside a plain TCP
// stream and beside Weft's own transport of the same kind, over loopback, in one run. Between two processes:
// one-way latency, rate of short messages, bandwidth by size with eight messages in flight. With --cost, one
// thread drives both sides and the processor time that it takes is told, which says more than a clock where
// others use the machine, too. Not a test: it asserts nothing.
#include <dlfcn.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "nccl_net_links.h"

namespace {

using namespace weft;
using namespace weft::perf;

constexpr size_t kSizes[] = {size_t{4} << 10,   size_t{32} << 10, size_t{128} << 10, size_t{256} << 10,
                             size_t{512} << 10, size_t{2} << 20,  kMostBytes};

int messages_of(size_t bytes, size_t in_all) {
  return static_cast<int>(std::max<size_t>(kInFlight, in_all / std::max<size_t>(bytes, 32 << 10)));
}

/// Of every TCP socket in this program; empty: the system's.
std::string congestion_control;

// ---- Between two processes

void send(Link& link, size_t bytes, int count) {
  link.begin_send(bytes, count);
  while (!link.advance()) {
  }
}
void receive(Link& link, size_t bytes, int count) {
  link.begin_receive(bytes, count);
  while (!link.advance()) {
  }
}

/// Microseconds of one message there and one back, halved.
double latency_us(Link& link, int rank, size_t bytes, int repeats) {
  const int64_t start = now_ns();
  for (int i = 0; i < repeats; ++i) {
    if (rank == 0) send(link, bytes, 1), receive(link, bytes, 1);
    else receive(link, bytes, 1), send(link, bytes, 1);
  }
  return static_cast<double>(now_ns() - start) / 2e3 / repeats;
}

/// Seconds for `count` messages from rank 0 to 1, and an answer when all are there.
double stream_s(Link& link, int rank, size_t bytes, int count) {
  const int64_t start = now_ns();
  if (rank == 0) send(link, bytes, count), receive(link, 8, 1);
  else receive(link, bytes, count), send(link, 8, 1);
  return static_cast<double>(now_ns() - start) / 1e9;
}

// ---- In one thread

double processor_s() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

using Pair = std::array<Link*, 2>;

/// Seconds of the processor for `count` messages, of both sides together.
double cost_s(const Pair& pair, size_t bytes, int count) {
  const double start = processor_s();
  pair[0]->begin_send(bytes, count);
  pair[1]->begin_receive(bytes, count);
  for (bool sent = false, received = false; !sent || !received;) {
    sent = sent || pair[0]->advance();
    received = received || pair[1]->advance();
  }
  return processor_s() - start;
}

// ---- Tables

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Lines of a table: each measures all columns in turn, round by round, so that what disturbs hits all alike.
class Table {
 public:
  Table(int rounds, std::string only, bool prints)
      : rounds_(rounds), only_(std::move(only)), prints_(prints) {}

  void head(size_t plugins) const {
    if (!prints_) return;
    std::printf("%-28s  %10s  %10s", "", "plain TCP", "transport");
    for (size_t i = 0; i < plugins; ++i)
      std::printf("  %10s", i == 0 ? "plugin" : fmt::format("plugin {}", i + 1).c_str());
    std::printf("\n");
  }
  void line(const std::string& label, size_t columns, const std::function<double(size_t)>& measure) const {
    if (label.find(only_) == std::string::npos) return;
    std::vector<std::vector<double>> values(columns);
    for (int round = 0; round < rounds_; ++round)
      for (size_t i = 0; i < columns; ++i) values[i].push_back(measure(i));
    if (!prints_) return;
    std::printf("%-28s", label.c_str());
    for (const auto& each : values) std::printf("  %10.3f", median(each));
    std::printf("\n");
    std::fflush(stdout);
  }

 private:
  int rounds_;
  std::string only_;
  bool prints_;
};

std::string beside_this_program() {
  std::array<char, 4096> self{};
  if (readlink("/proc/self/exe", self.data(), self.size() - 1) < 0) die("where is this program?");
  const std::string path(self.data());
  return path.substr(0, path.rfind('/')) + "/../lib/libnccl-net-weft.so";
}

const abi::NetV12& load(const std::string& library) {
  void* loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  const auto* net = loaded ? static_cast<const abi::NetV12*>(dlsym(loaded, "ncclNetPlugin_v12")) : nullptr;
  if (!net) die("cannot load " + library + (loaded ? "" : std::string(": ") + dlerror()));
  return *net;
}

/// The sockets of all links, made before there are two processes.
struct Wires {
  explicit Wires(size_t plugins) : channels(plugins) {
    for (auto& channel : channels)
      if (::socketpair(AF_UNIX, SOCK_STREAM, 0, channel.data()) != 0) die("no socket pair");
  }
  UniqueFd side(std::pair<UniqueFd, UniqueFd>& both, int rank) {
    return std::move(rank == 0 ? both.first : both.second);
  }
  std::vector<std::unique_ptr<Link>> links(int rank, const std::vector<std::string>& libraries,
                                           std::byte* memory) {
    std::vector<std::unique_ptr<Link>> made;
    made.push_back(std::make_unique<PlainLink>(side(plain, rank), memory));
    made.push_back(std::make_unique<TransportLink>(rank, side(there, rank), side(back, rank), memory));
    for (size_t i = 0; i < libraries.size(); ++i)
      made.push_back(
          std::make_unique<PluginLink>(load(libraries[i]), channels[i][static_cast<size_t>(rank)], memory));
    return made;
  }

  std::pair<UniqueFd, UniqueFd> plain = connection(), there = connection(), back = connection();
  std::vector<std::array<int, 2>> channels;
};

void measure_costs(const std::vector<std::string>& libraries, const Table& table) {
  std::vector<std::byte> from(kMostBytes, std::byte{1}), to(kMostBytes);
  Wires wires(libraries.size());
  const auto near = wires.links(0, libraries, from.data()), far = wires.links(1, libraries, to.data());
  std::vector<Pair> pairs;
  for (size_t i = 0; i < near.size(); ++i) {
    pairs.push_back({near[i].get(), far[i].get()});
    for (bool there = false, back = false; !there || !back;) {
      there = there || near[i]->connected();
      back = back || far[i]->connected();
    }
  }
  table.head(libraries.size());
  for (const size_t bytes : {size_t{8}, size_t{1024}, size_t{8192}}) {
    table.line(fmt::format("{} B, alone, us of CPU", bytes), pairs.size(), [&](size_t i) {
      double sum_s = 0;
      for (int message = 0; message < 2000; ++message) sum_s += cost_s(pairs[i], bytes, 1);
      return sum_s * 1e6 / 2000;
    });
    table.line(fmt::format("{} B, in a row, us of CPU", bytes), pairs.size(),
               [&](size_t i) { return cost_s(pairs[i], bytes, 20'000) * 1e6 / 20'000; });
  }
  for (const size_t bytes : kSizes) {
    const int count = messages_of(bytes, 128 << 20);
    table.line(fmt::format("{} KiB, GB/s of CPU", bytes >> 10), pairs.size(), [&](size_t i) {
      return static_cast<double>(bytes) * count / cost_s(pairs[i], bytes, count) / 1e9;
    });
  }
}

int measure_times(const std::vector<std::string>& libraries, const std::function<Table(int)>& make_table) {
  Wires wires(libraries.size());
  const pid_t child = ::fork();
  if (child < 0) die("cannot fork");
  const int rank = child == 0 ? 1 : 0;
  std::vector<std::byte> memory(kMostBytes, std::byte{1});
  const auto links = wires.links(rank, libraries, memory.data());
  for (const auto& link : links)
    while (!link->connected()) {
    }
  const Table table = make_table(rank);
  table.head(libraries.size());
  for (const size_t bytes : {size_t{8}, size_t{1024}, size_t{8192}})
    table.line(fmt::format("{} B, one way, us", bytes), links.size(),
               [&](size_t i) { return latency_us(*links[i], rank, bytes, 2000); });
  table.line("8 B, million messages/s", links.size(),
             [&](size_t i) { return 20'000 / stream_s(*links[i], rank, 8, 20'000) / 1e6; });
  for (const size_t bytes : kSizes) {
    const int count = messages_of(bytes, 256 << 20);
    table.line(fmt::format("{} KiB, GB/s", bytes >> 10), links.size(), [&](size_t i) {
      return static_cast<double>(bytes) * count / stream_s(*links[i], rank, bytes, count) / 1e9;
    });
  }
  if (rank == 1) std::_Exit(0);
  int state = 0;
  ::waitpid(child, &state, 0);
  return WIFEXITED(state) ? WEXITSTATUS(state) : 1;
}

}  // namespace

// In libc's place, for this program and the plugins that it loads.
extern "C" __attribute__((visibility("default"))) int socket(int domain, int type, int protocol) noexcept {
  const int fd = static_cast<int>(::syscall(SYS_socket, domain, type, protocol));
  const bool tcp = domain == AF_INET && (type & ~(SOCK_CLOEXEC | SOCK_NONBLOCK)) == SOCK_STREAM;
  if (fd >= 0 && tcp && !congestion_control.empty() &&
      ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion_control.data(),
                   static_cast<socklen_t>(congestion_control.size())) != 0)
    die("the kernel has no congestion control '" + congestion_control +
        "': /proc/sys/net/ipv4/tcp_available_congestion_control lists what it has");
  return fd;
}

int main(int argc, char** argv) {
  CLI::App app(
      "The plugin for NCCL beside a plain TCP stream and Weft's transport, over loopback. WEFT_NET and "
      "WEFT_PROVIDER choose the way of both.");
  std::vector<std::string> libraries;
  std::string only;
  int rounds = 11;
  bool cost = false;
  app.add_option("--plugin", libraries,
                 "the library; several stand side by side in the same run, to compare builds of it");
  app.add_option("--only", only, "only lines in whose name this is, such as 'GB/s' or '8 B'");
  app.add_option("--congestion", congestion_control,
                 "TCP's congestion control, such as cubic; bbr, where that is the system's, paces what goes "
                 "over loopback");
  app.add_flag("--cost", cost, "one thread drives both sides, and its processor time is told");
  app.add_option("-r,--rounds", rounds, "measurements of each, of which the median is taken")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  setenv("WEFT_SOCKET_IFNAME", "lo", 0);
  if (libraries.empty()) libraries.push_back(beside_this_program());

  int status = 0;
  if (cost) measure_costs(libraries, Table(rounds, only, true));
  else status = measure_times(libraries, [&](int rank) { return Table(rounds, only, rank == 0); });
  std::_Exit(status);
}
