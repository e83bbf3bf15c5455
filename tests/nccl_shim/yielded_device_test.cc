// WEFT_BACKEND=auto on devices that are nothing for Weft: an old driver, or one without unified addressing.
// Programs of Weft then have NCCL's communicators, as programs of NCCL have over Weft's libnccl.so.2. What
// goes to the fake NCCL is host memory, which it takes: Weft's helpers cannot make the memory of such
// devices.
#include <filesystem>
#include <fstream>
#include <sstream>

#include "backend_host.h"
#include "nccl/gpu.h"

namespace weft::nccl_shim_test {
namespace {

Environment with(Environment environment, const std::string& name, const std::string& value) {
  environment.push_back({name, value});
  return environment;
}
const Environment kOldDriver = with(kGpuAndNccl, "FAKE_CUDA_VERSION", "10020");
/// Two devices, of which Weft cannot take number 1.
const Environment kOneOfTwo = with(kGpuAndNccl, "FAKE_CUDA_UNADDRESSED", "1");

void sum_of(int ranks, weftComm_t comm) {
  float value = 1, sum = 0;
  WEFT_GOOD(weftAllReduce(&value, &sum, 1, weftFloat, weftSum, comm, nullptr));
  EXPECT_EQ(sum, static_cast<float>(ranks));
  EXPECT_EQ(last_algorithm(comm), "nccl");
}

TEST(YieldedDevices, GiveTheirCommunicatorsToNccl) {
  for (const int device : {0, WEFT_DEVICE_CURRENT}) {
    in_process(kOldDriver, [&] {
      weftConfig_t config = WEFT_CONFIG_INITIALIZER;
      config.device = device;
      on_ranks(
          3,
          [](int rank, weftComm_t& comm) {
            EXPECT_EQ(nccl::gpu()->context(), nullptr) << "the thread was left on NCCL's device";
            // Also the first call may be a transfer: NCCL's communicator was made with Weft's.
            float value = static_cast<float>(rank), got = -1;
            WEFT_GOOD(weftGroupStart());
            WEFT_GOOD(weftSend(&value, 1, weftFloat, (rank + 1) % 3, comm, nullptr));
            WEFT_GOOD(weftRecv(&got, 1, weftFloat, (rank + 2) % 3, comm, nullptr));
            WEFT_GOOD(weftGroupEnd());
            EXPECT_EQ(got, static_cast<float>((rank + 2) % 3));
            sum_of(3, comm);
          },
          &config);
      EXPECT_EQ(calls_of_fake("CommInitRank"), 3);
      EXPECT_EQ(calls_of_fake("CommInitRank on device 0"), 3);
      EXPECT_EQ(calls_of_fake("CommDestroy"), 3);
    });
  }
}

TEST(YieldedDevices, AreTheirChildrensToo) {
  in_process(kOldDriver, [] {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.device = 0;
    on_ranks(
        3,
        [](int rank, weftComm_t& comm) {
          weftComm_t all = nullptr, smaller = nullptr, on_host = nullptr;
          WEFT_GOOD(weftCommSplit(comm, 0, rank, &all, nullptr));
          sum_of(3, all);
          weftConfig_t host = WEFT_CONFIG_INITIALIZER;
          host.device = WEFT_DEVICE_HOST;
          WEFT_GOOD(weftCommSplit(comm, 0, rank, &on_host, &host));
          float value = 1;
          WEFT_GOOD(weftAllReduce(&value, &value, 1, weftFloat, weftSum, on_host, nullptr));
          EXPECT_EQ(value, 3.f);
          EXPECT_NE(last_algorithm(on_host), "nccl");
          if (rank < 2) {
            const int excluded[] = {2};
            WEFT_GOOD(weftCommShrink(all, excluded, 1, &smaller, nullptr, WEFT_SHRINK_DEFAULT));
            sum_of(2, smaller);
            WEFT_GOOD(weftCommDestroy(smaller));
          }
          WEFT_GOOD(weftCommDestroy(on_host));
          WEFT_GOOD(weftCommDestroy(all));
        },
        &config);
    // A communicator of host memory, whose child asks for the device.
    on_ranks(2, [](int rank, weftComm_t& comm) {
      weftConfig_t of_device = WEFT_CONFIG_INITIALIZER;
      of_device.device = 0;
      weftComm_t child = nullptr;
      WEFT_GOOD(weftCommSplit(comm, 0, rank, &child, &of_device));
      sum_of(2, child);
      WEFT_GOOD(weftCommDestroy(child));
    });
  });
}

/// Ranks with a device each: what each one's creation comes to.
void on_devices(int ranks, const std::function<void(int, weftComm_t, weftResult_t)>& body) {
  weftUniqueId id;
  ASSERT_EQ(weftGetUniqueId(&id), weftSuccess) << weftGetLastError(nullptr);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      weftConfig_t config = WEFT_CONFIG_INITIALIZER;
      config.device = rank;
      weftComm_t comm = nullptr;
      const weftResult_t made = weftCommInitRankConfig(&comm, ranks, id, rank, &config);
      body(rank, comm, made);
      if (comm) {
        WEFT_GOOD(weftCommDestroy(comm));
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(YieldedDevices, OfOneRankAreEnough) {
  in_process(kOneOfTwo, [] {
    on_devices(2, [](int rank, weftComm_t comm, weftResult_t made) {
      ASSERT_EQ(made, weftSuccess) << weftGetLastError(nullptr);
      sum_of(2, comm);
      weftComm_t child = nullptr;
      WEFT_GOOD(weftCommSplit(comm, 0, -rank, &child, nullptr));
      sum_of(2, child);
      WEFT_GOOD(weftCommDestroy(child));
    });
    EXPECT_EQ(calls_of_fake("CommInitRank on device 0"), 2);
    EXPECT_EQ(calls_of_fake("CommInitRank on device 1"), 2);
  });
  in_process(kOneOfTwo, [] {  // and where none is, nobody asks for NCCL
    on_devices(1, [](int, weftComm_t comm, weftResult_t made) {
      ASSERT_EQ(made, weftSuccess) << weftGetLastError(nullptr);
      const DeviceArray<float> value(Floats{3});
      WEFT_GOOD(weftAllReduce(value.data(), value.data(), 1, weftFloat, weftSum, comm, nullptr));
      EXPECT_NE(last_algorithm(comm), "nccl");
    });
    EXPECT_EQ(calls_of_fake("CommInitRank"), 0);
  });
}

TEST(YieldedDevices, ThatNcclCannotTakeEitherAreNamedToAll) {
  in_process(with(kOneOfTwo, "WEFT_NCCL_LIBRARY", "/nowhere/libnccl.so.2"), [] {
    on_devices(2, [](int, weftComm_t comm, weftResult_t made) {
      EXPECT_EQ(comm, nullptr);
      EXPECT_REFUSED(made, weftUnsupported, "Weft cannot take the GPU memory of rank 1: CUDA device 1 ");
      EXPECT_REFUSED(made, weftUnsupported,
                     "no addresses in common with the host (unified addressing); NCCL cannot take it either, "
                     "since rank 0 cannot use it: WEFT_NCCL_LIBRARY: /nowhere");
    });
  });
}

/// What the creation of one rank on device 0 answers.
void expect_refused(const Environment& environment, const std::function<void(weftConfig_t&)>& adjust,
                    const std::string& sentence) {
  in_process(environment, [&] {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.device = 0;
    adjust(config);
    weftUniqueId id;
    weftComm_t comm = nullptr;
    WEFT_GOOD(weftGetUniqueId(&id));
    EXPECT_REFUSED(weftCommInitRankConfig(&comm, 1, id, 0, &config), weftUnsupported, sentence);
    EXPECT_EQ(calls_of_fake("CommInitRank"), 0);
  });
}

TEST(YieldedDevices, AreNotYieldedWhereWeftAloneIsAskedFor) {
  const std::string sentence = "is for CUDA 10.2, at least 11.2 is needed";
  expect_refused(
      kOldDriver, [](weftConfig_t& config) { config.backend = WEFT_BACKEND_WEFT; }, sentence);
  expect_refused(
      kOldDriver, [](weftConfig_t& config) { config.strict = 1; }, sentence);
}

/// Decisions were logged at a level that is off by default.
TEST(YieldedDevices, AreWarnedOfOnce) {
  char name[] = "/tmp/weft_shim_test_XXXXXX";
  const std::string folder = mkdtemp(name), log = folder + "/log";
  in_process(with(kOldDriver, "WEFT_LOG_FILE", log), [] {
    unsetenv("WEFT_LOG");
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.device = 0;
    for (int again = 0; again < 2; ++again)
      on_ranks(
          2,
          [](int rank, weftComm_t& comm) {
            weftComm_t child = nullptr;
            WEFT_GOOD(weftCommSplit(comm, 0, rank, &child, nullptr));
            sum_of(2, child);
            WEFT_GOOD(weftCommDestroy(child));
          },
          &config);
  });
  std::stringstream text;
  text << std::ifstream(log).rdbuf();
  std::filesystem::remove_all(folder);
  const std::string sentence = "communicators go to NCCL, because Weft cannot take its GPUs' memory: ";
  const size_t first = text.str().find(sentence);
  EXPECT_NE(first, std::string::npos) << text.str();
  EXPECT_EQ(text.str().find(sentence, first + 1), std::string::npos) << "logged twice: " << text.str();
}

}  // namespace
}  // namespace weft::nccl_shim_test
