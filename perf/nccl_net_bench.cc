// nccl_net_bench: the plugin for NCCL, called through its ABI as NCCL's proxy thread does, beside a plain TCP
// stream and beside Weft's own TCP transport, between two processes over loopback, in one run: one-way
// latency, rate of short messages, bandwidth by size with eight messages in flight. Not a test: it asserts
// nothing.
#include <dlfcn.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "../plugins/nccl_net/abi.h"
#include "base/clock.h"
#include "loopback.h"
#include "transport/tcp_transport.h"

namespace {

using namespace weft;
using namespace weft::transport;
using namespace weft::perf;
namespace abi = weft::nccl_net::abi;

constexpr size_t kMostBytes = 16 << 20;
constexpr int kInFlight = 8;  // NCCL's steps

/// One process's side of a way to move messages: `count` of `bytes` each, from the start of its memory.
class Link {
 public:
  virtual ~Link() = default;
  virtual void send(size_t bytes, int count) = 0;
  virtual void receive(size_t bytes, int count) = 0;
};

/// A byte stream, in a write and a read for each message, of 256 KiB at most.
class PlainLink final : public Link {
 public:
  PlainLink(UniqueFd fd, std::byte* memory) : fd_(std::move(fd)), memory_(memory) {
    const int on = 1;
    ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  void send(size_t bytes, int count) override {
    for (int i = 0; i < count; ++i)
      move(bytes, [this](size_t at, size_t step) {
        return ::send(fd_.get(), memory_ + at, step, MSG_NOSIGNAL | MSG_DONTWAIT);
      });
  }
  void receive(size_t bytes, int count) override {
    for (int i = 0; i < count; ++i)
      move(bytes,
           [this](size_t at, size_t step) { return ::recv(fd_.get(), memory_ + at, step, MSG_DONTWAIT); });
  }

 private:
  template <typename Step>
  void move(size_t bytes, Step step) {
    for (size_t done = 0; done < bytes;) {
      const ssize_t moved = step(done, std::min<size_t>(256 << 10, bytes - done));
      if (moved == 0 || (moved < 0 && errno != EAGAIN)) die("the plain connection broke");
      if (moved > 0) done += static_cast<size_t>(moved);
    }
  }
  UniqueFd fd_;
  std::byte* memory_;
};

/// One direction of the transport as the engine uses it: short messages, and puts into memory that the peer
/// has exposed.
class OneWay final : private Sink {
 public:
  OneWay(int rank, UniqueFd fd, std::byte* memory) : peer_(1 - rank), memory_(memory) {
    auto transport = TcpTransport::create(
        rank, 2, [](int, int, Deadline) -> Result<UniqueFd> { die("the connection is there already"); }, {});
    must(transport.status());
    transport_ = transport.take();
    must(transport_->accept(peer_, 0, std::move(fd)));
    window_ = *transport_->expose(memory, kMostBytes);
    poll();
    for (Completion& each : completions_) each.done = true;
  }
  void send(size_t bytes, int count) {
    Envelope envelope;
    envelope.bytes = static_cast<uint32_t>(bytes);
    for (int i = 0; i < count; ++i) {
      Completion& done = completions_[static_cast<size_t>(i % kInFlight)];
      while (!done.done) poll();
      for (;;) {
        done.done = bytes <= transport_->eager_bytes();
        const auto sent = done.done ? transport_->send(peer_, envelope, memory_)
                                    : transport_->put(peer_, envelope, memory_, bytes, window_, 0, &done);
        must(sent.status());
        if (*sent == Progress::accepted) break;
        poll();
      }
    }
    for (Completion& done : completions_)
      while (!done.done) poll();
    while (!transport_->departed(transport_->ticket())) poll();
  }
  void receive(int count) {
    while (arrived_ < count) poll();
    arrived_ -= count;
  }

 private:
  void poll() { must(transport_->poll(*this).status()); }
  void* place(int, const Envelope&) override { return memory_; }
  void arrived(int, const Envelope& envelope, const void* payload) override {
    if (payload != nullptr) std::memcpy(memory_, payload, envelope.bytes);
    ++arrived_;
  }
  void lost(int, const Status& why) override { must(why); }

