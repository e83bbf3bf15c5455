// Programs of NCCL on machines with GPUs whose communicators are Weft's: buffers in device memory, CUDA
// streams. The driver is the fake one of tests/cuda, whose device memory faults when a CPU touches it and
// whose streams are late, so that a missing copy or wait shows; or a real one (CUDA_UNDER_TEST).
#include "cuda/graphs.h"
#include "shim_host.h"

namespace weft::nccl_shim_test::on_gpus_test {
namespace {

using testing::DeviceArray;
using testing::DeviceStream;
using testing::cuda::Device;
using testing::cuda::Scope;
using Floats = std::vector<float>;
using OnDevice = DeviceArray<float>;

const Environment kWeftOnGpus = {{"WEFT_BACKEND", "weft"}, {"WEFT_CUDA_LIBRARY", cuda_under_test()}};

/// Two are needed for what tells devices apart; the fake driver has them.
#define NEED_TWO_DEVICES() \
  if (*Device::count() < 2) GTEST_SKIP() << "this machine has one CUDA device"

/// The calls are queued on one stream, and looked at when all have been made.
void every_collective(const Shim& shim, int rank, int n, Comm_t comm) {
  const float mine = static_cast<float>(rank + 1), total = static_cast<float>(n * (n + 1) / 2);
  const auto size = static_cast<size_t>(n);
  const DeviceStream stream;
  const auto s = stream.get();
  const OnDevice in(Floats(2, mine)), wide_in(Floats(2 * size, mine)), bcast(Floats(2, mine));
  const OnDevice sum(2), average(2), reduced(2), scattered(2), sent(2), root_scattered(2), received(2);
  const OnDevice gathered(2 * size), exchanged(2 * size), root_gathered(2 * size);
  NCCL_OK(shim->AllReduce(in.data(), sum.data(), 2, kFloat, kSum, comm, s));
  NCCL_OK(shim->AllReduce(sum.data(), average.data(), 2, kFloat, kAvg, comm, s));
  NCCL_OK(shim->Reduce(in.data(), reduced.data(), 2, kFloat, kMax, 1, comm, s));
  NCCL_OK(shim->ReduceScatter(wide_in.data(), scattered.data(), 2, kFloat, kSum, comm, s));
  NCCL_OK(shim->Broadcast(in.data(), sent.data(), 2, kFloat, 1, comm, s));
  NCCL_OK(shim->Bcast(bcast.data(), 2, kFloat, 2, comm, s));
  NCCL_OK(shim->AllGather(in.data(), gathered.data(), 2, kFloat, comm, s));
  NCCL_OK(shim->AlltoAll(wide_in.data(), exchanged.data(), 2, kFloat, comm, s));
  NCCL_OK(shim->Gather(in.data(), root_gathered.data(), 2, kFloat, 0, comm, s));
  NCCL_OK(shim->Scatter(gathered.data(), root_scattered.data(), 2, kFloat, 1, comm, s));
  const int next = (rank + 1) % n, previous = (rank + n - 1) % n;
  NCCL_OK(shim->GroupStart());
  NCCL_OK(shim->Send(sum.data(), 1, kFloat, next, comm, s));
  NCCL_OK(shim->Send(in.data() + 1, 1, kFloat, next, comm, s));
  NCCL_OK(shim->Recv(received.data(), 1, kFloat, previous, comm, s));
  NCCL_OK(shim->Recv(received.data() + 1, 1, kFloat, previous, comm, s));
  NCCL_OK(shim->GroupEnd());
  stream.synchronize();

  Floats of_ranks;
  for (int r = 0; r < n; ++r) of_ranks.insert(of_ranks.end(), 2, static_cast<float>(r + 1));
  EXPECT_EQ(sum.get(), Floats(2, total));
  EXPECT_EQ(average.get(), Floats(2, total));
  EXPECT_EQ(scattered.get(), Floats(2, total));
  EXPECT_EQ(sent.get(), Floats(2, 2.f));
  EXPECT_EQ(bcast.get(), Floats(2, 3.f));
  EXPECT_EQ(gathered.get(), of_ranks);
  EXPECT_EQ(exchanged.get(), of_ranks);
  EXPECT_EQ(root_scattered.get(), Floats(2, mine));
  EXPECT_EQ(received.get(), (Floats{total, static_cast<float>(previous + 1)}));
  if (rank == 0) {
    EXPECT_EQ(root_gathered.get(), of_ranks);
  }
  if (rank == 1) {
    EXPECT_EQ(reduced.get(), Floats(2, static_cast<float>(n)));
  }
}

TEST(OnGpus, EveryCollectiveOnAStreamWithChildren) {
  in_process(kWeftOnGpus, [] {
    const Shim shim;
    on_threads(shim, 3, [&](int rank, Comm_t comm) {
      every_collective(shim, rank, 3, comm);
      const DeviceStream stream;
      const OnDevice in(Floats{1}), out(1);
      Comm_t pair = nullptr, smaller = nullptr;
      NCCL_OK(shim->CommSplit(comm, rank == 1 ? nccl::kNoColor : 0, -rank, &pair, nullptr));
      EXPECT_EQ(pair == nullptr, rank == 1);
      if (pair) {
        int place = -1;
        NCCL_OK(shim->CommUserRank(pair, &place));
        EXPECT_EQ(place, rank == 2 ? 0 : 1);
        NCCL_OK(shim->AllReduce(in.data(), out.data(), 1, kFloat, kSum, pair, stream.get()));
        stream.synchronize();
        EXPECT_EQ(out.get(), Floats{2});
        NCCL_OK(shim->CommDestroy(pair));
      }
      if (rank == 2) return;
      int excluded = 2;
      NCCL_OK(shim->CommShrink(comm, &excluded, 1, &smaller, nullptr, 0));
      NCCL_OK(shim->AllReduce(out.data(), out.data(), 1, kFloat, kSum, smaller, stream.get()));
      NCCL_OK(shim->CommDestroy(smaller));
    });
  });
}

TEST(OnGpus, EveryCollectiveOnProcesses) {
  SharedId* shared = SharedId::make();
  in_processes(3, kWeftOnGpus, [&](int rank) {
    const Shim shim;
    if (rank == 0) {
      ASSERT_EQ(shim->GetUniqueId(&shared->id), nccl::kSuccess) << shim.last_error();
      shared->ready.store(true);
    }
    Comm_t comm = nullptr;
    ASSERT_EQ(shim->CommInitRank(&comm, 3, shared->wait(), rank), nccl::kSuccess) << shim.last_error();
    every_collective(shim, rank, 3, comm);
    NCCL_OK(shim->CommFinalize(comm));
    NCCL_OK(shim->CommDestroy(comm));
  });
}

TEST(OnGpus, OneThreadWithADeviceForEachRank) {
  in_process(kWeftOnGpus, [] {
    NEED_TWO_DEVICES();
    const Shim shim;
    const int devices[] = {1, 0};
    Comm_t comms[2];
    NCCL_OK(shim->CommInitAll(comms, 2, devices));
    const DeviceStream streams[] = {DeviceStream(1), DeviceStream(0)};
    const OnDevice in[] = {OnDevice(Floats(5, 1.f), 1), OnDevice(Floats(5, 2.f), 0)};
    const OnDevice out[] = {OnDevice(5, 1), OnDevice(5, 0)};
    NCCL_OK(shim->GroupStart());
    for (int i = 0; i < 2; ++i)
      NCCL_OK(shim->AllReduce(in[i].data(), out[i].data(), 5, kFloat, kSum, comms[i], streams[i].get()));
    NCCL_OK(shim->GroupEnd());
    for (int i = 0; i < 2; ++i) {
      streams[i].synchronize();
      EXPECT_EQ(out[i].get(), Floats(5, 3.f));
      int device = -1;
      NCCL_OK(shim->CommCuDevice(comms[i], &device));
      EXPECT_EQ(device, devices[i]);
      NCCL_OK(shim->CommDestroy(comms[i]));
    }
    const int unknown[] = {0, 7};
    EXPECT_EQ(shim->CommInitAll(comms, 2, unknown), nccl::kInvalidArgument);
    EXPECT_NE(shim.last_error().find("there is no CUDA device 7"), std::string::npos) << shim.last_error();
  });
}

TEST(OnGpus, TheDeviceIsThatOfTheThread) {
  in_process(kWeftOnGpus, [] {
    NEED_TWO_DEVICES();
    const Shim shim;
    on_threads(shim, 1, [&](int, Comm_t first) {
      int device = -1;
      NCCL_OK(shim->CommCuDevice(first, &device));
      EXPECT_EQ(device, 0);
      const Scope scope(**Device::open(1));
      UniqueId id;
      Comm_t second = nullptr;
      NCCL_OK(shim->GetUniqueId(&id));
      NCCL_OK(shim->CommInitRank(&second, 1, id, 0));
      NCCL_OK(shim->CommCuDevice(second, &device));
      EXPECT_EQ(device, 1);
      const OnDevice values(Floats(3, 4.f), 1);
      NCCL_OK(shim->AllReduce(values.data(), values.data(), 3, kFloat, kSum, second, nullptr));
      EXPECT_EQ(values.get(), Floats(3, 4.f));
      NCCL_OK(shim->CommDestroy(second));
    });
  });
}

TEST(OnGpus, OperatorsMemoryRegistrationAndWindows) {
  in_process(kWeftOnGpus, [] {
    const Shim shim;
    on_threads(shim, 2, [&](int rank, Comm_t comm) {
      const DeviceStream stream;
      const auto s = stream.get();
      const Scope scope(**Device::open(0));  // MemAlloc's device
      const OnDevice ten(Floats{10}), scalar(Floats{rank == 0 ? 2.f : 3.f}), out(1);
      void* memory = nullptr;
      void* registration = nullptr;
      NCCL_OK(shim->MemAlloc(&memory, 4096));  // memory of the device, as NCCL's is
      NCCL_OK(shim->CommRegister(comm, memory, 4096, &registration));
      nccl::Window_t window = nullptr;
      NCCL_OK(shim->CommWindowRegister(comm, memory, 4096, &window, nccl::kWindowSymmetric));
      EXPECT_NE(window, nullptr);
      NCCL_OK(shim->AllReduceConfig(ten.data(), memory, 1, kFloat, kSum, comm, s, nullptr));
      int op = -1;
      NCCL_OK(shim->RedOpCreatePreMulSum(&op, scalar.data(), kFloat, 0, comm));
      NCCL_OK(shim->AllReduce(memory, out.data(), 1, kFloat, op, comm, s));
      stream.synchronize();
      EXPECT_EQ(out.get(), Floats{100});  // 20 x 2 + 20 x 3
      NCCL_OK(shim->RedOpDestroy(op, comm));
      NCCL_OK(shim->CommDeregister(comm, registration));
      NCCL_OK(shim->CommWindowDeregister(comm, window));
      NCCL_OK(shim->MemFree(memory));
      EXPECT_EQ(shim->MemFree(memory), nccl::kInvalidArgument);
    });
  });
}

/// What is not right on GPUs: a code and a sentence each.
TEST(OnGpus, WrongMemoryAndStreamsAreNamed) {
  in_process(kWeftOnGpus, [] {
    NEED_TWO_DEVICES();
    const Shim shim;
    const auto refused = [&](Result_t result, const std::string& part) {
      EXPECT_NE(result, nccl::kSuccess) << part;
      EXPECT_NE(shim.last_error().find(part), std::string::npos) << shim.last_error() << " lacks " << part;
    };
    on_threads(shim, 1, [&](int, Comm_t comm) {
      const DeviceStream stream, of_other(1);
      const OnDevice good(4), other(4, 1);
      float host = 1;
      refused(shim->AllReduce(&host, &host, 1, kFloat, kSum, comm, stream.get()),
              "which CUDA does not know (host memory, or freed)");
      refused(shim->AllReduce(other.data(), good.data(), 4, kFloat, kSum, comm, stream.get()),
              "sendbuff is memory of CUDA device 1, but this communicator is of CUDA device 0");
      refused(shim->AllReduce(good.data(), good.data(), 4, kFloat, kSum, comm, of_other.get()),
              "stream belongs to another device or context than this communicator");
      NCCL_OK(shim->AllReduce(good.data(), good.data(), 4, kFloat, kSum, comm, stream.get()));
      stream.synchronize();
    });
  });
}

TEST(OnGpus, AGraphHoldsCallsAndReplaysThem) {
  in_process(kWeftOnGpus, [] {
    const Shim shim;
    on_threads(shim, 2, [&](int rank, Comm_t comm) {
      const DeviceStream stream;
      OnDevice values(Floats(3, static_cast<float>(rank + 1)));
      testing::Graph graph(stream);
      NCCL_OK(shim->AllReduce(values.data(), values.data(), 3, kFloat, kSum, comm, stream.get()));
      ASSERT_EQ(graph.end(), 0);
      graph.launch();
      graph.launch();
      stream.synchronize();
      EXPECT_EQ(values.get(), Floats(3, 6.f));
    });
  });
}

}  // namespace
}  // namespace weft::nccl_shim_test::on_gpus_test
