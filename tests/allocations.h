// Counts what is allocated, by standing in front of the C library's functions, for all threads of the
// process; and says whose allocation it was: the first caller that is Weft's shared library, or else the
// program, with what it is made of and the other libraries that it calls. To be included by one file of a
// program.
#pragma once

// Sanitizers stand there themselves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__GLIBC__)
#define WEFT_COUNTS_ALLOCATIONS 1

#include <execinfo.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace weft::testing {

struct Allocations {
  int64_t program = 0, weft = 0;
  int64_t largest_bytes = 0;

  int64_t all() const { return program + weft; }
};

class AllocationCounter {
 public:
  /// Everything from zero.
  static void begin() {
    prepare();
    program_ = weft_ = largest_ = 0;
    counting_ = true;
  }
  static Allocations end() {
    counting_ = false;
    return {program_, weft_, largest_};
  }

  /// Of the function that the C library's caller believes to call, right away.
  [[gnu::noinline]] static void note(size_t bytes) {
    if (!counting_.load(std::memory_order_relaxed) || inside_) return;
    inside_ = true;
    (is_wefts() ? weft_ : program_).fetch_add(1, std::memory_order_relaxed);
    for (int64_t most = largest_; most < static_cast<int64_t>(bytes);)
      if (largest_.compare_exchange_weak(most, static_cast<int64_t>(bytes))) break;
    inside_ = false;
  }

 private:
  struct Range {
    uintptr_t begin, end;
    bool wefts;
  };

  /// Where code lies. The first backtrace() allocates.
  static void prepare() {
    if (count_ > 0) return;
    std::array<void*, 4> frames;
    (void)backtrace(frames.data(), static_cast<int>(frames.size()));
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void*) {
          const bool program = count_ == 0, wefts = std::strstr(info->dlpi_name, "libweft.so") != nullptr;
          for (int i = 0; (program || wefts) && i < info->dlpi_phnum; ++i) {
            const auto& part = info->dlpi_phdr[i];
            if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0 || count_ == ranges_.size()) continue;
            const uintptr_t begin = info->dlpi_addr + part.p_vaddr;
            ranges_[count_++] = {begin, begin + part.p_memsz, wefts};
          }
          return 0;
        },
        nullptr);
  }

  [[gnu::noinline]] static bool is_wefts() {
    std::array<void*, 24> frames;
    const int depth = backtrace(frames.data(), static_cast<int>(frames.size()));
    for (int i = 3; i < depth; ++i) {  // behind this, note() and the function that stands in front
      const auto at = reinterpret_cast<uintptr_t>(frames[static_cast<size_t>(i)]);
      for (size_t r = 0; r < count_; ++r)
        if (at >= ranges_[r].begin && at < ranges_[r].end) return ranges_[r].wefts;
    }
    return false;  // whoever it was, it must not be
  }

  static inline std::atomic<bool> counting_{false};
  static inline std::atomic<int64_t> program_{0}, weft_{0}, largest_{0};
  static inline thread_local bool inside_ = false;
  static inline std::array<Range, 16> ranges_;
  static inline size_t count_ = 0;
};

}  // namespace weft::testing

extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) {
  weft::testing::AllocationCounter::note(bytes);
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  weft::testing::AllocationCounter::note(count * bytes);
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, size_t bytes) {
  weft::testing::AllocationCounter::note(bytes);
  return __libc_realloc(memory, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  weft::testing::AllocationCounter::note(bytes);
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  weft::testing::AllocationCounter::note(bytes);
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  weft::testing::AllocationCounter::note(bytes);
  *memory = __libc_memalign(alignment, bytes);
  return *memory != nullptr ? 0 : ENOMEM;
}
}
#endif
