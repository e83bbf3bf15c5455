// The same short call again and again, as training loops make them: what is kept of the last call must not
// outlive its buffers, its neighbours on other streams and threads, or a rank that calls something else.
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "api/ranks.h"

namespace weft::testing {
namespace {

constexpr int kTimes = 60;

struct Repeated : ::testing::TestWithParam<Nodes> {};

// What rank `rank` contributes to call number `call`.
int32_t value(int rank, int call) { return 1000 * call + rank; }

int32_t sum(int size, int call) { return 1000 * call * size + size * (size - 1) / 2; }

TEST_P(Repeated, EveryCallUsesItsOwnBuffers) {
  run_ranks(GetParam(), [](Rank& me) {
    for (int call = 0; call < kTimes; ++call) {
      std::vector<int32_t> in(3, value(me.rank, call)), out(3, -1), all(3 * me.size, -1);
      int32_t* const into = call % 2 ? in.data() : out.data();
      WEFT_OK(weftAllReduce(in.data(), into, 3, weftInt32, weftSum, me.comm, nullptr));
      ASSERT_EQ(std::vector<int32_t>(into, into + 3), std::vector<int32_t>(3, sum(me.size, call)));
      in.assign(3, value(me.rank, call));
      WEFT_OK(weftAllGather(in.data(), all.data(), 3, weftInt32, me.comm, nullptr));
      for (int i = 0; i < 3 * me.size; ++i) ASSERT_EQ(all[i], value(i / 3, call));
    }
  });
}

TEST_P(Repeated, CallsOfOneKindInARow) {
  run_ranks(GetParam(), [](Rank& me) {
    for (int call = 0; call < kTimes; ++call) {
      std::vector<int32_t> in(me.size, value(me.rank, call)), out(1, -1);
      WEFT_OK(weftReduceScatter(in.data(), out.data(), 1, weftInt32, weftSum, me.comm, nullptr));
      ASSERT_EQ(out[0], sum(me.size, call));
    }
    for (int call = 0; call < kTimes; ++call) {
      std::vector<int32_t> data(2, me.rank == 1 ? value(1, call) : -1);
      WEFT_OK(weftBcast(data.data(), 2, weftInt32, 1, me.comm, nullptr));
      ASSERT_EQ(data[1], value(1, call));
    }
  });
}

// In a long row the algorithm changes, also in the midst of a group, and back where another call ends the
// row.
TEST_P(Repeated, ALongRowFromARoot) {
  run_ranks(GetParam(), [](Rank& me) {
    const auto broadcast = [&](int call, int root) {
      std::vector<int32_t> data(2, me.rank == root ? value(root, call) : -1);
      WEFT_OK(weftBcast(data.data(), 2, weftInt32, root, me.comm, nullptr));
      ASSERT_EQ(data[1], value(root, call));
    };
    for (int call = 0; call < 600; ++call) broadcast(call, 1);
    for (int call = 0; call < 6; ++call) broadcast(call, 0);
    for (int group = 0; group < 3; ++group) {
      std::vector<std::vector<int32_t>> data(5, std::vector<int32_t>(3, -1));
      weftGroupStart();
      for (int call = 0; call < 5; ++call) {
        if (me.rank == 0) data[call].assign(3, value(group, call));
        WEFT_OK(weftBcast(data[call].data(), 3, weftInt32, 0, me.comm, nullptr));
      }
      WEFT_OK(weftGroupEnd());
      for (int call = 0; call < 5; ++call) ASSERT_EQ(data[call][2], value(group, call));
    }
    int32_t one = 1;
    WEFT_OK(weftAllReduce(&one, &one, 1, weftInt32, weftSum, me.comm, nullptr));
    ASSERT_EQ(one, me.size);
    for (int call = 0; call < 20; ++call) {
      int32_t out = -1;
      WEFT_OK(weftReduce(&me.rank, &out, 1, weftInt32, weftSum, 0, me.comm, nullptr));
      ASSERT_EQ(out, me.rank == 0 ? me.size * (me.size - 1) / 2 : -1);
    }
  });
}

// The tuner has another algorithm for a row of such calls, and that adds in another order.
TEST(RepeatedReductions, HaveTheSameBitsInEveryCall) {
  run_ranks(blocks(4, 1), [](Rank& me) {
    std::vector<float> in(4000), out(in.size()), first;
    for (size_t i = 0; i < in.size(); ++i)
      in[i] = 1.f / static_cast<float>(3 + 7 * static_cast<int>(i) + 11 * me.rank);
    for (int call = 0; call < 20; ++call) {
      WEFT_OK(weftReduce(in.data(), out.data(), in.size(), weftFloat, weftSum, 0, me.comm, nullptr));
      if (call == 0) first = out;
      ASSERT_EQ(out, first) << "call " << call;
    }
  });
}

// What a rank keeps of a short call depends on its place: it may be fast-path there and not on others. All
// have to choose alike whatever it is that they have kept, and from which row.
TEST_P(Repeated, ShortCallsBetweenOthersCountForAllAlike) {
  run_ranks(GetParam(), [](Rank& me) {
    std::vector<int32_t> data(256 << 10);
    const auto broadcast = [&](size_t count, int call) {
      if (me.rank == 0) data[0] = data[count - 1] = call;
      WEFT_OK(weftBcast(data.data(), count, weftInt32, 0, me.comm, nullptr));
      ASSERT_EQ(data[count - 1], call);
    };
    const auto reduce = [&](int call) {
      int32_t out = -1;
      WEFT_OK(weftReduce(&call, &out, 1, weftInt32, weftSum, 0, me.comm, nullptr));
      ASSERT_EQ(out, me.rank == 0 ? me.size * call : -1);
    };
    for (int call = 0; call < kTimes; ++call) broadcast(data.size(), call), reduce(call);
    for (int call = 0; call < kTimes; ++call) broadcast(data.size(), call), broadcast(2, call);
    for (int round = 0; round < 3; ++round) {
      for (int call = 0; call < 12; ++call) broadcast(2, call);
      std::vector<int32_t> sums(data.size(), 1);
      WEFT_OK(weftAllReduce(sums.data(), sums.data(), sums.size(), weftInt32, weftSum, me.comm, nullptr));
      ASSERT_EQ(sums.back(), me.size);
      broadcast(2, round);
    }
  });
}

TEST_P(Repeated, AllToAllChangesBetweenInPlaceAndNot) {
  run_ranks(GetParam(), [](Rank& me) {
    for (int call = 0; call < kTimes; ++call) {
      std::vector<int32_t> in(me.size, value(me.rank, call)), out(me.size, -1);
      int32_t* const into = call % 3 == 2 ? in.data() : out.data();
      WEFT_OK(weftAlltoAll(in.data(), into, 1, weftInt32, me.comm, nullptr));
      for (int peer = 0; peer < me.size; ++peer) ASSERT_EQ(into[peer], value(peer, call));
    }
  });
}

// Whatever differs from a call that was checked is checked.
TEST_P(Repeated, AWrongCallAmongThemIsRefused) {
  run_ranks(GetParam(), [](Rank& me) {
    int32_t in = 0, out = -1;
    auto* const odd = reinterpret_cast<int32_t*>(reinterpret_cast<char*>(&out) + 1);
    const auto beyond_a_byte = static_cast<weftRedOp_t>(weftSum + 256);
    const auto call = [&](const void* from, void* to, size_t count, weftDataType_t type, weftRedOp_t op) {
      return weftAllReduce(from, to, count, type, op, me.comm, nullptr);
    };
    for (int round = 0; round < kTimes; ++round) {
      in = value(me.rank, round);
      WEFT_OK(call(&in, &out, 1, weftInt32, weftSum));
      ASSERT_EQ(out, sum(me.size, round));
      EXPECT_EQ(call(nullptr, &out, 1, weftInt32, weftSum), weftInvalidPointer);
      EXPECT_EQ(call(&in, nullptr, 1, weftInt32, weftSum), weftInvalidPointer);
      EXPECT_EQ(call(odd, &out, 1, weftInt32, weftSum), weftInvalidPointer);
      EXPECT_EQ(call(&in, odd, 1, weftInt32, weftSum), weftInvalidPointer);
      EXPECT_EQ(call(&in, &out, SIZE_MAX, weftInt32, weftSum), weftInvalidCount);
      EXPECT_EQ(call(&in, &out, 1, weftInt32, beyond_a_byte), weftInvalidOp);
      EXPECT_EQ(weftAllReduce(&in, &out, 1, weftInt32, weftSum, nullptr, nullptr), weftInvalidComm);
      EXPECT_EQ(weftBroadcast(&in, &out, 1, weftInt32, me.size, me.comm, nullptr), weftInvalidRoot);
      WEFT_OK(weftGroupStart());
      WEFT_OK(call(&in, &out, 1, weftInt32, weftSum));
      WEFT_OK(weftGroupEnd());
      ASSERT_EQ(out, sum(me.size, round));
    }
  });
}

TEST_P(Repeated, ARankThatComesLateIsWaitedFor) {
  run_ranks(GetParam(), [](Rank& me) {
    for (int call = 0; call < 2 * me.size; ++call) {
      if (call % me.size == me.rank) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      int32_t data = value(me.rank, call);
      WEFT_OK(weftAllReduce(&data, &data, 1, weftInt32, weftSum, me.comm, nullptr));
      ASSERT_EQ(data, sum(me.size, call));
    }
  });
}

TEST_P(Repeated, ShortCallsBesideALongOneOnAStream) {
  run_ranks(GetParam(), [](Rank& me) {
    constexpr size_t kLong = 300000;
    weftStream_t stream;
    WEFT_OK(weftStreamCreate(&stream));
    std::vector<int32_t> big(kLong);
    for (int round = 0; round < 5; ++round) {
      big.assign(kLong, value(me.rank, round));
      WEFT_OK(weftAllReduce(big.data(), big.data(), kLong, weftInt32, weftSum, me.comm, stream));
      for (int call = 0; call < 20; ++call) {
        int32_t data = value(me.rank, call);
        WEFT_OK(weftAllReduce(&data, &data, 1, weftInt32, weftSum, me.comm, nullptr));
        ASSERT_EQ(data, sum(me.size, call));
      }
      WEFT_OK(weftStreamSynchronize(stream));
      ASSERT_EQ(big[kLong - 1], sum(me.size, round));
    }
    WEFT_OK(weftStreamDestroy(stream));
  });
}

TEST_P(Repeated, TwoThreadsOnTwoCommunicatorsOfOneJob) {
  run_ranks(GetParam(), [](Rank& me) {
    weftComm_t other;
    WEFT_OK(weftCommSplit(me.comm, 0, me.rank, &other, nullptr));
    auto repeat = [&me](weftComm_t comm) {
      for (int call = 0; call < 10 * kTimes; ++call) {
        int32_t data = value(me.rank, call);
        WEFT_OK(weftAllReduce(&data, &data, 1, weftInt32, weftSum, comm, nullptr));
        ASSERT_EQ(data, sum(me.size, call));
      }
    };
    std::thread beside(repeat, other);
    repeat(me.comm);
    beside.join();
    WEFT_OK(weftCommDestroy(other));
  });
}

TEST_P(Repeated, AnotherCallAmongThemIsReportedByAllItsRanks) {
  run_ranks(GetParam(), [](Rank& me) {
    int32_t data[2] = {};
    weftResult_t result = weftSuccess;
    // The news may reach a rank that has not seen the end of call 5 yet.
    for (int call = 1; call <= 8 && result == weftSuccess; ++call) {
      const weftRedOp_t op = me.rank == 0 && call == 6 ? weftMax : weftSum;
      result = weftAllReduce(data, data, 1, weftInt32, op, me.comm, nullptr);
    }
    EXPECT_TRUE(result == weftMismatch || result == weftRemoteError) << result;
    const std::string why = weftGetLastError(me.comm);
    EXPECT_NE(why.find("operation 6 "), std::string::npos) << why;
    // Whoever finds out by the other's data knows no more than that.
    EXPECT_TRUE(why.find("(max)") != std::string::npos ||
                why.find("rank 0 called it with another operation") != std::string::npos)
        << why;
  });
}

// Identical calls need no agreement on their order; one took up the other's operation while that was in
// flight.
TEST_P(Repeated, TwoThreadsMakeTheSameCallOnOneCommunicator) {
  run_ranks(GetParam(), [](Rank& me) {
    auto repeat = [&me] {
      for (int call = 0; call < 10 * kTimes; ++call) {
        int32_t data = 1;
        WEFT_OK(weftAllReduce(&data, &data, 1, weftInt32, weftSum, me.comm, nullptr));
        ASSERT_EQ(data, me.size);
      }
    };
    std::thread beside(repeat);
    repeat();
    beside.join();
  });
}

// An operation that was cancelled in a queue had another plan than the one that its vectors were laid out
// for; after its communicator was gone a new plan could lie at the address of the old.
TEST_P(Repeated, PlansOfANewCommunicatorAfterQueuedOperationsWereCancelled) {
  run_ranks(GetParam(), [](Rank& me) {
    weftStream_t stream;
    WEFT_OK(weftStreamCreate(&stream));
    for (int round = 0; round < 3; ++round) {
      weftComm_t doomed;
      WEFT_OK(weftCommSplit(me.comm, 0, me.rank, &doomed, nullptr));
      std::vector<int32_t> data(100000 + round);
      for (int call = 0; call < 5; ++call) {
        int32_t word = 1;
        WEFT_OK(weftAllReduce(&word, &word, 1, weftInt32, weftSum, doomed, nullptr));
      }
      int32_t all_are_here = 1;
      WEFT_OK(weftAllReduce(&all_are_here, &all_are_here, 1, weftInt32, weftSum, me.comm, nullptr));
      for (size_t count : {data.size(), size_t{3}, size_t{50000}, size_t{7}})
        (void)weftAllReduce(data.data(), data.data(), count, weftInt32, weftSum, doomed, stream);
      WEFT_OK(weftCommAbort(doomed));
      (void)weftStreamSynchronize(stream);
      weftComm_t next;
      WEFT_OK(weftCommSplit(me.comm, 0, me.rank, &next, nullptr));
      for (size_t count : {size_t{1}, size_t{9}, size_t{40000}, size_t{2}}) {
        data.assign(count, 1);
        WEFT_OK(weftAllReduce(data.data(), data.data(), count, weftInt32, weftSum, next, nullptr));
        ASSERT_EQ(data[count - 1], me.size);
      }
      WEFT_OK(weftCommDestroy(next));
    }
    WEFT_OK(weftStreamDestroy(stream));
  });
}

TEST(RepeatedAlone, ALongCallOnOneRank) {
  run_ranks(blocks(1, 1), [](Rank& me) {
    const size_t count = 1 << 20;
    for (int call = 0; call < 3; ++call) {
      std::vector<int32_t> in(count, value(0, call)), out(count, -1);
      WEFT_OK(weftAllReduce(in.data(), out.data(), count, weftInt32, weftSum, me.comm, nullptr));
      ASSERT_EQ(out, in);
    }
  });
}

TEST_P(Repeated, ARootThatFillsTheFifosIsHeldUp) {
  run_ranks(GetParam(), [](Rank& me) {
    for (int call = 0; call < 500; ++call) {
      if (me.rank != 0 && call % 100 == 99) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      std::vector<int32_t> data(200, me.rank == 0 ? call : -1);
      WEFT_OK(weftBcast(data.data(), data.size(), weftInt32, 0, me.comm, nullptr));
      ASSERT_EQ(data.back(), call);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Nodes, Repeated, ::testing::Values(blocks(1, 2), blocks(1, 5), blocks(2, 2)),
                         [](const auto& info) {
                           return std::to_string(info.param.size()) + "ranks" +
                                  (info.param.front() == info.param.back() ? "" : "over2nodes");
                         });

}  // namespace
}  // namespace weft::testing
