// Ranks as processes that reach each other's GPU memory through CUDA IPC: every long collective, buffers that
// come and go, and mappings that do not pile up. Death tests, which come first in the program, since a child
// must not inherit a driver that is in use.
#include "device/cuda/ipc.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/processes.h"
#include "cuda/graphs.h"
#include "cuda/plan_path.h"

namespace weft::testing::ipc_test {
namespace {

constexpr int kNoDevice = 77;

/// Returns from the calling rank with `code` unless `condition` holds.
#define NEED(condition, code)                                                                    \
  do {                                                                                           \
    if (!(condition)) {                                                                          \
      std::fprintf(stderr, "rank %d: %s: %s\n", me.rank, #condition, weftGetLastError(nullptr)); \
      return code;                                                                               \
    }                                                                                            \
  } while (0)

/// Runs a function on ranks of one node that are processes; skips without a device.
void run_on_devices(int ranks, int (*body)(Rank& me)) {
  const std::vector<int> statuses =
      run_processes(blocks(1, ranks), [body](Rank& me) { return cuda::driver() ? body(me) : kNoDevice; });
  if (exited_with(statuses[0], kNoDevice)) GTEST_SKIP() << "no CUDA device, or not the fake one";
  for (int status : statuses) EXPECT_TRUE(exited_with(status, 0)) << status;
}

weftComm_t split_on_device(Rank& me, int color = 0) {
  weftConfig_t config = WEFT_CONFIG_INITIALIZER;
  config.device = 0;
  weftComm_t comm = nullptr;
  if (weftCommSplit(me.comm, color, me.rank, &comm, &config) != weftSuccess)
    std::fprintf(stderr, "rank %d: %s\n", me.rank, weftGetLastError(nullptr));
  return comm;
}

/// Returns when all ranks are here.
bool meet(Rank& me) {
  float one = 1, all = 0;
  return weftAllReduce(&one, &all, 1, weftFloat, weftSum, me.comm, nullptr) == weftSuccess;
}

weftResult_t health_of(weftComm_t comm) {
  weftResult_t health = weftSuccess;
  if (weftCommGetAsyncError(comm, &health) != weftSuccess) return weftInternalError;
  if (health != weftSuccess) std::fprintf(stderr, "%s\n", weftGetLastError(comm));
  return health;
}

bool is_off(const char* name) {
  const char* value = std::getenv(name);
  return value && (std::string(value) == "0" || std::string(value) == "off");
}

/// Whether long collectives of one node are copies on the caller's stream.
bool copies_on_streams() {
  return settings().cuda_copy_bytes > 0 && !is_off("FAKE_CUDA_MEMOPS") && !is_off("FAKE_CUDA_IPC") &&
         settings().cuda_ipc;
}

// ---- Every collective

int do_every_collective(Rank& me) {
  const FakeControls fake;
  const weftComm_t comm = split_on_device(me);
  NEED(comm, 2);
  const uint64_t opened = fake.valid() ? fake.calls("cuIpcOpenMemHandle") : 0;
  constexpr size_t kCount = 300001;
  const auto size = static_cast<size_t>(me.size), rank = static_cast<size_t>(me.rank);
  const int root = 1, next = (me.rank + 1) % me.size, previous = (me.rank + me.size - 1) % me.size;
  const auto values = [](size_t of, size_t to, size_t round) {
    Values v(kCount);
    for (size_t i = 0; i < kCount; ++i) v[i] = static_cast<float>((of + 1) * (round + 1) + 7 * to + i % 11);
    return v;
  };
  const auto append = [](Values& all, const Values& part) {
    all.insert(all.end(), part.begin(), part.end());
  };
  for (size_t round = 0; round < 2; ++round) {
    Values mine, sum(kCount), exchanged, gathered, reduced(kCount);
    for (size_t r = 0; r < size; ++r) {
      append(mine, values(rank, r, round));
      append(exchanged, values(r, rank, round));
      append(gathered, values(r, 0, round));
      const Values first = values(r, 0, round), own = values(r, rank, round);
      for (size_t i = 0; i < kCount; ++i) sum[i] += first[i], reduced[i] += own[i];
    }
    const DeviceArray<float> send(mine), all(size * kCount), one(kCount);
    const DeviceStream stream;
    const auto came = [&](const DeviceArray<float>& array, const Values& expected) {
      stream.synchronize();
      return health_of(comm) == weftSuccess && array.get() == expected;
    };
    NEED(!weftAllReduce(send.data(), one.data(), kCount, weftFloat, weftSum, comm, stream.weft()), 3);
    NEED(came(one, sum), 4);
    NEED(!weftAllGather(send.data(), all.data(), kCount, weftFloat, comm, stream.weft()), 5);
    NEED(came(all, gathered), 6);
    NEED(!copies_on_streams() || algorithm_of(comm) == "copy_engines", 26);
    NEED(!weftReduceScatter(send.data(), one.data(), kCount, weftFloat, weftSum, comm, stream.weft()), 7);
    NEED(came(one, reduced), 8);
    NEED(!weftBroadcast(send.data(), one.data(), kCount, weftFloat, root, comm, stream.weft()), 9);
    NEED(came(one, values(root, 0, round)), 10);
    NEED(!weftReduce(send.data(), one.data(), kCount, weftFloat, weftSum, root, comm, stream.weft()), 11);
    NEED(me.rank != root || came(one, sum), 12);
    NEED(!weftAlltoAll(send.data(), all.data(), kCount, weftFloat, comm, stream.weft()), 13);
    NEED(came(all, exchanged), 14);
    NEED(!weftGather(send.data(), all.data(), kCount, weftFloat, root, comm, stream.weft()), 15);
    NEED(me.rank != root || came(all, gathered), 16);
    NEED(!weftScatter(send.data(), one.data(), kCount, weftFloat, root, comm, stream.weft()), 17);
    NEED(came(one, values(root, rank, round)), 18);
    NEED(!weftGroupStart(), 19);
    NEED(!weftSend(send.data(), kCount, weftFloat, next, comm, stream.weft()), 20);
    NEED(!weftRecv(one.data(), kCount, weftFloat, previous, comm, stream.weft()), 21);
    NEED(!weftGroupEnd(), 22);
    NEED(came(one, values(static_cast<size_t>(previous), 0, round)), 23);
    NEED(meet(me), 24);  // nobody frees what another one is still reading
  }
  const bool maps = fake.valid() && settings().cuda_ipc && !is_off("FAKE_CUDA_IPC");
  NEED(!maps || fake.calls("cuIpcOpenMemHandle") > opened, 25);
  return weftCommDestroy(comm) || weftCommDestroy(me.comm);
}

TEST(CollectivesOfProcessesDeathTest, EveryLongOneThroughCudaIpc) { run_on_devices(3, do_every_collective); }

/// Rank 1 dies when the streams of the others wait for it.
int gather_without_a_rank(Rank& me) {
  constexpr size_t kCount = 300001;
  const weftComm_t comm = split_on_device(me);
  NEED(comm, 2);
  const DeviceArray<float> send(Values(kCount, 1)), all(static_cast<size_t>(me.size) * kCount);
  const DeviceStream stream;
  NEED(!weftAllGather(send.data(), all.data(), kCount, weftFloat, comm, stream.weft()), 3);
  stream.synchronize();
  NEED(meet(me), 4);
  if (me.rank == 1) _exit(1);
  for (int call = 0; call < 3; ++call)
    (void)weftAllGather(send.data(), all.data(), kCount, weftFloat, comm, stream.weft());
  stream.synchronize();  // it goes on
  weftResult_t health = weftSuccess;
  NEED(eventually([&] { return weftCommGetAsyncError(comm, &health) || health != weftSuccess; }), 5);
  const std::string sentence = weftGetLastError(comm);
  NEED(health == weftRemoteError && sentence.find("rank 1") != std::string::npos, 6);
  return weftCommAbort(comm) || weftCommAbort(me.comm);
}

TEST(CollectivesOfProcessesDeathTest, ARankThatDiesIsNamedAndStreamsGoOn) {
  const std::vector<int> statuses = run_processes(
      blocks(1, 3), [](Rank& me) { return cuda::driver() ? gather_without_a_rank(me) : kNoDevice; });
  if (exited_with(statuses[0], kNoDevice)) GTEST_SKIP() << "no CUDA device, or not the fake one";
  for (const int rank : {0, 2}) EXPECT_TRUE(exited_with(statuses[static_cast<size_t>(rank)], 0)) << rank;
}

// ---- Buffers that come and go

// The driver does not map both of two allocations that had the same addresses at their owner.
int map_what_took_the_place(Rank& me) {
  const FakeControls fake;
  if (!fake.valid()) return kNoDevice;
  cuda::Device& device = **cuda::Device::open(0);
  const cuda::Scope scope(device);
  constexpr size_t kBytes = 1 << 20;
  cuda::Exporter exporter;
  std::optional<DeviceArray<char>> array;
  const auto tell = [&](cuda::SharedMemory& told) {
    cuda::SharedMemory mine, all[2];
    if (array)
      if (auto described = exporter.describe(array->data(), kBytes, true)) mine = *described;
    const bool met = !weftAllGather(&mine, all, sizeof mine, weftUint8, me.comm, nullptr);
    told = all[0];
    return met;
  };
  cuda::SharedMemory first, second;
  if (me.rank == 0) array.emplace(kBytes);
  NEED(tell(first), 2);
  {
    cuda::Importer importer(device);
    std::shared_ptr<cuda::Importer::Mapping> in_use;
    if (me.rank == 1) {
      auto reached = importer.reach(first);
      NEED(reached && reached->address, 3);
      in_use = reached->mapping;
    }
    NEED(meet(me), 4);
    if (me.rank == 0) {
      const char* const before = array->data();
      array->free();
      array.emplace(kBytes);
      NEED(array->data() == before, 5);
    }
    NEED(tell(second), 6);
    if (me.rank == 1) {
      auto reached = importer.reach(second);
      NEED(reached && !reached->address, 7);
      NEED(reached->behind.lock() == in_use, 8);
      NEED(reached->why.message().find("cuIpcOpenMemHandle") != std::string::npos, 9);
      in_use.reset();
      NEED(reached->behind.expired(), 10);
      fake.block("cuIpcCloseMemHandle", 1);  // as where it waits for the device
      reached = importer.reach(second);
      NEED(reached && !reached->address && reached->closing && !reached->behind.expired(), 11);
      fake.block("cuIpcCloseMemHandle", 0);
      NEED(eventually([&] { return reached->behind.expired(); }), 12);
      NEED(importer.reach_of_rank(0, second).ok(), 13);
    }
    NEED(meet(me), 14);
  }
  return weftCommDestroy(me.comm);
}

TEST(MappingsDeathTest, OfMemoryThatIsGoneAndStillInUseAreWaitedFor) {
  run_on_devices(2, map_what_took_the_place);
}

// Rank 2 is done with a Broadcast, and gives its buffer back, while rank 0 still waits for rank 1 in it and
// has that buffer mapped.
int broadcast_behind_a_broadcast(Rank& me) {
  const FakeControls fake;
  const weftComm_t comm = split_on_device(me), pair = split_on_device(me, me.rank == 1 ? -1 : 0);
  NEED(comm && (pair || me.rank == 1), 2);
  if (!fake.valid() || !(*cuda::Device::open(0))->has_memory_operations()) return kNoDevice;
  constexpr size_t kCount = 300000;
  const DeviceStream a, b;
  const DeviceArray<float> given(Values(kCount, 5)), sent(Values(kCount, 6));
  std::optional<DeviceArray<float>> into(kCount);
  const auto opens = [&] { return fake.calls("cuIpcOpenMemHandle"); };
  const auto broadcast = [&] {
    return weftBroadcast(given.data(), into->data(), kCount, weftFloat, 0, comm, a.weft()) == weftSuccess;
  };
  const uint64_t before = opens();
  if (me.rank != 1) NEED(broadcast(), 3);
  if (me.rank == 2) {
    a.synchronize();
    NEED(into->get() == Values(kCount, 5), 4);
    const float* const address = into->data();
    into->free();
    into.emplace(kCount);
    NEED(into->data() == address, 5);
  }
  NEED(meet(me), 6);
  if (me.rank == 0) {
    const uint64_t mapped = opens();
    NEED(mapped > before, 7);  // else this tests nothing
    NEED(!weftBroadcast(sent.data(), into->data(), kCount, weftFloat, 0, pair, b.weft()), 8);
    NEED(eventually([&] { return opens() > mapped || health_of(pair) != weftSuccess; }), 9);
  } else if (me.rank == 2) {
    NEED(!weftBroadcast(nullptr, into->data(), kCount, weftFloat, 0, pair, b.weft()), 10);
  }
  NEED(meet(me), 11);
  if (me.rank == 1) NEED(broadcast(), 12);
  a.synchronize();
  b.synchronize();
  NEED(health_of(comm) == weftSuccess && (!pair || health_of(pair) == weftSuccess), 13);
  NEED(me.rank != 1 || into->get() == Values(kCount, 5), 14);
  NEED(me.rank != 2 || into->get() == Values(kCount, 6), 15);
  NEED(meet(me), 16);
  return (pair && weftCommDestroy(pair)) || weftCommDestroy(comm) || weftCommDestroy(me.comm);
}

TEST(MappingsDeathTest, AnOperationWaitsForTheOneThatHasAnOldBufferMapped) {
  ::setenv("WEFT_ALGO", "broadcast=direct", 1);  // in a chain rank 2 would wait for rank 1
  run_on_devices(3, broadcast_behind_a_broadcast);
  ::unsetenv("WEFT_ALGO");
}

// ---- Many buffers

// With each peer fewer buffers of the others stayed mapped. Calls that took them in turn found none.
int map_buffers_of_two_peers_in_turn(Rank& me) {
  const FakeControls fake;
  if (!fake.valid()) return kNoDevice;
  cuda::Device& device = **cuda::Device::open(0);
  const cuda::Scope scope(device);
  constexpr size_t kBuffers = 40, kBytes = 4096;
  std::vector<std::unique_ptr<DeviceArray<char>>> buffers;
  std::vector<cuda::SharedMemory> mine, all(static_cast<size_t>(me.size) * kBuffers);
  cuda::Exporter exporter;
  for (size_t i = 0; i < kBuffers; ++i) {
    buffers.push_back(std::make_unique<DeviceArray<char>>(kBytes));
    const auto described = exporter.describe(buffers.back()->data(), kBytes, true);
    NEED(described.ok(), 2);
    mine.push_back(*described);
  }
  const size_t bytes = kBuffers * sizeof mine[0];
  NEED(!weftAllGather(mine.data(), all.data(), bytes, weftUint8, me.comm, nullptr), 3);
  if (me.rank == 2) {
    cuda::Importer importer(device);
    for (int round = 0; round < 2; ++round)
      for (size_t i = 0; i < 2 * kBuffers; ++i) NEED(importer.reach(all[i]).ok(), 4);
    NEED(fake.calls("cuIpcOpenMemHandle") == 2 * kBuffers, 5);
  }
  NEED(meet(me), 6);
  return weftCommDestroy(me.comm);
}

TEST(MappingsDeathTest, OfManyBuffersStayForEachPeer) { run_on_devices(3, map_buffers_of_two_peers_in_turn); }

// ---- Mappings that nobody needs any more

int gather_from_ever_new_addresses(Rank& me) {
  const FakeControls fake;
  const weftComm_t comm = split_on_device(me);
  NEED(comm, 2);
  if (!fake.valid() || !(*cuda::Device::open(0))->can_be_captured().ok()) return kNoDevice;
  constexpr size_t kCount = 1 << 16;
  constexpr size_t kRounds = 300;
  const DeviceStream stream;
  const DeviceArray<float> mine(Values(kCount, 1)), sum(kCount);
  Graph graph(stream);  // lives as long as the rounds go on
  NEED(all_reduce(mine, sum, kCount, comm, stream) == weftSuccess, 3);
  NEED(graph.end() == cuda::kSuccess, 4);
  const auto open = [&] { return fake.calls("cuIpcOpenMemHandle") - fake.calls("cuIpcCloseMemHandle"); };
  const uint64_t opened = fake.calls("cuIpcOpenMemHandle");
  for (size_t round = 0; round < kRounds; ++round) {
    const size_t count = kCount + 4 * round;  // the driver uses an address again for the same length only
    const auto value = static_cast<float>(round);
    const DeviceArray<float> send(Values(count, value)), all(2 * count);
    NEED(!weftAllGather(send.data(), all.data(), count, weftFloat, comm, stream.weft()), 5);
    stream.synchronize();
    NEED(health_of(comm) == weftSuccess, 6);
    NEED(all.get() == Values(2 * count, value), 7);
    NEED(meet(me), 8);
  }
  NEED(fake.calls("cuIpcOpenMemHandle") >= opened + kRounds, 9);  // else this tests nothing
  // Those that were used last, those that wait to be closed, and a few in between.
  NEED(eventually([&] { return open() < 64 + 64 + 16; }), 10);
  NEED(meet(me), 11);
  graph.destroy();
  return weftCommDestroy(comm) || weftCommDestroy(me.comm);
}

TEST(MappingsDeathTest, OfMemoryThatCameAndWentDoNotPileUpWhileAGraphExists) {
  run_on_devices(2, gather_from_ever_new_addresses);
}

}  // namespace
}  // namespace weft::testing::ipc_test
