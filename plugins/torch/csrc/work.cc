#include "work.h"

#include <c10/util/Exception.h>

#include <chrono>
#include <cmath>
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

std::string not_complete(const char* title, uint64_t number, int rank, std::chrono::milliseconds waited) {
  return c10::str(title, " number ", number, " of rank ", rank, " was not complete after ", waited.count(),
                  " ms; it goes on, so its tensors may still change. A longer timeout would wait for it.");
}

WeftWork::WeftWork(int rank, c10d::OpType type, const char* title, const std::vector<at::Tensor>& inputs,
                   std::vector<at::Tensor> outputs, uint64_t sequence_number)
    : Work(rank, type, title, inputs),
      title_(title),
      outputs_(std::move(outputs)),
      sequence_number_(sequence_number) {}

void WeftWork::set_driver(std::function<void(double)> driver) {
  std::lock_guard<std::mutex> lock(driver_mutex_);
  driver_ = std::move(driver);
}

bool WeftWork::wait(std::chrono::milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  if (!isCompleted()) {
    std::function<void(double)> driver;
    {
      std::lock_guard<std::mutex> lock(driver_mutex_);
      driver = driver_;
    }
    if (driver) driver(timeout.count() > 0 ? timeout.count() / 1000.0 : INFINITY);
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
  return true;
}

void WeftWork::mark(c10::ivalue::Future& future) {
  if (auto error = exception()) {
    future.setError(error);
  } else {
    future.markCompleted(c10::IValue(outputs_));
  }
}

c10::intrusive_ptr<c10::ivalue::Future> WeftWork::getFuture() {
  std::lock_guard<std::mutex> lock(future_mutex_);
  if (!future_) {
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    marked_ = isCompleted();
    if (marked_) mark(*future_);
  }
  return future_;
}

// A Future that is asked for from now on is complete at once.
void WeftWork::complete(std::exception_ptr error) {
  finish(std::move(error));
  set_driver({});
}

void WeftWork::run_callbacks() {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    std::lock_guard<std::mutex> lock(future_mutex_);
    if (!future_ || marked_ || !isCompleted()) return;
    marked_ = true;
    future = future_;
  }
  // Outside the lock, because callbacks run here.
  mark(*future);
}

void WeftWork::part_complete(const std::exception_ptr& error) {
  if (error) {
    std::lock_guard<std::mutex> lock(part_mutex_);
    if (!part_error_) part_error_ = error;
  }
  if (parts_.fetch_sub(1) == 1) complete(part_error_);
}

}  // namespace weft_torch
