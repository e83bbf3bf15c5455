// Buffers that are unmapped before the operation that uses them has ended: the rank whose mistake it is says
// so, the others hear of it, and the process goes on.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <functional>
#include <string>

#include "api/processes.h"
#include "api/ranks.h"
#include "unmapped_memory.h"

namespace weft::testing {
namespace {

enum class Gone { input, output };

struct Collective {
  const char* name;
  /// `bytes` are those of a rank's part.
  std::function<weftResult_t(weftComm_t, const void* in, void* out, size_t bytes, weftStream_t)> call;
};

const std::array kCollectives{
    Collective{"AllReduce",
               [](weftComm_t comm, const void* in, void* out, size_t bytes, weftStream_t stream) {
                 return weftAllReduce(in, out, bytes / 4, weftFloat32, weftSum, comm, stream);
               }},
    Collective{"AllGather",
               [](weftComm_t comm, const void* in, void* out, size_t bytes, weftStream_t stream) {
                 return weftAllGather(in, out, bytes / 4, weftFloat32, comm, stream);
               }},
    Collective{"ReduceScatter",
               [](weftComm_t comm, const void* in, void* out, size_t bytes, weftStream_t stream) {
                 return weftReduceScatter(in, out, bytes / 4, weftFloat32, weftSum, comm, stream);
               }},
    Collective{"AlltoAll",
               [](weftComm_t comm, const void* in, void* out, size_t bytes, weftStream_t stream) {
                 return weftAlltoAll(in, out, bytes / 4, weftFloat32, comm, stream);
               }},
};

constexpr int kRanks = 4;
constexpr int kCulprit = 1;

struct Case {
  size_t collective;
  size_t bytes;
  Gone gone;
  bool stream;
  int nodes;
};

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  return std::string(kCollectives[c.collective].name) + "_" + std::to_string(c.bytes) + "B_" +
         (c.gone == Gone::input ? "input" : "output") + (c.stream ? "_stream_" : "_") +
         std::to_string(c.nodes) + (c.nodes == 1 ? "node" : "nodes");
}

class FreedInUse : public ::testing::TestWithParam<Case> {
 protected:
  /// Calls with memory as it should be, then once more with the culprit's taken away. Its own result and
  /// sentence.
  static std::pair<weftResult_t, std::string> call(Rank& me) {
    const Case& c = GetParam();
    const size_t bytes = c.bytes * kRanks;
    TakenAway in(bytes), out(bytes), sound_in(bytes), sound_out(bytes);
    weftStream_t stream = nullptr;
    if (c.stream) {
      EXPECT_EQ(weftStreamCreate(&stream), weftSuccess);
    }
    const auto once = [&](const void* from, void* to) {
      const weftResult_t result = kCollectives[c.collective].call(me.comm, from, to, c.bytes, stream);
      return stream && result == weftSuccess ? weftStreamSynchronize(stream) : result;
    };
    const bool culprit = me.rank == kCulprit;
    weftResult_t result = weftSuccess;
    for (int i = 0; i < 3 && result == weftSuccess; ++i) result = once(in.data(), out.data());
    if (culprit) {
      EXPECT_EQ(result, weftSuccess);  // others may still be in the last of these when they hear of it
      (c.gone == Gone::input ? in : out).unmap();
    }
    if (result == weftSuccess) result = once(in.data(), out.data());
    const std::string why = result == weftSuccess ? "" : weftGetLastError(me.comm);
    // Who has had all that it needs by then succeeds, and is told in a later call. All that is added is
    // zeros.
    while (!culprit && result == weftSuccess) {
      expect_zeros(out);
      expect_zeros(sound_out);
      result = once(sound_in.data(), sound_out.data());
    }
    if (stream) (void)weftStreamDestroy(stream);
    return {result, why};
  }
  static void expect_zeros(const TakenAway& memory) {
    const auto* const bytes = static_cast<const char*>(memory.data());
    EXPECT_TRUE(std::all_of(bytes, bytes + memory.bytes(), [](char byte) { return byte == 0; }));
  }
  static bool tells_of_memory(const std::string& why) {
    return why.find("freed or unmapped") != std::string::npos ||
           why.find("not mapped") != std::string::npos;  // or by whoever wanted to read it
  }
};

TEST_P(FreedInUse, FailsWithASentenceWhereRanksAreThreads) {
  run_ranks(blocks(GetParam().nodes, kRanks / GetParam().nodes), [&](Rank& me) {
    const auto [result, why] = call(me);
    EXPECT_NE(result, weftSuccess);
    if (me.rank == kCulprit) {
      EXPECT_TRUE(tells_of_memory(why)) << result << ": " << why;
    }
    EXPECT_EQ(weftCommAbort(me.comm), weftSuccess);
    me.comm = nullptr;
  });
}

TEST_P(FreedInUse, FailsWithASentenceWhereRanksAreProcesses) {
  const auto statuses = run_processes(blocks(GetParam().nodes, kRanks / GetParam().nodes), [](Rank& me) {
    const auto [result, why] = call(me);
    if (result == weftSuccess) return 1;
    if (me.rank == kCulprit && !tells_of_memory(why)) {
      fprintf(stderr, "rank %d: %d: %s\n", me.rank, result, why.c_str());
      return 2;
    }
    return ::testing::Test::HasFailure() ? 3 : 0;
  });
  for (int rank = 0; rank < kRanks; ++rank)
    EXPECT_TRUE(exited_with(statuses[rank], 0)) << "rank " << rank << " ended with " << statuses[rank];
}

// It was said to have been freed in use.
TEST(NeverValid, IsNotSaidToHaveBeenFreedOnly) {
  run_ranks(blocks(1, 2), [](Rank& me) {
    float one = 1;
    const void* const in = me.rank == 0 ? reinterpret_cast<const void*>(0x1000) : &one;
    const weftResult_t result = weftAllReduce(in, &one, 1, weftFloat, weftSum, me.comm, nullptr);
    if (me.rank == 0) {
      EXPECT_EQ(result, weftInvalidUsage);
      const std::string why = weftGetLastError(me.comm);
      EXPECT_NE(why.find("its input is not mapped (4 bytes at 0x1000): it was freed while the operation used "
                         "it, or never valid"),
                std::string::npos)
          << why;
    }
    EXPECT_EQ(weftCommAbort(me.comm), weftSuccess);
    me.comm = nullptr;
  });
}

/// Rank 1 goes on when rank 0 has failed and is gone, and has to read its memory: what it says is why.
TEST(GoneInUse, AReportIsHeardThoughItsProcessIsGone) {
  struct Shared {
    std::atomic<pid_t> waiting{0};
  };
  void* const memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto& shared = *new (memory) Shared;
  const auto statuses = run_processes(blocks(1, kRanks), [&](Rank& me) {
    constexpr size_t kBytes = 1 << 20;
    TakenAway in(kBytes), out(kBytes);
    const auto call = [&] {
      return weftAllReduce(in.data(), out.data(), kBytes / 4, weftFloat32, weftSum, me.comm, nullptr);
    };
    if (call() != weftSuccess) return 1;
    if (me.rank == 0) {
      in.unmap();
      while (shared.waiting == 0) usleep(1000);
      usleep(20'000);
      const pid_t stopped = shared.waiting, own = getpid();
      kill(stopped, SIGSTOP);
      if (fork() == 0) {
        while (getppid() == own) usleep(1000);
        kill(stopped, SIGCONT);
        _exit(0);
      }
      return call() == weftSuccess ? 2 : 0;
    }
    if (me.rank == 1) shared.waiting = getpid();
    if (call() == weftSuccess) return 3;
    const std::string why = weftGetLastError(me.comm);
    if (why.find("rank 0 reports") != std::string::npos && why.find("not mapped") != std::string::npos)
      return 0;
    fprintf(stderr, "rank %d: %s\n", me.rank, why.c_str());
    return me.rank == 1 ? 4 : 0;
  });
  for (int rank = 0; rank < kRanks; ++rank)
    EXPECT_TRUE(exited_with(statuses[rank], 0)) << "rank " << rank << " ended with " << statuses[rank];
  munmap(memory, sizeof(Shared));
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (size_t collective = 0; collective < kCollectives.size(); ++collective)
    for (const size_t bytes : {size_t{8}, size_t{12'000}, size_t{1} << 20})
      for (const Gone gone : {Gone::input, Gone::output})
        for (const int nodes : {1, kRanks})
          if (collective < 2 || bytes == 12'000)
            all.push_back({collective, bytes, gone, collective == 1, nodes});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Buffers, FreedInUse, ::testing::ValuesIn(cases()), name_of);

}  // namespace
}  // namespace weft::testing
