#include "base/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <array>
#include <cerrno>
#include <ctime>
#include <string_view>

#include "base/file.h"

namespace loom {
namespace {

/// What others are told.
std::string description_of_this_process() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host = {"?"};
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 64> time{};
  (void)std::strftime(time.data(), time.size(), "%F %T UTC", &parts);
  return fmt::format("process {} on {} since {}", ::getpid(), host.data(), time.data());
}

/// The text of the lock's owner, which may not have written it yet.
std::string description_in(int file) {
  std::array<char, 512> text{};
  const ssize_t got = ::pread(file, text.data(), text.size(), 0);
  const std::string_view line(text.data(), got > 0 ? static_cast<size_t>(got) : 0);
  const std::string_view first = line.substr(0, line.find('\n'));
  return first.empty() ? "another process" : std::string(first);
}

/// For those who come later; that it cannot be written is no reason not to go on.
void describe(int file) {
  const std::string line = description_of_this_process() + "\n";
  if (::ftruncate(file, 0) == 0) (void)!::pwrite(file, line.data(), line.size(), 0);
}

}  // namespace

Result<FolderLock> FolderLock::take(const std::string& folder) {
  const std::string path = join_path(folder, "lock");
  FolderLock lock(UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)));
  const int file = lock.file_.get();
  if (file < 0) return fail_errno(errno, fmt::format("cannot write {}", path));
  int result = 0;
  do result = ::flock(file, LOCK_EX | LOCK_NB);
  while (result != 0 && errno == EINTR);
  if (result == 0) {
    describe(file);
    return lock;
  }
  if (errno == EWOULDBLOCK)
    return fail(Code::invalid_argument, "{} is being written by {}: wait for its end, or name another one",
                folder, description_in(file));
  if (errno != ENOLCK && errno != EOPNOTSUPP && errno != ENOSYS)
    return fail_errno(errno, fmt::format("cannot lock {}", path));
  lock.note_ =
      fmt::format("the file system of {} knows no locks: nothing keeps a second run out of it", folder);
  return lock;
}

}  // namespace loom
