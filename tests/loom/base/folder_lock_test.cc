// One at a time has a folder, and the dead have none.
#include "base/folder_lock.h"

#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

namespace loom {
namespace {

using testing::fails_with;

TEST(FolderLocks, OneHasItAndTheOtherIsToldWho) {
  const testing::TemporaryFolder folder;
  {
    const Result<FolderLock> lock = FolderLock::take(folder.path());
    LOOM_ASSERT_OK(lock);
    EXPECT_EQ(lock->note(), "");
    EXPECT_TRUE(fails_with(FolderLock::take(folder.path()), Code::invalid_argument,
                           fmt::format("is being written by process {} on ", ::getpid())));
  }
  LOOM_ASSERT_OK(FolderLock::take(folder.path()));
  EXPECT_TRUE(fails_with(FolderLock::take(folder / "nowhere"), Code::not_found, "nowhere/lock"));
}

TEST(FolderLocks, OfAProcessThatIsKilledIsFree) {
  const testing::TemporaryFolder folder;
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const Result<FolderLock> lock = FolderLock::take(folder.path());
    const char taken = lock.ok() ? 'y' : 'n';
    if (::write(pipe[1], &taken, 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  char taken = 0;
  ASSERT_EQ(::read(pipe[0], &taken, 1), 1);
  EXPECT_EQ(taken, 'y');
  EXPECT_TRUE(fails_with(FolderLock::take(folder.path()), Code::invalid_argument,
                         fmt::format("is being written by process {} on ", child)));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  LOOM_ASSERT_OK(FolderLock::take(folder.path()));
  for (const int end : pipe) ::close(end);
}

}  // namespace
}  // namespace loom
