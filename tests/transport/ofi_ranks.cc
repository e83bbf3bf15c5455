// The helpers of ofi_ranks.h.
#include "transport/ofi_ranks.h"

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "base/fd.h"
#include "libfabric_leftovers.h"

// Some of libfabric's providers keep a little memory of every endpoint (net of 1.17), which is not what these
// tests are about.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions() {
  return "leak:libfabric.so";
}

namespace weft::transport::ofi_test {

namespace {

enum Kind : uint8_t { kWindow = 1, kMessage, kPut, kBye };

bool read_all(int fd, void* into, size_t bytes) {
  auto* out = static_cast<char*>(into);
  while (bytes > 0) {
    const ssize_t got = read(fd, out, bytes);
    if (got <= 0) return false;
    out += got, bytes -= static_cast<size_t>(got);
  }
  return true;
}

bool write_all(int fd, const void* from, size_t bytes) {
  auto* in = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t put = write(fd, in, bytes);
    if (put <= 0) return false;
    in += put, bytes -= static_cast<size_t>(put);
  }
  return true;
}

/// One rank's part of the exchange while it runs.
class Exchanger {
 public:
  Exchanger(const Exchange& what, OfiTransport& transport, int rank, int ranks)
      : what_(what), transport_(transport), rank_(rank), ranks_(ranks), windows_(static_cast<size_t>(ranks)) {
    slot_bytes_ = (what.put_bytes + 63) / 64 * 64;
    window_.resize(slot_bytes_ * static_cast<size_t>(what.puts * ranks) + 1);
    sink_.on_place = [this](int, const Envelope& e) { return window_.data() + e.offset; };
    sink_.on_arrived = [this](int from, const Envelope& e, const void* payload) {
      arrived(from, e, payload);
    };
  }

  ::testing::AssertionResult run() {
    Result<RemoteBuffer> window = transport_.expose(window_.data(), window_.size());
    if (!window) return ::testing::AssertionFailure() << window.status().message();
    auto result = exchange(*window);
    transport_.unexpose(*window);
    if (result && !wrong_.empty()) return ::testing::AssertionFailure() << wrong_;
    if (result && !sink_.losses.empty())
      return ::testing::AssertionFailure() << sink_.losses[0].second.message();
    return result;
  }

 private:
  template <typename F>
  ::testing::AssertionResult each_peer(F f) {
    for (int step = 1; step < ranks_; ++step)
      if (auto result = f((rank_ + step) % ranks_); !result) return result;
    return ::testing::AssertionSuccess();
  }

  Envelope envelope(Kind kind, uint32_t item, size_t bytes) const {
    Envelope e;
    e.kind = kind, e.op = item, e.bytes = static_cast<uint32_t>(bytes), e.signature = ~item;
    return e;
  }

  ::testing::AssertionResult exchange(const RemoteBuffer& window) {
    auto result = each_peer([&](int peer) {
      return send_all(transport_, sink_, peer, envelope(kWindow, 0, sizeof(window)), &window);
    });
    if (result) result = poll_until(transport_, sink_, [&] { return windows_seen_ == ranks_ - 1; });
    std::mt19937_64 random(static_cast<uint64_t>(rank_) + 1);
    for (int item = 0; result && item < std::max(what_.messages, what_.puts); ++item)
      result = each_peer([&](int peer) { return one_of_each(peer, static_cast<uint32_t>(item), random); });
    if (result)
      result = poll_until(transport_, sink_, [&] {
        return std::ranges::all_of(sources_, [](const auto& source) { return source->done.done; });
      });
    if (result)
      result = poll_until(transport_, sink_, [&] {
        return messages_seen_ == what_.messages * (ranks_ - 1) && puts_seen_ == what_.puts * (ranks_ - 1);
      });
    if (result)
      result = each_peer(
          [&](int peer) { return send_all(transport_, sink_, peer, envelope(kBye, 0, 0), nullptr); });
    if (result) result = poll_until(transport_, sink_, [&] { return byes_ == ranks_ - 1; });
    if (!result)
      return result << " (rank " << rank_ << ": " << messages_seen_ << " messages, " << puts_seen_
                    << " puts, " << byes_ << " byes seen) " << wrong_;
    Status flushed = transport_.flush(Deadline::in_seconds(10));
    return flushed.ok() ? result : ::testing::AssertionFailure() << flushed.message();
  }

