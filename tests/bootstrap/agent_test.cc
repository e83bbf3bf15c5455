// The agent's beginning and end: nothing is left behind, and a process may exit or fork at any time.
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "bootstrap/ranks.h"

namespace weft::bootstrap {
namespace {

using namespace std::chrono_literals;

size_t entries(const char* directory) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory)) ++count;
  return count;
}
size_t threads() { return entries("/proc/self/task"); }
size_t descriptors() { return entries("/proc/self/fd"); }

/// Runs `body` in a process of its own and expects it to end well, and soon.
void in_child(const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(20);
    exit(body());  // with static destructors
  }
  int status;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

TEST(Agent, LeavesNoThreadAndNoDescriptor) {
  in_child([] {
    size_t threads_before = 0, descriptors_before = 0;
    for (int round = 0; round < 4; ++round) {
      // The first round may start what is not ours and stays (a sanitizer's own thread).
      if (round < 2) threads_before = threads(), descriptors_before = descriptors();
      auto members = join_all(make_id(), 5);
      for (auto& member : members) {
        if (!member || !member->start({}).ok()) return 1;
      }
      const std::vector<int> everybody = {0, 1, 2, 3, 4};
      members[2]->ask(everybody, 1, 1, soon());
      if (!members[3]->connect(1, 0, 5, soon()).ok()) return 5;
      // An agent for all, beside the main thread.
      if (round > 0 && threads() != threads_before + 1) return 2;
      members.clear();
      // The root may have been the last to let go: it then ends by itself.
      for (int tries = 0; tries < 5000 && round > 0 && threads() != threads_before; ++tries)
        std::this_thread::sleep_for(1ms);
      if (round > 0 && threads() != threads_before) return 3;
      if (round > 0 && descriptors() != descriptors_before) return 4;
    }
    return 0;
  });
}

TEST(Agent, AProcessMayExitWhileItsRootWaits) {
  in_child([] { return create_unique_id("127.0.0.1").ok() ? 0 : 1; });
}

TEST(Agent, AProcessMayExitWithRanksThatNobodyDestroyed) {
  in_child([] {
    static auto& forgotten = *new std::vector<Bootstrap*>;  // reachable, so no leak, and never destroyed
    for (auto& member : join_all(make_id(), 3)) {
      if (!member || !member->start({}).ok()) return 1;
      forgotten.push_back(member.release());
    }
    return 0;
  });
}

TEST(Agent, AProcessMayExitWithRanksInStaticStorage) {
  in_child([] {
    static std::vector<std::unique_ptr<Bootstrap>> members;  // ends after the agent
    members.reserve(3);
    members = join_all(make_id(), 3);
    return members.size() == 3 ? 0 : 1;
  });
}

TEST(Agent, ACallbackMayExit) {
  in_child([] {
    auto members = join_all(make_id(), 2);
    if (members.size() != 2) return 1;
    Callbacks callbacks;
    callbacks.on_failed = [](int, uint32_t, const std::string&) { exit(0); };
    if (!members[0]->start(callbacks).ok() || !members[1]->start({}).ok()) return 1;
    members[1]->tell_failed(1, "");
    for (;;) pause();
  });
}

TEST(Agent, AForkedChildStartsItsOwn) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer allows no threads in a child of a process with threads";
#endif
  auto members = join_all(make_id(), 2);
  ASSERT_EQ(members.size(), 2u);
  in_child([] { return join_all(make_id(), 3).size() == 3 ? 0 : 1; });
  in_child([] { return 0; });
  EXPECT_TRUE(members[0]->start({}).ok());
  EXPECT_TRUE(members[1]->start({}).ok());
}

}  // namespace
}  // namespace weft::bootstrap
