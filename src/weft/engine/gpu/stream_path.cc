#include "engine/gpu/stream_path.h"

#include <algorithm>

#include "base/log.h"

namespace weft::engine {

StreamPath::Turn::Turn(StreamPath& path, Lock& lock) : path_(path) {
  const uint32_t before = path.turns_++;
  for (uint32_t over = path.turns_over_.load(); over != before; over = path.turns_over_.load())
    lock.without([&path, over] { path.turns_over_.wait(over); });
}

StreamPath::Turn::~Turn() {
  path_.turns_over_.fetch_add(1);
  path_.turns_over_.notify_all();
}

Result<std::shared_ptr<StreamPath>> StreamPath::for_capture(Lock&, uint32_t) {
  return std::shared_ptr<StreamPath>();
}
Status StreamPath::capture(Lock&, const StreamCall&, const std::shared_ptr<const Served>&) {
  return fail(Code::internal_error, "this path does no captured calls");
}

std::shared_ptr<const StreamPath::Served> StreamPath::find_or_make(const Call& call,
                                                                   const plan::Request& request,
                                                                   const Prices& prices) {
  if (left_) return nullptr;
  auto found = std::find_if(known_.begin(), known_.end(), [&](const auto& served) {
    return served->request == request && served->scaled == call.premultiply;
  });
  if (found == known_.end()) {
    if (known_.size() == kKnown) known_.clear();
    auto made = make(request, call.premultiply, prices);
    made->request = request;
    made->scaled = call.premultiply;
    if (!made->why_not.ok())
      log::trace("{} of {} bytes goes step by step: {}", plan::name_of(request.collective), request.bytes(),
                 made->why_not.message());
    known_.push_back(std::move(made));
    found = std::prev(known_.end());
  }
  return (*found)->why_not.ok() ? *found : nullptr;
}

}  // namespace weft::engine