  ::testing::AssertionResult one_of_each(int peer, uint32_t item, std::mt19937_64& random) {
    if (static_cast<int>(item) < what_.messages) {
      std::vector<char> payload(random() % (transport_.eager_bytes() + 1));
      fill(payload.data(), payload.size(), rank_, peer, item);
      auto sent = send_all(transport_, sink_, peer, envelope(kMessage, item, payload.size()), payload.data());
      if (!sent) return sent;
    }
    if (static_cast<int>(item) >= what_.puts) return ::testing::AssertionSuccess();
    // The first is empty, the second as long as can be.
    const size_t bytes = item == 0 ? 0 : item == 1 ? what_.put_bytes : random() % (what_.put_bytes + 1);
    Source& source = *sources_.emplace_back(std::make_unique<Source>());
    source.bytes.resize(bytes);
    fill(source.bytes.data(), bytes, rank_, peer, item);
    Envelope e = envelope(kPut, item, bytes);
    e.offset = slot_bytes_ * (static_cast<size_t>(rank_ * what_.puts) + item);
    return put_all(transport_, sink_, peer, e, source.bytes.data(), windows_[static_cast<size_t>(peer)],
                   e.offset, &source.done);
  }

  void arrived(int from, const Envelope& e, const void* payload) {
    if (e.signature != ~e.op) wrong_ = "a damaged envelope";
    switch (e.kind) {
      case kWindow:
        std::memcpy(&windows_[static_cast<size_t>(from)], payload, sizeof(RemoteBuffer)), ++windows_seen_;
        break;
      case kMessage: ++messages_seen_, check(payload, from, e); break;
      case kPut: ++puts_seen_, check(payload ? payload : window_.data() + e.offset, from, e); break;
      case kBye: ++byes_; break;
      default: wrong_ = "an unknown envelope";
    }
  }

  void check(const void* data, int from, const Envelope& e) {
    if (!holds(data, e.bytes, from, rank_, e.op))
      wrong_ = fmt::format("item {} of {} bytes (kind {}) from rank {} is damaged", e.op, e.bytes,
                           int{e.kind}, from);
  }

  struct Source {
    std::vector<char> bytes;
    Completion done;
  };
  const Exchange& what_;
  OfiTransport& transport_;
  const int rank_, ranks_;
  size_t slot_bytes_ = 0;
  std::vector<char> window_;
  std::vector<RemoteBuffer> windows_;
  std::vector<std::unique_ptr<Source>> sources_;
  FunctionSink sink_;
  int windows_seen_ = 0, messages_seen_ = 0, puts_seen_ = 0, byes_ = 0;
  std::string wrong_;
};

}  // namespace

::testing::AssertionResult Exchange::run(OfiTransport& transport, int rank, int ranks) const {
  return Exchanger(*this, transport, rank, ranks).run();
}

bool is_offered(const std::string& provider) {
  static const std::vector<ProviderInfo> all = list_providers();
  return std::ranges::any_of(all, [&](const ProviderInfo& row) {
    return row.usable && (row.name == provider || row.name.starts_with(provider + ";"));
  });
}

Result<std::vector<std::unique_ptr<OfiTransport>>> introduced(int ranks, const OfiOptions& options) {
  std::vector<std::unique_ptr<OfiTransport>> transports;
  Addresses addresses;
  for (int rank = 0; rank < ranks; ++rank) {
    auto transport = OfiTransport::create(rank, ranks, options);
    if (!transport) return transport.status();
    transports.push_back(transport.take());
    addresses.push_back(transports.back()->address());
  }
  for (auto& transport : transports) WEFT_TRY(transport->connect(addresses));
  return transports;
}

bool run_threads(int ranks, const OfiOptions& options, const std::function<void(OfiTransport&, int)>& body) {
  auto transports = introduced(ranks, options);
  EXPECT_TRUE(transports.ok()) << transports.status().message();
  if (!transports) return false;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] { body(*(*transports)[static_cast<size_t>(rank)], rank); });
  for (auto& thread : threads) thread.join();
  return true;
}

