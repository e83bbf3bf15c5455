// Long collectives as copies on the caller's stream: what a call costs, whether the data
// is right, and how an operation ends when a rank does not come, comes with another call, or gives up.
#include "engine/gpu/copy_path.h"

#include <barrier>
#include <chrono>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <thread>

#include "api/ranks.h"
#include "cuda/device_memory.h"
#include "cuda/plan_path.h"

namespace weft::testing::copies {
namespace {

using Values = std::vector<float>;

constexpr size_t kCount = 64 << 10;  // floats of a rank: 256 KiB
constexpr const char* kName = "copy_engines";

#define WEFT_NEED_COPY_PATH()                                                                \
  WEFT_NEED_DEVICE();                                                                        \
  if (settings().cuda_copy_bytes == 0 || !(*cuda::Device::open(0))->has_memory_operations()) \
  GTEST_SKIP() << "cuda.copy_path runs this with WEFT_CUDA_COPY_BYTES, where streams wait for memory"

float value(int rank, size_t i, size_t round = 0) {
  return static_cast<float>((static_cast<size_t>(rank) * 7 + i * 3 + round * 5) % 8191);
}
Values filled(int rank, size_t count, size_t first = 0, size_t round = 0) {
  Values v(count);
  for (size_t i = 0; i < count; ++i) v[i] = value(rank, first + i, round);
  return v;
}

/// The sentence of a communicator that fails, when it has.
std::string failure_of(weftComm_t comm) {
  weftResult_t failure = weftSuccess;
  (void)eventually([&] {
    return weftCommGetAsyncError(comm, &failure) == weftSuccess && failure != weftSuccess &&
           failure != weftInProgress;
  });
  return weftGetLastError(comm);
}

#define EXPECT_SAYS(sentence, words) EXPECT_NE((sentence).find(words), std::string::npos) << (sentence)

// ---- What a call costs

TEST(CopyPath, AnAllGatherOf256MiBIsItsCopiesAndFourCallsAndNothingOnTheProgressThread) {
  WEFT_NEED_COPY_PATH();
  WEFT_NEED_FAKE(fake);
  constexpr int kRanks = 4, kCalls = 2;
  const size_t part = static_cast<size_t>(settings().cuda_copy_bytes);
  const char* const kNames[] = {"cuMemcpyAsync",        "cuStreamBatchMemOp", "cuStreamWaitValue32",
                                "cuStreamWriteValue32", "cuStreamWaitEvent",  "cuLaunchKernel",
                                "cuLaunchHostFunc",     "cuMemAlloc",         "cuIpcOpenMemHandle"};
  std::barrier all(kRanks);
  std::map<std::string, uint64_t> before, after;
  uint64_t of_progress = 0;
  std::chrono::steady_clock::time_point begin;
  std::chrono::steady_clock::duration took{};
  run_ranks(
      blocks(1, kRanks),
      [&](Rank& me) {
        const DeviceStream stream;
        const DeviceArray<char> send(part), recv(kRanks * part);
        const auto gather = [&] {
          WEFT_OK(weftAllGather(send.data(), recv.data(), part, weftInt8, me.comm, stream.weft()));
        };
        gather();
        stream.synchronize();
        all.arrive_and_wait();
        if (me.rank == 0) {
          for (const char* name : kNames) before[name] = fake.calls(name);
          of_progress = fake.calls_of(1).work;
          begin = std::chrono::steady_clock::now();
        }
        all.arrive_and_wait();
        const uint64_t own = fake.calls_of(0).work;
        for (int call = 0; call < kCalls; ++call) gather();
        // Each is checked by four calls: the stream, a capture on it, two buffers.
        EXPECT_EQ(fake.calls_of(0).work - own, kCalls * (4 + (kRanks + 1) + 4));
        all.arrive_and_wait();
        stream.synchronize();
        all.arrive_and_wait();
        if (me.rank == 0) {
          for (const char* name : kNames) after[name] = fake.calls(name) - before[name];
          of_progress = fake.calls_of(1).work - of_progress;
          took = std::chrono::steady_clock::now() - begin;
        }
        all.arrive_and_wait();
        EXPECT_EQ(algorithm_of(me.comm), kName);
      },
      on_device);
  for (const auto& [name, count] : after) {
    const uint64_t expected = name == "cuMemcpyAsync" ? kRanks + 1 : name == "cuStreamBatchMemOp" ? 4 : 0;
    EXPECT_EQ(count, kCalls * kRanks * expected) << name;
  }
  // Every 100 ms each rank asks whether its device is alive, by an event that is made, recorded and queried.
  const auto questions = static_cast<uint64_t>(kRanks * (took / std::chrono::milliseconds(100) + 1));
  EXPECT_LE(of_progress, 3 * questions);
}

// ---- Data

/// Calls of one kind after the other, on several streams, without a wait in between; each rank is late by
/// chance.
void call_in_a_row(int ranks, uint64_t seed) {
  run_ranks(
      blocks(1, ranks),
      [&](Rank& me) {
        constexpr size_t kCalls = 12, kMost = 40000;
        std::mt19937_64 choices(seed), own(seed * 31 + static_cast<uint64_t>(me.rank));
        const DeviceStream streams[2];
        const auto n = static_cast<size_t>(me.size), rank = static_cast<size_t>(me.rank);
        std::vector<std::unique_ptr<DeviceArray<float>>> arrays;
        std::vector<std::pair<size_t, Values>> expected;  // array and its contents
        for (size_t round = 0; round < kCalls; ++round) {
          const size_t count = 1 + choices() % kMost;
          const auto what = choices() % 5;
          const int root = static_cast<int>(choices() % n);
          const bool in_place = choices() % 2;
          const weftStream_t stream = streams[choices() % 2].weft();
          const Values mine = filled(me.rank, n * count, 0, round);
          arrays.push_back(std::make_unique<DeviceArray<float>>(mine));
          DeviceArray<float>& send = *arrays.back();
          arrays.push_back(std::make_unique<DeviceArray<float>>(Values(n * count, -1)));
          DeviceArray<float>& recv = *arrays.back();
          size_t in = arrays.size() - 1;
          Values result(n * count, -1);
          const auto put = [&](size_t at, int from, size_t first) {
            for (size_t i = 0; i < count; ++i) result[at + i] = value(from, first + i, round);
          };
          std::this_thread::sleep_for(std::chrono::microseconds(own() % 500));
          switch (what) {
            case 0:
              for (int r = 0; r < me.size; ++r) put(static_cast<size_t>(r) * count, r, 0);
              if (in_place) recv.set(filled(me.rank, count, 0, round), rank * count);
              WEFT_OK(weftAllGather(in_place ? recv.data() + rank * count : send.data(), recv.data(), count,
                                    weftFloat, me.comm, stream));
              break;
            case 1:
              put(0, root, 0);
              if (in_place) {
                recv.set(filled(me.rank, count, 0, round));
                WEFT_OK(weftBcast(recv.data(), count, weftFloat, root, me.comm, stream));
              } else {
                WEFT_OK(weftBroadcast(send.data(), recv.data(), count, weftFloat, root, me.comm, stream));
              }
              break;
            case 2:
              for (int r = 0; r < me.size && me.rank == root; ++r) put(static_cast<size_t>(r) * count, r, 0);
              WEFT_OK(weftGather(send.data(), recv.data(), count, weftFloat, root, me.comm, stream));
              break;
            case 3:
              put(0, root, rank * count);
              WEFT_OK(weftScatter(send.data(), recv.data(), count, weftFloat, root, me.comm, stream));
              break;
            default:
              for (int r = 0; r < me.size; ++r) put(static_cast<size_t>(r) * count, r, rank * count);
              if (in_place) in = arrays.size() - 2;
              WEFT_OK(weftAlltoAll(send.data(), in_place ? send.data() : recv.data(), count, weftFloat,
                                   me.comm, stream));
          }
          expected.emplace_back(in, std::move(result));
        }
        for (const DeviceStream& stream : streams) stream.synchronize();
        for (const auto& [array, values] : expected)
          ASSERT_EQ(arrays[array]->get(), values) << "seed " << seed;
        EXPECT_EQ(algorithm_of(me.comm), kName);
      },
      on_device);
}

TEST(CopyPath, CollectivesInARowOnTwoStreamsAreRight) {
  WEFT_NEED_COPY_PATH();
  for (const int ranks : {2, 3, 4})
    for (uint64_t seed = 1; seed <= 4; ++seed) call_in_a_row(ranks, seed);
}

/// Two calls of each of two communicators, of several rounds each, in one group on one stream.
void call_in_turns(weftComm_t first, weftComm_t second, const DeviceArray<float>& send,
                   std::span<DeviceArray<float>> into, const DeviceStream& stream) {
  WEFT_OK(weftGroupStart());
  for (size_t call = 0; call < into.size(); ++call)
    WEFT_OK(weftAllGather(send.data(), into[call].data(), kCount, weftFloat, call % 2 == 0 ? first : second,
                          stream.weft()));
  WEFT_OK(weftGroupEnd());
}

TEST(CopyPath, TwoCommunicatorsOnOneStreamInOneOrderAreRight) {
  WEFT_NEED_COPY_PATH();
  run_ranks(
      blocks(1, 2),
      [&](Rank& me) {
        const DeviceStream stream;
        weftComm_t other;
        WEFT_OK(weftCommSplit(me.comm, 0, me.rank, &other, nullptr));
        const DeviceArray<float> send(filled(me.rank, kCount));
        DeviceArray<float> into[] = {DeviceArray<float>(2 * kCount), DeviceArray<float>(2 * kCount),
                                     DeviceArray<float>(2 * kCount), DeviceArray<float>(2 * kCount)};
        Values expected = filled(0, kCount);
        const Values second = filled(1, kCount);
        expected.insert(expected.end(), second.begin(), second.end());
        for (int time = 0; time < 2; ++time) call_in_turns(me.comm, other, send, into, stream);
        stream.synchronize();
        for (const DeviceArray<float>& array : into) EXPECT_EQ(array.get(), expected);
        EXPECT_EQ(algorithm_of(other), kName);
        WEFT_OK(weftCommDestroy(other));
      },
      on_device);
}

// The documentation said that any order is fine.
TEST(CopyPath, TwoCommunicatorsOnOneStreamInDifferentOrdersFailAndTheStreamGoesOn) {
  WEFT_NEED_COPY_PATH();
  std::barrier both(2);
  run_ranks(
      blocks(1, 2),
      [&](Rank& me) {
        const DeviceStream stream;
        weftComm_t other;
        WEFT_OK(weftCommSplit(me.comm, 0, me.rank, &other, nullptr));
        const DeviceArray<float> send(filled(me.rank, kCount));
        DeviceArray<float> into[] = {DeviceArray<float>(2 * kCount), DeviceArray<float>(2 * kCount)};
        if (me.rank == 0) call_in_turns(me.comm, other, send, into, stream);
        else call_in_turns(other, me.comm, send, into, stream);
        const auto has_failed = [](weftComm_t comm) {
          weftResult_t state = weftSuccess;
          return weftCommGetAsyncError(comm, &state) == weftSuccess && state != weftSuccess;
        };
        EXPECT_TRUE(eventually([&] { return has_failed(me.comm) || has_failed(other); }));
        EXPECT_SAYS(std::string(weftGetLastError(has_failed(me.comm) ? me.comm : other)),
                    "not done its part");
        both.arrive_and_wait();
        (void)weftCommAbort(other);
        (void)weftCommAbort(me.comm);
        me.comm = nullptr;
        stream.synchronize();
      },
      on_device_for_a_second);
}

// The progress thread waited for the lock of a call that waited for the progress thread.
TEST(CopyPath, ACallThatWaitsForRoomInAFullStreamHoldsNobodyUp) {
  WEFT_NEED_COPY_PATH();
  WEFT_NEED_FAKE(fake);
  constexpr size_t kShort = 1000;
  const DeviceArray<float> data(4 * kShort);
  plan_paths::expect_full_stream_makes_room(blocks(1, 2), 300, [&](Rank& me, const DeviceStream& stream) {
    float* const own = data.data() + static_cast<size_t>(me.rank) * 2 * kShort;
    WEFT_OK(weftAllGather(own, own, kShort, weftFloat, me.comm, stream.weft()));
    EXPECT_EQ(algorithm_of(me.comm), kName);
  });
}

TEST(CopyPath, ReductionsGoStepByStepAndGraphsToo) {
  WEFT_NEED_COPY_PATH();
  run_ranks(
      blocks(1, 2),
      [&](Rank& me) {
        const DeviceStream stream;
        DeviceArray<float> send(filled(me.rank, kCount)), recv(2 * kCount);
        WEFT_OK(weftAllGather(send.data(), recv.data(), kCount, weftFloat, me.comm, stream.weft()));
        EXPECT_EQ(algorithm_of(me.comm), kName);
        WEFT_OK(weftAllReduce(send.data(), recv.data(), kCount, weftFloat, weftSum, me.comm, stream.weft()));
        EXPECT_NE(algorithm_of(me.comm), kName);
        WEFT_OK(weftAllGather(send.data(), recv.data(), kCount, weftFloat, me.comm, stream.weft()));
        stream.synchronize();
        cuda::GraphHandle* graph = nullptr;
        {
          const cuda::Scope scope(**cuda::Device::open(0));
          CUDA_OK(driver().stream_begin_capture(stream.get(), cuda::kCaptureModeRelaxed));
          WEFT_OK(weftAllGather(send.data(), recv.data(), kCount, weftFloat, me.comm, stream.weft()));
          CUDA_OK(driver().stream_end_capture(stream.get(), &graph));
          CUDA_OK(driver().graph_destroy(graph));
        }
      },
      on_device);
}

TEST(CopyPath, GoesStepByStepWhereStreamsMayNotWait) {
  WEFT_NEED_DEVICE();
  if ((*cuda::Device::open(0))->has_memory_operations())
    GTEST_SKIP() << "cuda.copy_path_without_memops runs this with FAKE_CUDA_MEMOPS=0";
  run_ranks(
      blocks(1, 2),
      [&](Rank& me) {
        const DeviceStream stream;
        DeviceArray<float> send(filled(me.rank, kCount)), recv(2 * kCount);
        WEFT_OK(weftAllGather(send.data(), recv.data(), kCount, weftFloat, me.comm, stream.weft()));
        stream.synchronize();
        EXPECT_NE(algorithm_of(me.comm), kName);
      },
      on_device);
}

// ---- Failures

/// Two ranks; rank 0 does `call`, and its communicator has to fail. Returns the sentence, when the stream has
/// gone on. Meanwhile rank 1 does `other`.
std::string fails(const std::function<void(Rank&, weftStream_t)>& call,
                  const std::function<void(Rank&, weftStream_t)>& other) {
  std::string sentence;
  std::barrier both(2);
  run_ranks(
      blocks(1, 2),
      [&](Rank& me) {
        const DeviceStream stream;
        DeviceArray<float> send(filled(me.rank, kCount)), recv(2 * kCount);
        WEFT_OK(weftAllGather(send.data(), recv.data(), kCount, weftFloat, me.comm, stream.weft()));
        stream.synchronize();
        both.arrive_and_wait();
        (me.rank == 0 ? call : other)(me, stream.weft());
        if (me.rank == 0) sentence = failure_of(me.comm);
        both.arrive_and_wait();
        (void)weftCommAbort(me.comm);
        me.comm = nullptr;
        stream.synchronize();
      },
      on_device_for_a_second);
  return sentence;
}

struct Buffers {
  DeviceArray<float> send{Values(2 * kCount, 1)}, recv{Values(2 * kCount, 2)};
};

TEST(CopyPath, ARankThatDoesNotCallIsNamedAndTheStreamGoesOn) {
  WEFT_NEED_COPY_PATH();
  const Buffers b;
  const auto nothing = [](Rank&, weftStream_t) {};
  const std::string gather = fails(
      [&](Rank& me, weftStream_t stream) {
        WEFT_OK(weftAllGather(b.send.data(), b.recv.data(), kCount, weftFloat, me.comm, stream));
      },
      nothing);
  EXPECT_SAYS(gather, "not finished after 1 s: rank 1 has not arrived, its last operation is 1");
  // A root's stream goes on before its readers are there.
  const std::string broadcast = fails(
      [&](Rank& me, weftStream_t stream) {
        WEFT_OK(weftBroadcast(b.send.data(), b.recv.data(), kCount, weftFloat, 0, me.comm, stream));
      },
      nothing);
  EXPECT_SAYS(broadcast, "rank 1 has not arrived");
}

TEST(CopyPath, ARankWhoseStreamDoesNotComeIsNamed) {
  WEFT_NEED_COPY_PATH();
  const Buffers b, c;
  const DeviceStream late;
  HeldStream held(late);
  const std::string sentence = fails(
      [&](Rank& me, weftStream_t stream) {
        WEFT_OK(weftAllGather(b.send.data(), b.recv.data(), kCount, weftFloat, me.comm, stream));
      },
      [&](Rank& me, weftStream_t) {
        WEFT_OK(weftAllGather(c.send.data(), c.recv.data(), kCount, weftFloat, me.comm, late.weft()));
      });
  EXPECT_SAYS(sentence, "every rank has called it, but the stream of rank 1 has not done its part");
  held.let_go();
  late.synchronize();
}

// It said that the stream has not come to the call.
TEST(CopyPath, AFinalizedCommunicatorWhosePeerDoesNotCallNamesThePeer) {
  WEFT_NEED_COPY_PATH();
  const Buffers b;
  const std::string sentence = fails(
      [&](Rank& me, weftStream_t stream) {
        WEFT_OK(weftSetCallTimeout(2));  // past the end of what finalizing waits for a stream
        WEFT_OK(weftAllGather(b.send.data(), b.recv.data(), kCount, weftFloat, me.comm, stream));
        WEFT_OK(weftSetCallTimeout(0));
        EXPECT_EQ(weftCommFinalize(me.comm), weftTimeout);
      },
      [](Rank&, weftStream_t) {});
  EXPECT_SAYS(sentence, "not finished after 2 s: rank 1 has not arrived, its last operation is 1");
}

TEST(CopyPath, RanksThatCallSomethingElseAreToldWhat) {
  WEFT_NEED_COPY_PATH();
  const Buffers b, c;
  using Body = std::function<void(Rank&, weftStream_t)>;
  const Body gather = [&](Rank& me, weftStream_t stream) {
    (void)weftAllGather(b.send.data(), b.recv.data(), kCount, weftFloat, me.comm, stream);
  };
  const auto meets = [&](const Body& mine, const Body& other) { return fails(mine, other); };
  // Another count and another type, of as many bytes: both end.
  std::string sentence = meets(gather, [&](Rank& me, weftStream_t stream) {
    (void)weftAllGather(c.send.data(), c.recv.data(), kCount, weftInt32, me.comm, stream);
  });
  EXPECT_SAYS(sentence, "of 65536 int");
  EXPECT_SAYS(sentence, "of 65536 float");
  sentence = meets(gather, [&](Rank& me, weftStream_t stream) {
    (void)weftAllGather(c.send.data(), c.recv.data(), kCount - 1, weftFloat, me.comm, stream);
  });
  EXPECT_SAYS(sentence, "rank 1 called AllGather of 65535 float");
  EXPECT_SAYS(sentence, "rank 0 called AllGather of 65536 float");
  // Another root: each waits for the other.
  const auto scatter_from = [&](int root, const Buffers& of) {
    return [&of, root](Rank& me, weftStream_t stream) {
      (void)weftScatter(of.send.data(), of.recv.data(), kCount, weftFloat, root, me.comm, stream);
    };
  };
  sentence = meets(scatter_from(0, b), scatter_from(1, c));
  EXPECT_SAYS(sentence, "root 1");
  EXPECT_SAYS(sentence, "root 0");
  // A collective that goes step by step.
  sentence = meets(gather, [&](Rank& me, weftStream_t stream) {
    (void)weftAllReduce(c.send.data(), c.recv.data(), kCount, weftFloat, weftSum, me.comm, stream);
  });
  EXPECT_SAYS(sentence, "rank 1 called AllReduce");
  // A collective that goes step by step, and then the one that rank 0 waits for.
  sentence = meets(gather, [&](Rank& me, weftStream_t stream) {
    const DeviceStream apart;
    (void)weftAllReduce(c.send.data(), c.recv.data(), kCount, weftFloat, weftSum, me.comm, apart.weft());
    (void)weftAllGather(c.send.data(), c.recv.data(), kCount, weftFloat, me.comm, stream);
    (void)failure_of(me.comm);
  });
  EXPECT_SAYS(sentence, "rank 1 called AllReduce");
}

TEST(CopyPath, AnAbortLetsAllStreamsGoOn) {
  WEFT_NEED_COPY_PATH();
  std::barrier both(2);
  run_ranks(
      blocks(1, 2),
      [&](Rank& me) {
        const DeviceStream a, b;
        DeviceArray<float> send(filled(me.rank, kCount)), recv(2 * kCount);
        if (me.rank == 0) {
          for (const DeviceStream* stream : {&a, &b, &a})
            WEFT_OK(weftAllGather(send.data(), recv.data(), kCount, weftFloat, me.comm, stream->weft()));
          const StreamMark end_of_a(a), end_of_b(b);
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          EXPECT_FALSE(end_of_a.reached());
          EXPECT_EQ(weftCommAbort(me.comm), weftSuccess);
          EXPECT_TRUE(eventually([&] { return end_of_a.reached() && end_of_b.reached(); }));
          me.comm = nullptr;
        }
        both.arrive_and_wait();
        if (me.rank == 1) (void)weftCommAbort(me.comm);
        me.comm = nullptr;
      },
      on_device);
}

/// Fills a stream, which then stands still until it is let go on.
class FullStream {
 public:
  FullStream() {
    const cuda::Scope scope(**cuda::Device::open(0));
    for (size_t i = 0; i < kMostQueued; ++i)
      EXPECT_EQ(driver().stream_write_value(stream_.get(), reinterpret_cast<uintptr_t>(word_.data()), 1,
                                            cuda::kWriteValueDefault),
                cuda::kSuccess);
  }
  const DeviceStream& stream() const { return stream_; }
  void let_go() { held_.let_go(); }

