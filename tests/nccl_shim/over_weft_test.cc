// Programs of NCCL whose communicators are Weft's: every function that Weft has, with ranks as threads and as
// processes, on host memory; and what is said where something is wrong.
#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <sstream>

#include "shim_host.h"

namespace weft::nccl_shim_test::over_weft_test {
namespace {

const Environment kWeft = {{"WEFT_BACKEND", "weft"}};

bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

nccl::Config config() {
  nccl::Config config{};
  config.size = sizeof config;
  config.magic = nccl::kConfigMagic;
  config.version = nccl::kVersionCode;
  for (int* member : {&config.blocking,
                      &config.cga_cluster_size,
                      &config.min_ctas,
                      &config.max_ctas,
                      &config.split_share,
                      &config.traffic_class,
                      &config.collnet_enable,
                      &config.cta_policy,
                      &config.shrink_share,
                      &config.nvls_ctas,
                      &config.channels_per_net_peer,
                      &config.nvlink_centric_sched,
                      &config.graph_usage_mode,
                      &config.rma_contexts,
                      &config.max_p2p_peers,
                      &config.graph_stream_ordering,
                      &config.launch_order_implicit,
                      &config.rma_signals,
                      &config.rma_eager_init,
                      &config.host_cft_mode,
                      &config.nvls_host_mode})
    *member = nccl::kUndefined;
  return config;
}

using Floats = std::vector<float>;

/// Calls every collective and checks what comes of it, as one of `n` ranks.
void every_collective(const Shim& shim, int rank, int n, Comm_t comm) {
  const float mine = static_cast<float>(rank + 1), total = static_cast<float>(n * (n + 1) / 2);
  const auto size = static_cast<size_t>(n);
  Floats out(2), wide_in(2 * size, mine), wide(2 * size), in(2, mine);
  NCCL_OK(shim->AllReduce(in.data(), out.data(), 2, kFloat, kSum, comm, nullptr));
  EXPECT_EQ(out, Floats(2, total));
  NCCL_OK(shim->AllReduce(in.data(), out.data(), 2, kFloat, kAvg, comm, nullptr));
  EXPECT_EQ(out, Floats(2, total / static_cast<float>(n)));
  NCCL_OK(shim->Reduce(in.data(), out.data(), 2, kFloat, kMax, 1, comm, nullptr));
  if (rank == 1) {
    EXPECT_EQ(out, Floats(2, static_cast<float>(n)));
  }
  NCCL_OK(shim->ReduceScatter(wide_in.data(), out.data(), 2, kFloat, kSum, comm, nullptr));
  EXPECT_EQ(out, Floats(2, total));
  NCCL_OK(shim->Broadcast(in.data(), out.data(), 2, kFloat, 1, comm, nullptr));
  EXPECT_EQ(out, Floats(2, 2.f));
  Floats same(2, mine);
  NCCL_OK(shim->Bcast(same.data(), 2, kFloat, 2, comm, nullptr));
  EXPECT_EQ(same, Floats(2, 3.f));
  NCCL_OK(shim->AllGather(in.data(), wide.data(), 2, kFloat, comm, nullptr));
  for (size_t i = 0; i < wide.size(); ++i) EXPECT_EQ(wide[i], static_cast<float>(i / 2 + 1));
  for (size_t i = 0; i < wide_in.size(); ++i) wide_in[i] = mine * 100 + static_cast<float>(i / 2);
  NCCL_OK(shim->AlltoAll(wide_in.data(), wide.data(), 2, kFloat, comm, nullptr));
  for (size_t i = 0; i < wide.size(); ++i)
    EXPECT_EQ(wide[i], static_cast<float>(i / 2 + 1) * 100 + static_cast<float>(rank));
  NCCL_OK(shim->Gather(in.data(), wide.data(), 2, kFloat, 0, comm, nullptr));
  if (rank == 0) {
    EXPECT_EQ(wide.back(), static_cast<float>(n));
  }
  NCCL_OK(shim->Scatter(wide_in.data(), out.data(), 2, kFloat, 1, comm, nullptr));
  EXPECT_EQ(out, Floats(2, 200 + static_cast<float>(rank)));

  const int next = (rank + 1) % n, previous = (rank + n - 1) % n;
  NCCL_OK(shim->GroupStart());
  NCCL_OK(shim->Send(in.data(), 2, kFloat, next, comm, nullptr));
  NCCL_OK(shim->GroupStart());  // groups nest
  NCCL_OK(shim->Recv(out.data(), 2, kFloat, previous, comm, nullptr));
  NCCL_OK(shim->GroupEnd());
  NCCL_OK(shim->GroupEnd());
  EXPECT_EQ(out, Floats(2, static_cast<float>(previous + 1)));
}

class BothSpellings : public ::testing::TestWithParam<const char*> {};

TEST_P(BothSpellings, EveryCollectiveOnThreads) {
  in_process(kWeft, [] {
    const Shim shim(GetParam());
    on_threads(shim, 3, [&](int rank, Comm_t comm) {
      int value = -1;
      NCCL_OK(shim->CommCount(comm, &value));
      EXPECT_EQ(value, 3);
      NCCL_OK(shim->CommUserRank(comm, &value));
      EXPECT_EQ(value, rank);
      every_collective(shim, rank, 3, comm);
    });
  });
}
INSTANTIATE_TEST_SUITE_P(OverWeft, BothSpellings, ::testing::Values("nccl", "pnccl"),
                         [](const auto& info) { return std::string(info.param); });

TEST(OverWeft, EveryCollectiveOnProcesses) {
  SharedId* shared = SharedId::make();
  in_processes(3, kWeft, [&](int rank) {
    const Shim shim;
    if (rank == 0) {
      ASSERT_EQ(shim->GetUniqueId(&shared->id), nccl::kSuccess) << shim.last_error();
      shared->ready.store(true);
    }
    Comm_t comm = nullptr;
    nccl::Config named = config();
    named.comm_name = "of processes";
    ASSERT_EQ(shim->CommInitRankConfig(&comm, 3, shared->wait(), rank, &named), nccl::kSuccess)
        << shim.last_error();
    every_collective(shim, rank, 3, comm);
    Comm_t pair = nullptr;
    NCCL_OK(shim->CommSplit(comm, rank == 1 ? nccl::kNoColor : 4, -rank, &pair, nullptr));
    EXPECT_EQ(pair == nullptr, rank == 1);
    if (pair) {
      int value = -1;
      NCCL_OK(shim->CommUserRank(pair, &value));
      EXPECT_EQ(value, rank == 2 ? 0 : 1);
      NCCL_OK(shim->CommDestroy(pair));
    }
    NCCL_OK(shim->CommFinalize(comm));
    NCCL_OK(shim->CommDestroy(comm));
  });
}

TEST(OverWeft, OneThreadWithAllRanksAndGroups) {
  in_process(kWeft, [] {
    const Shim shim;
    const int devices[] = {4, 5, 6};
    Comm_t comms[3];
    NCCL_OK(shim->CommInitAll(comms, 3, devices));
    Floats in[3], out[3];
    NCCL_OK(shim->GroupStart());
    for (int rank = 0; rank < 3; ++rank) {
      in[rank].assign(5, static_cast<float>(rank));
      out[rank].assign(5, -1.f);
      NCCL_OK(shim->AllReduce(in[rank].data(), out[rank].data(), 5, kFloat, kSum, comms[rank], nullptr));
    }
    NCCL_OK(shim->GroupEnd());
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(out[rank], Floats(5, 3.f));
      int device = -1;
      NCCL_OK(shim->CommCuDevice(comms[rank], &device));
      EXPECT_EQ(device, devices[rank]);
    }
    // Communicators made in a group.
    UniqueId id;
    NCCL_OK(shim->GetUniqueId(&id));
    Comm_t more[2] = {};
    NCCL_OK(shim->GroupStart());
    for (int rank = 0; rank < 2; ++rank)
      NCCL_OK(shim->CommInitRankScalable(&more[rank], 2, rank, 1, &id, nullptr));
    NCCL_OK(shim->GroupEnd());
    for (Comm_t comm : {more[0], more[1], comms[0], comms[1], comms[2]}) NCCL_OK(shim->CommDestroy(comm));
  });
}

/// Polls until the communicator is no longer busy.
Result_t settled(const Shim& shim, Comm_t comm) {
  Result_t state = nccl::kInProgress;
  for (int turn = 0; turn < 30000 && state == nccl::kInProgress; ++turn) {
    EXPECT_EQ(shim->CommGetAsyncError(comm, &state), nccl::kSuccess);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return state;
}

TEST(OverWeft, CallsThatDoNotBlock) {
  in_process(kWeft, [] {
    const Shim shim;
    UniqueId id;
    NCCL_OK(shim->GetUniqueId(&id));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] {
        nccl::Config quick = config();
        quick.blocking = 0;
        Comm_t comm = nullptr;
        EXPECT_EQ(shim->CommInitRankConfig(&comm, 2, id, rank, &quick), nccl::kInProgress);
        ASSERT_EQ(settled(shim, comm), nccl::kSuccess);
        Floats in(3, 1.f), out(3);
        NCCL_OK(shim->AllReduce(in.data(), out.data(), 3, kFloat, kSum, comm, nullptr));
        EXPECT_EQ(out, Floats(3, 2.f));
        const Result_t finalized = shim->CommFinalize(comm);
        EXPECT_TRUE(finalized == nccl::kInProgress || finalized == nccl::kSuccess);
        EXPECT_EQ(settled(shim, comm), nccl::kSuccess);
        NCCL_OK(shim->CommDestroy(comm));
      });
    for (std::thread& thread : threads) thread.join();
  });
}

