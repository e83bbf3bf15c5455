#include "reconfigurable.h"

#ifdef C10D_BACKEND_HAS_RECONFIGURE

#include <algorithm>
#include <random>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "options.h"

namespace weft_torch {

namespace {

// Sorted handles are in the order of the ranks that programs were started with.
c10d::ReconfigureHandle new_handle(int rank) {
  std::random_device random;
  char text[64];
  snprintf(text, sizeof text, "weft:%08d:%08x%08x", rank, random(), random());
  return text;
}

std::vector<c10d::ReconfigureHandle> ordered(const c10d::ReconfigureOptions& options) {
  std::vector<c10d::ReconfigureHandle> handles;
  std::visit([&](const auto& given) { handles.assign(given.begin(), given.end()); }, options.handles);
  auto sorted = handles;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    C10_THROW_ERROR(ValueError,
                    c10::str("A handle of reconfigure is given twice: ",
                             *std::adjacent_find(sorted.begin(), sorted.end()), "; give one for each rank."));
  }
  const bool in_order = std::holds_alternative<std::vector<c10d::ReconfigureHandle>>(options.handles);
  return in_order ? handles : sorted;
}

WorkPtr complete_work(int rank) {
  Operation nothing;
  auto work = c10::make_intrusive<WeftWork>(rank, nothing, 0);
  work->complete(nullptr);
  return work;
}

constexpr const char* kEnded =
    "This process group was aborted or shut down on this rank; make another by init_process_group() or "
    "new_group().";

}  // namespace

ReconfigurableBackend::ReconfigurableBackend(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                             std::chrono::milliseconds timeout, std::string group_name,
                                             std::string accelerator)
    : Backend(rank, size),
      store_(std::move(store)),
      options_(c10::make_intrusive<WeftOptions>(timeout)),
      accelerator_(std::move(accelerator)),
      handle_(new_handle(rank)) {
  options_->group_name = std::move(group_name);
  options_->enable_reconfigure = true;
  init();
}

WorkPtr ReconfigurableBackend::reconfigure(const c10d::ReconfigureOptions& options) {
  const std::lock_guard<std::mutex> one(reconfiguring_);
  const std::vector<c10d::ReconfigureHandle> handles = ordered(options);
  const auto own = std::find(handles.begin(), handles.end(), handle_);
  if (own == handles.end()) {
    C10_THROW_ERROR(ValueError, c10::str("The handles of reconfigure do not have this rank's, ", handle_,
                                         "; a rank that is not named does not call it."));
  }
  if (last_uuid_ == options.uuid) {
    C10_THROW_ERROR(ValueError, c10::str("The uuid ", options.uuid,
                                         " of reconfigure was used before; give each call another."));
  }
  if (ended_) std::rethrow_exception(backend_error(kEnded));
  last_uuid_ = options.uuid;
  BackendPtr before;
  std::chrono::milliseconds timeout;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    before = std::exchange(now_, nullptr);
    timeout = options.timeout.value_or(options_->timeout);
  }
  if (before) before->abort();
  const int rank = static_cast<int>(own - handles.begin());
  const int size = static_cast<int>(handles.size());
  auto store = c10::make_intrusive<c10d::PrefixStore>("weft/reconfigured/" + std::to_string(options.uuid),
                                                      store_->clone());
  auto made = c10::make_intrusive<WeftBackend>(std::move(store), rank, size, timeout, options_->group_name,
                                               std::vector<uint64_t>(), accelerator_, &ended_);
  if (!install(made, timeout)) {
    made->abort();
    std::rethrow_exception(backend_error(kEnded));
  }
  return complete_work(rank);
}

bool ReconfigurableBackend::install(const BackendPtr& made, std::chrono::milliseconds timeout) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (ended_) return false;
  if (timeout != options_->timeout) made->setTimeout(options_->timeout);
  rank_ = made->getRank();
  size_ = made->getSize();
  now_ = made;
  return true;
}

ReconfigurableBackend::BackendPtr ReconfigurableBackend::any() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return now_;
}

ReconfigurableBackend::BackendPtr ReconfigurableBackend::now() const {
  if (auto found = any()) return found;
  if (ended_) std::rethrow_exception(backend_error(kEnded));
  std::rethrow_exception(
      backend_error("This process group has no ranks yet: it was made with enable_reconfigure, so call "
                    "reconfigure() first."));
}

void ReconfigurableBackend::startCoalescing() {
  if (auto found = any()) found->startCoalescing();
}

WorkPtr ReconfigurableBackend::endCoalescing() {
  auto found = any();
  return found && !ended_ ? found->endCoalescing() : complete_work(-1);
}

void ReconfigurableBackend::cancel_coalescing() {
  if (auto found = any()) found->cancel_coalescing();
}

void ReconfigurableBackend::setTimeout(std::chrono::milliseconds timeout) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (now_) now_->setTimeout(timeout);
  options_->timeout = timeout;
}

c10d::ErrorType ReconfigurableBackend::getError() {
  auto found = any();
  return found ? found->getError() : c10d::ErrorType::SUCCESS;
}

void ReconfigurableBackend::abort() {
  ended_ = true;  // before any(): a reconfigure() that installs a backend later sees it
  if (auto found = any()) found->abort();
}

void ReconfigurableBackend::shutdown() {
  ended_ = true;
  if (auto found = any()) found->shutdown();
}

}  // namespace weft_torch

#endif  // C10D_BACKEND_HAS_RECONFIGURE
