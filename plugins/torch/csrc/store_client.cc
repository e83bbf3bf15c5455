#include "store_client.h"

#include <pybind11/pybind11.h>

#include <algorithm>
#include <future>
#include <thread>

#include "work.h"

namespace weft_torch {

namespace {

using Clock = std::chrono::steady_clock;

// Throws what a handler of signals raises, with a note of what the thread was doing. Only the main thread of
// Python handles signals.
void check_signals(const std::string& doing) {
  if (!Py_IsInitialized() || PyGILState_GetThisThreadState() == nullptr) return;
  const pybind11::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() == 0) return;
  pybind11::error_already_set raised;
  if (pybind11::hasattr(raised.value(), "add_note"))  // Python 3.11
    raised.value().attr("add_note")("This came while " + doing + ".");
  throw raised;
}

}  // namespace

void Interruption::check_cancelled() const {
  if (cancelled != nullptr && *cancelled) std::rethrow_exception(backend_error(kAborted));
}

void Interruption::check() const {
  check_cancelled();
  check_signals(doing);
}

StoreClient::StoreClient(c10::intrusive_ptr<c10d::Store> store, std::string group_name,
                         std::chrono::milliseconds patience, Interruption interruption)
    : store_(std::move(store)),
      group_name_(std::move(group_name)),
      patience_(std::max<std::chrono::milliseconds>(patience, std::chrono::seconds(1))),
      interruption_(std::move(interruption)) {}

template <typename Ask>
std::invoke_result_t<Ask, c10d::Store&> StoreClient::answer_to(Ask ask) const {
  using Answer = std::invoke_result_t<Ask, c10d::Store&>;
  std::packaged_task<Answer()> task([store = store_, ask = std::move(ask)] { return ask(*store); });
  std::future<Answer> answer = task.get_future();
  std::thread(std::move(task)).detach();
  const auto end = from_now(patience_);
  while (answer.wait_for(kLook) != std::future_status::ready) {
    interruption_.check();
    if (Clock::now() < end) continue;
    fail(c10::str("did not answer within ", patience_.count() / 1000.0, " s"), "");
  }
  try {
    return answer.get();
  } catch (const c10::Error& error) {
    fail("failed", c10::str(" (torch: ", error.what_without_backtrace(), ")"));
  }
}

void StoreClient::fail(const std::string& how, const std::string& cause) const {
  std::rethrow_exception(backend_error(
      c10::str("The store of the process group ", group_name_, " ", how,
               "; see whether its server, mostly in rank 0, runs and can be reached", cause, ".")));
}

int64_t StoreClient::add(const std::string& key, int64_t amount) {
  return answer_to([=](c10d::Store& store) { return store.add(key, amount); });
}

void StoreClient::set(const std::string& key, const Bytes& value) {
  answer_to([=](c10d::Store& store) { store.set(key, value); });
}

Bytes StoreClient::get(const std::string& key) {
  return answer_to([=](c10d::Store& store) { return store.get(key); });
}

void StoreClient::delete_key(const std::string& key) {
  answer_to([=](c10d::Store& store) { return store.deleteKey(key); });
}

bool StoreClient::await_key(const std::string& key, std::chrono::milliseconds timeout) {
  // A wait in the store would hold its connection, and torch logs the end of each that was in vain.
  const auto end = from_now(timeout);
  for (Clock::duration pause = std::chrono::milliseconds(1);;
       pause = std::min<Clock::duration>(2 * pause, kLook)) {
    if (answer_to([=](c10d::Store& store) { return store.check({key}); })) return true;
    interruption_.check();
    const auto left = end - Clock::now();
    if (left <= Clock::duration::zero()) return false;
    std::this_thread::sleep_for(std::min(pause, left));
  }
}

}  // namespace weft_torch
