// The handlers of fork(), the generation of a process, and the list of its sockets.
#include "base/fork.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <new>

#include "base/mutex.h"

namespace weft {
namespace forks {
namespace {

std::atomic<uint32_t> unwatched{0};  // before the first use, and where there is no page to be had
std::atomic<uint32_t> last_generation{0};

/// Append-only, and read without a lock: a child must not wait for a thread that it does not have.
template <typename T, size_t kMost>
class List {
 public:
  /// False: it is full.
  bool add(T* item) {
    const size_t at = added_.fetch_add(1);
    if (at < kMost) items_[at].store(item);
    return at < kMost;
  }
  size_t size() const { return std::min(added_.load(), kMost); }
  /// Null: it is being added.
  T* operator[](size_t at) const { return items_[at].load(); }

 private:
  std::array<std::atomic<T*>, kMost> items_{};
  std::atomic<size_t> added_{0};
};

constinit List<ForkSafeMutex, 64> mutexes;
constinit List<void(), 16> hooks;

/// The sockets by descriptor, each with its inode. An entry stays when its socket is closed: the inode shows
/// that another file has its number.
class Sockets {
 public:
  void note(int fd) {
    const auto number = static_cast<size_t>(fd);
    struct stat info;
    if (number >= kChunks * kEntries || fstat(fd, &info) != 0) return;
    std::atomic<Chunk*>& chunk = chunks_[number / kEntries];
    if (chunk.load() == nullptr) chunk.store(new Chunk{});  // one thread at a time is here
    (*chunk.load())[number % kEntries].store(info.st_ino);
  }

  void give_up() {
    const UniqueFd dead(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    for (size_t i = 0; i < kChunks; ++i) {
      Chunk* const chunk = chunks_[i].load();
      for (size_t j = 0; chunk != nullptr && j < kEntries; ++j) {
        const ino_t inode = (*chunk)[j].exchange(0);
        if (inode != 0) give_up(static_cast<int>(i * kEntries + j), inode, dead.get());
      }
    }
  }

 private:
  static constexpr size_t kChunks = 1024, kEntries = 1024;
  using Chunk = std::array<std::atomic<ino_t>, kEntries>;

  static void give_up(int fd, ino_t inode, int dead) {
    struct stat info;
    if (fstat(fd, &info) != 0 || !S_ISSOCK(info.st_mode) || info.st_ino != inode) return;
    if (dead < 0 || ::dup3(dead, fd, O_CLOEXEC) < 0) ::close(fd);
  }

  std::array<std::atomic<Chunk*>, kChunks> chunks_{};
};
constinit Sockets sockets;

void become_child() {
  sockets.give_up();
  current->store(++last_generation);
  for (size_t i = 0; i < hooks.size(); ++i)
    if (void (*const hook)() = hooks[i]) hook();
}

/// In the list before there are handlers, so that every fork holds one mutex.
constinit ForkSafeMutex over_sockets{ForkSafeMutex::Unlisted{}};

/// The mutexes that a fork holds; guarded by them. The thread that forks may hold others, and goes on to.
struct Held {
  std::array<ForkSafeMutex*, 64> mutexes{};
  size_t count = 0;
};
constinit Held held;

// The analysis cannot count locks: the caller holds `count` of them.
void unlock_first(const Held& some, size_t count) WEFT_NO_THREAD_SAFETY_ANALYSIS {
  for (size_t i = 0; i < count; ++i) some.mutexes[i]->unlock();
}

/// Takes all mutexes, whatever order others take them in: while it waits for one it holds none.
void before_fork() WEFT_NO_THREAD_SAFETY_ANALYSIS {
  Held all;
  for (size_t i = 0; i < mutexes.size(); ++i)
    if (ForkSafeMutex* const mutex = mutexes[i]; mutex && !mutex->held_by_this_thread())
      all.mutexes[all.count++] = mutex;
  for (;;) {
    size_t taken = 0;
    while (taken < all.count && all.mutexes[taken]->try_lock()) ++taken;
    if (taken == all.count) return void(held = all);
    unlock_first(all, taken);
    const MutexLock wait(*all.mutexes[taken]);
  }
}

void after_fork_in_parent() {
  const Held all = held;
  unlock_first(all, all.count);
}

void after_fork_in_child() {
  become_child();
  after_fork_in_parent();
}

/// The word of the generation, in a page that children find empty.
bool watch() {
  const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  // Without such a page (before Linux 4.14) children of a raw clone() are not noticed.
  if (page != MAP_FAILED) (void)madvise(page, bytes, MADV_WIPEONFORK);
  auto* const word = page == MAP_FAILED ? &unwatched : new (page) std::atomic<uint32_t>(0);
  word->store(++last_generation);
  current = word;
  (void)mutexes.add(&over_sockets);
  // Without memory for the handlers children are noticed by the page alone.
  (void)pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  return true;
}

}  // namespace

std::atomic<uint32_t>* current = &unwatched;

ForkSafeMutex& sockets_mutex() {
  (void)process_generation();  // sees to it that there are handlers
  return over_sockets;
}

void note_socket(int fd) { sockets.note(fd); }

}  // namespace forks

uint32_t process_generation() {
  [[maybe_unused]] static const bool watched = forks::watch();
  if (const uint32_t generation = forks::current->load()) return generation;
  forks::become_child();
  return forks::current->load();
}

Ownership::Ownership() : generation_(process_generation()), process_(getpid()) {}

Status Ownership::check(const char* what) const {
  if (process_generation() == generation_) return {};
  return fail(
      Code::invalid_usage,
      "{} belongs to process {}, of which this process, {}, is a forked child: a child cannot use what "
      "its parent has made; create a communicator of its own after fork() or daemon(), and let data "
      "loaders and helper processes leave the parent's alone",
      what, process_, getpid());
}

void on_fork_in_child(void (*hook)()) {
  (void)process_generation();  // sees to it that there are handlers
  (void)forks::hooks.add(hook);
}

ForkSafeMutex::ForkSafeMutex() {
  (void)process_generation();
  (void)forks::mutexes.add(this);
}

}  // namespace weft