  int peer_;
  std::byte* memory_;
  std::unique_ptr<TcpTransport> transport_;
  RemoteBuffer window_;
  std::array<Completion, kInFlight> completions_;
  int arrived_ = 0;
};

/// Connections as NCCL has them, one for each direction. With one for both the kernel's acknowledgements
/// would travel with the answers.
class TransportLink final : public Link {
 public:
  TransportLink(int rank, UniqueFd there, UniqueFd back, std::byte* memory)
      : there_(rank, std::move(rank == 0 ? there : back), memory),
        back_(rank, std::move(rank == 0 ? back : there), memory) {}
  void send(size_t bytes, int count) override { there_.send(bytes, count); }
  void receive(size_t, int count) override { back_.receive(count); }

 private:
  OneWay there_, back_;  // as this process sees it
};

/// The plugin, with a connection each way, and all calls as NCCL makes them.
class PluginLink final : public Link {
 public:
  PluginLink(const abi::NetV12& net, int rank, int channel, std::byte* memory) : net_(net), memory_(memory) {
    abi::Config config{-1};
    check(net_.init(&context_, 1, &config, nullptr, nullptr), "init");
    for (int sending = 0; sending < 2; ++sending) sending == rank ? connect(channel) : accept(channel);
    check(net_.register_memory(sender_, memory, kMostBytes, abi::kHostMemory, &send_memory_), "regMr");
    check(net_.register_memory(receiver_, memory, kMostBytes, abi::kHostMemory, &receive_memory_), "regMr");
  }
  void send(size_t bytes, int count) override {
    run(count, [&](void** request) {
      return net_.send(sender_, memory_, bytes, 0, send_memory_, nullptr, request);
    });
  }
  void receive(size_t, int count) override {
    size_t capacity = kMostBytes;
    int tag = 0;
    void* data = memory_;
    run(count, [&](void** request) {
      return net_.receive(receiver_, 1, &data, &capacity, &tag, &receive_memory_, nullptr, request);
    });
  }

 private:
  static void check(abi::Result result, const char* what) {
    if (result != abi::kSuccess) die(std::string(what) + " failed with " + std::to_string(result));
  }
  void connect(int channel) {
    char handle[abi::kHandleBytes];
    if (::recv(channel, handle, sizeof handle, MSG_WAITALL) != sizeof handle) die("no handle came");
    while (!sender_) check(net_.connect(context_, 0, handle, &sender_, nullptr), "connect");
  }
  void accept(int channel) {
    char handle[abi::kHandleBytes] = {};
    void* listener = nullptr;
    check(net_.listen(context_, 0, handle, &listener), "listen");
    if (::send(channel, handle, sizeof handle, 0) != sizeof handle) die("no handle went");
    while (!receiver_) check(net_.accept(listener, &receiver_, nullptr), "accept");
    check(net_.close_listener(listener), "closeListen");
  }
  template <typename Post>
  void run(int count, Post post) {
    std::array<void*, kInFlight> requests{};
    int posted = 0, over = 0;
    while (over < count) {
      if (posted < count && posted - over < kInFlight) {
        void*& request = requests[static_cast<size_t>(posted % kInFlight)];
        check(post(&request), "isend or irecv");
        if (request) ++posted;
      }
      if (over == posted) continue;
      int done = 0, size = 0;
      check(net_.test(requests[static_cast<size_t>(over % kInFlight)], &done, &size), "test");
      over += done;
    }
  }

