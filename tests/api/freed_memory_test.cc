// What a caller may do with its buffers once its call has failed: anything, whatever the other ranks are
// doing with them. Ranks that are threads of one process reach into each other's memory, where nobody but
// Weft itself keeps one of them from reading what another has freed.
#include <sys/mman.h>

#include <barrier>
#include <chrono>
#include <functional>
#include <random>
#include <string>
#include <thread>

#include "api/ranks.h"

namespace weft::testing {
namespace {

constexpr int kRanks = 3;
constexpr int kRounds = 60;
constexpr size_t kCount = 256 << 10;  // floats of each rank's part

/// Memory that ends the process when somebody touches it after revoke(). Its addresses are nobody else's
/// until it is destroyed.
class Buffer {
 public:
  explicit Buffer(size_t bytes)
      : bytes_(bytes),
        data_(
            mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0)) {
    EXPECT_NE(data_, MAP_FAILED);
  }
  ~Buffer() { munmap(data_, bytes_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  float* floats() const { return static_cast<float*>(data_); }
  void revoke() { ASSERT_EQ(mprotect(data_, bytes_, PROT_NONE), 0); }

 private:
  const size_t bytes_;
  void* const data_;
};

struct Collective {
  const char* name;
  std::function<weftResult_t(int rank, int root, weftComm_t, float* in, float* out, weftStream_t)> call;
};

class FreedMemory : public ::testing::TestWithParam<Collective> {
 protected:
  enum class Waits { in_the_call, for_a_stream };

  // Calls until it fails.
  weftResult_t call_on(int rank, int root, weftComm_t comm, float* in, float* out, Waits waits) {
    weftStream_t stream = nullptr;
    if (waits == Waits::for_a_stream) {
      EXPECT_EQ(weftStreamCreate(&stream), weftSuccess);
    }
    weftResult_t result = weftSuccess;
    while (result == weftSuccess) {
      result = GetParam().call(rank, root, comm, in, out, stream);
      if (stream && result == weftSuccess) result = weftStreamSynchronize(stream);
    }
    if (stream) (void)weftStreamDestroy(stream);  // tells what failed of a group whose end has failed
    return result;
  }

  // In each round one rank, the root if there is one, aborts at some moment, and every rank revokes its
  // buffers when its own call is over.
  void abort_again_and_again(Waits waits) {
    std::barrier all_have_ended(kRanks);
    run_ranks(blocks(1, kRanks), [&](Rank& me) {
      for (int round = 0; round < kRounds; ++round) {
        weftComm_t comm = nullptr;
        WEFT_OK(weftCommSplit(me.comm, 0, me.rank, &comm, nullptr));
        Buffer in(kRanks * kCount * sizeof(float)), out(kRanks * kCount * sizeof(float));
        std::thread aborting;
        const int aborting_rank = round % kRanks;
        if (me.rank == aborting_rank)
          aborting = std::thread([comm, round] {
            const int64_t us = std::mt19937(static_cast<unsigned>(round))() % 5000;
            std::this_thread::sleep_for(std::chrono::microseconds(us));
            EXPECT_EQ(weftCommAbort(comm), weftSuccess);
          });
        const weftResult_t result = call_on(me.rank, aborting_rank, comm, in.floats(), out.floats(), waits);
        in.revoke();
        out.revoke();
        if (aborting.joinable()) {
          EXPECT_TRUE(result == weftAborted || result == weftInvalidComm) << result;
          aborting.join();
        } else {
          EXPECT_EQ(result, weftRemoteError) << weftGetLastError(comm);
          EXPECT_EQ(weftCommDestroy(comm), weftSuccess);
        }
        all_have_ended.arrive_and_wait();
      }
    });
  }
};

TEST_P(FreedMemory, IsTouchedByNoOtherRankAfterAnAbort) { abort_again_and_again(Waits::in_the_call); }

TEST_P(FreedMemory, IsTouchedByNoOtherRankAfterAStreamsEnd) { abort_again_and_again(Waits::for_a_stream); }

INSTANTIATE_TEST_SUITE_P(
    Of, FreedMemory,
    ::testing::Values(
        Collective{"AllReduce",
                   [](int, int, weftComm_t comm, float* in, float* out, weftStream_t stream) {
                     return weftAllReduce(in, out, kRanks * kCount, weftFloat, weftSum, comm, stream);
                   }},
        Collective{"AllGather",
                   [](int, int, weftComm_t comm, float* in, float* out, weftStream_t stream) {
                     return weftAllGather(in, out, kCount, weftFloat, comm, stream);
                   }},
        Collective{"ReduceScatter",
                   [](int, int, weftComm_t comm, float* in, float* out, weftStream_t stream) {
                     return weftReduceScatter(in, out, kCount, weftFloat, weftSum, comm, stream);
                   }},
        Collective{"Broadcast",
                   [](int, int root, weftComm_t comm, float*, float* out, weftStream_t stream) {
                     return weftBcast(out, kRanks * kCount, weftFloat, root, comm, stream);
                   }},
        Collective{"Gather",
                   [](int, int root, weftComm_t comm, float* in, float* out, weftStream_t stream) {
                     return weftGather(in, out, kCount, weftFloat, root, comm, stream);
                   }},
        Collective{
            "AlltoAll",
            [](int, int, weftComm_t comm, float* in, float* out,
               weftStream_t stream) { return weftAlltoAll(in, out, kCount, weftFloat, comm, stream); }},
        Collective{"SendAndRecv",
                   [](int rank, int, weftComm_t comm, float* in, float* out, weftStream_t stream) {
                     weftGroupStart();
                     weftSend(in, kCount, weftFloat, (rank + 1) % kRanks, comm, stream);
                     weftRecv(out, kCount, weftFloat, (rank + kRanks - 1) % kRanks, comm, stream);
                     return weftGroupEnd();
                   }}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace weft::testing
