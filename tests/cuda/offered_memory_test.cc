// Memory that plan kernels offer to peers, when communicators end: it is given back when no kernel uses it
// any more, and nobody waits for that.
#include "engine/gpu/offered_memory.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <thread>

#include "api/processes.h"
#include "api/ranks.h"
#include "cuda/plan_path.h"

namespace weft::testing::offered_memory_test {
namespace {

using namespace plan_paths;
using engine::NodeBoard;
using engine::OfferedMemory;

constexpr size_t kCount = 100'000;
using Values = std::vector<float>;

/// Long enough for the keeper to look many times.
void let_keeper_look() { std::this_thread::sleep_for(std::chrono::milliseconds(300)); }

/// The boards of three ranks, and memory of the first.
struct ThreeBoards {
  cuda::Device& device = **cuda::Device::open(0);
  const cuda::Scope scope{device};
  std::shared_ptr<NodeBoard> first = NodeBoard::create(device, 0, 3).take();
  std::unique_ptr<NodeBoard> second = NodeBoard::open(device, 1, 3, *first->offer()).take();
  std::unique_ptr<NodeBoard> third = NodeBoard::open(device, 2, 3, *first->offer()).take();
  ThreeBoards() {
    for (NodeBoard* const board : {first.get(), second.get(), third.get()}) board->note_path_begins();
  }
  cuda::BlockPool pool{device, cuda::BlockKind::device};

