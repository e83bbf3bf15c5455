#include "base/memory_watch.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <mutex>

#include "base/log.h"
#include "base/settings.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

namespace weft {
namespace {

constexpr int kPoison = 0xff;

struct sigaction before;  // whose turn it is with what is not ours; never changes once this is installed

size_t page_bytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

/// As the kernel would have called it. (When this returns, what faulted runs again.)
void forward(int signal, siginfo_t* info, void* context) {
  if (before.sa_flags & SA_SIGINFO) return before.sa_sigaction(signal, info, context);
  if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) return before.sa_handler(signal);
  const bool raised = info->si_code <= 0;
  if (raised && before.sa_handler == SIG_IGN) return;
  struct sigaction standard = {};  // a fault that is ignored ends the process, too
  standard.sa_handler = SIG_DFL;
  sigaction(signal, &standard, nullptr);
  if (raised) raise(signal);
}

void on_fault(int signal, siginfo_t* info, void* context) {
  const int kept = errno;
  const bool mended = info->si_code > 0 && MemoryWatch::mend(info->si_addr, info->si_code == SEGV_MAPERR);
  errno = kept;
  if (!mended) forward(signal, info, context);
}

void install_now() {
  (void)page_bytes();
  if (sigaction(SIGSEGV, nullptr, &before) != 0) return;
  struct sigaction ours = {};
  ours.sa_sigaction = on_fault;
  ours.sa_mask = before.sa_mask;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | (before.sa_flags & SA_NODEFER);
  if (sigaction(SIGSEGV, &ours, nullptr) != 0)
    log::info("memory that is freed while it is in use will end the process: no handler for SIGSEGV: {}",
              std::strerror(errno));
}

}  // namespace

constinit thread_local MemoryWatch* MemoryWatch::current_ = nullptr;

// Not installed again, although other handlers may have been installed since. A handler that calls the one
// that it replaced would be called back from here for ever.
void MemoryWatch::install() {
  static std::once_flag once;
  if (settings().memory_watch) std::call_once(once, install_now);
}

void MemoryWatch::unblock() {
  sigset_t faults;
  sigemptyset(&faults);
  sigaddset(&faults, SIGSEGV);
  pthread_sigmask(SIG_UNBLOCK, &faults, nullptr);
}

bool MemoryWatch::mend(const void* address, bool page_missing) {
  MemoryWatch* const watch = current_;
  if (!watch || !page_missing || !watch->owns_(watch->self_, address)) return false;
  const size_t bytes = page_bytes();
  auto* const page = reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(address) / bytes * bytes);
  void* const made =
      mmap(page, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  const bool there = made == MAP_FAILED && errno == EEXIST;  // by another thread, which takes it away, too
  if (!there && made != page) {  // for a kernel older than 4.17 the address was a hint
    if (made != MAP_FAILED) munmap(made, bytes);
    return false;
  }
  if (!there) std::memset(page, kPoison, bytes);
  watch->note(page, bytes, !there);
  return true;
}

/// One that is in too many places stays where it is.
void MemoryWatch::note(const char* page, size_t bytes, bool ours) {
  for (size_t i = 0; i < runs_; ++i) {
    Run& run = missing_[i];
    if (run.ours != ours) continue;
    if (run.end == page) return void(run.end += bytes);
    if (run.begin == page + bytes) return void(run.begin = page);
  }
  if (runs_ < missing_.size()) missing_[runs_++] = {page, page + bytes, ours};
}

bool MemoryWatch::has_lost(const void* memory, size_t bytes) const {
  return std::any_of(missing_.begin(), missing_.begin() + runs_,
                     [&](const Run& run) { return run.meets(memory, bytes); });
}

void MemoryWatch::give_back() {
  for (size_t i = 0; i < runs_; ++i)
    if (missing_[i].ours)
      munmap(const_cast<char*>(missing_[i].begin), static_cast<size_t>(missing_[i].end - missing_[i].begin));
  runs_ = 0;
}

}  // namespace weft
