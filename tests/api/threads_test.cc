// A process that may have no more threads: calls that need one say so, and the others go on.
#include <cstring>

#include "api/processes.h"
#include "transport/forbid.h"

namespace weft::testing {
namespace {

using transport::shm_test::forbid_threads;

/// `body` in a process of its own: 0 for right.
void expect_in_process(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(body());
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(exited_with(status, 0)) << "wait status " << status << ", exit code " << WEXITSTATUS(status);
}

bool said_why(weftComm_t comm = nullptr) {
  return strstr(weftGetLastError(comm), "cannot start the thread weft-") != nullptr;
}

TEST(WithoutThreads, NoJobBegins) {
  expect_in_process([] {
    forbid_threads();
    weftUniqueId id;
    if (weftGetUniqueId(&id) != weftSystemError) return 1;
    return said_why() ? 0 : 2;
  });
}

TEST(WithoutThreads, NoCommunicatorIsMadeAndOthersWork) {
  expect_in_process([] {
    weftUniqueId id;  // starts the bootstrap's thread
    if (weftGetUniqueId(&id) != weftSuccess) return 1;
    forbid_threads();
    weftComm_t comm = nullptr;
    if (weftCommInitRank(&comm, 1, id, 0) != weftSystemError || comm != nullptr) return 2;
    return said_why() ? 0 : 3;
  });
}

TEST(WithoutThreads, CallsThatNeedOneSaySoAndACommunicatorGoesOn) {
  expect_in_process([] {
    weftComm_t comm = nullptr;
    if (weftCommInitAll(&comm, 1, nullptr) != weftSuccess) return 1;
    weftStream_t stream = nullptr;
    if (weftStreamCreate(&stream) != weftSuccess) return 2;
    forbid_threads();
    if (weftStreamNotify(
            stream, [](weftResult_t, void*) {}, nullptr) != weftSystemError)
      return 3;
    if (!said_why()) return 4;
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.blocking = 0;
    weftComm_t child = nullptr;
    if (weftCommSplit(comm, 0, 0, &child, &config) != weftSystemError || child != nullptr) return 5;
    if (!said_why()) return 6;
    float one = 1, sum = 0;
    if (weftAllReduce(&one, &sum, 1, weftFloat, weftSum, comm, stream) != weftSuccess) return 7;
    if (weftStreamSynchronize(stream) != weftSuccess || sum != 1) return 8;
    if (weftStreamDestroy(stream) != weftSuccess || weftCommDestroy(comm) != weftSuccess) return 9;
    return 0;
  });
}

}  // namespace
}  // namespace weft::testing
