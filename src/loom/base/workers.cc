// The pool: threads spin for a moment, since the next job usually follows at once, and then sleep.
#include "base/workers.h"

#include <algorithm>

#include "base/thread.h"

namespace loom {
namespace {

constexpr int kSpins = 4000;  // some 100 µs
constexpr size_t kLine = 64;

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

Workers::Workers(int threads) : scratch_(threads) {
  for (int worker = 1; worker < threads && started_.ok(); ++worker) {
    Result<std::thread> thread = start_thread([this, worker] { serve(worker); });
    started_ = thread.status();
    if (thread.ok()) threads_.push_back(thread.take());
  }
}

Workers::~Workers() {
  stop_.store(true);
  round_.fetch_add(1);
  round_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Workers::work(int worker) {
  for (int64_t part; (part = next_.fetch_add(1, std::memory_order_relaxed)) < parts_;)
    body_(context_, part, worker);
}

void Workers::serve(int worker) {
  uint32_t seen = 0;
  while (true) {
    for (int spin = 0; spin < kSpins && round_.load(std::memory_order_acquire) == seen; ++spin) pause();
    round_.wait(seen, std::memory_order_acquire);
    seen = round_.load(std::memory_order_acquire);
    if (stop_.load()) return;
    work(worker);
    if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_.notify_one();
  }
}

void Workers::run(int64_t parts, Body body, void* context) {
  if (parts <= 1 || threads_.empty()) {
    for (int64_t part = 0; part < parts; ++part) body(context, part, 0);
    return;
  }
  body_ = body;
  context_ = context;
  parts_ = parts;
  next_.store(0, std::memory_order_relaxed);
  busy_.store(static_cast<int>(threads_.size()), std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  work(0);
  for (int spin = 0; spin < kSpins && busy_.load(std::memory_order_acquire) != 0; ++spin) pause();
  for (int left; (left = busy_.load(std::memory_order_acquire)) != 0;)
    busy_.wait(left, std::memory_order_acquire);
}

std::byte* Workers::at_least(size_t bytes, Scratch& own) {
  if (own.bytes < bytes + kLine) {
    own.memory.reset();  // first, so that both are never held at once
    own.memory = std::make_unique_for_overwrite<std::byte[]>(bytes + kLine);
    own.bytes = bytes + kLine;
  }
  const auto address = reinterpret_cast<uintptr_t>(own.memory.get());
  return own.memory.get() + ((kLine - address % kLine) % kLine);
}

std::byte* Workers::scratch(int worker, size_t bytes) { return at_least(bytes, scratch_[worker]); }

std::byte* Workers::shared_scratch(size_t bytes) { return at_least(bytes, shared_); }

void Workers::level_scratch() {
  size_t most = 0;
  for (const Scratch& own : scratch_) most = std::max(most, own.bytes);
  if (most <= kLine) return;
  for (int worker = 0; worker < threads(); ++worker) (void)scratch(worker, most - kLine);
}

size_t Workers::scratch_bytes() const {
  size_t bytes = shared_.bytes;
  for (const Scratch& own : scratch_) bytes += own.bytes;
  return bytes;
}

}  // namespace loom
