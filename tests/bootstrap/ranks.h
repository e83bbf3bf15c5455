// Ranks as threads: a job inside one process.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/bootstrap.h"

namespace weft::bootstrap {

/// Long enough for any machine, short enough for a test that fails.
inline Deadline soon() { return Deadline::in_seconds(30); }

using Joined = Result<std::unique_ptr<Bootstrap>>;

/// Runs `body(rank)` on a thread for each rank and waits for all.
inline void on_each_rank(int ranks, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

/// A job whose ranks have joined and not yet started; empty, with a test failure, if one could not.
inline std::vector<std::unique_ptr<Bootstrap>> join_all(const UniqueId& id, int ranks) {
  std::vector<std::unique_ptr<Bootstrap>> members(static_cast<size_t>(ranks));
  on_each_rank(ranks, [&](int rank) {
    Joined joined = Bootstrap::join(id, rank, ranks, soon());
    ASSERT_TRUE(joined.ok()) << joined.status().message();
    members[static_cast<size_t>(rank)] = joined.take();
  });
  for (const auto& member : members) {
    if (!member) return {};
  }
  return members;
}

inline UniqueId make_id() {
  Result<UniqueId> id = create_unique_id("127.0.0.1");
  EXPECT_TRUE(id.ok()) << id.status().message();
  return id.ok() ? *id : UniqueId{};
}

/// What callbacks have said, and waiting for it.
class Events {
 public:
  struct Failure {
    int from;
    uint32_t comm;
    std::string why;
  };
  struct Data {
    int from;
    uint32_t purpose;
    UniqueFd connection;
  };

  Callbacks callbacks() {
    Callbacks c;
    c.on_dead = [this](int rank, const Status& why) {
      note([&] { dead.emplace_back(rank, why.message()); });
    };
    c.on_failed = [this](int from, uint32_t comm, const std::string& why) {
      note([&] { failures.push_back({from, comm, why}); });
    };
    c.on_data_connection = [this](int from, uint32_t purpose, UniqueFd fd) {
      note([&] { data.push_back({from, purpose, std::move(fd)}); });
    };
    return c;
  }

  /// Waits until `holds` is true; false if it is not soon.
  bool wait(const std::function<bool()>& holds) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), holds);
  }
  /// Reads the lists under the lock.
  template <typename Read>
  auto locked(Read read) {
    const std::lock_guard lock(mutex_);
    return read();
  }

  std::vector<std::pair<int, std::string>> dead;
  std::vector<Failure> failures;
  std::vector<Data> data;

 private:
  void note(const std::function<void()>& write) {
    const std::lock_guard lock(mutex_);
    write();
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace weft::bootstrap
