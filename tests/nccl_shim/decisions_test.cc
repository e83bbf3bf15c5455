// Who gets a communicator, and why: what is decided, for which device, what the log says of it, and what
// weft_info shows.
#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cuda/device_memory.h"
#include "nccl/tally.h"
#include "shim_host.h"
#include "weft/weft.h"

namespace weft::nccl_shim_test {
namespace {

using testing::DeviceArray;
using Floats = std::vector<float>;

const Environment kNccl = {{"WEFT_BACKEND", "nccl"}, {"WEFT_NCCL_LIBRARY", kFakeNccl}};
const Environment kGpuAndNccl = {{"WEFT_CUDA_LIBRARY", kFakeCuda}, {"WEFT_NCCL_LIBRARY", kFakeNccl}};

bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Folders for a test alone.
struct Folder {
  std::string path;
  Folder() {
    char name[] = "/tmp/weft_shim_test_XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

std::string contents(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// The backend of a communicator that this process makes, and the reason in the log.
void expect_decision(Environment environment, int created_by_nccl, const std::string& reason) {
  const Folder folder;
  const std::string log = folder.path + "/log";
  environment.push_back({"WEFT_LOG", "info"});
  environment.push_back({"WEFT_LOG_FILE", log});
  in_process(environment, [&] {
    const Shim shim;
    for (int again = 0; again < 2; ++again)
      on_threads(shim, 1, [&](int, Comm_t comm) {
        if (testing::cuda::driver().ok()) {
          const DeviceArray<float> value(Floats{2}), sum(1);
          const testing::cuda::Scope scope(**testing::cuda::Device::open(0));
          NCCL_OK(shim->AllReduce(value.data(), sum.data(), 1, kFloat, kSum, comm, nullptr));
          EXPECT_EQ(sum.get(), Floats{2});
        } else {
          float value = 2, sum = 0;
          NCCL_OK(shim->AllReduce(&value, &sum, 1, kFloat, kSum, comm, nullptr));
          EXPECT_EQ(sum, 2.f);
        }
      });
    EXPECT_EQ(calls_of_fake("CommInitRank"), created_by_nccl);
  });
  const std::string text = contents(log);
  const size_t first = text.find(reason);
  EXPECT_NE(first, std::string::npos) << text << " lacks " << reason;
  EXPECT_EQ(text.find(reason, first + 1), std::string::npos) << "logged twice: " << text;
}

TEST(Decisions, AreMadeOnceAndLoggedOnceWithTheReason) {
  expect_decision({{"WEFT_NCCL_LIBRARY", kFakeNccl}}, 0,
                  "go to Weft, because this machine has no CUDA driver");
  Environment no_device = kGpuAndNccl;
  no_device.push_back({"FAKE_CUDA_DEVICES", "0"});
  expect_decision(no_device, 0, "go to Weft, because this process may use no GPU");
  expect_decision(kGpuAndNccl, 0, "go to Weft, because Weft takes the memory of this machine's GPUs itself");
  Environment forced = kGpuAndNccl;
  forced.push_back({"WEFT_BACKEND", "weft"});
  expect_decision(forced, 0, "go to Weft, because WEFT_BACKEND is weft");
  expect_decision(kNccl, 2, "go to NCCL, because WEFT_BACKEND is nccl");
  expect_decision({{"WEFT_CUDA_LIBRARY", kFakeCuda}, {"WEFT_NCCL_LIBRARY", "/nowhere/libnccl.so.2"}}, 0,
                  "go to Weft, because Weft takes the memory of this machine's GPUs itself");
}

TEST(Decisions, GiveToNcclWhatWeftCannotTake) {
  const Folder folder;
  const std::string log = folder.path + "/log";
  Environment old_driver = kGpuAndNccl;
  old_driver.push_back({"FAKE_CUDA_VERSION", "10020"});
  old_driver.push_back({"WEFT_LOG", "info"});
  old_driver.push_back({"WEFT_LOG_FILE", log});
  in_process(old_driver, [] {
    const Shim shim;
    UniqueId id;
    Comm_t comm = nullptr;
    NCCL_OK(shim->GetUniqueId(&id));
    NCCL_OK(shim->CommInitRank(&comm, 1, id, 0));
    EXPECT_EQ(calls_of_fake("CommInitRank"), 1);
    NCCL_OK(shim->CommDestroy(comm));
  });
  EXPECT_TRUE(mentions(contents(log), "go to NCCL, because Weft cannot take this machine's GPU memory"));
  EXPECT_TRUE(mentions(contents(log), "is for CUDA 10.2, at least 11.2 is needed")) << contents(log);

  old_driver.push_back({"WEFT_NCCL_LIBRARY", "/nowhere/libnccl.so.2"});
  in_process(old_driver, [] {
    const Shim shim;
    UniqueId id;
    Comm_t comm = nullptr;
    NCCL_OK(shim->GetUniqueId(&id));
    EXPECT_NE(shim->CommInitRank(&comm, 1, id, 0), nccl::kSuccess);
    EXPECT_TRUE(mentions(shim.last_error(), "at least 11.2 is needed")) << shim.last_error();
  });
}

/// At the level that is the default, which once hid that auto had come to NCCL; what was asked for is not
/// told.
TEST(Decisions, AreWarnedOfWhereAutoComesToNccl) {
  const auto log_of = [](Environment environment) {
    const Folder folder;
    environment.push_back({"WEFT_LOG_FILE", folder.path + "/log"});
    in_process(environment, [] {
      unsetenv("WEFT_LOG");
      const Shim shim;
      for (int again = 0; again < 2; ++again) {
        UniqueId id;
        Comm_t comm = nullptr, child = nullptr;
        NCCL_OK(shim->GetUniqueId(&id));
        NCCL_OK(shim->CommInitRank(&comm, 1, id, 0));
        NCCL_OK(shim->CommSplit(comm, 0, 0, &child, nullptr));
        NCCL_OK(shim->CommDestroy(child));
        NCCL_OK(shim->CommDestroy(comm));
      }
      EXPECT_EQ(calls_of_fake("CommInitRank"), 2);
    });
    return contents(folder.path + "/log");
  };
  Environment old_driver = kGpuAndNccl;
  old_driver.push_back({"FAKE_CUDA_VERSION", "10020"});
  const std::string text = log_of(old_driver),
                    sentence = "communicators go to NCCL, because Weft cannot take";
  const size_t first = text.find(sentence);
  EXPECT_NE(first, std::string::npos) << text;
  EXPECT_EQ(text.find(sentence, first + 1), std::string::npos) << "logged twice: " << text;
  EXPECT_FALSE(mentions(log_of(kNccl), "communicators go to")) << "as WEFT_BACKEND says";
}

/// The same of device memory that a communicator of host memory is given, in programs of Weft.
TEST(Decisions, AreWarnedOfWhereDeviceMemoryGoesToNccl) {
  const Folder folder;
  const std::string log = folder.path + "/log";
  Environment environment = kGpuAndNccl;
  environment.push_back({"WEFT_LOG_FILE", log});
  in_process(environment, [] {
    unsetenv("WEFT_LOG");
    weftUniqueId id;
    weftComm_t comm = nullptr;
    EXPECT_EQ(weftGetUniqueId(&id), weftSuccess);
    EXPECT_EQ(weftCommInitRank(&comm, 1, id, 0), weftSuccess);
    const DeviceArray<float> value(Floats{2});
    EXPECT_EQ(weftAllReduce(value.data(), value.data(), 1, weftFloat, weftSum, comm, nullptr), weftSuccess);
    EXPECT_EQ(weftCommDestroy(comm), weftSuccess);
  });
  EXPECT_TRUE(mentions(contents(log), "communicators go to NCCL, because a buffer is device memory"))
      << contents(log);
}

TEST(Decisions, TravelInTheUniqueId) {
  // The process would take Weft, but one of the ids is NCCL's; its group goes to both.
  weftUniqueId of_weft;
  setenv("WEFT_SOCKET_IFNAME", "lo", 1);
  in_process(kGpuAndNccl, [&] {
    ASSERT_EQ(weftGetUniqueId(&of_weft), weftSuccess);
    const Shim shim;
    UniqueId id;
    std::memcpy(id.internal, of_weft.internal, sizeof id.internal);
    Comm_t own = nullptr, real = nullptr;
    NCCL_OK(shim->CommInitRank(&own, 1, id, 0));
    EXPECT_EQ(calls_of_fake("CommInitRank"), 0);
    void* const nccl = dlopen(kFakeNccl.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(nccl, nullptr) << dlerror();
    NCCL_OK(reinterpret_cast<nccl::Result_t (*)(UniqueId*)>(dlsym(nccl, "ncclGetUniqueId"))(&id));
    NCCL_OK(shim->CommInitRank(&real, 1, id, 0));
    EXPECT_EQ(calls_of_fake("CommInitRank"), 1);
    const DeviceArray<float> in(Floats{3}), out_of_weft(1), out_of_nccl(1);
    const testing::DeviceStream stream;
    NCCL_OK(shim->GroupStart());
    NCCL_OK(shim->AllReduce(in.data(), out_of_weft.data(), 1, kFloat, kSum, own, stream.get()));
    NCCL_OK(shim->AllReduce(in.data(), out_of_nccl.data(), 1, kFloat, kSum, real, stream.get()));
    NCCL_OK(shim->GroupEnd());
    stream.synchronize();
    EXPECT_EQ(out_of_weft.get(), Floats{3});
    EXPECT_EQ(out_of_nccl.get(), Floats{3});
    EXPECT_EQ(calls_of_fake("AllReduce"), 1);
    NCCL_OK(shim->CommDestroy(own));
    NCCL_OK(shim->CommDestroy(real));
  });
}

TEST(Decisions, ThatDisagreeAreNamed) {
  in_process(kNccl, [] {
    weftUniqueId of_weft;
    ASSERT_EQ(weftGetUniqueId(&of_weft), weftSuccess);
    const Shim shim;
    UniqueId id;
    std::memcpy(id.internal, of_weft.internal, sizeof id.internal);
    Comm_t comm = nullptr;
    EXPECT_EQ(shim->CommInitRank(&comm, 1, id, 0), nccl::kInvalidUsage);
    EXPECT_TRUE(mentions(shim.last_error(), "made by Weft, but WEFT_BACKEND is nccl here"))
        << shim.last_error();
  });
  in_process({{"WEFT_NCCL_LIBRARY", "/nowhere/libnccl.so.2"}}, [] {
    const Shim shim;
    UniqueId of_nccl{"not Weft's"};
    Comm_t comm = nullptr;
    EXPECT_EQ(shim->CommInitRank(&comm, 1, of_nccl, 0), nccl::kInvalidUsage);
    EXPECT_TRUE(mentions(shim.last_error(), "not made by Weft, so it is NCCL's, but")) << shim.last_error();
  });
}

/// The context of a device as the calling thread's, also of one that Weft does not take.
class CurrentDevice {
 public:
  explicit CurrentDevice(int ordinal) {
    const testing::cuda::Driver& d = testing::driver();
    testing::cuda::DeviceNumber number = 0;
    testing::cuda::ContextHandle* context = nullptr;
    EXPECT_EQ(d.device_get(&number, ordinal), testing::cuda::kSuccess);
    EXPECT_EQ(d.primary_context_retain(&context, number), testing::cuda::kSuccess);
    EXPECT_EQ(d.context_push(context), testing::cuda::kSuccess);
  }
  ~CurrentDevice() {
    testing::cuda::ContextHandle* context = nullptr;
    EXPECT_EQ(testing::driver().context_pop(&context), testing::cuda::kSuccess);
  }
};

/// A process with two GPUs, of which Weft cannot take number 1.
Environment one_of_two() {
  Environment environment = kGpuAndNccl;
  environment.push_back({"FAKE_CUDA_UNADDRESSED", "1"});
  return environment;
}

TEST(Decisions, AreMadeForTheDeviceOfWhoMakesTheId) {
  in_process(one_of_two(), [] {
    const Shim shim;
    UniqueId of_first, of_second;
    NCCL_OK(shim->GetUniqueId(&of_first));
    {
      const CurrentDevice second(1);
      NCCL_OK(shim->GetUniqueId(&of_second));
      Comm_t comm = nullptr;
      NCCL_OK(shim->CommInitRank(&comm, 1, of_second, 0));
      EXPECT_EQ(calls_of_fake("CommInitRank"), 1);
      NCCL_OK(shim->CommDestroy(comm));
      EXPECT_EQ(shim->CommInitRank(&comm, 1, of_first, 0), nccl::kInvalidUsage) << "the id was Weft's";
      EXPECT_TRUE(mentions(shim.last_error(), "no addresses in common with the host")) << shim.last_error();
    }
    // The id says whose the communicator is, whatever the device of who joins.
    Comm_t real = nullptr, own = nullptr;
    NCCL_OK(shim->GetUniqueId(&of_first));
    NCCL_OK(shim->CommInitRank(&own, 1, of_first, 0));
    EXPECT_EQ(calls_of_fake("CommInitRank"), 1);
    {
      const CurrentDevice second(1);
      NCCL_OK(shim->GetUniqueId(&of_second));
    }
    NCCL_OK(shim->CommInitRank(&real, 1, of_second, 0));
    EXPECT_EQ(calls_of_fake("CommInitRank"), 2);
    NCCL_OK(shim->CommDestroy(own));
    NCCL_OK(shim->CommDestroy(real));
  });
}

TEST(Decisions, OfACallThatListsDevicesAreMadeForAllOfThem) {
  in_process(one_of_two(), [] {
    const Shim shim;
    Comm_t comms[2];
    const int good[] = {0}, bad[] = {0, 1};
    NCCL_OK(shim->CommInitAll(comms, 1, good));
    EXPECT_EQ(calls_of_fake("CommInitAll"), 0);
    NCCL_OK(shim->CommDestroy(comms[0]));
    for (const int* listed : {bad, static_cast<const int*>(nullptr)}) {
      NCCL_OK(shim->CommInitAll(comms, 2, listed));
      for (Comm_t comm : comms) NCCL_OK(shim->CommDestroy(comm));
    }
    EXPECT_EQ(calls_of_fake("CommInitAll"), 2);
    const int unknown[] = {0, 7};
    EXPECT_EQ(shim->CommInitAll(comms, 2, unknown), nccl::kInvalidArgument);
    EXPECT_TRUE(mentions(shim.last_error(), "there is no CUDA device 7")) << shim.last_error();
  });
  Environment alone = one_of_two();
  alone.push_back({"WEFT_NCCL_LIBRARY", "/nowhere/libnccl.so.2"});
  in_process(alone, [] {
    const Shim shim;
    Comm_t comms[2];
    EXPECT_NE(shim->CommInitAll(comms, 2, nullptr), nccl::kSuccess);
    EXPECT_TRUE(mentions(shim.last_error(), "no addresses in common with the host")) << shim.last_error();
  });
}

// ---- What weft_info shows

std::string weft_info(const std::string& arguments) {
  std::string out;
  FILE* const pipe = popen((std::string(WEFT_INFO) + " " + arguments + " 2>&1").c_str(), "r");
  std::array<char, 4096> chunk;
  while (const size_t got = fread(chunk.data(), 1, chunk.size(), pipe)) out.append(chunk.data(), got);
  pclose(pipe);
  return out;
}

TEST(Tally, IsShownByWeftInfoWhileTheProcessRuns) {
  const Folder folder;
  Environment counted = kNccl;
  counted.push_back({"WEFT_RECORDER_DIR", folder.path});
  in_process(counted, [&] {
    const Shim shim;
    on_threads(shim, 2, [&](int rank, Comm_t comm) {
      float value = 1, sum = 0;
      for (int i = 0; i < 5; ++i) NCCL_OK(shim->AllReduce(&value, &sum, 1, kFloat, kSum, comm, nullptr));
      static std::atomic<int> done{0};
      done.fetch_add(1);
      while (done.load() < 2) std::this_thread::yield();
      if (rank != 0) return;
      const std::string text = weft_info("--nccl");
      EXPECT_TRUE(mentions(text, "process " + std::to_string(getpid()))) << text;
      EXPECT_TRUE(mentions(text, "2 communicators and 10 calls to NCCL, because WEFT_BACKEND is nccl"))
          << text;
      EXPECT_TRUE(mentions(text, "NCCL 2.28.9 is ")) << text;
      EXPECT_TRUE(mentions(weft_info("--nccl --json"), "\"calls\": 10"));
    });
  });
  EXPECT_TRUE(std::filesystem::is_empty(folder.path)) << "the tally outlived its process";
}

TEST(Tally, TellsAReasonOnceWhateverComesBetween) {
  const Folder folder;
  const std::string log = folder.path + "/log";
  Environment counted = one_of_two();
  counted.insert(counted.end(),
                 {{"WEFT_RECORDER_DIR", folder.path}, {"WEFT_LOG", "info"}, {"WEFT_LOG_FILE", log}});
  in_process(counted, [] {
    const Shim shim;
    const auto make_with_child = [&] {
      UniqueId id;
      Comm_t comm = nullptr, child = nullptr;
      NCCL_OK(shim->GetUniqueId(&id));
      NCCL_OK(shim->CommInitRank(&comm, 1, id, 0));
      NCCL_OK(shim->CommSplit(comm, 0, 0, &child, nullptr));
      NCCL_OK(shim->CommDestroy(child));
      NCCL_OK(shim->CommDestroy(comm));
    };
    for (int again = 0; again < 2; ++again) make_with_child();
    std::string text = weft_info("--nccl");
    EXPECT_TRUE(mentions(text, "4 communicators and 0 calls to Weft, because Weft takes the memory")) << text;
    const CurrentDevice second(1);
    make_with_child();
    UniqueId of_nccl{"not Weft's"};
    Comm_t comm = nullptr;
    NCCL_OK(shim->CommInitRank(&comm, 1, of_nccl, 0));
    NCCL_OK(shim->CommDestroy(comm));
    text = weft_info("--nccl");
    EXPECT_TRUE(mentions(text, "4 communicators and 0 calls to Weft, because")) << text;
    EXPECT_TRUE(mentions(text, "3 communicators and 0 calls to NCCL, because Weft cannot take")) << text;
  });
  const std::string text = contents(log);
  for (const char* reason : {"go to Weft, because Weft takes", "go to NCCL, because Weft cannot take"}) {
    const size_t first = text.find(reason);
    EXPECT_NE(first, std::string::npos) << text << " lacks " << reason;
    EXPECT_EQ(text.find(reason, first + 1), std::string::npos) << "logged twice: " << text;
  }
}

TEST(Tally, ShowsEveryReasonWithItsCommunicators) {
  const Folder folder;
  in_process({{"WEFT_NCCL_LIBRARY", kFakeNccl}, {"WEFT_RECORDER_DIR", folder.path}}, [] {
    const Shim shim;
    const auto count = [](const char* reason) {
      nccl::tally::count_communicator({nccl::Backend::nccl, reason});
    };
    count("of one reason");
    count("of another");
    count("of one reason");
    const std::string text = weft_info("--nccl");
    EXPECT_TRUE(mentions(text,
                         "3 communicators and 0 calls to NCCL:\n"
                         "    2 communicators, because of one reason\n"
                         "    1 communicator, because of another\n"))
        << text;
    for (int i = 0; i < 20; ++i) count(std::to_string(i).c_str());  // more than there is room for
    EXPECT_TRUE(mentions(weft_info("--nccl"), "23 communicators and 0 calls to NCCL")) << weft_info("--nccl");
  });
}

}  // namespace
}  // namespace weft::nccl_shim_test
