// Guests that a listener should not let in: they connect to it and send whatever they like.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/socket.h"
#include "bootstrap/unique_id.h"

namespace weft::bootstrap {

inline UniqueFd dial(const SocketAddress& address) {
  Result<UniqueFd> fd = connect_to(address, Deadline::in_seconds(10));
  return fd.ok() ? fd.take() : UniqueFd();
}

inline void say(const UniqueFd& fd, std::string_view what) {
  if (fd.valid()) [[maybe_unused]]
    const auto sent = ::send(fd.get(), what.data(), what.size(), MSG_NOSIGNAL);
}

/// Whether the other side closes within `seconds`, whatever it says before.
inline bool is_closed_within(const UniqueFd& fd, double seconds) {
  const Deadline deadline = Deadline::in_seconds(seconds);
  std::byte scrap;
  for (;;) {
    const Status got = recv_all(fd.get(), std::span(&scrap, 1), deadline);
    if (!got.ok()) return got.code() == Code::remote_error;
  }
}

inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Keeps an address busy with garbage of every kind, on a thread of its own, until it is destroyed.
class Flood {
 public:
  explicit Flood(SocketAddress victim) : victim_(victim), thread_([this] { run(); }) {}
  ~Flood() {
    stop_ = true;
    thread_.join();
  }

 private:
  void run() {
    constexpr size_t kHeldOpen = 300;
    std::vector<UniqueFd> silent;
    const Result<Secret> random = random_secret();
    for (unsigned turn = 0; !stop_; ++turn) {
      UniqueFd fd = dial(victim_);
      switch (turn % 4) {
        case 0: say(fd, "GET / HTTP/1.1\r\nHost: weft\r\n\r\n"); break;
        case 1: say(fd, as_text(*random)); break;
        case 2: say(fd, std::string(5000, '\xff')); break;
        default: break;  // says nothing
      }
      if (silent.size() < kHeldOpen) {
        silent.push_back(std::move(fd));
      } else {
        silent[turn % kHeldOpen] = std::move(fd);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
  }

  const SocketAddress victim_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace weft::bootstrap