  const abi::NetV12& net_;
  std::byte* memory_;
  void *context_ = nullptr, *sender_ = nullptr, *receiver_ = nullptr;
  void *send_memory_ = nullptr, *receive_memory_ = nullptr;
};

/// Microseconds of one message there and one back, halved.
double latency_us(Link& link, int rank, size_t bytes, int repeats) {
  const int64_t start = now_ns();
  for (int i = 0; i < repeats; ++i) {
    if (rank == 0) link.send(bytes, 1), link.receive(bytes, 1);
    else link.receive(bytes, 1), link.send(bytes, 1);
  }
  return static_cast<double>(now_ns() - start) / 2e3 / repeats;
}

/// Seconds for `count` messages from rank 0 to 1, and an answer when all are there.
double stream_s(Link& link, int rank, size_t bytes, int count) {
  const int64_t start = now_ns();
  if (rank == 0) link.send(bytes, count), link.receive(8, 1);
  else link.receive(bytes, count), link.send(8, 1);
  return static_cast<double>(now_ns() - start) / 1e9;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Measures all links in turn, round by round, so that what disturbs hits all alike.
void compare(const std::vector<Link*>& links, int rounds, const std::function<double(Link&)>& measure,
             const char* label, bool print) {
  std::vector<std::vector<double>> values(links.size());
  for (int round = 0; round < rounds; ++round)
    for (size_t i = 0; i < links.size(); ++i) values[i].push_back(measure(*links[i]));
  if (!print) return;
  std::printf("%-28s", label);
  for (const auto& each : values) std::printf("  %10.3f", median(each));
  std::printf("\n");
  std::fflush(stdout);
}

std::string beside_this_program() {
  std::array<char, 4096> self{};
  if (readlink("/proc/self/exe", self.data(), self.size() - 1) < 0) die("where is this program?");
  const std::string path(self.data());
  return path.substr(0, path.rfind('/')) + "/../lib/libnccl-net-weft.so";
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "The plugin for NCCL beside a plain TCP stream and Weft's TCP transport, over loopback. WEFT_NET "
      "and WEFT_PROVIDER choose the plugin's way.");
  std::string library = beside_this_program();
  int rounds = 11;
  app.add_option("--plugin", library, "the library")->capture_default_str();
  app.add_option("-r,--rounds", rounds, "measurements of each, of which the median is taken")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  setenv("WEFT_SOCKET_IFNAME", "lo", 0);

  auto plain = connection(), ours = connection(), back = connection();
  int channel[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, channel) != 0) die("no socket pair");
  const pid_t child = ::fork();
  if (child < 0) die("cannot fork");
  const int rank = child == 0 ? 1 : 0;
  void* loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  const auto* net = loaded ? static_cast<const abi::NetV12*>(dlsym(loaded, "ncclNetPlugin_v12")) : nullptr;
  if (!net) die("cannot load " + library + (loaded ? "" : std::string(": ") + dlerror()));

  std::vector<std::byte> memory(kMostBytes, std::byte{1});
  PlainLink plain_link(std::move(rank == 0 ? plain.first : plain.second), memory.data());
  TransportLink transport_link(rank, std::move(rank == 0 ? ours.first : ours.second),
                               std::move(rank == 0 ? back.first : back.second), memory.data());
  PluginLink plugin_link(*net, rank, channel[rank], memory.data());
  const std::vector<Link*> links = {&plain_link, &transport_link, &plugin_link};

  if (rank == 0) std::printf("%-28s  %10s  %10s  %10s\n", "", "plain TCP", "transport", "plugin");
  for (const size_t bytes : {size_t{8}, size_t{1024}, size_t{8192}})
    compare(
        links, rounds, [&](Link& link) { return latency_us(link, rank, bytes, 2000); },
        fmt::format("{} B, one way, us", bytes).c_str(), rank == 0);
  compare(
      links, rounds, [&](Link& link) { return 20'000 / stream_s(link, rank, 8, 20'000) / 1e6; },
      "8 B, million messages/s", rank == 0);
  for (const size_t bytes : {size_t{4} << 10, size_t{32} << 10, size_t{128} << 10, size_t{512} << 10,
                             size_t{2} << 20, kMostBytes}) {
    const int count =
        static_cast<int>(std::max<size_t>(kInFlight, (256 << 20) / std::max<size_t>(bytes, 32 << 10)));
    compare(
        links, rounds,
        [&](Link& link) {
          return static_cast<double>(bytes) * count / stream_s(link, rank, bytes, count) / 1e9;
        },
        fmt::format("{} KiB, GB/s", bytes >> 10).c_str(), rank == 0);
  }
  if (rank == 1) std::_Exit(0);
  int state = 0;
  ::waitpid(child, &state, 0);
  std::_Exit(WIFEXITED(state) ? WEXITSTATUS(state) : 1);
}
