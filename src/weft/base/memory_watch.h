// Memory watch: lets a thread of Weft survive an access to memory that its owner has freed. Buffers belong
// to callers. If a caller unmaps one in the middle of an operation, SIGSEGV would end the whole process
// here, far from the mistake. So a thread that is about to touch callers' memory first says whose it may be
// (MemoryWatch). If it then meets a missing page, a signal handler maps one, full of 0xff (NaN in every
// floating-point type), and notes the address. The instruction continues, and nothing is unwound. The code
// that started the copy, the reduction or the call of libfabric calls lost() afterwards and fails. Then, or
// when the watch ends, the page is unmapped.
//
// This costs a copy nothing and a watch a few stores. To ask the kernel for every copy, or to leave by
// sigsetjmp(), would slow down short messages, and libfabric cannot be left in the middle.
//
// All other faults go to the previous handler: a page that is mapped but protected (programs use that on
// purpose), an address that no thread watches, any other thread.
//
// Thread safety: all functions; a watch is its thread's. Invariant: watches end in the reverse order of
// their beginnings. A page that one thread has mapped is visible to others: a thread that reads it in that
// moment does not learn of the loss.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

namespace weft {

class MemoryWatch {
 public:
  /// Whether `address` lies in memory that callers have lent to `self`. Runs in the signal handler, on the
  /// thread of the watch, wherever that touches such memory.
  using Owns = bool (*)(const void* self, const void* address);
  /// Pages that were missing.
  struct Run {
    const char* begin;
    const char* end;
    bool ours;  // not put there by another thread

    bool meets(const void* memory, size_t bytes) const {
      return memory && static_cast<const char*>(memory) < end &&
             begin < static_cast<const char*>(memory) + bytes;
    }
  };

  MemoryWatch(Owns owns, const void* self) : owns_(owns), self_(self), outer_(current_) {
    current_ = this;
    in_order();
  }
  ~MemoryWatch() {
    in_order();
    current_ = outer_;
    if (runs_ > 0) [[unlikely]]
      give_back();
  }
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;

  /// Whether this thread has found something missing in its innermost watch, and settle() has not been called
  /// since.
  static bool lost() {
    in_order();
    return current_ && current_->runs_ > 0;
  }
  /// Whether some of that is in these pages.
  static bool lost(const void* memory, size_t bytes) { return lost() && current_->has_lost(memory, bytes); }
  /// Calls told(run) for all of it, and takes the pages away again: who touches them next is told anew.
  template <typename F>
  static void settle(F told) {
    if (!lost()) return;
    for (size_t i = 0; i < current_->runs_; ++i) told(static_cast<const Run&>(current_->missing_[i]));
    current_->give_back();
  }

  /// Sees to it that faults come here first, unless WEFT_MEMORY_WATCH is off; the first call counts.
  static void install();
  /// For a thread of the library's own, which may have been started with all signals blocked: a fault would
  /// end the process then.
  static void unblock();

  /// For the signal handler: puts a page at `address` if this thread's watch is for that. `page_missing`: the
  /// fault was not one of access rights.
  static bool mend(const void* address, bool page_missing);

 private:
  /// The compiler does not know that the handler comes in between.
  static void in_order() { std::atomic_signal_fence(std::memory_order_seq_cst); }
  bool has_lost(const void* memory, size_t bytes) const;
  void note(const char* page, size_t bytes, bool ours);
  void give_back();

  // Of the static kind: a signal handler must not allocate it.
  static constinit thread_local MemoryWatch* current_ __attribute__((tls_model("initial-exec")));

  const Owns owns_;
  const void* const self_;
  MemoryWatch* const outer_;
  size_t runs_ = 0;
  std::array<Run, 32> missing_;  // who copies goes from page to page
};

}  // namespace weft
