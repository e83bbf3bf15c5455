// Processes of NCCL that fork: a child holds no connection of its parent's open, and none of its calls gets
// to them.
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
          if (!has_logged("this process was forked after the connection was made")) _exit(2);
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

INSTANTIATE_TEST_SUITE_P(Conformance, Forks,
                         ::testing::Combine(::testing::ValuesIn(real_nets()), ::testing::Values(12)),
                         name_of_net);

}  // namespace
}  // namespace weft::nccl_net_test
