// Workers: the threads that share the arithmetic of one rank. A job is a number of parts; a free worker
// takes the next. Parts must write to different places and must not depend on their worker. So results have
// the same bits for any number of threads as long as the parts are the same.
//
// Thread safety: one thread calls run() at a time; bodies run on all of them. A body may not call run().
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/status.h"

namespace loom {

class Workers {
 public:
  /// body(context, part, worker): 0 ≤ worker < threads().
  using Body = void (*)(void* context, int64_t part, int worker);

  /// `threads` ≥ 1 counts the caller of run(). Where the system gives fewer, those share the work; see
  /// started().
  explicit Workers(int threads);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  /// Whether all threads could be started. Errors: system_error.
  const Status& started() const { return started_; }
  int threads() const { return static_cast<int>(threads_.size()) + 1; }

  /// Runs `body` for all parts in [0, parts) and returns when all are done.
  void run(int64_t parts, Body body, void* context);

  /// At least `bytes` bytes of this worker's own, aligned to 64, contents undefined. They are kept from call
  /// to call and grow only when more is asked for than ever before. To be called by that worker inside a
  /// body, or outside run() by its caller as worker 0.
  std::byte* scratch(int worker, size_t bytes);

  /// The same for all workers together. Outside run() only.
  std::byte* shared_scratch(size_t bytes);

  /// Makes every worker's scratch as large as the largest, so that any worker can take any part from now on.
  /// Outside run() only.
  void level_scratch();

  /// What all workers' scratch takes now, and what they share.
  size_t scratch_bytes() const;

 private:
  struct Scratch {
    std::unique_ptr<std::byte[]> memory;
    size_t bytes = 0;
  };
  static std::byte* at_least(size_t bytes, Scratch& own);
  void serve(int worker);
  void work(int worker);

  std::vector<std::thread> threads_;
  Status started_;
  std::vector<Scratch> scratch_;
  Scratch shared_;
  Body body_ = nullptr;
  void* context_ = nullptr;
  int64_t parts_ = 0;
  std::atomic<int64_t> next_{0};
  std::atomic<int> busy_{0};
  std::atomic<uint32_t> round_{0};  // grows by one for each run(); threads wait for it to change
  std::atomic<bool> stop_{false};
};

/// run() for a callable body(part, worker). Not a template of Workers, so that the instantiations belong to
/// the file that compiles them, with its instruction set.
template <typename F>
inline void for_parts(Workers& workers, int64_t parts, F&& body) {
  workers.run(
      parts, [](void* context, int64_t part, int worker) { (*static_cast<F*>(context))(part, worker); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

/// body() once on each worker: a worker with a part keeps it until all have one.
template <typename F>
inline void for_workers(Workers& workers, F&& body) {
  std::atomic<int> here{0};
  for_parts(workers, workers.threads(), [&](int64_t, int) {
    body();
    here.fetch_add(1);
    while (here.load() < workers.threads()) std::this_thread::yield();
  });
}

}  // namespace loom
