// The shim as a program of NCCL has it: opened with dlopen(), each test in a process of its own, after its
// settings are made. Ranks are threads or processes.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/ranks_at_work.h"
#include "nccl/library.h"

namespace weft::nccl_shim_test {

using nccl::Comm_t;
using nccl::Functions;
using nccl::Result_t;
using nccl::UniqueId;
using Environment = std::vector<std::pair<std::string, std::string>>;

/// The build's shim, or, where the tests run on another machine, what NCCL_SHIM_UNDER_TEST names.
inline std::string shim_under_test() {
  const char* given = std::getenv("NCCL_SHIM_UNDER_TEST");
  return given ? given : WEFT_NCCL_SHIM;
}
inline const std::string kShim = shim_under_test();
inline const std::string kFakeNccl = WEFT_FAKE_NCCL;
inline const std::string kFakeCuda = WEFT_FAKE_CUDA;

/// The driver for tests that a real one can pass too: the fake, or what CUDA_UNDER_TEST names.
inline std::string cuda_under_test() {
  const char* given = std::getenv("CUDA_UNDER_TEST");
  return given ? given : kFakeCuda;
}

/// Every function of the shim, by its nccl… or its pnccl… name.
class Shim {
 public:
  explicit Shim(const std::string& prefix = "nccl", const std::string& file = kShim)
      : handle_(dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL)) {
    EXPECT_NE(handle_, nullptr) << dlerror();
    if (!handle_) return;
#define WEFT_LOAD(name, returns, parameters)                                                               \
  functions_.name = reinterpret_cast<decltype(functions_.name)>(dlsym(handle_, (prefix + #name).c_str())); \
  EXPECT_NE(functions_.name, nullptr) << #name;
    WEFT_NCCL_FUNCTIONS(WEFT_LOAD)
#undef WEFT_LOAD
  }
  const Functions* operator->() const { return &functions_; }
  std::string last_error(Comm_t comm = nullptr) const { return functions_.GetLastError(comm); }

 private:
  void* handle_;
  Functions functions_;
};

/// What the fake NCCL was called for, in this process.
inline int calls_of_fake(const char* name, const std::string& file = kFakeNccl) {
  void* fake = dlopen(file.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (!fake) return 0;
  return reinterpret_cast<int (*)(const char*)>(dlsym(fake, "fakeNcclCalls"))(name);
}

inline void set(const Environment& environment) {
  // Nothing of the machine may decide what a test is about.
  setenv("WEFT_SOCKET_IFNAME", "lo", 1);
  setenv("WEFT_TUNE", "off", 1);
  setenv("WEFT_LOG", "none", 1);
  setenv("WEFT_RECORDER_DIR", "none", 0);
  setenv("WEFT_CUDA_LIBRARY", "/nowhere/libcuda.so.1", 0);
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
}

/// Runs `body` in `count` processes at once; one that has failures, or does not end, is a failure of the
/// test.
inline void in_processes(int count, const Environment& environment, const std::function<void(int)>& body,
                         unsigned seconds = 90) {
  std::fflush(nullptr);
  std::vector<pid_t> children;
  for (int number = 0; number < count; ++number) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(seconds);
      set(environment);
      body(number);
      std::fflush(nullptr);
      std::exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    children.push_back(child);
  }
  for (int number = 0; number < count; ++number) {
    int status = 0;
    waitpid(children[static_cast<size_t>(number)], &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << "process " << number << (WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : " failed");
  }
}

inline void in_process(const Environment& environment, const std::function<void()>& body) {
  in_processes(1, environment, [&](int) { body(); });
}

#define NCCL_OK(call) EXPECT_EQ((call), weft::nccl::kSuccess) << #call << ": " << shim.last_error()

/// Ranks as threads of this process, each with a communicator.
inline void on_threads(const Shim& shim, int ranks, const std::function<void(int, Comm_t)>& body) {
  UniqueId id;
  ASSERT_EQ(shim->GetUniqueId(&id), nccl::kSuccess) << shim.last_error();
  const testing::RanksAtWork at_work;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      Comm_t comm = nullptr;
      ASSERT_EQ(shim->CommInitRank(&comm, ranks, id, rank), nccl::kSuccess) << shim.last_error();
      body(rank, comm);
      EXPECT_EQ(shim->CommDestroy(comm), nccl::kSuccess) << shim.last_error();
    });
  for (std::thread& thread : threads) thread.join();
}

/// Memory that forked processes share, for the unique id.
struct SharedId {
  std::atomic<bool> ready;
  UniqueId id;
  static SharedId* make() {
    void* memory = mmap(nullptr, sizeof(SharedId), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return new (memory) SharedId{};
  }
  UniqueId wait() const {
    while (!ready.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return id;
  }
};

constexpr int kInt8 = 0, kInt32 = 2, kFloat = 7, kDouble = 8;
constexpr int kSum = 0, kMax = 2, kAvg = 4;

}  // namespace weft::nccl_shim_test
