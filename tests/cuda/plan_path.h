// What tests of plan kernels share: where they run, and what ranks find when a call goes wrong, on one node
// and on several.
#pragma once

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/ranks.h"
#include "cuda/device_memory.h"
#include "device/cuda/plan_kernels.h"

namespace weft::testing {

#define WEFT_NEED_PLAN_PATH()                                       \
  WEFT_NEED_DEVICE();                                               \
  if (!settings().cuda_kernel || cuda::plan_kernel_image().empty()) \
  GTEST_SKIP() << "cuda.plan_path runs this with WEFT_CUDA_KERNEL=on, where nvcc made kernels"

inline std::string algorithm_of(weftComm_t comm) {
  weftCommStats_t stats = WEFT_COMM_STATS_INITIALIZER;
  EXPECT_EQ(weftCommGetStats(comm, &stats), weftSuccess);
  return stats.lastAlgorithm;
}

inline weftResult_t async_failure_of(weftComm_t comm) {
  weftResult_t failure = weftSuccess;
  (void)eventually([&] {
    return weftCommGetAsyncError(comm, &failure) != weftSuccess ||
           (failure != weftSuccess && failure != weftInProgress);
  });
  return failure;
}

}  // namespace weft::testing

namespace weft::testing::plan_paths {

/// Blocks of device memory that this process has from the driver.
inline int64_t blocks_of_driver(const FakeControls& fake) {
  return static_cast<int64_t>(fake.calls("cuMemAlloc")) - static_cast<int64_t>(fake.calls("cuMemFree"));
}

/// Of processes, which have a device each.
inline bool can_have_processes(int devices) {
  return cuda::driver() && *cuda::Device::count() >= devices && settings().cuda_kernel &&
         !cuda::plan_kernel_image().empty();
}

inline void expect_reason(weftComm_t comm, const std::string& part) {
  const std::string why = weftGetLastError(comm);
  EXPECT_NE(why.find(part), std::string::npos) << why;
}

inline weftResult_t sum_in_place(const DeviceArray<float>& data, size_t count, weftComm_t comm,
                                 const DeviceStream& stream) {
  return weftAllReduce(data.data(), data.data(), count, weftFloat, weftSum, comm, stream.weft());
}

/// Ends a rank's part in a communicator that has failed, when all ranks have come here.
inline void abort_together(Rank& me, std::barrier<>& all) {
  all.arrive_and_wait();
  if (me.comm) (void)weftCommAbort(me.comm);
  me.comm = nullptr;
}

// ---- The last rank goes wrong in an AllReduce of `count` floats

/// It does not call: the others' kernels leave, and their ranks name it.
inline void expect_rank_without_call_is_named(const Nodes& nodes, size_t count) {
  const int last = static_cast<int>(nodes.size()) - 1;
  std::barrier all(last + 1);
  run_ranks(
      nodes,
      [&](Rank& me) {
        const DeviceStream stream;
        const DeviceArray<float> data(std::vector<float>(count, 1));
        WEFT_OK(sum_in_place(data, count, me.comm, stream));
        stream.synchronize();
        all.arrive_and_wait();
        if (me.rank != last) {
          WEFT_OK(sum_in_place(data, count, me.comm, stream));
          stream.synchronize();  // the kernel has left
          const weftResult_t failure = async_failure_of(me.comm);
          EXPECT_TRUE(failure == weftTimeout || (last > 1 && failure != weftSuccess)) << failure;
          EXPECT_NE(sum_in_place(data, count, me.comm, stream), weftSuccess);
          expect_reason(me.comm, "not finished after 1 s: rank " + std::to_string(last) + " has not arrived");
        }
        abort_together(me, all);
      },
      on_device_for_a_second);
}

/// It calls, but its stream does not come to the call. Of two ranks.
inline void expect_rank_whose_stream_is_late_is_named(const Nodes& nodes, size_t count,
                                                      const std::string& reason) {
  std::barrier both(2);
  run_ranks(
      nodes,
      [&](Rank& me) {
        const DeviceStream stream, late;
        const DeviceArray<float> data(std::vector<float>(count, 1));
        WEFT_OK(sum_in_place(data, count, me.comm, stream));
        stream.synchronize();
        HeldStream held(late);
        WEFT_OK(sum_in_place(data, count, me.comm, me.rank == 0 ? stream : late));
        if (me.rank == 0) {
          EXPECT_EQ(async_failure_of(me.comm), weftTimeout);
          expect_reason(me.comm, "every rank has called it, but " + reason);
        }
        abort_together(me, both);
        held.let_go();
        stream.synchronize();
        late.synchronize();
      },
      on_device_for_a_second);
}

/// It does not call, and rank 0 aborts: the streams of all others go on.
inline void expect_abort_lets_streams_go_on(const Nodes& nodes, size_t count) {
  const int last = static_cast<int>(nodes.size()) - 1;
  std::barrier all(last + 1), callers(last);
  run_ranks(
      nodes,
      [&](Rank& me) {
        const DeviceStream stream;
        const DeviceArray<float> data(std::vector<float>(count, 1));
        if (me.rank != last) {
          WEFT_OK(sum_in_place(data, count, me.comm, stream));
          const StreamMark end(stream);
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          EXPECT_FALSE(end.reached());
          callers.arrive_and_wait();
          if (me.rank == 0) {
            EXPECT_EQ(weftCommAbort(me.comm), weftSuccess);
            me.comm = nullptr;
          } else {
            EXPECT_NE(async_failure_of(me.comm), weftSuccess);
          }
          EXPECT_TRUE(eventually([&] { return end.reached(); }));
        }
        abort_together(me, all);
      },
      on_device);
}

/// It calls `other` floats, so that its buffer has another length. Nobody reads what is not there.
inline void expect_other_length_is_told(const Nodes& nodes, size_t count, size_t other) {
  const int last = static_cast<int>(nodes.size()) - 1;
  std::barrier all(last + 1);
  run_ranks(
      nodes,
      [&](Rank& me) {
        const DeviceStream stream;
        const size_t mine = me.rank == last ? other : count;
        const DeviceArray<float> data(std::vector<float>(mine, 1));
        (void)sum_in_place(data, mine, me.comm, stream);
        EXPECT_NE(async_failure_of(me.comm), weftSuccess);
        for (const size_t called : {count, other})
          expect_reason(me.comm, "of " + std::to_string(called) + " float");
        abort_together(me, all);
      },
      on_device_for_a_second);
}

// ---- A full stream

/// Makes more calls than a stream holds. An operation that goes step by step stands before them, and the
/// stream goes on when the caller waits for room already.
inline void expect_full_stream_makes_room(const Nodes& nodes, int calls,
                                          const std::function<void(Rank&, const DeviceStream&)>& call) {
  run_ranks(
      nodes,
      [&](Rank& me) {
        const DeviceStream stream;
        const size_t longer = 2 << 20;
        const DeviceArray<float> data(std::vector<float>(longer, 1));
        call(me, stream);
        WEFT_OK(sum_in_place(data, longer, me.comm, stream));
        stream.synchronize();
        HeldStream held(stream);
        WEFT_OK(sum_in_place(data, longer, me.comm, stream));
        std::thread lets_go([&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(300));
          held.let_go();
        });
        for (int i = 0; i < calls; ++i) call(me, stream);
        lets_go.join();
        stream.synchronize();
        EXPECT_EQ(data.get().back(), static_cast<float>(me.size * me.size));
      },
      on_device);
}

