// GPUDirect over libfabric: what the network reads and writes itself, what is registered for how long, and
// what goes through host memory because somebody cannot. The network is a provider of libfabric that claims
// to reach the fake driver's memory; it has to be chosen (WEFT_NET=ofi).
#include <filesystem>
#include <thread>
#include <vector>

#include "api/ranks.h"
#include "base/settings.h"
#include "cuda/device_memory.h"
#include "cuda/fake_network/gpu_network.h"
#include "transport/ofi.h"

namespace weft::testing::gpu_direct_test {
namespace {

using Values = std::vector<float>;
using transport::OfiTransport;
using transport::ofi::GpuRegistrations;

uint64_t first_key(const transport::RemoteBuffer& buffer) {
  return buffer.keys.as<transport::ofi::Keys>().rails[0];
}

constexpr size_t kCount = 200001;  // well beyond what goes eagerly

/// AllReduces and AllGathers on fresh streams with the same buffers, checked.
void reduce_and_gather(Rank& me, size_t count, int rounds) {
  const DeviceStream stream;
  Values mine(count), sum(count), all;
  for (int r = 0; r < me.size; ++r)
    for (size_t i = 0; i < count; ++i) {
      const float value = static_cast<float>(r + 1) * static_cast<float>(i % 17);
      if (r == me.rank) mine[i] = value;
      sum[i] += value;
      all.push_back(value);
    }
  DeviceArray<float> send(mine), reduced(count), gathered(all.size());
  for (int round = 0; round < rounds; ++round) {
    WEFT_OK(weftAllReduce(send.data(), reduced.data(), count, weftFloat, weftSum, me.comm, stream.weft()));
    WEFT_OK(weftAllGather(send.data(), gathered.data(), count, weftFloat, me.comm, stream.weft()));
  }
  stream.synchronize();
  ASSERT_EQ(reduced.get(), sum);
  ASSERT_EQ(gathered.get(), all);
  for (DeviceArray<float>* array : {&send, &reduced, &gathered})
    array->free();  // not when the ranks have ended
}

struct GpuDirect : ::testing::Test {
  void SetUp() override {
    WEFT_NEED_DEVICE();
    if (settings().net != "ofi") GTEST_SKIP() << "cuda.gpu_direct runs this with WEFT_NET=ofi";
  }
  void TearDown() override { GpuNetwork::offer_nothing(); }
};

TEST_F(GpuDirect, TheNetworkReadsAndWritesGpuMemoryItself) {
  WEFT_NEED_FAKE(fake);
  for (const Nodes& nodes : {blocks(3, 1), blocks(2, 2)}) {
    GpuNetwork::offer(static_cast<int>(nodes.size()));
    const uint64_t writes = GpuNetwork::writes(), flushes = fake.calls("cuFlushGPUDirectRDMAWrites");
    run_ranks(
        nodes, [](Rank& me) { reduce_and_gather(me, kCount, 2); }, on_device);
    EXPECT_GT(GpuNetwork::writes(), writes);
    EXPECT_GT(fake.calls("cuFlushGPUDirectRDMAWrites"), flushes)
        << "what came may not be visible to the device";
  }
  EXPECT_EQ(GpuNetwork::open_registrations(), 0u);
}

TEST_F(GpuDirect, BuffersThatAreUsedAgainAreNotRegisteredAgain) {
  WEFT_NEED_FAKE(fake);
  GpuNetwork::offer(2);
  run_ranks(
      blocks(2, 1),
      [](Rank& me) {
        const DeviceStream stream;
        const DeviceArray<float> send(Values(kCount, 1.f)), recv(2 * kCount);
        uint64_t after_first = 0;
        for (int round = 0; round < 6; ++round) {
          WEFT_OK(weftAllGather(send.data(), recv.data(), kCount, weftFloat, me.comm, stream.weft()));
          stream.synchronize();
          // Both ranks are past their first operations by then: each has waited for the other's second.
          if (round == 2) after_first = GpuNetwork::registrations();
        }
        EXPECT_EQ(GpuNetwork::registrations(), after_first);
        EXPECT_EQ(recv.get(), Values(2 * kCount, 1.f));
      },
      on_device);
}

TEST_F(GpuDirect, BuffersThatComeAndGoAreRegisteredAnewAndGivenUp) {
  WEFT_NEED_FAKE(fake);
  GpuNetwork::offer(2);
  run_ranks(
      blocks(2, 1),
      [](Rank& me) {
        for (int round = 0; round < 12; ++round) reduce_and_gather(me, kCount, 1);
        EXPECT_LT(GpuNetwork::open_registrations(), 24u) << "of memory that was freed long ago";
      },
      on_device);
}

TEST_F(GpuDirect, ARankThatDoesNotOfferItMakesAllStage) {
  WEFT_NEED_FAKE(fake);
  GpuNetwork::offer(2);  // of three
  const uint64_t writes = GpuNetwork::writes();
  run_ranks(
      blocks(3, 1), [](Rank& me) { reduce_and_gather(me, kCount, 1); }, on_device);
  EXPECT_EQ(GpuNetwork::writes(), writes);
}

TEST_F(GpuDirect, MemoryThatCannotBeRegisteredIsStaged) {
  WEFT_NEED_FAKE(fake);
  for (const int more : {0, 1, 3}) {  // beyond the two that are tried when the ranks meet
    GpuNetwork::offer(2, 2 + more);
    run_ranks(
        blocks(2, 1), [](Rank& me) { reduce_and_gather(me, kCount, 2); }, on_device);
  }
}

TEST_F(GpuDirect, ABufferThatIsFreedWhileInUseIsAnErrorThatNamesIt) {
  WEFT_NEED_FAKE(fake);
  if (!(*cuda::Device::open(0))->has_memory_operations()) GTEST_SKIP() << "a call waits for its stream";
  GpuNetwork::offer(2);
  run_ranks(
      blocks(2, 1),
      [](Rank& me) {
        const DeviceStream stream;
        DeviceArray<float> send(Values(kCount, 1.f)), recv(2 * kCount);
        cuda::Device& device = **cuda::Device::open(0);
        auto flags = device.take_flags();
        ASSERT_TRUE(flags.ok());
        {
          const cuda::Scope scope(device);
          CUDA_OK(driver().stream_wait_value(stream.get(), (*flags)->address_of_done(), ++(*flags)->turn,
                                             cuda::kWaitValueGeq));
        }
        const weftResult_t called =
            weftAllGather(send.data(), recv.data(), kCount, weftFloat, me.comm, stream.weft());
        EXPECT_TRUE(called == weftSuccess || called == weftRemoteError);
        if (me.rank == 0) send.free();
        std::atomic_ref((*flags)->done).store((*flags)->turn);
        stream.synchronize();
        weftResult_t health = weftSuccess;
        for (int i = 0; i < 5000 && health == weftSuccess; ++i) {
          WEFT_OK(weftCommGetAsyncError(me.comm, &health));
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        EXPECT_EQ(health, me.rank == 0 ? weftInvalidPointer : weftRemoteError);
        const std::string why = weftGetLastError(me.comm);
        EXPECT_NE(why.find("sendbuff"), std::string::npos) << why;
        EXPECT_NE(why.find("freed"), std::string::npos) << why;
      },
      on_device);
}

// ---- The transport by itself

/// Two transports of this process that know each other; none where libfabric has no fitting provider.
std::vector<std::unique_ptr<OfiTransport>> two_transports() {
  transport::OfiOptions options;
  options.cuda_device = 0;
  std::vector<std::unique_ptr<OfiTransport>> made;
  std::vector<std::vector<std::byte>> addresses;
  for (int rank = 0; rank < 2; ++rank) {
    auto transport = OfiTransport::create(rank, 2, options);
    if (!transport) return {};
    addresses.push_back((*transport)->address());
    made.push_back(transport.take());
  }
  for (auto& transport : made)
    if (!transport->connect(addresses)) return {};
  return made;
}

TEST_F(GpuDirect, BothEndsGiveTheSameAnswer) {
  WEFT_NEED_FAKE(fake);
  for (const int offers : {0, 1, 2}) {
    GpuNetwork::offer(offers);
    const auto both = two_transports();
    ASSERT_EQ(both.size(), 2u);
    EXPECT_EQ(both[0]->gpu_direct_with(0).ok(), offers >= 1);
    EXPECT_EQ(both[1]->gpu_direct_with(1).ok(), offers >= 2);
    EXPECT_EQ(both[0]->gpu_direct_with(1).ok(), offers == 2);
    EXPECT_EQ(both[1]->gpu_direct_with(0).ok(), offers == 2);
    if (offers == 1) {
      EXPECT_NE(both[0]->gpu_direct_with(1).message().find("rank 1 does not offer it"), std::string::npos);
      EXPECT_NE(both[1]->gpu_direct_with(0).message().find("FI_HMEM"), std::string::npos);
    }
  }
}

TEST_F(GpuDirect, AKeyEndsWithItsMemory) {
  WEFT_NEED_FAKE(fake);
  GpuNetwork::offer(2);
  const auto both = two_transports();
  ASSERT_EQ(both.size(), 2u);
  const cuda::Scope scope(**cuda::Device::open(0));
  OfiTransport& transport = *both[0];
  auto buffer = std::make_unique<DeviceArray<char>>(1 << 20);
  const void* const address = buffer->data();
  auto first = transport.expose_gpu(buffer->data(), 1 << 20);
  ASSERT_TRUE(first.ok()) << first.status().message();
  transport.unexpose(*first);
  auto again = transport.expose_gpu(buffer->data() + 100, 1000);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(first_key(*again), first_key(*first)) << "the kept registration covers it";
  transport.unexpose(*again);
  EXPECT_EQ(transport.rails().gpu_registrations().hits, 1u);
  buffer->free();
  const auto of_nothing = transport.expose_gpu(const_cast<void*>(address), 1000);
  EXPECT_EQ(of_nothing.status().code(), Code::invalid_pointer);
  EXPECT_NE(of_nothing.status().message().find("was freed"), std::string::npos)
      << of_nothing.status().message();
  buffer = std::make_unique<DeviceArray<char>>(1 << 20);  // where the old one was, or elsewhere
  auto fresh = transport.expose_gpu(buffer->data(), 1 << 20);
  ASSERT_TRUE(fresh.ok());
  EXPECT_NE(first_key(*fresh), first_key(*first));
  EXPECT_EQ(transport.rails().gpu_registrations().stale, 1u);
  transport.unexpose(*fresh);
  const uint64_t open = GpuNetwork::open_registrations();
  transport.drop_unexposed_gpu();
  EXPECT_EQ(GpuNetwork::open_registrations(), open - 1);
}

// By the file that the caller has, exactly and for itself alone; where libfabric takes none, with a reason.
TEST_F(GpuDirect, MemoryIsExposedByItsDmaBuf) {
  WEFT_NEED_FAKE(fake);
  GpuNetwork::offer(2);
  const auto both = two_transports();
  ASSERT_EQ(both.size(), 2u);
  OfiTransport& transport = *both[0];
  const cuda::Scope scope(**cuda::Device::open(0));
  const DeviceArray<char> buffer(1 << 20);
  const auto made = cuda::make_dma_buf(buffer.data(), 1 << 20);
  ASSERT_TRUE(made.ok());
  const int file = made->file.get();
  const uint64_t before = GpuNetwork::registrations();
  const auto exposed = transport.expose_dma_buf(buffer.data() + 4096, 8192, file, made->offset + 4096);
  if (!transport.takes_dma_bufs()) {
    EXPECT_EQ(exposed.status().code(), Code::unsupported);
    EXPECT_NE(exposed.status().message().find("older than 1.20, which takes dma-bufs"), std::string::npos)
        << exposed.status().message();
    EXPECT_EQ(GpuNetwork::registrations(), before);
    return;
  }
  ASSERT_TRUE(exposed.ok()) << exposed.status().message();
  EXPECT_EQ(GpuNetwork::registrations(), before + 1);
  EXPECT_EQ(exposed->bytes, 8192u);
  const auto inside = transport.expose_gpu(buffer.data() + 5000, 100);
  ASSERT_TRUE(inside.ok());
  EXPECT_EQ(first_key(*inside), first_key(*exposed)) << "the registration covers it";
  transport.unexpose(*inside);
  transport.unexpose(*exposed);
  char on_host[8];
  EXPECT_FALSE(transport.expose_dma_buf(on_host, sizeof on_host, file, 0).ok());
}

/// Takes puts into memory that was exposed.
struct CountingSink final : transport::Sink {
  int came = 0;
  void* place(int, const transport::Envelope&) override { return nullptr; }
  void arrived(int, const transport::Envelope&, const void*) override { ++came; }
  void lost(int, const Status& why) override { ADD_FAILURE() << why.message(); }
};

/// Puts 0, 1, 2, … from GPU memory into `target`, and waits until it is over on both sides.
void put_numbers(OfiTransport& from, OfiTransport& to, const transport::RemoteBuffer& target) {
  std::vector<char> numbers(target.bytes);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<char>(i % 251);
  const DeviceArray<char> source(numbers);
  transport::Envelope envelope;
  envelope.bytes = static_cast<uint32_t>(numbers.size());
  transport::Completion done;
  CountingSink near, far;
  bool accepted = false;
  for (int turn = 0; turn < 1'000'000 && (far.came == 0 || !done.done); ++turn) {
    if (!accepted) {  // until the two are connected
      const auto put = from.put_gpu(1, envelope, source.data(), numbers.size(), target, 0, &done);
      ASSERT_TRUE(put.ok()) << put.status().message();
      accepted = *put == transport::Progress::accepted;
    }
    ASSERT_TRUE(from.poll(near).ok());
    ASSERT_TRUE(to.poll(far).ok());
  }
  EXPECT_EQ(far.came, 1);
  from.drop_unexposed_gpu();  // before the source goes
}

bool are_numbers(const std::vector<char>& values, size_t from, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i)
    if (values[from + i] != static_cast<char>(i % 251)) return false;
  return true;
}

TEST_F(GpuDirect, APutReachesMemoryThatIsExposedByItsDmaBuf) {
  WEFT_NEED_FAKE(fake);
  GpuNetwork::offer(2);
  const auto both = two_transports();
  ASSERT_EQ(both.size(), 2u);
  if (const Status takes = both[1]->takes_dma_bufs(); !takes.ok()) GTEST_SKIP() << takes.message();
  const cuda::Scope scope(**cuda::Device::open(0));
  constexpr size_t kAt = 4096, kBytes = 300'000;
  const DeviceArray<char> buffer(std::vector<char>(1 << 20, 'e'));
  const auto made = cuda::make_dma_buf(buffer.data(), 1 << 20);
  ASSERT_TRUE(made.ok());
  const auto exposed =
      both[1]->expose_dma_buf(buffer.data() + kAt, kBytes, made->file.get(), made->offset + kAt);
  ASSERT_TRUE(exposed.ok()) << exposed.status().message();
  put_numbers(*both[0], *both[1], *exposed);
  const std::vector<char> now = buffer.get();
  EXPECT_TRUE(are_numbers(now, kAt, kBytes));
  EXPECT_EQ(now[kAt - 1], 'e');
  EXPECT_EQ(now[kAt + kBytes], 'e');
  both[1]->unexpose(*exposed);
  both[1]->drop_unexposed_gpu();
}

// As by providers that cannot ask the driver for the pages: Weft asks it for a dma-buf.
TEST_F(GpuDirect, MemoryIsRegisteredByADmaBufWhereTheProviderTakesNothingElse) {
  WEFT_NEED_FAKE(fake);
  GpuNetwork::offer(2);
  GpuNetwork::take_files_only(true);
  const uint64_t files = fake.calls("cuMemGetHandleForAddressRange");
  const auto both = two_transports();
  ASSERT_EQ(both.size(), 2u);
  if (const Status takes = both[1]->takes_dma_bufs(); !takes.ok()) GTEST_SKIP() << takes.message();
  EXPECT_EQ(fake.calls("cuMemGetHandleForAddressRange"), files + 2) << "a block is tried when one is opened";
  const cuda::Scope scope(**cuda::Device::open(0));
  constexpr size_t kBytes = 1 << 20;
  const DeviceArray<char> buffer(std::vector<char>(kBytes, 'e'));
  const auto exposed = both[1]->expose_gpu(buffer.data(), kBytes);
  ASSERT_TRUE(exposed.ok()) << exposed.status().message();
  put_numbers(*both[0], *both[1], *exposed);
  EXPECT_TRUE(are_numbers(buffer.get(), 0, kBytes));
  both[1]->unexpose(*exposed);
  both[1]->drop_unexposed_gpu();
}

// ---- WEFT_GPU_DIRECT=on, each in a process of its own

[[noreturn]] void create_with(const std::vector<std::pair<const char*, const char*>>& environment) {
  for (const auto& [name, value] : environment) setenv(name, value, 1);
  if (std::getenv("FAKE_GPU_NETWORK")) GpuNetwork::offer(2);
  weftUniqueId id;
  if (weftGetUniqueId(&id) != weftSuccess) std::_Exit(99);
  weftResult_t results[2];
  std::string reason;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      weftConfig_t config = WEFT_CONFIG_INITIALIZER;
      config.hostId = rank == 0 ? "one" : "another";
      config.device = 0;
      weftComm_t comm;
      results[rank] = weftCommInitRankConfig(&comm, 2, id, rank, &config);
      if (rank == 0) reason = weftGetLastError(nullptr);
      if (results[rank] == weftSuccess) (void)weftCommDestroy(comm);
    });
  for (auto& thread : threads) thread.join();
  std::fprintf(stderr, "%s", reason.c_str());
  std::_Exit(results[0] == results[1] ? results[0] : 98);
}

