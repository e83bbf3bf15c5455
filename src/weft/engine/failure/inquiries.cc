#include "engine/failure/inquiries.h"

#include <utility>

#include "base/thread.h"
#include "engine/context/context.h"

namespace weft::engine {

Status Inquiries::ask(Inquiry inquiry) {
  if (running_) return fail(Code::in_progress, "another inquiry runs");
  if (thread_.joinable()) thread_.join();  // it has ended: running_ is false
  Result<std::thread> thread = start_thread("weft-inquiry", [this, inquiry = std::move(inquiry)]() mutable {
    for (; inquiry; inquiry = next()) inquiry();
  });
  if (!thread.ok()) return thread.status();
  thread_ = thread.take();
  running_ = true;
  return {};
}

Status Inquiries::ask_in_turn(uint32_t comm, Inquiry inquiry) {
  if (!running_) return ask(std::move(inquiry));
  waiting_.try_emplace(comm, std::move(inquiry));
  return {};
}

// Runs on the thread of inquiries when one has ended. If none waits, the thread ends; the next inquiry starts
// a new one.
Inquiries::Inquiry Inquiries::next() {
  const Lock lock = context_.lock();
  running_ = !waiting_.empty();
  if (!running_) return {};
  return std::move(waiting_.extract(waiting_.begin()).mapped());
}

void Inquiries::close() {
  {
    const Lock lock = context_.lock();
    waiting_.clear();
  }
  if (thread_.joinable()) thread_.join();
}

}  // namespace weft::engine
