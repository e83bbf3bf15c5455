// Completion of a stream's operations: callbacks, queries and timed waits; and timeouts that are set at run
// time.
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "api/ranks.h"

namespace weft::testing {
namespace {

/// Counts to a number that another thread waits for.
class Count {
 public:
  void add() {
    const std::lock_guard guard(mutex_);
    ++count_;
    changed_.notify_all();
  }
  bool reaches(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return count_ >= count; });
  }
  int now() {
    const std::lock_guard guard(mutex_);
    return count_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

void count_up(weftResult_t result, void* arg) {
  EXPECT_EQ(result, weftSuccess);
  static_cast<Count*>(arg)->add();
}

class Completion : public ::testing::TestWithParam<Nodes> {};

// Over shared memory and over the network.
INSTANTIATE_TEST_SUITE_P(Layouts, Completion, ::testing::Values(blocks(1, 2), blocks(2, 1)),
                         [](const auto& layout) { return "Nodes" + layout.param.back(); });

// Nobody waits for the operations themselves.
TEST_P(Completion, ACallbackComesWhenTheOperationsAreComplete) {
  run_ranks(GetParam(), [](Rank& me) {
    weftStream_t stream;
    WEFT_OK(weftStreamCreate(&stream));
    std::vector<float> x(50000, 1.f);
    Count done;
    for (int i = 0; i < 5; ++i) {
      WEFT_OK(weftAllReduce(x.data(), x.data(), x.size(), weftFloat, weftSum, me.comm, stream));
      WEFT_OK(weftStreamNotify(stream, count_up, &done));
    }
    EXPECT_TRUE(done.reaches(5));
    EXPECT_EQ(x.back(), 32.f);
    EXPECT_EQ(weftStreamQuery(stream), weftSuccess);
    WEFT_OK(weftStreamDestroy(stream));
  });
}

TEST_P(Completion, ACallbackDoesNotComeBefore) {
  std::atomic<bool> may_join{false};
  run_ranks(GetParam(), [&](Rank& me) {
    weftStream_t stream;
    WEFT_OK(weftStreamCreate(&stream));
    std::vector<float> x(1000, 1.f);
    Count done;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (me.rank == 1 && !may_join && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    WEFT_OK(weftAllReduce(x.data(), x.data(), x.size(), weftFloat, weftSum, me.comm, stream));
    WEFT_OK(weftStreamNotify(stream, count_up, &done));
    if (me.rank == 0) {
      EXPECT_EQ(weftStreamWait(stream, 1, 0.01), weftInProgress);
      EXPECT_EQ(weftStreamWait(stream, 1, 0), weftInProgress);
      EXPECT_EQ(weftStreamQueryTo(stream, 1), weftInProgress);
      EXPECT_EQ(weftStreamQueryTo(stream, 0), weftSuccess);
      EXPECT_EQ(done.now(), 0);
      may_join = true;
    }
    WEFT_OK(weftStreamWait(stream, 1, INFINITY));
    EXPECT_EQ(weftStreamQueryTo(stream, 1), weftSuccess);
    WEFT_OK(weftStreamDestroy(stream));
    EXPECT_EQ(done.now(), 1);  // destroying waits for callbacks
  });
}

TEST(Notifications, OfAnEmptyStreamComeToo) {
  weftStream_t stream;
  WEFT_OK(weftStreamCreate(&stream));
  Count done;
  WEFT_OK(weftStreamNotify(stream, count_up, &done));
  EXPECT_TRUE(done.reaches(1));
  WEFT_OK(weftStreamDestroy(stream));
}

// A callback that the machine holds up for a millisecond runs side by side with the next. So not every round
// has to show the order.
TEST(Notifications, OfOneStreamBeginInOrder) {
  struct Begun {
    std::mutex mutex;
    std::vector<int> order;
  };
  struct Turn {
    Begun* begun;
    int number;
  };
  bool in_order = false;
  for (int round = 0; round < 10 && !in_order; ++round) {
    weftStream_t stream;
    WEFT_OK(weftStreamCreate(&stream));
    Begun begun;
    std::vector<Turn> turns(100);
    for (int i = 0; i < 100; ++i) {
      turns[static_cast<size_t>(i)] = {&begun, i};
      WEFT_OK(weftStreamNotify(
          stream,
          [](weftResult_t, void* arg) {
            const auto* turn = static_cast<Turn*>(arg);
            const std::lock_guard guard(turn->begun->mutex);
            turn->begun->order.push_back(turn->number);
          },
          &turns[static_cast<size_t>(i)]));
    }
    WEFT_OK(weftStreamDestroy(stream));
    ASSERT_EQ(begun.order.size(), 100u);
    in_order = std::is_sorted(begun.order.begin(), begun.order.end());
  }
  EXPECT_TRUE(in_order);
}

// A chain of callbacks, each of which waits for the next one.
TEST(Notifications, ACallbackMayWaitForALaterOne) {
  struct Link {
    Count* ends;
    int level;
  };
  constexpr int kLevels = 6;
  weftStream_t stream;
  WEFT_OK(weftStreamCreate(&stream));
  Count ends;
  std::vector<Link> links;
  for (int level = 0; level < kLevels; ++level) links.push_back({&ends, level});
  for (Link& link : links)
    WEFT_OK(weftStreamNotify(
        stream,
        [](weftResult_t, void* arg) {
          const auto* link = static_cast<Link*>(arg);
          EXPECT_TRUE(link->ends->reaches(kLevels - 1 - link->level));
          link->ends->add();
        },
        &link));
  EXPECT_TRUE(ends.reaches(kLevels));
  WEFT_OK(weftStreamDestroy(stream));
}

// What a poll loop would do.
TEST(Notifications, MayWriteToADescriptor) {
  run_ranks(blocks(2, 1), [](Rank& me) {
    const int fd = eventfd(0, EFD_CLOEXEC);
    ASSERT_GE(fd, 0);
    weftStream_t stream;
    WEFT_OK(weftStreamCreate(&stream));
    float x = 1;
    WEFT_OK(weftAllReduce(&x, &x, 1, weftFloat, weftSum, me.comm, stream));
    WEFT_OK(weftStreamNotify(
        stream,
        [](weftResult_t, void* arg) {
          const uint64_t one = 1;
          EXPECT_EQ(write(*static_cast<const int*>(arg), &one, sizeof one), 8);
        },
        const_cast<int*>(&fd)));
    pollfd ready{fd, POLLIN, 0};
    EXPECT_EQ(poll(&ready, 1, 20'000), 1);
    uint64_t told = 0;
    EXPECT_EQ(read(fd, &told, sizeof told), 8);
    EXPECT_EQ(x, 2.f);
    WEFT_OK(weftStreamDestroy(stream));
    close(fd);
  });
}

TEST(Notifications, MayCallTheLibrary) {
  run_ranks(blocks(2, 1), [](Rank& me) {
    struct Next {
      weftComm_t comm;
      weftStream_t stream;
      float value = 1;
      Count done;
    } next{me.comm, nullptr, 1, {}};
    WEFT_OK(weftStreamCreate(&next.stream));
    WEFT_OK(weftStreamNotify(
        next.stream,
        [](weftResult_t, void* arg) {
          auto* n = static_cast<Next*>(arg);
          EXPECT_EQ(weftStreamDestroy(n->stream), weftInvalidUsage);
          EXPECT_NE(std::string(weftGetLastError(nullptr)).find("a callback"), std::string::npos);
          EXPECT_EQ(weftAllReduce(&n->value, &n->value, 1, weftFloat, weftSum, n->comm, nullptr),
                    weftSuccess);
          n->done.add();
        },
        &next));
    EXPECT_TRUE(next.done.reaches(1));
    EXPECT_EQ(next.value, 2.f);
    WEFT_OK(weftStreamDestroy(next.stream));
  });
}

// The failure goes to the notification of the operation that failed, with its sentence.
TEST(Notifications, TellWhatFailed) {
  run_ranks(blocks(2, 1), [](Rank& me) {
    struct Outcome {
      weftResult_t result = weftSuccess;
      std::string sentence;
      Count called;
    } before, after;
    const auto note = [](weftResult_t result, void* arg) {
      auto* outcome = static_cast<Outcome*>(arg);
      outcome->result = result;
      outcome->sentence = weftGetLastError(nullptr);
      outcome->called.add();
    };
    weftStream_t stream;
    WEFT_OK(weftStreamCreate(&stream));
    std::vector<float> x(100, 1.f), y(200000, 1.f);
    WEFT_OK(weftAllReduce(x.data(), x.data(), x.size(), weftFloat, weftSum, me.comm, stream));
    WEFT_OK(weftStreamNotify(stream, note, &before));
    EXPECT_TRUE(before.called.reaches(1));
    WEFT_OK(weftAllReduce(y.data(), y.data(), me.rank == 0 ? 200000 : 100000, weftFloat, weftSum, me.comm,
                          stream));
    WEFT_OK(weftStreamNotify(stream, note, &after));
    EXPECT_TRUE(after.called.reaches(1));
    EXPECT_EQ(before.result, weftSuccess);
    EXPECT_TRUE(after.result == weftMismatch || after.result == weftRemoteError) << after.result;
    EXPECT_NE(after.sentence.find("200000"), std::string::npos) << after.sentence;
    EXPECT_EQ(weftStreamDestroy(stream), after.result);
    WEFT_OK(weftCommAbort(me.comm));
    me.comm = nullptr;
  });
}

TEST(Notifications, RefuseWhatMakesNoSense) {
  weftStream_t stream;
  WEFT_OK(weftStreamCreate(&stream));
  EXPECT_EQ(weftStreamNotify(stream, nullptr, nullptr), weftInvalidPointer);
  EXPECT_NE(std::string(weftGetLastError(nullptr)).find("notify is NULL"), std::string::npos);
  EXPECT_EQ(weftStreamNotify(nullptr, count_up, nullptr), weftInvalidPointer);
  EXPECT_EQ(weftStreamWait(stream, 1, 1), weftInvalidArgument);
  EXPECT_EQ(weftStreamWait(stream, 0, -1), weftInvalidArgument);
  EXPECT_EQ(weftStreamWait(stream, 0, NAN), weftInvalidArgument);
  EXPECT_EQ(weftStreamQueryTo(stream, 1), weftInvalidArgument);
  EXPECT_EQ(weftStreamQueryTo(nullptr, 0), weftInvalidPointer);
  WEFT_OK(weftStreamDestroy(stream));
}

// ---- Timeouts at run time

/// Rank 1 stays away; rank 0's call fails with the timeout that `set` has set, in seconds.
void expect_timeout(const std::function<void(Rank&)>& set, const char* sentence) {
  std::atomic<bool> over{false};
  run_ranks(blocks(2, 1), [&](Rank& me) {
    float x = 1;
    WEFT_OK(weftAllReduce(&x, &x, 1, weftFloat, weftSum, me.comm, nullptr));  // under the longer timeout
    if (me.rank == 0) {
      set(me);
      EXPECT_EQ(weftAllReduce(&x, &x, 1, weftFloat, weftSum, me.comm, nullptr), weftTimeout);
      const std::string why = weftGetLastError(me.comm);
      EXPECT_NE(why.find(sentence), std::string::npos) << why;
      EXPECT_NE(why.find("rank 1 has not arrived"), std::string::npos) << why;
      WEFT_OK(weftSetCallTimeout(0));
      over = true;
    }
    while (!over) std::this_thread::yield();
    WEFT_OK(weftCommAbort(me.comm));
    me.comm = nullptr;
  });
}

TEST(Timeouts, OfACommunicatorCanBeSetAtRunTime) {
  expect_timeout([](Rank& me) { WEFT_OK(weftCommSetTimeout(me.comm, 0.25)); }, "not finished after 0.25 s");
}

TEST(Timeouts, OfAThreadsCallsCountBeforeTheCommunicators) {
  expect_timeout(
      [](Rank& me) {
        WEFT_OK(weftCommSetTimeout(me.comm, 1000));
        WEFT_OK(weftSetCallTimeout(0.25));
      },
      "not finished after 0.25 s");
}

// A later, shorter one does not end an operation that is in flight.
TEST(Timeouts, OfAnOperationInFlightStay) {
  std::atomic<bool> may_join{false};
  run_ranks(blocks(2, 1), [&](Rank& me) {
    weftStream_t stream;
    WEFT_OK(weftStreamCreate(&stream));
    std::vector<float> x(1000, 1.f);
    if (me.rank == 1)
      while (!may_join) std::this_thread::yield();
    WEFT_OK(weftAllReduce(x.data(), x.data(), x.size(), weftFloat, weftSum, me.comm, stream));
    if (me.rank == 0) {
      WEFT_OK(weftCommSetTimeout(me.comm, 0.05));
      EXPECT_EQ(weftStreamWait(stream, 1, 0.5), weftInProgress);
      WEFT_OK(weftCommSetTimeout(me.comm, 60));
      may_join = true;
    }
    WEFT_OK(weftStreamDestroy(stream));
    EXPECT_EQ(x.back(), 2.f);
  });
}

TEST(Timeouts, ThatAreNoneAreRefused) {
  run_ranks(blocks(1, 1), [](Rank& me) {
    for (const double wrong : {0.0, -1.0, static_cast<double>(NAN)})
      EXPECT_EQ(weftCommSetTimeout(me.comm, wrong), weftInvalidArgument) << wrong;
    EXPECT_NE(std::string(weftGetLastError(nullptr)).find("must be greater than 0"), std::string::npos);
    EXPECT_EQ(weftCommSetTimeout(nullptr, 1), weftInvalidComm);
    EXPECT_EQ(weftSetCallTimeout(-1), weftInvalidArgument);
    EXPECT_EQ(weftSetCallTimeout(NAN), weftInvalidArgument);
    WEFT_OK(weftCommSetTimeout(me.comm, INFINITY));
    float x = 3;
    WEFT_OK(weftAllReduce(&x, &x, 1, weftFloat, weftSum, me.comm, nullptr));
    WEFT_OK(weftSetCallTimeout(5));
    WEFT_OK(weftAllReduce(&x, &x, 1, weftFloat, weftSum, me.comm, nullptr));
    WEFT_OK(weftSetCallTimeout(0));
  });
}

}  // namespace
}  // namespace weft::testing
