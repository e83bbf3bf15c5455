// Ranks for the tests of the libfabric transport: as threads or as processes, and the exchange that all
// providers must survive: random messages and puts from everybody to everybody, every byte checked.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>

#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "transport/ofi.h"

namespace weft::transport::ofi_test {

constexpr double kPatienceS = 60;

inline uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

/// The bytes that `from` sends to `to` as item `item`.
inline void fill(void* into, size_t bytes, int from, int to, uint32_t item) {
  const uint64_t seed = mix(uint64_t(from) << 48 ^ uint64_t(to) << 32 ^ item);
  auto* out = static_cast<unsigned char*>(into);
  for (size_t at = 0; at < bytes; at += 8) {
    const uint64_t word = mix(seed + at);
    std::memcpy(out + at, &word, std::min<size_t>(8, bytes - at));
  }
}

inline bool holds(const void* data, size_t bytes, int from, int to, uint32_t item) {
  std::vector<unsigned char> wanted(bytes);
  fill(wanted.data(), bytes, from, to, item);
  return bytes == 0 || std::memcmp(wanted.data(), data, bytes) == 0;
}

/// A Sink made of functions.
struct FunctionSink : Sink {
  std::function<void*(int, const Envelope&)> on_place = [](int, const Envelope&) { return nullptr; };
  std::function<void(int, const Envelope&, const void*)> on_arrived = [](int, const Envelope&, const void*) {
  };
  std::function<bool(int)> on_takes_early = [](int) { return true; };
  std::vector<std::pair<int, Status>> losses;

  void* place(int peer, const Envelope& envelope) override { return on_place(peer, envelope); }
  void arrived(int peer, const Envelope& envelope, const void* payload) override {
    on_arrived(peer, envelope, payload);
  }
  bool takes_early(int peer) const override { return on_takes_early(peer); }
  void lost(int peer, const Status& why) override { losses.emplace_back(peer, why); }
};

/// Polls until `over`, or says what failed.
inline ::testing::AssertionResult poll_until(OfiTransport& transport, Sink& sink,
                                             const std::function<bool()>& over,
                                             double patience_s = kPatienceS) {
  const Deadline deadline = Deadline::in_seconds(patience_s);
  while (!over()) {
    Result<int> events = transport.poll(sink);
    if (!events) return ::testing::AssertionFailure() << events.status().message();
    if (*events > 0) continue;
    if (deadline.passed()) return ::testing::AssertionFailure() << "nothing happens any more";
    sched_yield();
  }
  return ::testing::AssertionSuccess();
}

/// Sends, polling while there is no room.
inline ::testing::AssertionResult send_all(OfiTransport& transport, Sink& sink, int peer,
                                           const Envelope& envelope, const void* payload) {
  Status error;
  auto sent = poll_until(transport, sink, [&] {
    Result<Progress> outcome = transport.send(peer, envelope, payload);
    error = outcome.status();
    return !outcome || *outcome == Progress::accepted;
  });
  return error.ok() ? sent : ::testing::AssertionFailure() << error.message();
}

inline ::testing::AssertionResult put_all(OfiTransport& transport, Sink& sink, int peer,
                                          const Envelope& envelope, const void* source,
                                          const RemoteBuffer& target, uint64_t offset, Completion* done) {
  Status error;
  auto accepted = poll_until(transport, sink, [&] {
    Result<Progress> outcome = transport.put(peer, envelope, source, envelope.bytes, target, offset, done);
    error = outcome.status();
    return !outcome || *outcome == Progress::accepted;
  });
  return error.ok() ? accepted : ::testing::AssertionFailure() << error.message();
}

/// What one rank does in the exchange of everybody with everybody.
struct Exchange {
  int messages = 40;           // to each peer
  int puts = 12;               // to each peer
  size_t put_bytes = 300'000;  // at most

  ::testing::AssertionResult run(OfiTransport& transport, int rank, int ranks) const;
};

/// Addresses by rank.
using Addresses = std::vector<std::vector<std::byte>>;

/// Makes `ranks` transports in this process, introduces them, and gives each a thread. Skips (returns false)
/// where the provider is not there.
bool run_threads(int ranks, const OfiOptions& options,
                 const std::function<void(OfiTransport&, int rank)>& body);

/// Forks a process for each rank. The body returns the reason of its failure, or "".
bool run_processes(int ranks, const OfiOptions& options,
                   const std::function<std::string(OfiTransport&, int rank)>& body);

/// Transports of this process that know each other, for tests that need no threads.
Result<std::vector<std::unique_ptr<OfiTransport>>> introduced(int ranks, const OfiOptions& options);

inline OfiOptions named(const std::string& provider) {
  OfiOptions options;
  options.provider = provider;
  return options;
}

/// Sockets of this process that have sent more than so many bytes, which their peers have.
int busy_sockets(uint64_t bytes);
/// Sets SO_SNDBUF or SO_RCVBUF of all TCP sockets of this process; 1 is the least that the kernel allows.
void set_socket_buffers(int option, int bytes);

/// Whether libfabric offers the provider here.
bool is_offered(const std::string& provider);

/// The providers that tests of corners run over: those that OFI_UNDER_TEST names, separated by commas, or
/// those of TCP.
std::vector<std::string> providers_under_test();

}  // namespace weft::transport::ofi_test