/// Makes calls, which rank 1 does not make, until the caller waits for room in its stream. An abort ends
/// that.
inline void expect_abort_ends_wait_for_room(
    const std::function<weftResult_t(weftComm_t, const DeviceStream&)>& call) {
  std::barrier both(2);
  run_ranks(
      blocks(1, 2),
      [&](Rank& me) {
        if (me.rank == 0) {
          const DeviceStream stream;
          std::atomic<int> calls{0};
          std::thread caller([&] {
            while (call(me.comm, stream) == weftSuccess) ++calls;
          });
          int seen = -1;
          EXPECT_TRUE(eventually([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            return std::exchange(seen, calls.load()) == calls.load();
          }));
          EXPECT_EQ(weftCommAbort(me.comm), weftSuccess);
          caller.join();
          stream.synchronize();
        }
        both.arrive_and_wait();
        if (me.rank == 1) (void)weftCommAbort(me.comm);
        me.comm = nullptr;
      },
      on_device);
}

// ---- What a call costs

constexpr int kCounted = 4;  // AllReduce, AllGather, ReduceScatter, Broadcast of rank 0

struct CallCounts {
  static constexpr uint64_t kCalls = 10;
  uint64_t launches = 0, progress = 0;  // of kCalls calls: of all ranks, and of their progress threads
  uint64_t caller = 0;                  // of one call: the most of any rank's thread
  std::vector<uint64_t> messages;       // of kCalls calls, by rank: to other nodes
};

/// Of collective `which`, in back-to-back calls.
inline CallCounts count_calls(const FakeControls& fake, const Nodes& nodes, int which, size_t count) {
  const size_t ranks = nodes.size();
  std::barrier all(static_cast<std::ptrdiff_t>(ranks));
  std::vector<uint64_t> caller(ranks);
  CallCounts counts{.messages = std::vector<uint64_t>(ranks)};
  const auto messages_of = [](const Rank& me) {
    weftCommStats_t stats = WEFT_COMM_STATS_INITIALIZER;
    EXPECT_EQ(weftCommGetStats(me.comm, &stats), weftSuccess);
    return stats.interMessages;
  };
  run_ranks(
      nodes,
      [&](Rank& me) {
        (void)driver().context_push((*cuda::Device::open(0))->context());  // as a program has it
        const DeviceStream stream;
        DeviceArray<float> send(count * ranks), recv(count * ranks);
        const float* const from = send.data();
        const auto call = [&] {
          switch (which) {
            case 0:
              return weftAllReduce(from, recv.data(), count, weftFloat, weftSum, me.comm, stream.weft());
            case 1: return weftAllGather(from, recv.data(), count, weftFloat, me.comm, stream.weft());
            case 2:
              return weftReduceScatter(from, recv.data(), count, weftFloat, weftSum, me.comm, stream.weft());
            default: return weftBroadcast(from, recv.data(), count, weftFloat, 0, me.comm, stream.weft());
          }
        };
        WEFT_OK(call());
        stream.synchronize();
        all.arrive_and_wait();
        const uint64_t launches = fake.calls("cuLaunchKernel"), progress = fake.calls_of(1).work;
        const uint64_t messages = messages_of(me);
        all.arrive_and_wait();
        uint64_t least = UINT64_MAX;
        for (uint64_t i = 0; i < CallCounts::kCalls; ++i) {
          const uint64_t before = fake.calls_of(0).work;
          WEFT_OK(call());
          least = std::min(least, fake.calls_of(0).work - before);
          stream.synchronize();
        }
        caller[static_cast<size_t>(me.rank)] = least;
        all.arrive_and_wait();
        if (me.rank == 0) {
          counts.launches = fake.calls("cuLaunchKernel") - launches;
          counts.progress = fake.calls_of(1).work - progress;
        }
        counts.messages[static_cast<size_t>(me.rank)] = messages_of(me) - messages;
        all.arrive_and_wait();
      },
      on_device);
  counts.caller = *std::max_element(caller.begin(), caller.end());
  return counts;
}

}  // namespace weft::testing::plan_paths