namespace {

/// A child process: tells its address, learns everybody's, runs the body, tells the outcome.
[[noreturn]] void be_rank(int rank, int ranks, const OfiOptions& options, int from_parent, int to_parent,
                          const std::function<std::string(OfiTransport&, int)>& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  remove_leftovers(getpid());
  alarm(static_cast<unsigned>(2 * kPatienceS));
  std::string failure;
  {
    auto transport = OfiTransport::create(rank, ranks, options);
    std::vector<std::byte> address(OfiTransport::kAddressBytes);
    if (transport) address = (*transport)->address();
    else failure = transport.status().message();
    write_all(to_parent, address.data(), address.size());
    Addresses all(static_cast<size_t>(ranks), address);
    for (auto& peer : all)
      if (!read_all(from_parent, peer.data(), peer.size())) _exit(1);
    if (transport) {
      Status connected = (*transport)->connect(all);
      failure = connected.ok() ? body(**transport, rank) : connected.message();
    }
  }
  write_all(to_parent, failure.data(), failure.size());
  _exit(0);
}

struct Child {
  pid_t pid = -1;
  UniqueFd to, from;
};

Child start(int rank, int ranks, const OfiOptions& options,
            const std::function<std::string(OfiTransport&, int)>& body) {
  int down[2], up[2];
  if (pipe2(down, O_CLOEXEC) != 0 || pipe2(up, O_CLOEXEC) != 0) return {};
  Child child;
  child.pid = fork();
  if (child.pid == 0) {
    close(down[1]), close(up[0]);
    be_rank(rank, ranks, options, down[0], up[1], body);
  }
  close(down[0]), close(up[1]);
  child.to.reset(down[1]), child.from.reset(up[0]);
  return child;
}

}  // namespace

bool run_processes(int ranks, const OfiOptions& options,
                   const std::function<std::string(OfiTransport&, int)>& body) {
  std::vector<Child> children;
  for (int rank = 0; rank < ranks; ++rank) children.push_back(start(rank, ranks, options, body));
  std::vector<std::byte> all(OfiTransport::kAddressBytes * static_cast<size_t>(ranks));
  bool good = true;
  for (size_t rank = 0; rank < children.size(); ++rank)
    good = read_all(children[rank].from.get(), all.data() + rank * OfiTransport::kAddressBytes,
                    OfiTransport::kAddressBytes) &&
           good;
  for (Child& child : children) good = write_all(child.to.get(), all.data(), all.size()) && good;
  EXPECT_TRUE(good) << "the ranks could not be introduced";
  for (size_t rank = 0; rank < children.size(); ++rank) {
    std::string failure;
    char part[256];
    for (ssize_t got; (got = read(children[rank].from.get(), part, sizeof(part))) > 0;)
      failure.append(part, static_cast<size_t>(got));
    EXPECT_EQ(failure, "") << "rank " << rank;
    int status = 0;
    waitpid(children[rank].pid, &status, 0);
    remove_leftovers(children[rank].pid);
    const bool meant = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;  // a body may kill its own process
    EXPECT_TRUE(meant || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
        << "rank " << rank << " ended with " << status;
  }
  return good;
}

std::vector<std::string> providers_under_test() {
  const char* given = std::getenv("OFI_UNDER_TEST");
  std::istringstream names(given ? given : "net,tcp");
  std::vector<std::string> providers;
  for (std::string name; std::getline(names, name, ',');) providers.push_back(name);
  return providers;
}

namespace {

/// The TCP sockets of this process, with what the kernel tells of them.
std::vector<std::pair<int, tcp_info>> own_sockets() {
  std::vector<std::pair<int, tcp_info>> sockets;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    tcp_info info{};
    socklen_t size = sizeof info;
    const int fd = std::stoi(entry.path().filename().string());
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0) sockets.emplace_back(fd, info);
  }
  return sockets;
}

}  // namespace

int busy_sockets(uint64_t bytes) {
  return static_cast<int>(
      std::ranges::count_if(own_sockets(), [=](const auto& s) { return s.second.tcpi_bytes_acked > bytes; }));
}

void set_socket_buffers(int option, int bytes) {
  for (const auto& [fd, info] : own_sockets())
    (void)::setsockopt(fd, SOL_SOCKET, option, &bytes, sizeof bytes);
}

}  // namespace weft::transport::ofi_test