std::vector<Comm_t> of_one_thread(const Shim& shim, int ranks) {
  std::vector<Comm_t> comms(static_cast<size_t>(ranks));
  NCCL_OK(shim->CommInitAll(comms.data(), ranks, nullptr));
  return comms;
}

/// Of NCCL's children nothing can be asked before they are there, so programs ask the parent.
TEST(OverWeft, AParentIsInProgressWhileAChildIsMadeWithoutBlocking) {
  in_process(kWeft, [] {
    const Shim shim;
    UniqueId id;
    NCCL_OK(shim->GetUniqueId(&id));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] {
        nccl::Config quick = config();
        quick.blocking = 0;
        Comm_t comm = nullptr;
        EXPECT_EQ(shim->CommInitRankConfig(&comm, 2, id, rank, &quick), nccl::kInProgress);
        ASSERT_EQ(settled(shim, comm), nccl::kSuccess);
        for (const bool in_group : {false, true}) {
          if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
          Comm_t child = nullptr;
          if (in_group) {
            NCCL_OK(shim->GroupStart());
          }
          EXPECT_EQ(shim->CommSplit(comm, 0, -rank, &child, nullptr), nccl::kInProgress);
          if (in_group) {
            const Result_t ended = shim->GroupEnd();
            EXPECT_TRUE(ended == nccl::kInProgress || ended == nccl::kSuccess);
          }
          EXPECT_EQ(settled(shim, comm), nccl::kSuccess);
          Floats in(3, 1.f), out(3);
          NCCL_OK(shim->AllReduce(in.data(), out.data(), 3, kFloat, kSum, child, nullptr));
          EXPECT_EQ(out, Floats(3, 2.f));
          NCCL_OK(shim->CommDestroy(child));
          EXPECT_EQ(settled(shim, comm), nccl::kSuccess);
        }
        NCCL_OK(shim->CommDestroy(comm));
      });
    for (std::thread& thread : threads) thread.join();
  });
}

