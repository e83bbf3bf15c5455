#include "base/workers.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "../transport/forbid.h"

namespace loom {
namespace {

TEST(Workers, ThatTheSystemDoesNotGiveAreNamedAndTheOthersDoTheWork) {
  const pid_t child = fork();
  if (child == 0) {
    weft::transport::shm_test::forbid_threads();
    Workers workers(4);
    if (workers.started().code() != Code::system_error || workers.threads() != 1) _exit(1);
    if (workers.started().message().find("cannot start a thread: ") == std::string::npos) _exit(2);
    std::array<int, 7> done{};
    for_parts(workers, 7, [&](int64_t part, int worker) { done[static_cast<size_t>(part)] += worker + 1; });
    for (const int times : done)
      if (times != 1) _exit(3);
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace loom