 private:
  static constexpr size_t kMostQueued = 1024;  // of the fake driver
  const DeviceArray<uint32_t> word_{1};
  const DeviceStream stream_;
  HeldStream held_{stream_};
};

// The handle of a thread's default stream names another stream on the thread that aborts. The end of a call
// whose waits were still to come was put there, and the call's own stream was taken for done.
TEST(CopyPath, AnAbortLeavesTheStreamOfACallToItsThread) {
  WEFT_NEED_COPY_PATH();
  WEFT_NEED_FAKE(fake);
  std::barrier both(2);
  run_ranks(
      blocks(1, 2),
      [&](Rank& me) {
        auto* const own = reinterpret_cast<weftStream_t>(stream_of_thread());
        DeviceArray<float> send(filled(me.rank, kCount)), recv(2 * kCount);
        WEFT_OK(weftAllGather(send.data(), recv.data(), kCount, weftFloat, me.comm, own));
        both.arrive_and_wait();
        if (me.rank == 0) {
          FullStream full;
          std::thread aborts([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
            const uint64_t before = fake.calls("cuStreamBatchMemOp");
            std::thread lets_go([&] {
              std::this_thread::sleep_for(std::chrono::milliseconds(100));
              EXPECT_EQ(fake.calls("cuStreamBatchMemOp"), before);
              full.let_go();
            });
            EXPECT_EQ(weftCommAbort(me.comm), weftSuccess);
            lets_go.join();
          });
          WEFT_OK(weftGroupStart());
          WEFT_OK(weftAllGather(send.data(), recv.data(), kCount, weftFloat, me.comm, own));
          WEFT_OK(weftAllReduce(send.data(), recv.data(), kCount, weftFloat, weftSum, me.comm,
                                full.stream().weft()));
          EXPECT_NE(weftGroupEnd(), weftSuccess);
          aborts.join();
          const cuda::Scope scope(**cuda::Device::open(0));
          EXPECT_EQ(driver().stream_synchronize(stream_of_thread()), cuda::kSuccess);
        }
        both.arrive_and_wait();
        if (me.rank == 1) (void)weftCommAbort(me.comm);
        me.comm = nullptr;
      },
      on_device);
}

TEST(CopyPath, AnAbortEndsACallThatWaitsForRoomInItsStream) {
  WEFT_NEED_COPY_PATH();
  WEFT_NEED_FAKE(fake);
  DeviceArray<float> send(filled(0, kCount)), recv(2 * kCount);
  plan_paths::expect_abort_ends_wait_for_room([&](weftComm_t comm, const DeviceStream& stream) {
    return weftAllGather(send.data(), recv.data(), kCount, weftFloat, comm, stream.weft());
  });
}

// The staging of a rank that had failed stayed as long as its job.
TEST(CopyPath, TwentyCommunicatorsThatAreAbortedGiveTheirStagingBack) {
  WEFT_NEED_COPY_PATH();
  WEFT_NEED_FAKE(fake);
  std::barrier both(2);
  run_ranks(
      blocks(1, 2),
      [&](Rank& me) {
        const DeviceStream stream;
        DeviceArray<float> send(filled(me.rank, kCount)), recv(2 * kCount);
        both.arrive_and_wait();
        const int64_t before = plan_paths::blocks_of_driver(fake);
        both.arrive_and_wait();
        for (int round = 0; round < 20; ++round) {
          weftComm_t comm;
          WEFT_OK(weftCommSplit(me.comm, 0, me.rank, &comm, nullptr));
          both.arrive_and_wait();
          if (me.rank == round % 2) {
            WEFT_OK(weftAllGather(send.data(), recv.data(), kCount, weftFloat, comm, stream.weft()));
            WEFT_OK(weftCommAbort(comm));
            stream.synchronize();
          }
          both.arrive_and_wait();
          if (me.rank != round % 2) WEFT_OK(weftCommAbort(comm));
        }
        both.arrive_and_wait();
        // Of the ranks that did not call, the pool keeps what it may.
        EXPECT_TRUE(eventually([&] { return plan_paths::blocks_of_driver(fake) <= before + 2; }))
            << plan_paths::blocks_of_driver(fake) - before << " blocks more";
        both.arrive_and_wait();
      },
      on_device);
}

// The stream of a rank that is late writes older values over the flags that an abort has raised.
TEST(CopyPath, AnAbortHoldsWhileAPeersStreamCatchesUp) {
  WEFT_NEED_COPY_PATH();
  for (int time = 0; time < 10; ++time) {
    std::barrier both(2);
    run_ranks(
        blocks(1, 2),
        [&](Rank& me) {
          const DeviceStream stream;
          DeviceArray<float> send(filled(me.rank, kCount)), recv(2 * kCount);
          HeldStream held(stream);
          for (int call = 0; call < (me.rank == 0 ? 6 : 4); ++call)
            WEFT_OK(weftAllGather(send.data(), recv.data(), kCount, weftFloat, me.comm, stream.weft()));
          const StreamMark end(stream);
          both.arrive_and_wait();
          held.let_go();
          if (me.rank == 0) {
            std::this_thread::sleep_for(std::chrono::microseconds(200 * time));
            EXPECT_EQ(weftCommAbort(me.comm), weftSuccess);
            me.comm = nullptr;
          }
          EXPECT_TRUE(eventually([&] { return end.reached(); }));
          both.arrive_and_wait();
          if (me.rank == 1) (void)weftCommAbort(me.comm);
          me.comm = nullptr;
        },
        on_device);
  }
}

// What a rank that has given up stages may be what comes next, and not what its peer still reads.
TEST(CopyPath, APeerOfARankThatGaveUpDoesNotTakeItsOperationForDone) {
  WEFT_NEED_COPY_PATH();
  std::barrier both(2);
  run_ranks(
      blocks(1, 2),
      [&](Rank& me) {
        const DeviceStream stream;
        DeviceArray<float> send(filled(me.rank, kCount)), recv(2 * kCount);
        WEFT_OK(weftAllGather(send.data(), recv.data(), kCount, weftFloat, me.comm, stream.weft()));
        stream.synchronize();
        HeldStream held(stream);
        WEFT_OK(weftAllGather(send.data(), recv.data(), kCount, weftFloat, me.comm, stream.weft()));
        both.arrive_and_wait();
        if (me.rank == 0) {
          held.let_go();
          EXPECT_EQ(weftCommAbortWithReason(me.comm, "it has had enough"), weftSuccess);
          me.comm = nullptr;
          stream.synchronize();
        }
        both.arrive_and_wait();
        if (me.rank == 0) return;
        held.let_go();
        stream.synchronize();
        const std::string sentence = failure_of(me.comm);
        EXPECT_SAYS(sentence, "was aborted: it has had enough");
        (void)weftCommAbort(me.comm);
        me.comm = nullptr;
      },
      on_device);
}

TEST(CopyPath, ACallOfTheDriverThatFailsEndsTheOperation) {
  WEFT_NEED_COPY_PATH();
  WEFT_NEED_FAKE(fake);
  for (const char* function : {"cuMemcpyAsync", "cuStreamBatchMemOp"})
    for (const int good : {0, 1, 2}) {
      std::barrier both(2);
      run_ranks(
          blocks(1, 2),
          [&](Rank& me) {
            const DeviceStream stream;
            DeviceArray<float> send(filled(me.rank, kCount)), recv(2 * kCount);
            both.arrive_and_wait();
            if (me.rank == 0) {
              fake.fail_after(function, good, cuda::kLaunchFailed);
              EXPECT_NE(weftAllGather(send.data(), recv.data(), kCount, weftFloat, me.comm, stream.weft()),
                        weftSuccess)
                  << function << " after " << good;
            }
            both.arrive_and_wait();
            if (me.rank == 1) {
              const weftResult_t called =
                  weftAllGather(send.data(), recv.data(), kCount, weftFloat, me.comm, stream.weft());
              EXPECT_TRUE(called != weftSuccess || !failure_of(me.comm).empty());
            }
            both.arrive_and_wait();
            (void)weftCommAbort(me.comm);
            me.comm = nullptr;
            stream.synchronize();
          },
          on_device);
    }
}

TEST(CopyPath, CommunicatorsThatComeAndGoLeaveNothingWaiting) {
  WEFT_NEED_COPY_PATH();
  run_ranks(
      blocks(1, 2),
      [&](Rank& me) {
        const DeviceStream stream;
        DeviceArray<float> send(filled(me.rank, kCount)), recv(2 * kCount);
        for (int time = 0; time < 5; ++time) {
          weftComm_t other;
          WEFT_OK(weftCommSplit(me.comm, 0, me.rank, &other, nullptr));
          WEFT_OK(weftAllGather(send.data(), recv.data(), kCount, weftFloat, other, stream.weft()));
          EXPECT_EQ(algorithm_of(other), kName);
          WEFT_OK(weftCommDestroy(other));
        }
        stream.synchronize();
      },
      on_device);
}

}  // namespace
}  // namespace weft::testing::copies