/// A child whose ranks never come all does not keep its parent in progress.
TEST(OverWeft, AParentGoesOnWithoutAChildThatIsAborted) {
  in_process(kWeft, [] {
    const Shim shim;
    const std::vector<Comm_t> comms = of_one_thread(shim, 2);
    nccl::Config quick = config();
    quick.blocking = 0;
    Comm_t child = nullptr;
    EXPECT_EQ(shim->CommSplit(comms[0], 0, 0, &child, &quick), nccl::kInProgress);
    Result_t state = nccl::kSuccess;
    NCCL_OK(shim->CommGetAsyncError(comms[0], &state));
    EXPECT_EQ(state, nccl::kInProgress);
    std::thread other([&] {
      Comm_t second = nullptr;
      (void)shim->CommSplit(comms[1], 0, 0, &second, &quick);
      (void)shim->CommAbort(second);
    });
    NCCL_OK(shim->CommAbort(child));
    other.join();
    NCCL_OK(shim->CommGetAsyncError(comms[0], &state));
    EXPECT_EQ(state, nccl::kSuccess);
    for (Comm_t comm : comms) NCCL_OK(shim->CommAbort(comm));
  });
}

TEST(OverWeft, OperatorsMemoryRegistrationAndTeams) {
  in_process(kWeft, [] {
    const Shim shim;
    on_threads(shim, 2, [&](int rank, Comm_t comm) {
      void* memory = nullptr;
      NCCL_OK(shim->MemAlloc(&memory, 4096));
      void* registration = nullptr;
      NCCL_OK(shim->CommRegister(comm, memory, 4096, &registration));
      auto* values = static_cast<float*>(memory);
      values[0] = 10;
      float scalar = rank == 0 ? 2.f : 3.f;
      int op = -1;
      NCCL_OK(shim->RedOpCreatePreMulSum(&op, &scalar, kFloat, 1, comm));
      EXPECT_GT(op, kAvg);
      NCCL_OK(shim->AllReduce(values, values, 1, kFloat, op, comm, nullptr));
      EXPECT_EQ(values[0], 50.f);
      NCCL_OK(shim->RedOpDestroy(op, comm));
      NCCL_OK(shim->CommDeregister(comm, registration));
      NCCL_OK(shim->MemFree(memory));

      const nccl::Team world = shim->TeamWorld(comm), near = shim->TeamLsa(comm), rail = shim->TeamRail(comm);
      EXPECT_EQ(world.ranks, 2);
      EXPECT_EQ(world.rank, rank);
      EXPECT_EQ(near.ranks, 1);
      EXPECT_EQ(rail.ranks * near.ranks, world.ranks);
      EXPECT_EQ(shim->TeamRankToWorld(comm, rail, 1 - rank), 1 - rank);
      EXPECT_EQ(shim->TeamRankToLsa(comm, near, 0), 0);
    });
  });
}

