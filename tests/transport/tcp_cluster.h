// TcpCluster: TCP transports of several ranks in one process, connected over loopback without any bootstrap,
// and a Sink that records what arrives. For tests of what travels; the transports may be polled from one
// thread or from several.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "transport/tcp_transport.h"

namespace weft::transport {

enum TestKind : uint8_t { kMessage, kPut };

inline Envelope envelope(TestKind kind, uint32_t op, size_t bytes, uint64_t offset = 0) {
  Envelope e;
  e.kind = kind;
  e.op = op;
  e.bytes = static_cast<uint32_t>(bytes);
  e.offset = offset;
  return e;
}

/// Bytes that differ by seed and place.
inline void fill(std::byte* data, size_t bytes, uint64_t seed) {
  uint64_t state = seed * 0x9e3779b97f4a7c15 + 1;
  for (size_t i = 0; i < bytes; i += 8) {
    state = state * 6364136223846793005 + 1442695040888963407;
    const uint64_t word = state ^ state >> 31;
    std::memcpy(data + i, &word, std::min<size_t>(8, bytes - i));
  }
}
inline std::vector<std::byte> pattern(size_t bytes, uint64_t seed) {
  std::vector<std::byte> data(bytes);
  fill(data.data(), bytes, seed);
  return data;
}

/// Both ends of a new TCP connection over loopback.
inline std::pair<UniqueFd, UniqueFd> loopback_connection() {
  UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  EXPECT_EQ(0, ::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length));
  EXPECT_EQ(0, ::listen(listener.get(), 1));
  EXPECT_EQ(0, ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length));
  EXPECT_EQ(0, ::connect(client.get(), reinterpret_cast<sockaddr*>(&address), length));
  UniqueFd server(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  EXPECT_TRUE(server.valid());
  return {std::move(client), std::move(server)};
}

/// A channel for messages, and others for puts.
inline TcpTransport::Options puts_apart(int rails = 1) {
  TcpTransport::Options options;
  options.puts_apart = true;
  options.rails = rails;
  return options;
}

class RecordingSink : public Sink {
 public:
  struct Arrival {
    int peer;
    Envelope envelope;
    bool had_payload;
    std::vector<std::byte> payload;
  };

  std::vector<std::byte> window;  // where puts go
  std::function<void*(int, const Envelope&)> placing = [this](int, const Envelope& e) -> void* {
    return e.kind == kPut ? window.data() + e.offset : nullptr;
  };
  std::function<bool()> taking = [] { return true; };  // early messages
  std::vector<Arrival> arrivals;
  std::map<int, Status> losses;
  int loss_calls = 0;

  void* place(int peer, const Envelope& e) override { return placing(peer, e); }
  void arrived(int peer, const Envelope& e, const void* payload) override {
    Arrival& arrival = arrivals.emplace_back(Arrival{peer, e, payload != nullptr, {}});
    if (payload == nullptr) return;
    const auto* bytes = static_cast<const std::byte*>(payload);
    arrival.payload.assign(bytes, bytes + e.bytes);
  }
  bool takes_early(int) const override { return taking(); }
  void lost(int peer, const Status& why) override {
    ++loss_calls;
    losses[peer] = why;
  }
};

class TcpCluster {
 public:
  explicit TcpCluster(int ranks, TcpTransport::Options options = {}) : sinks(static_cast<size_t>(ranks)) {
    for (int rank = 0; rank < ranks; ++rank) {
      auto made = TcpTransport::create(
          rank, ranks,
          [this, rank](int peer, int rail, uint32_t channel, Deadline) {
            return connect(rank, peer, rail, channel);
          },
          options);
      EXPECT_TRUE(made.ok()) << made.status().message();
      transports.push_back(made.take());
      endpoints.push_back(transports.back().get());
    }
  }

  TcpTransport& operator[](int rank) { return *transports[static_cast<size_t>(rank)]; }
  RecordingSink& sink(int rank) { return sinks[static_cast<size_t>(rank)]; }

  /// Polls all ranks that still exist until `done()`; false when nothing came of it for ten seconds.
  bool poll_until(const std::function<bool()>& done) {
    Deadline deadline = Deadline::in_seconds(10);
    while (!done()) {
      int events = 0;
      for (size_t rank = 0; rank < transports.size(); ++rank) {
        if (transports[rank] == nullptr) continue;
        const Result<int> moved = transports[rank]->poll(sinks[rank]);
        EXPECT_TRUE(moved.ok()) << moved.status().message();
        events += moved.ok() ? *moved : 0;
      }
      if (events > 0) deadline = Deadline::in_seconds(10);
      if (deadline.passed()) return false;
    }
    return true;
  }
  /// Puts something into the other's window, and waits until it is there.
  void put(int from, int to, uint32_t op, size_t bytes) {
    RecordingSink& receiver = sink(to);
    receiver.window.assign(bytes, std::byte{});
    const RemoteBuffer window = *(*this)[to].expose(receiver.window.data(), bytes);
    const auto source = pattern(bytes, op);
    const size_t before = receiver.arrivals.size();
    Completion done;
    ASSERT_TRUE(
        (*this)[from].put(to, envelope(kPut, op, bytes), source.data(), bytes, window, 0, &done).ok());
    ASSERT_TRUE(poll_until([&] { return receiver.arrivals.size() > before && done.done; }));
    EXPECT_EQ(source, receiver.window);
  }
  bool poll_rank_until(int rank, const std::function<bool()>& done) {
    const Deadline deadline = Deadline::in_seconds(10);
    while (!done()) {
      const Result<int> moved = (*this)[rank].poll(sink(rank));
      EXPECT_TRUE(moved.ok()) << moved.status().message();
      if (deadline.passed()) return false;
    }
    return true;
  }

  std::vector<std::unique_ptr<TcpTransport>> transports;
  std::vector<Transport*> endpoints;
  std::vector<RecordingSink> sinks;
  struct Opened {
    int from, rail;
    uint32_t channel;
    int fd;  // the opener's end
  };
  std::vector<Opened> opened;  // in that order
  int connections() const { return static_cast<int>(opened.size()); }
  std::function<bool(int from, int to, int rail, uint32_t channel)> refuses = [](int, int, int, uint32_t) {
    return false;
  };

 private:
  Result<UniqueFd> connect(int rank, int peer, int rail, uint32_t channel) {
    if (refuses(rank, peer, rail, channel)) return fail(Code::system_error, "no route over rail {}", rail);
    auto [mine, theirs] = loopback_connection();
    {
      const std::lock_guard lock(opened_mutex_);
      opened.push_back({rank, rail, channel, mine.get()});
    }
    WEFT_TRY(transports[static_cast<size_t>(peer)]->accept(rank, channel, std::move(theirs)));
    return std::move(mine);
  }
  std::mutex opened_mutex_;
};

}  // namespace weft::transport
