// A mutex that mostly one thread takes, over and over: that thread enters and leaves by plain stores.
//
// A mutex costs its owner two locked instructions, and each waits until all stores before it are done: after
// a message whose cache line must first come from its reader, as long as the message itself takes. So a
// thread that has taken the mutex many times in a row gets the *bias*: from then on it says by `inside_` that
// it is in, and looks whether it still has the bias. That is Dekker's protocol, whose fence the others pay
// for: who wants the mutex takes the ordinary one, takes the bias away, lets membarrier(2) put a fence into
// the owner, and waits until the owner is out. Each time that happens, the next bias needs twice as many
// calls in a row. Where the kernel has no membarrier, nobody ever gets the bias.
//
// The same idea as biased locking in the HotSpot virtual machine (Dice, Kogan and Lev describe its
// asymmetric form).
//
// Thread safety: lock, try_lock and unlock as std::mutex's; meets *Lockable*.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace weft {

class BiasedMutex {
 public:
  void lock() {
    if (!enter_biased()) lock_slowly();
  }
  /// May be false although nobody is in: if another thread has the bias.
  bool try_lock() { return enter_biased() || try_slowly(); }
  void unlock() {
    if (by_bias_) {
      by_bias_ = false;
      inside_.store(false, std::memory_order_release);
    } else {
      unlock_slowly();
    }
  }

  /// Whether the calling thread has the bias; under the lock. For tests.
  bool biased() const { return bias_.load(std::memory_order_relaxed) == self(); }

 private:
  static constexpr uint32_t kFirstRow = 64, kLongestRow = 1 << 20, kNever = UINT32_MAX;

  /// Tells threads apart; never null.
  static const void* self() {
#if defined(__x86_64__) || defined(__aarch64__)
    return __builtin_thread_pointer();
#else
    static thread_local const char here = 0;
    return &here;
#endif
  }

  bool enter_biased() {
    const void* const me = self();
    if (bias_.load(std::memory_order_relaxed) != me) return false;
    inside_.store(true, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // the other half is in take_bias_away()
    if (bias_.load(std::memory_order_acquire) == me) [[likely]] {
      by_bias_ = true;
      return true;
    }
    inside_.store(false, std::memory_order_release);
    return false;
  }

  void lock_slowly();
  bool try_slowly();
  void unlock_slowly();
  void take_bias_away();

  std::atomic<const void*> bias_{nullptr};  // set under mutex_ by the thread that gets it
  std::atomic<bool> inside_{false};         // that thread is in, or trying
  bool by_bias_ = false;                    // how who is in got in; theirs
  std::mutex mutex_;
  // Under mutex_:
  const void* last_ = nullptr;  // who had it last
  uint32_t row_ = 0;            // how many times in a row
  uint32_t needed_ = kFirstRow;
};

}  // namespace weft
