// Processes of NCCL that fork: a child holds no connection of its parent's open, and none of its calls gets
// to them.
#include <sys/syscall.h>

#include "two_processes.h"

namespace weft::nccl_net_test {
namespace {

class Forks : public OverNets {};

TEST_P(Forks, AChildThatLivesOnDoesNotHideItsParentsEnd) {
  run(
      [](Process& self) {
        End end = self.connect();
        self.meet();
        pid_t helper = fork();
        if (helper == 0) {
          alarm(30);
          for (;;) pause();
        }
        self.tell(&helper, sizeof helper);
        std::fflush(nullptr);
        _exit(::testing::Test::HasFailure() ? 1 : 0);
      },
      [](Process& self) {
        End end = self.accept();
        Buffer buffer(end, 1000);
        void* request = receive(end, buffer, 1);
        self.meet();
        pid_t helper = 0;
        self.hear(&helper, sizeof helper);
        abi::Result result = abi::kSuccess;
        EXPECT_TRUE(wait_until([&] { return tested(self.host(), request, nullptr, &result); }));
        EXPECT_EQ(result, abi::kRemoteError);
        if (helper > 0) kill(helper, SIGKILL);
      });
}

TEST_P(Forks, AChildsCallsAreRefusedAndDisturbNobody) {
  run(
      [](Process& self) {
        End end = self.connect();
        Buffer buffer(end, 1000);
        const pid_t child = fork();
        if (child == 0) {
          alarm(30);
          void* request = nullptr;
          if (self.host().send(end.get(), buffer.data(), buffer.size(), 1, buffer.memory(), &request) !=
              abi::kInvalidUsage)
            _exit(1);
          if (!has_logged("a child cannot use what its parent has made")) _exit(2);
          if (self.host().close_sender(end.get()) != abi::kInvalidUsage) _exit(3);
          _exit(0);
        }
        int status = -1;
        waitpid(child, &status, 0);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << WEXITSTATUS(status);
        void* request = send(end, buffer.data(), buffer.size(), 1, buffer.memory());
        abi::Result result = abi::kSuccess;
        EXPECT_TRUE(wait_until([&] { return tested(self.host(), request, nullptr, &result); }));
        EXPECT_EQ(result, abi::kSuccess);
        self.meet();
      },
      [](Process& self) {
        End end = self.accept();
        Buffer buffer(end, 1000);
        void* request = receive(end, buffer, 1);
        abi::Result result = abi::kSuccess;
        EXPECT_TRUE(wait_until([&] { return tested(self.host(), request, nullptr, &result); }));
        EXPECT_EQ(result, abi::kSuccess);
        self.meet();
      });
}

// What it makes is its own; all that there was before the fork stays its parent's.
TEST_P(Forks, AChildsOwnListenersDoNotMakeItsParentsConnectionsItsOwn) {
  run(
      [](Process& self) {
        End end = self.connect();
        const pid_t child = fork();
        if (child == 0) {
          alarm(30);
          const std::unique_ptr<PluginHost> own = PluginHost::open(library_under_test(), self.version());
          char handle[abi::kHandleBytes] = {};
          void* listener = nullptr;
          if (!own || own->listen(0, handle, &listener) != abi::kSuccess) _exit(1);
          if (self.host().listen(0, handle, &listener) != abi::kInvalidUsage || listener) _exit(2);
          if (self.host().close_sender(end.get()) != abi::kInvalidUsage) _exit(3);
          if (self.host().finalize() != abi::kInvalidUsage) _exit(4);
          if (own->finalize() != abi::kSuccess) _exit(5);
          _exit(0);
        }
        int status = -1;
        waitpid(child, &status, 0);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << WEXITSTATUS(status);
        Buffer buffer(end, 1000);
        fill(buffer.data(), 1000, 3);
        EXPECT_FALSE(finish(self.host(), send(end, buffer.data(), 1000, 1, buffer.memory())).empty());
        self.meet();
      },
      [](Process& self) {
        End end = self.accept();
        Buffer buffer(end, 1000);
        EXPECT_FALSE(finish(self.host(), receive(end, buffer, 1)).empty());
        EXPECT_TRUE(holds(buffer.data(), 1000, 3));
        self.meet();
      });
}

/// The number of the endpoint that listens; 0 over TCP, where there is none yet.
uint64_t endpoint_in(const char* handle) {
  constexpr size_t kOffset = 16;
  uint64_t endpoint = 0;
  std::memcpy(&endpoint, handle + kOffset, sizeof endpoint);
  return endpoint;
}

// No handlers run in such a child, and its first call may be for a listener of the process's context.
TEST_P(Forks, AChildOfARawCloneDoesNotListenAtItsParentsEndpoint) {
  constexpr int kWithoutContexts = 10;
  run_two(
      kWithoutContexts, net(),
      [](Process& self) {
        char handle[abi::kHandleBytes] = {};
        void* listener = nullptr;
        ASSERT_EQ(self.host().listen(0, handle, &listener), abi::kSuccess);
        const uint64_t parents = endpoint_in(handle);
        const auto child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
        if (child == 0) {
          alarm(30);
          void* own = nullptr;
          if (self.host().listen(0, handle, &own) != abi::kSuccess) _exit(1);
          if (parents != 0 && endpoint_in(handle) == parents) _exit(2);
          if (self.host().close_listener(listener) != abi::kInvalidUsage) _exit(3);
          _exit(self.host().close_listener(own) == abi::kSuccess ? 0 : 4);
        }
        int status = -1;
        waitpid(child, &status, 0);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << WEXITSTATUS(status);
        EXPECT_EQ(self.host().close_listener(listener), abi::kSuccess);
      },
      [](Process&) {});
}

INSTANTIATE_TEST_SUITE_P(Conformance, Forks,
                         ::testing::Combine(::testing::ValuesIn(real_nets()), ::testing::Values(12)),
                         name_of_net);

}  // namespace
}  // namespace weft::nccl_net_test