TEST(OverWeft, ShrinksWhileAnotherThreadWaits) {
  in_process(kWeft, [] {
    const Shim shim;
    std::atomic<int> over{0};
    on_threads(shim, 3, [&](int rank, Comm_t comm) {
      if (rank == 2) {  // leaves the others alone with an operation
        while (over.load() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return;
      }
      std::thread survivor([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        int excluded = 2, ranks = 0;
        Comm_t smaller = nullptr;
        NCCL_OK(shim->CommShrink(comm, &excluded, 1, &smaller, nullptr, 1));
        NCCL_OK(shim->CommCount(smaller, &ranks));
        EXPECT_EQ(ranks, 2);
        Floats in(4, 1.f), out(4);
        NCCL_OK(shim->AllReduce(in.data(), out.data(), 4, kFloat, kSum, smaller, nullptr));
        EXPECT_EQ(out, Floats(4, 2.f));
        NCCL_OK(shim->CommDestroy(smaller));
      });
      float value = 1, sum = 0;
      EXPECT_EQ(shim->AllReduce(&value, &sum, 1, kFloat, kSum, comm, nullptr), nccl::kRemoteError);
      EXPECT_NE(shim.last_error(comm), "");
      Result_t state = nccl::kSuccess;
      NCCL_OK(shim->CommGetAsyncError(comm, &state));
      EXPECT_EQ(state, nccl::kRemoteError);
      survivor.join();
      over.fetch_add(1);
    });
  });
}

// A watchdog thread asks for the state, and then for the reason, as PyTorch's does; it may have been refused
// something before.
TEST_P(BothSpellings, AWatchdogIsToldWhyACommunicatorHasFailed) {
  SharedId* shared = SharedId::make();
  in_processes(2, kWeft, [&](int rank) {
    const Shim shim(GetParam());
    if (rank == 0) {
      ASSERT_EQ(shim->GetUniqueId(&shared->id), nccl::kSuccess) << shim.last_error();
      shared->ready.store(true);
    }
    Comm_t comm = nullptr;
    ASSERT_EQ(shim->CommInitRank(&comm, 2, shared->wait(), rank), nccl::kSuccess) << shim.last_error();
    float value = 1, sum = 0;
    NCCL_OK(shim->AllReduce(&value, &sum, 1, kFloat, kSum, comm, nullptr));
    if (rank == 1) _exit(0);  // without a word
    EXPECT_EQ(shim->AllReduce(&value, &sum, 1, kFloat, kSum, comm, nullptr), nccl::kRemoteError);
    for (const bool refused_before : {false, true}) {
      std::thread([&] {
        if (refused_before) {
          EXPECT_EQ(shim->AllReduce(&value, nullptr, 1, kFloat, kSum, nullptr, nullptr),
                    nccl::kInvalidArgument);
          EXPECT_TRUE(mentions(shim.last_error(), "comm is NULL")) << shim.last_error();
          EXPECT_TRUE(mentions(shim.last_error(comm), "rank 1")) << shim.last_error(comm);
        }
        Result_t state = nccl::kSuccess;
        NCCL_OK(shim->CommGetAsyncError(comm, &state));
        EXPECT_EQ(state, nccl::kRemoteError);
        EXPECT_TRUE(mentions(shim.last_error(), "rank 1")) << shim.last_error();
        EXPECT_TRUE(mentions(shim.last_error(comm), "rank 1")) << shim.last_error(comm);
      }).join();
    }
    std::thread([&] {
      EXPECT_TRUE(mentions(shim.last_error(comm), "rank 1")) << "without asking for the state";
    }).join();
    NCCL_OK(shim->CommAbort(comm));
  });
}

TEST(OverWeft, ATrafficClassThatIsNotSetIsSaidOnce) {
  char log[] = "/tmp/weft_shim_log_XXXXXX";
  close(mkstemp(log));
  Environment logged = kWeft;
  logged.insert(logged.end(), {{"WEFT_LOG", "warn"}, {"WEFT_LOG_FILE", log}});
  in_process(logged, [] {
    const Shim shim;
    for (int again = 0; again < 2; ++again) {
      UniqueId id;
      Comm_t comm = nullptr;
      nccl::Config with_class = config();
      with_class.traffic_class = 104;
      NCCL_OK(shim->GetUniqueId(&id));
      NCCL_OK(shim->CommInitRankConfig(&comm, 1, id, 0, &with_class));
      NCCL_OK(shim->CommDestroy(comm));
    }
  });
  std::stringstream text;
  text << std::ifstream(log).rdbuf();
  unlink(log);
  const std::string said = "config.trafficClass is 104: ignored";
  const size_t first = text.str().find(said);
  EXPECT_NE(first, std::string::npos) << text.str();
  EXPECT_EQ(text.str().find(said, first + 1), std::string::npos) << text.str();
}

TEST(OverWeft, AnAbortEndsWhatAnotherThreadWaitsFor) {
  in_process(kWeft, [] {
    const Shim shim;
    UniqueId id;
    NCCL_OK(shim->GetUniqueId(&id));
    Comm_t comms[2] = {};
    NCCL_OK(shim->GroupStart());
    for (int rank = 0; rank < 2; ++rank) NCCL_OK(shim->CommInitRank(&comms[rank], 2, id, rank));
    NCCL_OK(shim->GroupEnd());
    std::thread waiter([&] {
      float value = 1, sum = 0;
      EXPECT_EQ(shim->AllReduce(&value, &sum, 1, kFloat, kSum, comms[0], nullptr), nccl::kRemoteError);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    NCCL_OK(shim->CommAbort(comms[0]));
    waiter.join();
    EXPECT_EQ(shim->CommDestroy(comms[0]), nccl::kInvalidArgument);
    EXPECT_TRUE(mentions(shim.last_error(), "destroyed or aborted already")) << shim.last_error();
    NCCL_OK(shim->CommAbort(comms[1]));
  });
}

TEST(OverWeft, AForkedChildsCallsAreRefusedAndDisturbNobody) {
  in_process(kWeft, [] {
    const Shim shim;
    UniqueId id;
    NCCL_OK(shim->GetUniqueId(&id));
    Comm_t comm = nullptr;
    NCCL_OK(shim->CommInitRank(&comm, 1, id, 0));
    float value = 3, sum = 0;
    NCCL_OK(shim->GroupStart());
    NCCL_OK(shim->AllReduce(&value, &sum, 1, kFloat, kSum, comm, nullptr));
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      if (shim->GroupEnd() != nccl::kInvalidUsage) _exit(1);
      if (shim->AllReduce(&value, &sum, 1, kFloat, kSum, comm, nullptr) != nccl::kInvalidUsage) _exit(2);
      if (!mentions(shim.last_error(), "forked child")) _exit(3);
      if (shim->CommDestroy(comm) != nccl::kInvalidUsage) _exit(4);
      Comm_t own = nullptr;
      if (shim->GetUniqueId(&id) != nccl::kSuccess || shim->CommInitRank(&own, 1, id, 0) != nccl::kSuccess)
        _exit(5);
      _exit(shim->CommDestroy(own) == nccl::kSuccess ? 0 : 6);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << WEXITSTATUS(status);
    NCCL_OK(shim->GroupEnd());
    EXPECT_EQ(sum, 3);
    NCCL_OK(shim->CommDestroy(comm));
  });
}

/// `ranks` communicators of one thread.
TEST(OverWeft, CommunicatorsEndInsideGroups) {
  in_process(kWeft, [] {
    const Shim shim;
    for (const auto end : {shim->CommDestroy, shim->CommAbort}) {
      const std::vector<Comm_t> comms = of_one_thread(shim, 2);
      Floats in(4, 1.f), out[2] = {Floats(4), Floats(4)};
      NCCL_OK(shim->GroupStart());
      for (size_t rank = 0; rank < 2; ++rank) {
        NCCL_OK(shim->AllReduce(in.data(), out[rank].data(), 4, kFloat, kSum, comms[rank], nullptr));
        NCCL_OK(end(comms[rank]));
      }
      EXPECT_EQ(shim->CommDestroy(comms[0]), nccl::kInvalidArgument);
      NCCL_OK(shim->GroupEnd());
      EXPECT_EQ(out[0], Floats(4, 2.f)) << "ended before the group's operations";
      EXPECT_EQ(out[1], Floats(4, 2.f));
    }
    const std::vector<Comm_t> comms = of_one_thread(shim, 2);
    NCCL_OK(shim->GroupStart());
    for (Comm_t comm : comms) NCCL_OK(shim->CommFinalize(comm));
    NCCL_OK(shim->GroupEnd());
    EXPECT_EQ(shim->CommFinalize(comms[0]), nccl::kInvalidUsage) << "not finalized by the group's end";
    NCCL_OK(shim->GroupStart());
    for (Comm_t comm : comms) NCCL_OK(shim->CommDestroy(comm));
    NCCL_OK(shim->GroupEnd());

    Comm_t unmade = nullptr;
    UniqueId id;
    NCCL_OK(shim->GetUniqueId(&id));
    NCCL_OK(shim->GroupStart());
    NCCL_OK(shim->CommInitRank(&unmade, 1, id, 0));
    EXPECT_EQ(shim->CommAbort(unmade), nccl::kInvalidUsage);
    EXPECT_TRUE(mentions(shim.last_error(), "being made by this group")) << shim.last_error();
    NCCL_OK(shim->GroupEnd());
    NCCL_OK(shim->CommDestroy(unmade));
  });
}

/// As NCCL's groups: a call that was refused stops the others, and the group's end tells of it.
TEST(OverWeft, AGroupWithARefusedCallStartsNothing) {
  in_process(kWeft, [] {
    const Shim shim;
    const std::vector<Comm_t> comms = of_one_thread(shim, 2);
    Comm_t child = nullptr;
    nccl::Window_t window = nullptr;
    const std::function<Result_t(float*)> wrong_calls[] = {
        [&](float* value) { return shim->AllReduce(value, value, 1, kFloat, 5, comms[0], nullptr); },
        [&](float* value) { return shim->AllReduce(value, value, 1, kFloat, kSum, nullptr, nullptr); },
        [&](float*) { return shim->CommSplit(nullptr, 0, 0, &child, nullptr); },
        [&](float* value) { return shim->CommWindowRegister(comms[0], value, 0, &window, 0); }};
    for (const auto& wrong : wrong_calls) {
      Floats in(4, 1.f), out[2] = {Floats(4), Floats(4)};
      NCCL_OK(shim->GroupStart());
      for (size_t rank = 0; rank < 2; ++rank)
        NCCL_OK(shim->AllReduce(in.data(), out[rank].data(), 4, kFloat, kSum, comms[rank], nullptr));
      EXPECT_EQ(wrong(in.data()), nccl::kInvalidArgument);
      const std::string refusal = shim.last_error();
      EXPECT_EQ(shim->GroupEnd(), nccl::kInvalidArgument);
      EXPECT_EQ(shim.last_error(), "nothing of the group was started: " + refusal);
      for (size_t rank = 0; rank < 2; ++rank) EXPECT_EQ(out[rank], Floats(4));
    }
    NCCL_OK(shim->GroupStart());
    EXPECT_EQ(shim->Recv(nullptr, 1, kFloat, 0, nullptr, nullptr), nccl::kInvalidArgument);
    EXPECT_EQ(shim->GroupEnd(), nccl::kInvalidArgument) << "with no other call";
    EXPECT_EQ(shim->GroupEnd(), nccl::kInvalidUsage);
    for (Comm_t comm : comms) NCCL_OK(shim->CommAbort(comm));
  });
}

/// A watchdog's thread: what it aborts has stopped before its group ends.
TEST(OverWeft, AnAbortInAGroupOfItsOwnIsAtOnce) {
  in_process(kWeft, [] {
    const Shim shim;
    const std::vector<Comm_t> comms = of_one_thread(shim, 2);
    std::thread waiter([&] {
      float value = 1, sum = 0;
      EXPECT_EQ(shim->AllReduce(&value, &sum, 1, kFloat, kSum, comms[0], nullptr), nccl::kRemoteError);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    NCCL_OK(shim->GroupStart());
    NCCL_OK(shim->CommFinalize(comms[1]));
    for (Comm_t comm : comms) NCCL_OK(shim->CommAbort(comm));
    waiter.join();
    NCCL_OK(shim->GroupEnd());
  });
}

TEST(OverWeft, NoCommunicatorEndsWell) {
  in_process(kWeft, [] {
    const Shim shim;
    for (const auto end : {shim->CommFinalize, shim->CommDestroy, shim->CommAbort}) NCCL_OK(end(nullptr));
  });
}

TEST(OverWeft, SimulatesAGroup) {
  in_process(kWeft, [] {
    const Shim shim;
    on_threads(shim, 2, [&](int, Comm_t comm) {
      Floats in(1024), out(1024);
      nccl::SimInfo info{sizeof(nccl::SimInfo), nccl::kSimInfoMagic, nccl::kVersionCode, -1.f};
      NCCL_OK(shim->GroupStart());
      NCCL_OK(shim->AllReduce(in.data(), out.data(), 1024, kFloat, kSum, comm, nullptr));
      NCCL_OK(shim->GroupSimulateEnd(&info));
      EXPECT_GT(info.estimated_time, 0);
    });
    nccl::SimInfo wrong{};
    NCCL_OK(shim->GroupStart());
    EXPECT_EQ(shim->GroupSimulateEnd(&wrong), nccl::kInvalidArgument);
    NCCL_OK(shim->GroupEnd());
  });
}

/// What NCCL's functions answer to wrong arguments: a code and a sentence each.
TEST(OverWeft, WrongArgumentsAreNamed) {
  in_process(kWeft, [] {
    const Shim shim;
    float value = 1;
    const auto refused = [&](Result_t result, Result_t code, const std::string& part) {
      EXPECT_EQ(result, code) << part;
      EXPECT_TRUE(mentions(shim.last_error(), part)) << shim.last_error() << " lacks " << part;
    };
    refused(shim->AllReduce(&value, &value, 1, kFloat, kSum, nullptr, nullptr), nccl::kInvalidArgument,
            "comm is NULL");
    auto foreign = std::make_unique<uint64_t[]>(64);
    const auto comm_of_another = reinterpret_cast<Comm_t>(foreign.get());
    refused(shim->AllReduce(&value, &value, 1, kFloat, kSum, comm_of_another, nullptr),
            nccl::kInvalidArgument, "no communicator of this libnccl.so.2");
    refused(shim->CommDestroy(comm_of_another), nccl::kInvalidArgument,
            "no communicator of this libnccl.so.2");
    refused(shim->GroupEnd(), nccl::kInvalidUsage, "no group is open");
    refused(shim->GetUniqueId(nullptr), nccl::kInvalidArgument, "uniqueId is NULL");
    refused(shim->GetVersion(nullptr), nccl::kInvalidArgument, "version is NULL");
    refused(shim->CommInitAll(nullptr, 1, nullptr), nccl::kInvalidArgument, "comms is NULL");

    Comm_t comm = nullptr;
    UniqueId id;
    NCCL_OK(shim->GetUniqueId(&id));
    refused(shim->CommInitRank(&comm, 2, id, 5), nccl::kInvalidArgument, "rank is 5, must be in [0, 2)");
    EXPECT_EQ(comm, nullptr);
    UniqueId damaged{};
    refused(shim->CommInitRank(&comm, 1, damaged, 0), nccl::kInvalidArgument, "the unique id is all zero");
    damaged.internal[0] = 'N';  // another's
    refused(shim->CommInitRank(&comm, 1, damaged, 0), nccl::kInvalidArgument, "no unique id of Weft");
    damaged = id;
    damaged.internal[4] = 99;  // Weft's, of another version
    refused(shim->CommInitRank(&comm, 1, damaged, 0), nccl::kInvalidArgument, "unique id");
    nccl::Config raw{};
    refused(shim->CommInitRankConfig(&comm, 1, id, 0, &raw), nccl::kInvalidArgument,
            "NCCL_CONFIG_INITIALIZER");
    refused(shim->CommInitRankScalable(&comm, 1, 0, 3, &id, nullptr), nccl::kInvalidArgument, "nId is 3");

    NCCL_OK(shim->CommInitRank(&comm, 1, id, 0));
    refused(shim->AllReduce(&value, &value, 1, 42, kSum, comm, nullptr), nccl::kInvalidArgument,
            "datatype is 42");
    refused(shim->AllReduce(nullptr, &value, 1, kFloat, kSum, comm, nullptr), nccl::kInvalidArgument,
            "sendbuff is NULL");
    int whole = 1;
    for (int weft_only = 5; weft_only < 8; ++weft_only)
      refused(shim->AllReduce(&whole, &whole, 1, 2 /* ncclInt32 */, weft_only, comm, nullptr),
              nccl::kInvalidArgument, fmt::format("op is {}, must be in [0, 5)", weft_only));
    refused(shim->Bcast(&value, 1, kFloat, 7, comm, nullptr), nccl::kInvalidArgument, "root is 7");
    refused(shim->CommRevoke(comm, 0), nccl::kInvalidUsage, "no revoking");
    refused(shim->DevCommCreate(comm, nullptr, nullptr), nccl::kInvalidUsage, "no device API");
    int device = -1;
    refused(shim->CommCuDevice(comm, &device), nccl::kInvalidUsage, "works on host memory");
    refused(shim->RedOpDestroy(kSum, comm), nccl::kInvalidArgument, "built-in operator");
    refused(shim->MemFree(&value), nccl::kInvalidArgument, "");
    NCCL_OK(shim->CommDestroy(comm));
    refused(shim->CommFinalize(comm), nccl::kInvalidArgument, "destroyed or aborted");

    int version = 0;
    NCCL_OK(shim->GetVersion(&version));
    EXPECT_EQ(version, 23203);
    EXPECT_STREQ(shim->GetErrorString(nccl::kRemoteError), "remote error");
    EXPECT_STREQ(shim->GetErrorString(1000), "unknown result");
  });
}

TEST(OverWeft, ACommunicatorThatAGroupCannotMakeIsNull) {
  in_process({{"WEFT_BACKEND", "weft"}, {"WEFT_INIT_TIMEOUT_S", "0.5"}}, [] {
    const Shim shim;
    UniqueId id;
    NCCL_OK(shim->GetUniqueId(&id));
    Comm_t comm = nullptr;
    NCCL_OK(shim->GroupStart());
    NCCL_OK(shim->CommInitRank(&comm, 2, id, 0));  // rank 1 never comes
    EXPECT_NE(comm, nullptr);
    EXPECT_EQ(shim->GroupEnd(), nccl::kRemoteError);
    EXPECT_EQ(comm, nullptr);
    EXPECT_TRUE(mentions(shim.last_error(), "1 of 2")) << shim.last_error();
  });
}

TEST(OverWeft, AWrongSettingIsSaid) {
  in_process({{"WEFT_BACKEND", "mpi"}}, [] {
    const Shim shim;
    UniqueId id;
    EXPECT_EQ(shim->GetUniqueId(&id), nccl::kInvalidUsage);
    EXPECT_TRUE(mentions(shim.last_error(), "WEFT_BACKEND is 'mpi', must be one of auto, weft, nccl"))
        << shim.last_error();
  });
}

}  // namespace
}  // namespace weft::nccl_shim_test::over_weft_test
