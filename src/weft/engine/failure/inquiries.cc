#include "engine/failure/inquiries.h"

#include <utility>

#include "base/thread.h"
#include "engine/context/context.h"

namespace weft::engine {

bool Inquiries::ask(Inquiry inquiry) {
  if (running_) return false;
  if (thread_.joinable()) thread_.join();  // it has ended: running_ is false
  running_ = true;
  thread_ = std::thread([this, inquiry = std::move(inquiry)]() mutable {
    name_thread("weft-inquiry");
    for (; inquiry; inquiry = next()) inquiry();
  });
  return true;
}

void Inquiries::ask_in_turn(uint32_t comm, Inquiry inquiry) {
  if (running_) waiting_.try_emplace(comm, std::move(inquiry));
  else (void)ask(std::move(inquiry));
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
