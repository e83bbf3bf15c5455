// ofi_bench: the libfabric transport between two processes of this host: latency of 8-byte messages and
// bandwidth of puts, to be compared with fi_pingpong over the same provider.
//
//   ofi_bench [PROVIDER [INTERFACE [messages]]]      ("messages": puts without RMA)
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include "base/clock.h"
#include "transport/ofi.h"

namespace {

using namespace weft;
using namespace weft::transport;

constexpr int kBatches = 100, kTripsPerBatch = 50, kRounds = 7;
constexpr size_t kBytesPerRound = 64 << 20;
constexpr size_t kWindowBytes = 64 << 20;
constexpr double kPatienceS = 60;

struct Counting final : Sink {
  char* window = nullptr;
  uint64_t arrivals = 0;
  RemoteBuffer peer_window;
  void* place(int, const Envelope& envelope) override { return window + envelope.offset; }
  void arrived(int, const Envelope& envelope, const void* payload) override {
    if (envelope.kind == 1) std::memcpy(&peer_window, payload, sizeof(peer_window));
    ++arrivals;
  }
  void lost(int, const Status& why) override { die(why); }
  [[noreturn]] static void die(const Status& why) {
    fmt::print(stderr, "ofi_bench: {}\n", why.message());
    _exit(1);
  }
};

class Bench {
 public:
  Bench(OfiTransport& transport, int rank) : transport_(transport), rank_(rank), memory_(kWindowBytes, 'x') {
    sink_.window = memory_.data();
  }

  void run() {
    if (rank_ == 0)
      fmt::print("{}, messages up to {} bytes\n", transport_.describe(), transport_.eager_bytes());
    Result<RemoteBuffer> window = transport_.expose(memory_.data(), memory_.size());
    if (!window) Counting::die(window.status());
    send(1, sizeof(RemoteBuffer), &*window);
    wait_for(1);
    for (size_t bytes : {size_t{8}, size_t{1024}, size_t{8192}}) latency(bytes);
    for (size_t bytes : {size_t{64} << 10, size_t{1} << 20, size_t{16} << 20, size_t{64} << 20})
      bandwidth(bytes);
    transport_.unexpose(*window);
    if (Status flushed = transport_.flush(Deadline::in_seconds(5)); !flushed) Counting::die(flushed);
  }

 private:
  /// Waits until so many more have arrived than any call before waited for.
  void wait_for(uint64_t more) {
    awaited_ += more;
    drive([&] { return sink_.arrivals >= awaited_; });
  }
  template <typename Over>
  void drive(Over over) {
    const Deadline deadline = Deadline::in_seconds(kPatienceS);
    for (uint64_t turn = 0; !over(); ++turn) {
      Result<int> events = transport_.poll(sink_);
      if (!events) Counting::die(events.status());
      if (turn % 1024 == 1023 && deadline.passed())
        Counting::die(fail(Code::timeout, "nothing happens any more"));
    }
  }
  void send(uint8_t kind, size_t bytes, const void* payload) {
    Envelope envelope;
    envelope.kind = kind, envelope.bytes = static_cast<uint32_t>(bytes);
    drive([&] { return accepted(transport_.send(1 - rank_, envelope, payload)); });
  }
  static bool accepted(const Result<Progress>& outcome) {
    if (!outcome) Counting::die(outcome.status());
    return *outcome == Progress::accepted;
  }

  void latency(size_t bytes) {
    if (bytes > transport_.eager_bytes()) return;
    std::vector<double> one_way_us;
    for (int batch = 0; batch < kBatches; ++batch) {
      const int64_t started = now_ns();
      for (int trip = 0; trip < kTripsPerBatch; ++trip) {
        if (rank_ == 0) send(0, bytes, memory_.data());
        wait_for(1);
        if (rank_ == 1) send(0, bytes, memory_.data());
      }
      one_way_us.push_back(static_cast<double>(now_ns() - started) / 2e3 / kTripsPerBatch);
    }
    std::ranges::sort(one_way_us);
    if (rank_ == 0)
      fmt::print("message {:>9} B  {:8.2f} us one way, {:.2f} at best\n", bytes, one_way_us[kBatches / 2],
                 one_way_us[0]);
  }

  void bandwidth(size_t bytes) {
    const auto puts = static_cast<size_t>(std::clamp<size_t>(kBytesPerRound / bytes, 1, 500));
    std::vector<double> rates;
    for (int round = 0; round < kRounds; ++round) {
      const int64_t started = now_ns();
      if (rank_ == 0) {
        put(puts, bytes);
        wait_for(1);  // the receiver has them all
      } else {
        wait_for(puts);
        send(0, 0, nullptr);
      }
      rates.push_back(static_cast<double>(bytes * puts) / static_cast<double>(now_ns() - started));
    }
    std::ranges::sort(rates);
    if (rank_ == 0)
      fmt::print("put     {:>9} B  {:8.2f} GB/s, {:.2f} at best\n", bytes, rates[kRounds / 2], rates.back());
  }

  void put(size_t puts, size_t bytes) {
    std::vector<Completion> done(puts);
    Envelope envelope;
    envelope.bytes = static_cast<uint32_t>(bytes);
    for (Completion& one : done)
      drive([&] {
        return accepted(transport_.put(1, envelope, memory_.data(), bytes, sink_.peer_window, 0, &one));
      });
    drive([&] { return std::ranges::all_of(done, &Completion::done); });
  }

  OfiTransport& transport_;
  const int rank_;
  std::vector<char> memory_;
  Counting sink_;
  uint64_t awaited_ = 0;
};

void be_rank(int rank, const OfiOptions& options, int from_peer, int to_peer) {
  auto transport = OfiTransport::create(rank, 2, options);
  if (!transport) Counting::die(transport.status());
  std::vector<std::vector<std::byte>> addresses(2, (*transport)->address());
  auto& theirs = addresses[static_cast<size_t>(1 - rank)];
  const auto bytes = static_cast<ssize_t>(theirs.size());
  if (write(to_peer, theirs.data(), theirs.size()) != bytes ||
      read(from_peer, theirs.data(), theirs.size()) != bytes)
    Counting::die(fail(Code::system_error, "the other rank is gone"));
  if (Status connected = (*transport)->connect(addresses); !connected) Counting::die(connected);
  Bench(**transport, rank).run();
}

}  // namespace

int main(int argc, char** argv) {
  weft::transport::OfiOptions options;
  if (argc > 1) options.provider = argv[1];
  if (argc > 2) options.interface = argv[2];
  options.messages_only = argc > 3 && std::string(argv[3]) == "messages";
  int up[2], down[2];
  if (pipe(up) != 0 || pipe(down) != 0) return 1;
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    be_rank(1, options, down[0], up[1]);
    _exit(0);
  }
  be_rank(0, options, up[0], down[1]);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
