// WEFT_BACKEND: programs of Weft whose operations NCCL does, all of them or those on device memory. NCCL and
// the CUDA driver are fakes; the communicators are real.
#include "backend_host.h"

namespace weft::nccl_shim_test {
namespace {

/// What goes out of place, with roots, types and counts that are all different; three ranks.
void rooted_calls(int rank, weftComm_t comm) {
  using Doubles = std::vector<double>;
  const double own = 10 * rank, from = 2 * rank;
  const Doubles mine = {own, own + 1}, to_each = {own, own + 1, own + 2, own + 3, own + 4, own + 5};
  Doubles pair(2), all(6);
  WEFT_GOOD(weftBroadcast(mine.data(), pair.data(), 2, weftDouble, 1, comm, nullptr));
  EXPECT_EQ(pair, (Doubles{10, 11}));
  WEFT_GOOD(weftAlltoAll(to_each.data(), all.data(), 2, weftDouble, comm, nullptr));
  EXPECT_EQ(all, (Doubles{from, from + 1, from + 10, from + 11, from + 20, from + 21}));
  WEFT_GOOD(weftGather(mine.data(), rank == 1 ? all.data() : nullptr, 2, weftDouble, 1, comm, nullptr));
  if (rank == 1) {
    EXPECT_EQ(all, (Doubles{0, 1, 10, 11, 20, 21}));
  }
  WEFT_GOOD(weftScatter(rank == 2 ? to_each.data() : nullptr, pair.data(), 2, weftDouble, 2, comm, nullptr));
  EXPECT_EQ(pair, (Doubles{20 + from, 21 + from}));
  // Weft's own can be in place, NCCL's not, whatever its version.
  Doubles both = to_each;
  EXPECT_REFUSED(weftAlltoAll(both.data(), both.data(), 2, weftDouble, comm, nullptr), weftUnsupported,
                 "sendbuff is recvbuff, but this call is for NCCL");
  EXPECT_EQ(both, to_each);
  WEFT_GOOD(weftAlltoAll(nullptr, nullptr, 0, weftDouble, comm, nullptr));
}

/// NCCL before 2.28.3 has no AlltoAll, Gather and Scatter.
TEST(Backend, AnOlderNcclIsGivenTransfersForWhatItLacks) {
  in_process({{"WEFT_BACKEND", "nccl"}, {"WEFT_NCCL_LIBRARY", WEFT_FAKE_NCCL_OLD}}, [] {
    on_ranks(3, [](int rank, weftComm_t& comm) { rooted_calls(rank, comm); });
    EXPECT_EQ(calls_of_fake("Send", WEFT_FAKE_NCCL_OLD), 9 + 3 + 3);
  });
}

TEST(Backend, NcclDoesEverythingWhereItIsSet) {
  in_process(kNccl, [] {
    on_ranks(3, [](int rank, weftComm_t& comm) {
      Floats in(2, static_cast<float>(rank + 1)), out(2), all(6);
      WEFT_GOOD(weftAllReduce(in.data(), out.data(), 2, weftFloat, weftSum, comm, nullptr));
      EXPECT_EQ(out, Floats(2, 6.f));
      WEFT_GOOD(weftAllGather(in.data(), all.data(), 2, weftFloat, comm, nullptr));
      EXPECT_EQ(all, (Floats{1, 1, 2, 2, 3, 3}));
      WEFT_GOOD(weftReduceScatter(all.data(), out.data(), 2, weftFloat, weftSum, comm, nullptr));
      EXPECT_EQ(out[0], 3.f * static_cast<float>(rank + 1));
      WEFT_GOOD(weftReduce(in.data(), out.data(), 2, weftFloat, weftAvg, 0, comm, nullptr));
      if (rank == 0) {
        EXPECT_EQ(out, Floats(2, 2.f));
      }
      WEFT_GOOD(weftBcast(in.data(), 2, weftFloat, 2, comm, nullptr));
      EXPECT_EQ(in, Floats(2, 3.f));
      rooted_calls(rank, comm);
      const int next = (rank + 1) % 3, previous = (rank + 2) % 3;
      in.assign(2, static_cast<float>(rank));
      WEFT_GOOD(weftGroupStart());
      WEFT_GOOD(weftSend(in.data(), 2, weftFloat, next, comm, nullptr));
      WEFT_GOOD(weftRecv(out.data(), 2, weftFloat, previous, comm, nullptr));
      WEFT_GOOD(weftGroupEnd());
      EXPECT_EQ(out, Floats(2, static_cast<float>(previous)));
      float scalar = 2;
      weftRedOp_t op;
      WEFT_GOOD(weftRedOpCreatePreMulSum(&op, &scalar, weftFloat, weftScalarHostImmediate, comm));
      in.assign(2, 1.f);
      WEFT_GOOD(weftAllReduce(in.data(), out.data(), 2, weftFloat, op, comm, nullptr));
      EXPECT_EQ(out, Floats(2, 6.f));
      WEFT_GOOD(weftRedOpDestroy(op, comm));
      uint64_t operations = 0;
      EXPECT_EQ(last_algorithm(comm, &operations), "nccl");
      EXPECT_GE(operations, 8u);

      weftComm_t pair = nullptr;  // a child is NCCL's, too
      WEFT_GOOD(weftCommSplit(comm, rank == 1 ? WEFT_SPLIT_NOCOLOR : 0, rank, &pair, nullptr));
      if (rank != 1) {
        WEFT_GOOD(weftAllReduce(in.data(), out.data(), 2, weftFloat, weftSum, pair, nullptr));
        EXPECT_EQ(last_algorithm(pair), "nccl");
        WEFT_GOOD(weftCommDestroy(pair));
      }
      weftComm_t plain = nullptr;  // unless its configuration says otherwise
      weftConfig_t config = WEFT_CONFIG_INITIALIZER;
      config.backend = WEFT_BACKEND_WEFT;
      WEFT_GOOD(weftCommSplit(comm, 0, rank, &plain, &config));
      WEFT_GOOD(weftAllReduce(in.data(), out.data(), 2, weftFloat, weftSum, plain, nullptr));
      EXPECT_EQ(out, Floats(2, 3.f));
      EXPECT_NE(last_algorithm(plain), "nccl");
      WEFT_GOOD(weftCommDestroy(plain));

      void* memory = nullptr;
      void* registration = nullptr;
      WEFT_GOOD(weftMemAlloc(&memory, 64));
      WEFT_GOOD(weftCommRegister(comm, memory, 64, &registration));
      WEFT_GOOD(weftCommDeregister(comm, registration));
      WEFT_GOOD(weftMemFree(memory));
      WEFT_GOOD(weftCommFinalize(comm));
    });
    for (const char* name : {"AlltoAll", "Gather", "Scatter"}) EXPECT_GE(calls_of_fake(name), 3) << name;
    EXPECT_EQ(calls_of_fake("MemAlloc"), 3);
    EXPECT_EQ(calls_of_fake("CommRegister"), 3);
    EXPECT_EQ(calls_of_fake("RedOpDestroy"), 3);
    EXPECT_EQ(calls_of_fake("CommDestroy"), 3 + 2);
  });
}

TEST(Backend, OneThreadWithAllRanks) {
  in_process(kNccl, [] {
    weftComm_t comms[2];
    WEFT_GOOD(weftCommInitAll(comms, 2, nullptr));
    Floats in(4, 1.f), out[2] = {Floats(4), Floats(4)};
    WEFT_GOOD(weftGroupStart());
    for (int rank = 0; rank < 2; ++rank)
      WEFT_GOOD(weftAllReduce(in.data(), out[rank].data(), 4, weftFloat, weftSum, comms[rank], nullptr));
    WEFT_GOOD(weftGroupEnd());
    EXPECT_EQ(out[0], Floats(4, 2.f));
    EXPECT_EQ(out[1], Floats(4, 2.f));
    for (weftComm_t comm : comms) WEFT_GOOD(weftCommDestroy(comm));
  });
}

TEST(Backend, AutoGivesDeviceMemoryToNcclAndKeepsTheRest) {
  in_process(kGpuAndNccl, [] {
    on_ranks(2, [](int rank, weftComm_t& comm) {
      Floats host(4, 1.f), sum(4);
      WEFT_GOOD(weftAllReduce(host.data(), sum.data(), 4, weftFloat, weftSum, comm, nullptr));
      EXPECT_EQ(sum, Floats(4, 2.f));
      EXPECT_NE(last_algorithm(comm), "nccl");
      const DeviceArray<float> in(Floats(4, static_cast<float>(rank + 1))), out(4);
      // Only a collective can make NCCL's communicator.
      EXPECT_REFUSED(weftSend(in.data(), 4, weftFloat, 1 - rank, comm, nullptr), weftInvalidUsage,
                     "call one first");
      WEFT_GOOD(weftAllReduce(in.data(), out.data(), 4, weftFloat, weftSum, comm, nullptr));
      EXPECT_EQ(out.get(), Floats(4, 3.f));
      EXPECT_EQ(last_algorithm(comm), "nccl");
      WEFT_GOOD(weftGroupStart());
      WEFT_GOOD(weftSend(in.data(), 4, weftFloat, 1 - rank, comm, nullptr));
      WEFT_GOOD(weftRecv(out.data(), 4, weftFloat, 1 - rank, comm, nullptr));
      WEFT_GOOD(
          weftAllReduce(host.data(), sum.data(), 4, weftFloat, weftSum, comm, nullptr));  // both in one group
      WEFT_GOOD(weftGroupEnd());
      EXPECT_EQ(out.get(), Floats(4, static_cast<float>(2 - rank)));
      EXPECT_EQ(sum, Floats(4, 2.f));
      void* registration = nullptr;
      WEFT_GOOD(weftCommRegister(comm, in.data(), 16, &registration));
      WEFT_GOOD(weftCommDeregister(comm, registration));
      float scalar = 1;
      weftRedOp_t op;
      EXPECT_REFUSED(weftRedOpCreatePreMulSum(&op, in.data(), weftFloat, weftScalarDevice, comm),
                     weftUnsupported, "scalar is device memory, but this communicator is of host memory");
      WEFT_GOOD(weftRedOpCreatePreMulSum(&op, &scalar, weftFloat, weftScalarDevice, comm));
    });
    EXPECT_EQ(calls_of_fake("CommInitRank"), 2);
    EXPECT_EQ(calls_of_fake("AllReduce"), 2);
  });
}

TEST(Backend, ACommunicatorOfGpuMemoryNeedsNoNccl) {
  in_process(kGpuAndNccl, [] {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.device = 0;
    on_ranks(
        2,
        [](int rank, weftComm_t& comm) {
          const DeviceStream stream;
          const DeviceArray<float> in(Floats(4, static_cast<float>(rank + 1))), out(4), scalar(Floats{2});
          WEFT_GOOD(weftAllReduce(in.data(), out.data(), 4, weftFloat, weftSum, comm, stream.weft()));
          stream.synchronize();
          EXPECT_EQ(out.get(), Floats(4, 3.f));
          EXPECT_NE(last_algorithm(comm), "nccl");
          weftRedOp_t op;
          WEFT_GOOD(weftRedOpCreatePreMulSum(&op, scalar.data(), weftFloat, weftScalarDevice, comm));
          WEFT_GOOD(weftAllReduce(in.data(), out.data(), 4, weftFloat, op, comm, stream.weft()));
          stream.synchronize();
          EXPECT_EQ(out.get(), Floats(4, 6.f));
          void* registration = nullptr;
          WEFT_GOOD(weftCommRegister(comm, in.data(), 16, &registration));
          WEFT_GOOD(weftCommDeregister(comm, registration));
        },
        &config);
    EXPECT_EQ(calls_of_fake("CommInitRank"), 0);
  });
}

TEST(Backend, NcclTakesItsDeviceFromTheThread) {
  Environment set = kGpuAndNccl;
  set.push_back({"WEFT_BACKEND", "nccl"});
  in_process(set, [] {
    on_ranks(2, [](int rank, weftComm_t& comm) {
      const DeviceStream stream;
      const DeviceArray<float> in(Floats(4, static_cast<float>(rank + 1))), out(4);
      WEFT_GOOD(weftAllReduce(in.data(), out.data(), 4, weftFloat, weftSum, comm, stream.weft()));
      stream.synchronize();
      EXPECT_EQ(out.get(), Floats(4, 3.f));
      EXPECT_EQ(last_algorithm(comm), "nccl");
      weftConfig_t config = WEFT_CONFIG_INITIALIZER;
      config.device = 1;
      weftComm_t child = nullptr;
      EXPECT_REFUSED(weftCommSplit(comm, 0, rank, &child, &config), weftInvalidArgument,
                     "config.device is 1, but the backend is nccl");
    });
  });
}

/// What an AllReduce in place on device memory answers, on a communicator of host memory.
void expect_refused(const Environment& environment, const std::string& sentence, bool strict = false) {
  in_process(environment, [&] {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.strict = strict;
    on_ranks(
        1,
        [&](int, weftComm_t& comm) {
          const DeviceArray<float> device(4);
          EXPECT_REFUSED(weftAllReduce(device.data(), device.data(), 4, weftFloat, weftSum, comm, nullptr),
                         weftUnsupported, sentence);
        },
        &config);
    EXPECT_EQ(calls_of_fake("CommInitRank"), 0);
  });
}

TEST(Backend, DeviceMemoryThatNobodyTakesIsRefused) {
  expect_refused(kGpuAlone,
                 "a buffer is device memory, but this communicator is of host memory: create it with "
                 "config.device; NCCL cannot take it either, since rank 0 cannot use it: "
                 "WEFT_NCCL_LIBRARY: /nowhere");
  const std::string begin = "sendbuff is device memory, but this communicator is of host memory";
  expect_refused(kGpuAndNccl, begin + ", and NCCL does not add in strict order: create it with config.device",
                 true);
  Environment alone = kGpuAndNccl;
  alone.push_back({"WEFT_BACKEND", "weft"});
  expect_refused(alone, begin + " and set to weft: create it with config.device, or with auto");
  in_process(kGpuAlone, [] {
    on_ranks(1, [](int, weftComm_t& comm) {
      const DeviceArray<float> device(4);
      void* registration = nullptr;
      EXPECT_REFUSED(weftCommRegister(comm, device.data(), 16, &registration), weftInvalidUsage,
                     "buff is device memory");
      float value = 1;
      EXPECT_REFUSED(weftAllReduce(&value, device.data(), 1, weftFloat, weftSum, comm, nullptr),
                     weftUnsupported, "rank 0 cannot use it");
      WEFT_GOOD(weftAllReduce(&value, &value, 1, weftFloat, weftSum, comm, nullptr));
    });
  });
}

TEST(Backend, HostMemoryInitializesNoCuda) {
  in_process(kGpuAndNccl, [] {
    on_ranks(1, [](int, weftComm_t& comm) {
      float value = 1;
      WEFT_GOOD(weftAllReduce(&value, &value, 1, weftFloat, weftSum, comm, nullptr));
      EXPECT_NE(last_algorithm(comm), "nccl");
    });
    const testing::FakeControls fake;
    ASSERT_TRUE(fake.valid());
    EXPECT_EQ(fake.calls("cuInit"), 0u);
  });
}

TEST(Backend, RanksOfDifferentMemoryAreToldSo) {
  in_process(kGpuAndNccl, [] {
    on_ranks(2, [](int rank, weftComm_t& comm) {
      float host = 1;
      const DeviceArray<float> device(1);
      float* buffer = rank == 0 ? &host : device.data();
      const weftResult_t result = weftAllReduce(buffer, buffer, 1, weftFloat, weftSum, comm, nullptr);
      EXPECT_TRUE(result == weftMismatch || result == weftRemoteError) << result;
      EXPECT_TRUE(mentions(weftGetLastError(comm), "AllGather")) << weftGetLastError(comm);
    });
  });
}

/// Two processes, of which rank 1 has no NCCL.
void with_one_nccl(const Environment& environment,
                   const std::function<void(int, const weftUniqueId&)>& body) {
  SharedId* shared = SharedId::make();
  in_processes(2, environment, [&](int rank) {
    setenv("WEFT_NCCL_LIBRARY", rank == 0 ? kFakeNccl.c_str() : "/nowhere/libnccl.so.2", 1);
    weftUniqueId id;
    if (rank == 0) {
      ASSERT_EQ(weftGetUniqueId(&id), weftSuccess);
      std::memcpy(shared->id.internal, id.internal, sizeof id.internal);
      shared->ready.store(true);
    }
    const UniqueId given = shared->wait();
    std::memcpy(id.internal, given.internal, sizeof id.internal);
    body(rank, id);
  });
}

TEST(Backend, ARankWithoutNcclIsNamedToAll) {
  with_one_nccl({{"WEFT_BACKEND", "nccl"}}, [](int rank, const weftUniqueId& id) {
    weftComm_t comm = nullptr;
    EXPECT_REFUSED(weftCommInitRank(&comm, 2, id, rank), weftUnsupported,
                   "rank 1 cannot use NCCL: WEFT_NCCL_LIBRARY: /nowhere/libnccl.so.2 cannot be opened");
    EXPECT_EQ(comm, nullptr);
  });
}

/// The rank without NCCL once refused the call on its own, and the others waited for it until their timeout.
TEST(Backend, ARankWithoutNcclIsNamedToAllByTheFirstCall) {
  with_one_nccl({{"WEFT_CUDA_LIBRARY", kFakeCuda}}, [](int rank, const weftUniqueId& id) {
    weftComm_t comm = nullptr;
    WEFT_GOOD(weftCommInitRank(&comm, 2, id, rank));
    const DeviceArray<float> device(Floats{1.f});
    EXPECT_REFUSED(weftAllReduce(device.data(), device.data(), 1, weftFloat, weftSum, comm, nullptr),
                   weftUnsupported,
                   "create it with config.device; NCCL cannot take it either, since rank 1 cannot use it: "
                   "WEFT_NCCL_LIBRARY: /nowhere/libnccl.so.2 cannot be opened");
    float host = 1;
    WEFT_GOOD(weftAllReduce(&host, &host, 1, weftFloat, weftSum, comm, nullptr));
    EXPECT_EQ(host, 2.f);
    WEFT_GOOD(weftCommDestroy(comm));
  });
}

TEST(Backend, FailuresOfNcclKeepTheirSentence) {
  Environment failing = kNccl;
  failing.push_back({"FAKE_NCCL_FAIL", "AllReduce"});
  in_process(failing, [] {
    on_ranks(1, [](int, weftComm_t& comm) {
      float value = 1;
      EXPECT_REFUSED(weftAllReduce(&value, &value, 1, weftFloat, weftSum, comm, nullptr), weftInternalError,
                     "ncclAllReduce of NCCL 2.28.9 failed: fake error: the fake was told to fail");
      void* fake = dlopen(kFakeNccl.c_str(), RTLD_NOW | RTLD_NOLOAD);
      const auto fail_with = reinterpret_cast<void (*)(Result_t)>(dlsym(fake, "fakeNcclSetAsyncError"));
      weftResult_t state = weftSuccess;
      for (const auto& [theirs, ours] :
           {std::pair{nccl::kTimeout, weftTimeout}, std::pair{nccl::kRemoteError, weftRemoteError}}) {
        fail_with(theirs);
        WEFT_GOOD(weftCommGetAsyncError(comm, &state));
        EXPECT_EQ(state, ours);
      }
      EXPECT_TRUE(mentions(weftGetLastError(comm), "NCCL 2.28.9")) << weftGetLastError(comm);
      WEFT_GOOD(weftCommAbort(comm));
      comm = nullptr;
    });
    EXPECT_EQ(calls_of_fake("CommAbort"), 1);
  });
  failing.back().second = "GetUniqueId";
  in_process(failing, [] {
    weftComm_t comms[2];
    EXPECT_REFUSED(weftCommInitAll(comms, 2, nullptr), weftUnsupported,
                   "rank 0 cannot use NCCL: ncclGetUniqueId");
  });
}

/// NCCL frees a communicator that is aborted.
TEST(Backend, AnAbortWaitsForAThreadThatAsksNccl) {
  Environment slow = kNccl;
  slow.push_back({"FAKE_NCCL_SLOW", "1"});
  in_process(slow, [] {
    on_ranks(1, [](int, weftComm_t& comm) {
      std::thread watchdog([own = comm] {
        weftResult_t state = weftSuccess;
        (void)weftCommGetAsyncError(own, &state);
      });
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      const weftComm_t own = std::exchange(comm, nullptr);
      WEFT_GOOD(weftCommAbort(own));
      watchdog.join();
    });
    EXPECT_EQ(calls_of_fake("CommAbort"), 1);
    EXPECT_EQ(calls_of_fake("CommAbort while it is asked"), 0);
  });
}

TEST(Backend, WrongArgumentsAreNamed) {
  in_process(kNccl, [] {
    on_ranks(1, [](int, weftComm_t& comm) {
      weftStream_t stream = nullptr;
      float value = 1;
      WEFT_GOOD(weftStreamCreate(&stream));
      EXPECT_REFUSED(weftAllReduce(&value, &value, 1, weftFloat, weftSum, comm, stream), weftInvalidArgument,
                     "wants a CUDA stream or NULL");
      WEFT_GOOD(weftStreamDestroy(stream));
      weftComm_t child = nullptr;
      weftConfig_t config = WEFT_CONFIG_INITIALIZER;
      config.backend = 7;
      EXPECT_REFUSED(weftCommSplit(comm, 0, 0, &child, &config), weftInvalidArgument, "config.backend is 7");
    });
  });
}

}  // namespace
}  // namespace weft::nccl_shim_test
