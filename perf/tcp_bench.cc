// tcp_bench: the TCP transport beside plain sockets, between two processes over loopback, in one run: one-way
// latency of 8 bytes, and the rate of one transfer at a time that the receiver acknowledges. Not a test: it
// asserts nothing.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/clock.h"
#include "loopback.h"
#include "transport/tcp_transport.h"

namespace {

using namespace weft;
using namespace weft::transport;
using namespace weft::perf;

/// One side of a link on which bytes are sent and waited for.
class Link {
 public:
  virtual ~Link() = default;
  virtual void send(size_t bytes) = 0;
  virtual void wait(size_t bytes) = 0;
};

/// What a program with nothing but sockets would do, spinning as we do, in writes and reads of 256 KiB at
/// most (the fastest of what was tried).
class PlainLink final : public Link {
 public:
  PlainLink(UniqueFd fd, std::byte* memory) : fd_(std::move(fd)), memory_(memory) {
    const int on = 1;
    ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  void send(size_t bytes) override {
    for (size_t done = 0; done < bytes;)
      done += moved(
          ::send(fd_.get(), memory_ + done, std::min(kChunk, bytes - done), MSG_NOSIGNAL | MSG_DONTWAIT));
  }
  void wait(size_t bytes) override {
    for (size_t done = 0; done < bytes;)
      done += moved(::recv(fd_.get(), memory_ + done, std::min(kChunk, bytes - done), MSG_DONTWAIT));
  }

 private:
  static constexpr size_t kChunk = 256 << 10;
  static size_t moved(ssize_t result) {
    if (result == 0 || (result < 0 && errno != EAGAIN)) die("the plain connection broke");
    return result < 0 ? 0 : static_cast<size_t>(result);
  }
  UniqueFd fd_;
  std::byte* memory_;
};

class WeftLink final : public Link, private Sink {
 public:
  WeftLink(int rank, UniqueFd fd, std::byte* memory, size_t bytes, const TcpTransport::Options& options)
      : peer_(1 - rank), memory_(memory) {
    auto shared = std::make_shared<UniqueFd>(rank == 0 ? std::move(fd) : UniqueFd());
    auto transport = TcpTransport::create(
        rank, 2, [shared](int, int, uint32_t, Deadline) -> Result<UniqueFd> { return std::move(*shared); },
        options);
    must(transport.status());
    transport_ = transport.take();
    if (rank == 1) must(transport_->accept(peer_, 0, std::move(fd)));
    window_ = *transport_->expose(memory, bytes);
  }
  void send(size_t bytes) override {
    Envelope envelope;
    envelope.bytes = static_cast<uint32_t>(bytes);
    if (bytes <= 1024) {
      must(transport_->send(peer_, envelope, memory_).status());
      return;
    }
    Completion done;
    must(transport_->put(peer_, envelope, memory_, bytes, window_, 0, &done).status());
    while (!done.done) must(transport_->poll(*this).status());
  }
  void wait(size_t) override {
    while (arrived_ == 0) must(transport_->poll(*this).status());
    --arrived_;
  }

 private:
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
  int arrived_ = 0;
};

double ping_pong_us(Link& link, int rank, size_t there, size_t back, int repeats) {
  const int64_t start = now_ns();
  for (int i = 0; i < repeats; ++i) {
    if (rank == 0) link.send(there), link.wait(back);
    else link.wait(there), link.send(back);
  }
  return static_cast<double>(now_ns() - start) / 1e3 / repeats;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void compare(Link& plain, Link& weft, int rank, size_t bytes, int rounds) {
  const int repeats = bytes <= 1024 ? 5000 : static_cast<int>(std::clamp<size_t>((32 << 20) / bytes, 3, 200));
  const size_t back = bytes <= 1024 ? bytes : 8;
  std::vector<double> plain_us, weft_us, ratio;
  for (int round = 0; round < rounds; ++round) {
    plain_us.push_back(ping_pong_us(plain, rank, bytes, back, repeats));
    weft_us.push_back(ping_pong_us(weft, rank, bytes, back, repeats));
    ratio.push_back(plain_us.back() / weft_us.back());
  }
  if (rank != 0) return;
  const double p = median(plain_us), w = median(weft_us);
  if (bytes <= 1024)
    std::printf("%10zu B  one way us: plain %7.2f  weft %7.2f  median difference %+.2f\n", bytes, p / 2,
                w / 2, (w - p) / 2);
  else
    std::printf("%10zu B  GB/s:       plain %7.2f  weft %7.2f  median ratio %.2f\n", bytes,
                static_cast<double>(bytes) / p / 1e3, static_cast<double>(bytes) / w / 1e3, median(ratio));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 11;
  TcpTransport::Options options;
  if (argc > 2) options.unsent_bytes = static_cast<size_t>(std::atoll(argv[2])) << 10;
  if (argc > 3) options.segment_bytes = static_cast<size_t>(std::atoll(argv[3])) << 10;
  if (rounds < 1) die("usage: tcp_bench [ROUNDS [UNSENT_KIB [SEGMENT_KIB]]], ROUNDS at least 1");

  auto plain = connection(), ours = connection();
  const pid_t child = ::fork();
  if (child < 0) die("cannot fork");
  const int rank = child == 0 ? 1 : 0;
  std::vector<std::byte> memory(64 << 20, std::byte{1});
  PlainLink plain_link(std::move(rank == 0 ? plain.first : plain.second), memory.data());
  WeftLink weft_link(rank, std::move(rank == 0 ? ours.first : ours.second), memory.data(), memory.size(),
                     options);
  for (const size_t bytes : {size_t{8}, size_t{64} << 10, size_t{256} << 10, size_t{1} << 20, size_t{4} << 20,
                             size_t{16} << 20, size_t{64} << 20})
    compare(plain_link, weft_link, rank, bytes, rounds);
  if (rank == 1) std::_Exit(0);
  int state = 0;
  ::waitpid(child, &state, 0);
  return WIFEXITED(state) ? WEXITSTATUS(state) : 1;
}