  OfferedMemory memory() { return {&device, first, {*pool.take(4 << 20)}, {}, {}, {}}; }
};

TEST(OfferedMemory, StaysUntilTheKernelsOfAllPeersHaveLeft) {
  WEFT_NEED_FAKE(fake);
  ThreeBoards boards;
  OfferedMemory memory = boards.memory();
  const int64_t before = blocks_of_driver(fake);
  engine::give_back_unused(std::move(memory));
  boards.second->note_path_ends();
  let_keeper_look();
  EXPECT_EQ(blocks_of_driver(fake), before);
  boards.third.reset();  // a rank that has no kernels
  EXPECT_TRUE(eventually([&] { return blocks_of_driver(fake) == before - 1; }));
}

TEST(OfferedMemory, OfTwoPathsWaitsForBothOfAPeer) {
  WEFT_NEED_FAKE(fake);
  ThreeBoards boards;
  boards.second->note_path_begins();
  boards.third->note_path_ends();
  OfferedMemory memory = boards.memory();
  const int64_t before = blocks_of_driver(fake);
  engine::give_back_unused(std::move(memory));
  boards.second->note_path_ends();
  let_keeper_look();
  EXPECT_EQ(blocks_of_driver(fake), before);
  boards.second->note_path_ends();
  EXPECT_TRUE(eventually([&] { return blocks_of_driver(fake) == before - 1; }));
}

TEST(OfferedMemory, ARankSaysThatItsKernelsHaveLeftWhenTheyHave) {
  WEFT_NEED_FAKE(fake);
  ThreeBoards boards;
  boards.second->note_path_ends();
  std::atomic<bool> has_left{false};
  OfferedMemory memory = boards.memory();
  const int64_t before = blocks_of_driver(fake);
  memory.under_way.push_back([&] { return has_left.load(); });
  engine::give_back_unused(std::move(memory));
  let_keeper_look();
  EXPECT_FALSE(boards.third->paths_of_peers_ended());
  has_left = true;
  EXPECT_TRUE(eventually([&] { return boards.third->paths_of_peers_ended(); }));
  boards.third.reset();
  EXPECT_TRUE(eventually([&] { return blocks_of_driver(fake) == before - 1; }));
}

TEST(OfferedMemory, StaysAsLongAsGraphsAndPeersAreTold) {
  WEFT_NEED_FAKE(fake);
  ThreeBoards boards;
  boards.second->note_path_ends();
  OfferedMemory memory = boards.memory();
  const int64_t before = blocks_of_driver(fake);
  auto graph = std::make_shared<int>();
  memory.graphs.push_back(graph);
  engine::give_back_unused(std::move(memory));
  EXPECT_TRUE(boards.third->paths_of_peers_ended());
  boards.third.reset();
  let_keeper_look();
  EXPECT_EQ(blocks_of_driver(fake), before);
  graph.reset();
  EXPECT_TRUE(eventually([&] { return blocks_of_driver(fake) == before - 1; }));
}

// What a communicator had offered stayed as long as its process.
TEST(PlanPathMemory, FiftyCommunicatorsGiveTheirMemoryBack) {
  WEFT_NEED_PLAN_PATH();
  WEFT_NEED_FAKE(fake);
  constexpr int kRanks = 3;
  std::barrier all(kRanks);
  run_ranks(
      blocks(1, kRanks),
      [&](Rank& me) {
        const DeviceStream stream;
        const DeviceArray<float> data(Values(kCount, 1)), sum(kCount);
        const auto call = [&](weftComm_t comm) {
          WEFT_OK(weftAllReduce(data.data(), sum.data(), kCount, weftFloat, weftSum, comm, stream.weft()));
          EXPECT_EQ(algorithm_of(comm), "direct_kernel");
          stream.synchronize();
        };
        call(me.comm);
        all.arrive_and_wait();
        const int64_t before = blocks_of_driver(fake);
        all.arrive_and_wait();
        for (int round = 0; round < 50; ++round) {
          weftComm_t comm;
          WEFT_OK(weftCommSplit(me.comm, 0, me.rank, &comm, nullptr));
          call(comm);
          // One rank returns from it, before the others begin.
          if (me.rank == round % kRanks) WEFT_OK(weftCommDestroy(comm));
          all.arrive_and_wait();
          if (me.rank != round % kRanks) WEFT_OK(weftCommDestroy(comm));
        }
        all.arrive_and_wait();
        EXPECT_TRUE(eventually([&] { return blocks_of_driver(fake) == before; }))
            << blocks_of_driver(fake) - before << " blocks more";
        all.arrive_and_wait();
      },
      on_device);
}

TEST(PlanPathMemory, AnAbortReturnsAndTheMemoryWaitsForThePeer) {
  WEFT_NEED_PLAN_PATH();
  WEFT_NEED_FAKE(fake);
  std::barrier both(2);
  run_ranks(
      blocks(1, 2),
      [&](Rank& me) {
        const DeviceStream stream;
        const DeviceArray<float> data(Values(kCount, 1)), sum(kCount);
        both.arrive_and_wait();
        const int64_t before = blocks_of_driver(fake);
        both.arrive_and_wait();
        weftComm_t comm;
        WEFT_OK(weftCommSplit(me.comm, 0, me.rank, &comm, nullptr));
        both.arrive_and_wait();
        if (me.rank == 0) {
          WEFT_OK(weftAllReduce(data.data(), sum.data(), kCount, weftFloat, weftSum, comm, stream.weft()));
          WEFT_OK(weftCommAbort(comm));
          stream.synchronize();
          let_keeper_look();
          EXPECT_EQ(blocks_of_driver(fake), before + 2);
        }
        both.arrive_and_wait();
        if (me.rank == 1) WEFT_OK(weftCommAbort(comm));
        both.arrive_and_wait();
        EXPECT_TRUE(eventually([&] { return blocks_of_driver(fake) == before; }));
        both.arrive_and_wait();
      },
      on_device);
}

TEST(PlanPathMemoryDeathTest, APeerThatIsKilledKeepsNoMemory) {
  constexpr int kSkipped = 77;
  const std::vector<int> statuses = run_processes(blocks(1, 2), [](Rank& me) {
    const FakeControls fake;
    if (!can_have_processes(2) || !fake.valid()) return kSkipped;
    const int32_t pid = getpid();
    int32_t pids[2];
    if (weftAllGather(&pid, pids, 1, weftInt32, me.comm, nullptr) != weftSuccess) return 2;
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.device = me.rank;
    weftComm_t comm[2];
    for (weftComm_t& made : comm)
      if (weftCommSplit(me.comm, 0, me.rank, &made, &config) != weftSuccess) return 3;
    const DeviceStream stream(me.rank);
    const DeviceArray<float> data(Values(kCount, 1), me.rank);
    for (weftComm_t made : comm)
      if (weftAllReduce(data.data(), data.data(), kCount, weftFloat, weftSum, made, stream.weft())) return 4;
    stream.synchronize();
    if (algorithm_of(comm[0]) != "direct_kernel") return 5;
    if (me.rank == 1)
      for (;;) pause();
    const int64_t before = blocks_of_driver(fake);
    if (weftCommDestroy(comm[0]) || weftCommAbort(comm[1])) return 6;
    let_keeper_look();
    const bool stayed = blocks_of_driver(fake) == before;
    kill(pids[1], SIGKILL);
    if (!stayed) return 7;
    return eventually([&] { return blocks_of_driver(fake) == before - 2; }) ? 0 : 8;
  });
  if (exited_with(statuses[0], kSkipped))
    GTEST_SKIP() << "no two CUDA devices of the fake driver, or no kernels";
  EXPECT_TRUE(exited_with(statuses[0], 0)) << statuses[0];
}

}  // namespace
}  // namespace weft::testing::offered_memory_test