class GpuDirectDeathTest : public ::testing::Test {
 protected:
  // Nothing here may read the settings: the child's environment comes first.
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(GpuDirectDeathTest, OnIsCreatedWhereItIsOffered) {
  EXPECT_EXIT(create_with({{"WEFT_GPU_DIRECT", "on"}, {"WEFT_NET", "ofi"}, {"FAKE_GPU_NETWORK", "1"}}),
              ::testing::ExitedWithCode(weftSuccess), "");
}
TEST_F(GpuDirectDeathTest, OnIsRefusedOverSockets) {
  EXPECT_EXIT(create_with({{"WEFT_GPU_DIRECT", "on"}, {"WEFT_NET", "tcp"}}),
              ::testing::ExitedWithCode(weftUnsupported),
              "WEFT_GPU_DIRECT is on, but .* cannot have GPUDirect: .*moves host memory only");
}
TEST_F(GpuDirectDeathTest, OnIsRefusedWithoutAnOffer) {
  EXPECT_EXIT(create_with({{"WEFT_GPU_DIRECT", "on"}, {"WEFT_NET", "ofi"}}),
              ::testing::ExitedWithCode(weftUnsupported), "offers no remote writes of GPU memory .FI_HMEM.");
}
TEST_F(GpuDirectDeathTest, OnIsRefusedWhereADeviceDoesNotOrderWhatTheNetworkWrites) {
  EXPECT_EXIT(create_with({{"WEFT_GPU_DIRECT", "on"},
                           {"WEFT_NET", "ofi"},
                           {"FAKE_GPU_NETWORK", "1"},
                           {"FAKE_CUDA_FLUSH", "0"}}),
              ::testing::ExitedWithCode(weftUnsupported), "does not order a network interface's writes");
}

}  // namespace
}  // namespace weft::testing::gpu_direct_test
