#include "device_work.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <thread>
#include <utility>

#include "work.h"

namespace weft_torch {

weftResult_t DeviceComm::result() {
  const std::lock_guard<std::mutex> lock(mutex_);
  weftResult_t failed = weftSuccess;
  if (!ended_) weftCommGetAsyncError(comm_, &failed);
  return failed == weftInProgress ? weftSuccess : failed;
}

std::exception_ptr DeviceComm::failure() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (ended_) return left_with_;
  weftResult_t failed = weftSuccess;
  weftCommGetAsyncError(comm_, &failed);
  if (failed == weftSuccess || failed == weftInProgress) return nullptr;
  return backend_error(failure_sentence(comm_, failed));
}

void DeviceComm::set_timeout(double seconds) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!ended_) weftCommSetTimeout(comm_, seconds);
}

void DeviceComm::end(const char* reason_to_abort) {
  if (reason_to_abort == nullptr) {
    // May wait long, so not under the lock; an abort may come meanwhile, and both may end it.
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (ended_) return;
    }
    weftResult_t state = weftCommFinalize(comm_);
    while (state == weftInProgress && weftCommGetAsyncError(comm_, &state) == weftSuccess)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  auto left_with = failure();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (ended_) return;
  ended_ = true;
  if (reason_to_abort != nullptr) {
    left_with_ = left_with ? left_with : backend_error(kAborted);
    weftCommAbortWithReason(comm_, reason_to_abort);
  } else {
    left_with_ = left_with;
    weftCommDestroy(comm_);
  }
}

void InFlight::let_go() {
  std::vector<Operation> over;  // ends without the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  over.swap(kept_);
}

void DeviceWork::issued(std::shared_ptr<DeviceComm> comm, std::shared_ptr<InFlight> in_flight) {
  comm_ = std::move(comm);
  in_flight_ = std::move(in_flight);
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                     std::vector<c10::Device>{in_flight_->end().device()});
  future_->markCompleted(c10::IValue(outputs_));
  // The profiler shows what the host has done.
  if (recordFunctionEndCallback_) std::exchange(recordFunctionEndCallback_, nullptr)();
}

void DeviceWork::check_issued() const {
  if (in_flight_) return;
  std::rethrow_exception(backend_error(c10::str(
      title_, " belongs to coalesced calls, which start together at their end; wait for it afterwards.")));
}

bool DeviceWork::isCompleted() {
  if (!in_flight_) return false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (completed_) return true;
  }
  if (!in_flight_->end().query()) return false;
  in_flight_->let_go();
  finish(comm_->failure());
  return true;
}

void DeviceWork::synchronize() {
  check_issued();
  const c10::Event& end = in_flight_->end();
  const c10::impl::VirtualGuardImpl device(end.device_type());
  end.block(device.getStream(end.device()));
  in_flight_->let_go();
  leave_registry(*this);
}

bool DeviceWork::wait(std::chrono::milliseconds timeout) {
  check_issued();
  // A stream goes on after a failure, with whatever is in its memory.
  if (auto failed = comm_->failure()) std::rethrow_exception(failed);
  synchronize();
  if (timeout.count() <= 0) return true;
  const auto until = from_now(timeout);
  while (!in_flight_->end().query()) {
    if (std::chrono::steady_clock::now() >= until)
      std::rethrow_exception(backend_error(not_complete(title_, sequence_number_, rank_, timeout)));
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  if (auto failed = comm_->failure()) std::rethrow_exception(failed);
  return true;
}

}  // namespace weft_torch
