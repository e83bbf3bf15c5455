// Several processes with the plugin each, connected by it in whatever pattern a test wants, and beside that
// by a socket pair between any two, over which they tell each other how far they are.
#pragma once

#include <poll.h>

#include <algorithm>
#include <map>

#include "two_processes.h"

namespace weft::nccl_net_test {

/// What one of them has.
class Rank {
 public:
  Rank(Process& process, int number, std::vector<int> channels)
      : process_(process), number_(number), channels_(std::move(channels)) {}

  PluginHost& host() { return process_.host(); }
  int number() const { return number_; }
  int ranks() const { return static_cast<int>(channels_.size()); }
  /// All but this one.
  std::vector<int> others() const {
    std::vector<int> all;
    for (int i = 1; i < ranks(); ++i) all.push_back((number_ + i) % ranks());
    return all;
  }

  void tell(int rank, const void* data, size_t bytes) {
    ASSERT_EQ(::send(channels_[rank], data, bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
  }
  void hear(int rank, void* data, size_t bytes) {
    ASSERT_EQ(::recv(channels_[rank], data, bytes, MSG_WAITALL), static_cast<ssize_t>(bytes))
        << "process " << rank << " ended";
  }
  /// Whether a rank has told something that has not been heard yet, or does within so many ms.
  bool has_been_told(int rank, int within_ms = 0) const {
    pollfd channel{channels_[rank], POLLIN, 0};
    return ::poll(&channel, 1, within_ms) == 1;
  }
  /// Returns when all of `ranks` are here, too.
  void meet(const std::vector<int>& ranks) {
    char byte = 'm';
    for (const int rank : ranks) tell(rank, &byte, 1);
    for (const int rank : ranks) hear(rank, &byte, 1);
  }

  struct Ends {
    std::map<int, End> to, from;  // by rank
  };
  /// Connects to the ranks `to`, and is connected to by the ranks `from`, all at once, as each may have to
  /// wait for another.
  Ends connect(const std::vector<int>& to, const std::vector<int>& from) {
    struct Handle {
      char bytes[abi::kHandleBytes] = {};
    };
    std::map<int, Handle> handles;
    std::map<int, void*> listeners, senders, receivers;
    for (const int rank : from) {
      Handle handle;
      EXPECT_EQ(host().listen(0, handle.bytes, &listeners[rank]), abi::kSuccess);
      tell(rank, handle.bytes, sizeof handle.bytes);
    }
    for (const int rank : to) hear(rank, handles[rank].bytes, sizeof(Handle));
    EXPECT_TRUE(wait_until([&] {
      bool all = true;
      for (const int rank : to) {
        void*& sender = senders[rank];
        if (!sender) {
          EXPECT_EQ(host().connect(0, handles[rank].bytes, &sender), abi::kSuccess);
        }
        all = all && sender;
      }
      for (const int rank : from) {
        void*& receiver = receivers[rank];
        if (!receiver) {
          EXPECT_EQ(host().accept(listeners[rank], &receiver), abi::kSuccess);
        }
        all = all && receiver;
      }
      return all || ::testing::Test::HasFailure();
    })) << "they do not meet";
    for (const auto& [rank, listener] : listeners) EXPECT_EQ(host().close_listener(listener), abi::kSuccess);
    Ends ends;
    for (const auto& [rank, sender] : senders) ends.to.emplace(rank, End(host(), End::Side::sender, sender));
    for (const auto& [rank, receiver] : receivers)
      ends.from.emplace(rank, End(host(), End::Side::receiver, receiver));
    return ends;
  }

 private:
  Process& process_;
  const int number_;
  const std::vector<int> channels_;  // by rank
};

/// Starts a request, or returns null where there is no room for it yet.
using Start = std::function<void*()>;

inline Start to_send(End& end, void* data, size_t bytes, int tag, void* memory) {
  return [=, &end] {
    void* request = nullptr;
    EXPECT_EQ(end.host().send(end.get(), data, bytes, tag, memory, &request), abi::kSuccess);
    return request;
  };
}
inline Start to_receive(End& end, void* data, size_t bytes, int tag, void* memory) {
  return [=, &end]() mutable {
    void* request = nullptr;
    EXPECT_EQ(end.host().receive(end.get(), 1, &data, &bytes, &tag, &memory, &request), abi::kSuccess);
    return request;
  };
}

/// Starts all, and polls what has been started in turn, as NCCL does, until none is left. `over` is called
/// for each with its place and its size.
inline void run_all(PluginHost& host, const std::vector<Start>& starts,
                    const std::function<void(size_t, int)>& over) {
  std::vector<void*> requests(starts.size(), nullptr);
  std::vector<bool> done(starts.size(), false);
  EXPECT_TRUE(wait_until([&] {
    for (size_t i = 0; i < starts.size(); ++i) {
      if (done[i]) continue;
      if (!requests[i]) requests[i] = starts[i]();
      std::vector<int> sizes;
      abi::Result result = abi::kSuccess;
      if (!requests[i] || !tested(host, requests[i], &sizes, &result)) continue;
      done[i] = true;
      EXPECT_EQ(result, abi::kSuccess) << (logged().empty() ? "" : logged().back());
      if (result == abi::kSuccess) over(i, sizes.at(0));
    }
    return std::count(done.begin(), done.end(), false) == 0 || ::testing::Test::HasFailure();
  })) << "requests that never end: "
      << std::count(done.begin(), done.end(), false);
}

using RankBody = std::function<void(Rank&)>;

/// Runs `body` in `ranks` processes. One that has failures, or does not end, is a failure of the test; that
/// of rank `killed` has to end by SIGKILL.
inline void run_ranks(int ranks, int version, const Net& net, const RankBody& body, int killed = -1) {
  std::vector<std::vector<int>> channels(ranks, std::vector<int>(ranks, -1));
  for (int a = 0; a < ranks; ++a) {
    for (int b = 0; b < a; ++b) {
      int pair[2];
      ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
      channels[a][b] = pair[0], channels[b][a] = pair[1];
    }
  }
  const auto close_all = [&](int but) {
    for (int rank = 0; rank < ranks; ++rank) {
      for (const int channel : channels[rank])
        if (rank != but && channel >= 0) ::close(channel);
    }
  };
  std::fflush(nullptr);
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    children.push_back(fork());
    ASSERT_GE(children.back(), 0);
    if (children.back() > 0) continue;
    remove_leftovers(getpid());
    alarm(100);
    close_all(rank);
    try {
      Process process(version, net, -1);
      Rank self(process, rank, channels[rank]);
      if (process.ready()) body(self);
    } catch (const std::exception& error) {  // must not go on as the test's own process
      ADD_FAILURE() << error.what();
    }
    std::fflush(nullptr);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  close_all(-1);
  for (int rank = 0; rank < ranks; ++rank) {
    int status = 0;
    waitpid(children[rank], &status, 0);
    remove_leftovers(children[rank]);
    const bool as_expected = rank == killed ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
                                            : WIFEXITED(status) && WEXITSTATUS(status) == 0;
    EXPECT_TRUE(as_expected) << "process " << rank << ": "
                             << (WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "failed");
  }
}

}  // namespace weft::nccl_net_test
