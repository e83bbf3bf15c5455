#include "nccl/tally.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/fd.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/process.h"
#include "base/settings.h"
#include "base/temporary_folder.h"

namespace weft::nccl::tally {
namespace {

constexpr char kMagic[8] = {'w', 'e', 'f', 't', 'n', 'c', '0', '2'};
constexpr std::string_view kPrefix = "weft-nccl.";

struct PageReason {
  std::atomic<uint64_t> communicators;  // counted last: 0 while there is no such reason
  char text[400];
};

struct PageShare {
  std::atomic<uint64_t> communicators, calls;
  PageReason reasons[kMostReasons];
};

/// The file, mapped. Texts end with a zero whenever they are read.
struct Page {
  char magic[8];
  int pid;
  char program[64];
  PageShare weft, nccl;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free, "counters are read by other processes");

PageShare& share_of(Page& page, Backend backend) { return backend == Backend::nccl ? page.nccl : page.weft; }

ForkSafeMutex mutex;  // over creating the page and its texts
std::atomic<Page*> current{nullptr};
std::set<std::string> told WEFT_GUARDED_BY(mutex);  // of this page's process

std::string folder() {
  const std::string& set = settings().recorder_dir;
  if (!set.empty()) return set == "none" ? "" : set;
  return temporary_folder();
}

std::string file_of(int pid) { return fmt::format("{}/{}{}", folder(), kPrefix, pid); }

template <size_t size>
void copy_text(char (&into)[size], std::string_view text) {
  const size_t length = std::min(text.size(), size - 1);
  std::memcpy(into, text.data(), length);
  into[length] = '\0';
}

/// A fresh page: of a file, or of memory alone where there may be no file.
void* map_page() {
  if (!folder().empty()) {
    const std::string path = file_of(getpid());
    unlink(path.c_str());  // left by a process that had this number before
    const UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (file.valid() && ftruncate(file.get(), sizeof(Page)) == 0) {
      void* memory = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
      if (memory != MAP_FAILED) return memory;
    }
    log::info("{} cannot be written ({}): weft_info will not see what this process does", path,
              strerror(errno));
  }
  void* memory = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

/// The process's page; a forked child gets one of its own. Null where there is no memory.
Page* page() WEFT_REQUIRES(mutex) {
  Page* existing = current.load();
  if (existing && existing->pid == getpid()) return existing;
  void* memory = map_page();
  if (!memory) return nullptr;
  Page* made = new (memory) Page{};
  made->pid = getpid();
  copy_text(made->program, program_invocation_short_name);
  told.clear();
  std::memcpy(made->magic, kMagic, sizeof kMagic);
  static const int at_exit = std::atexit([] {
    const Page* mine = current.load();
    if (mine && mine->pid == getpid() && !folder().empty()) unlink(file_of(mine->pid).c_str());
  });
  (void)at_exit;
  current.store(made);
  return made;
}

Share view_of(const PageShare& share) {
  Share view{share.communicators.load(), share.calls.load(), {}};
  for (const PageReason& reason : share.reasons)
    if (const uint64_t count = reason.communicators.load(); count > 0)
      view.reasons.push_back({count, std::string(reason.text)});
  return view;
}

/// Counts the reason in its place, or in the next free one. There may be more reasons than places.
void count_reason(PageShare& share, std::string_view text) {
  for (PageReason& reason : share.reasons) {
    const bool fresh = reason.communicators.load() == 0;
    if (fresh) copy_text(reason.text, text);
    else if (reason.text != text.substr(0, sizeof reason.text - 1)) continue;
    return (void)reason.communicators.fetch_add(1);
  }
}

View view_of(const Page& page) {
  return {page.pid, std::string(page.program), process_runs(page.pid), view_of(page.weft),
          view_of(page.nccl)};
}

/// A page of another process, copied; false where the file is none. Anybody can put something of that name
/// into a folder that is shared, such as a FIFO, which would be waited for.
bool read_page(const std::string& path, Page* page) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  struct stat info;
  if (!file.valid() || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return false;
  alignas(Page) char bytes[sizeof(Page)];
  if (::read(file.get(), bytes, sizeof bytes) != sizeof bytes) return false;
  std::memcpy(static_cast<void*>(page), bytes, sizeof bytes);
  page->program[sizeof page->program - 1] = '\0';
  for (PageShare* share : {&page->weft, &page->nccl})
    for (PageReason& reason : share->reasons) reason.text[sizeof reason.text - 1] = '\0';
  return std::memcmp(page->magic, kMagic, sizeof kMagic) == 0;
}

}  // namespace

void count_communicator(const Decision& decision) {
  const MutexLock guard(mutex);
  Page* mine = page();
  if (!mine) return;
  PageShare& share = share_of(*mine, decision.backend);
  share.communicators.fetch_add(1);
  count_reason(share, decision.reason);
  const std::string sentence =
      fmt::format("communicators go to {}, because {}", decision.backend == Backend::nccl ? "NCCL" : "Weft",
                  decision.reason);
  if (!told.insert(sentence).second) return;
  if (decision.fell_back) log::warn("{}", sentence);
  else log::info("{}", sentence);
}

void count_call(Backend backend) {
  if (Page* mine = current.load(std::memory_order_acquire))
    share_of(*mine, backend).calls.fetch_add(1, std::memory_order_relaxed);
}

View mine() {
  const MutexLock guard(mutex);
  const Page* own = page();
  return own ? view_of(*own) : View{};
}

std::vector<View> all() {
  std::vector<View> views;
  if (folder().empty()) return views;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder(), error)) {
    if (!entry.path().filename().string().starts_with(kPrefix)) continue;
    Page page{};
    if (read_page(entry.path().string(), &page)) views.push_back(view_of(page));
  }
  std::sort(views.begin(), views.end(), [](const View& a, const View& b) { return a.pid < b.pid; });
  return views;
}

}  // namespace weft::nccl::tally
