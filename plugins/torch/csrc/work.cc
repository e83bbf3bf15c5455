#include "work.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

namespace weft_torch {

std::exception_ptr backend_error(const std::string& sentence) {
  return std::make_exception_ptr(
      c10::DistBackendError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, sentence));
}

std::string failure_sentence(weftComm_t comm, weftResult_t result) {
  std::string text = weftGetLastError(comm);
  if (text.empty()) text = weftGetErrorString(result);
  return result == weftTimeout ? text + "; the timeout of the group or of the call is over" : text;
}

std::chrono::steady_clock::time_point from_now(std::chrono::milliseconds wait) {
  constexpr std::chrono::milliseconds kLongest = std::chrono::hours(100 * 365 * 24);
  return std::chrono::steady_clock::now() + std::clamp(wait, std::chrono::milliseconds(0), kLongest);
}

std::string not_complete(const char* title, uint64_t number, int rank, std::chrono::milliseconds waited) {
  return c10::str(title, " number ", number, " of rank ", rank, " was not complete after ", waited.count(),
                  " ms; it goes on, so its tensors may still change. A longer timeout would wait for it.");
}

void leave_registry(c10d::Work& work) {
  if (!c10d::allow_inflight_collective_as_graph_input()) return;
  c10d::unregister_work(c10::intrusive_ptr<c10d::Work>::unsafe_reclaim_from_nonowning(&work));
}

void WeftWork::set_driver(Driver driver) {
  std::lock_guard<std::mutex> lock(driver_mutex_);
  driver_ = std::move(driver);
}

WeftWork::Driver WeftWork::driver() {
  std::lock_guard<std::mutex> lock(driver_mutex_);
  return driver_;
}

bool WeftWork::is_complete_after(double seconds) {
  if (Work::isCompleted()) return true;
  if (auto watch = driver().watch) watch(seconds);
  return Work::isCompleted();
}

bool WeftWork::isCompleted() { return is_complete_after(0); }

bool WeftWork::wait(std::chrono::milliseconds timeout) {
  const auto end = from_now(timeout);
  if (!Work::isCompleted()) {
    if (auto drive = driver().drive) drive(timeout.count() > 0 ? timeout.count() / 1000.0 : INFINITY);
  }
  std::unique_lock<std::mutex> lock(mutex_);
  auto done = [this] { return completed_; };
  if (timeout.count() <= 0) {
    cv_.wait(lock, done);
  } else if (!cv_.wait_until(lock, end, done)) {
    lock.unlock();
    std::rethrow_exception(backend_error(not_complete(title_, sequence_number_, rank_, timeout)));
  }
  if (exception_) std::rethrow_exception(exception_);
  lock.unlock();
  leave_registry(*this);
  return true;
}

void WeftWork::mark(c10::ivalue::Future& future, FutureKind kind) const {
  const std::exception_ptr error = exception();
  if (kind == kResult) {
    const auto result = error ? c10d::WorkResult::COMM_ERROR : c10d::WorkResult::SUCCESS;
    future.markCompleted(c10::IValue(static_cast<int64_t>(result)));
  } else if (error) {
    future.setError(error);
  } else {
    future.markCompleted(c10::IValue(outputs_));
  }
}

// A Future that is asked for after the end is complete at once.
c10::intrusive_ptr<c10::ivalue::Future> WeftWork::future_of(FutureKind kind, c10::TypePtr type) {
  // A callback costs two changes of threads. Where the other ranks come soon, their messages are faster.
  constexpr double kSoonSeconds = 20e-6;
  const bool complete = is_complete_after(kSoonSeconds);  // else it completes by itself from here on
  std::lock_guard<std::mutex> lock(future_mutex_);
  KeptFuture& kept = futures_[kind];
  if (!kept.future) {
    kept.future = c10::make_intrusive<c10::ivalue::Future>(std::move(type));
    kept.marked = complete || Work::isCompleted();
    if (kept.marked) mark(*kept.future, kind);
  }
  return kept.future;
}

c10::intrusive_ptr<c10::ivalue::Future> WeftWork::getFuture() {
  return future_of(kOutputs, c10::ListType::ofTensors());
}

c10::intrusive_ptr<c10::ivalue::Future> WeftWork::getFutureResult() {
  return future_of(kResult, c10::IntType::get());
}

float WeftWork::getDuration() const {
  std::lock_guard<std::mutex> lock(mutex_);
  TORCH_CHECK(begin_, title_, " was not timed: call _enable_collectives_timing() of its group before it.");
  TORCH_CHECK(completed_, title_, " is not complete, so it has no duration yet; wait for it first.");
  return std::chrono::duration<float, std::milli>(end_ - *begin_).count();
}

void WeftWork::complete(std::exception_ptr error) {
  if (begin_) end_ = Clock::now();
  finish(std::move(error));
  set_driver({});
}

bool WeftWork::has_callbacks() {
  if (!Work::isCompleted()) return false;
  std::lock_guard<std::mutex> lock(future_mutex_);
  return std::any_of(std::begin(futures_), std::end(futures_),
                     [](const KeptFuture& kept) { return kept.future && !kept.marked; });
}

void WeftWork::run_callbacks() {
  for (FutureKind kind : {kOutputs, kResult}) {
    c10::intrusive_ptr<c10::ivalue::Future> future;
    {
      std::lock_guard<std::mutex> lock(future_mutex_);
      KeptFuture& kept = futures_[kind];
      if (!kept.future || kept.marked || !Work::isCompleted()) continue;
      kept.marked = true;
      future = kept.future;
    }
    // Outside the lock, because callbacks run here.
    mark(*future, kind);
  }
}

void WeftWork::part_complete(const std::exception_ptr& error) {
  if (error) {
    std::lock_guard<std::mutex> lock(part_mutex_);
    if (!part_error_) part_error_ = error;
  }
  if (parts_.fetch_sub(1) == 1) complete(part_error_);
}

}  // namespace weft_torch
