#include "handle.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "base/fork.h"

namespace weft::nccl_shim {
namespace {

bool is_being_made(const Handle& child) {
  weftResult_t state = weftSuccess;
  return child.live.load() && child.weft && weftCommGetAsyncError(child.weft, &state) == weftSuccess &&
         state == weftInProgress;
}

struct Children {
  ForkSafeMutex mutex;
  std::vector<std::pair<const Handle*, const Handle*>> being_made;  // parent and child

  static Children& get() {
    static Children& children = *new Children;
    return children;
  }
  void forget_those_made() {
    std::erase_if(being_made, [](const auto& each) { return !is_being_made(*each.second); });
  }
};

}  // namespace

Handle* new_handle(const nccl::Decision& decision) {
  static ForkSafeMutex mutex;
  static std::deque<Handle>* shells = new std::deque<Handle>;
  const std::lock_guard guard(mutex);
  return &shells->emplace_back(decision);
}

Result<Handle*> handle_of(Comm_t comm) {
  if (!comm)
    return fail(Code::invalid_comm, "comm is NULL: pass a communicator from ncclCommInitRank or a sibling");
  Handle* handle = reinterpret_cast<Handle*>(comm);
  if (reinterpret_cast<uintptr_t>(comm) % alignof(Handle) != 0 || handle->mark != Handle::kMark)
    return fail(
        Code::invalid_comm,
        "comm is {}, which is no communicator of this libnccl.so.2: another NCCL may be loaded beside it",
        static_cast<const void*>(comm));
  if (!handle->live.load(std::memory_order_acquire))
    return fail(Code::invalid_comm, "comm has been destroyed or aborted already");
  return handle;
}

Result<Handle*> usable(Comm_t comm) {
  Result<Handle*> handle = handle_of(comm);
  if (handle.ok() && !(*handle)->made())
    return fail(
        Code::invalid_comm,
        "comm could not be created, or its group has not ended: only ncclCommAbort and ncclCommDestroy are "
        "left");
  return handle;
}

void note_child(const Handle* parent, const Handle* child) {
  Children& children = Children::get();
  const std::lock_guard guard(children.mutex);
  children.forget_those_made();
  children.being_made.emplace_back(parent, child);
}

bool is_making_child(const Handle* parent) {
  Children& children = Children::get();
  const std::lock_guard guard(children.mutex);
  children.forget_those_made();
  return std::ranges::any_of(children.being_made, [&](const auto& each) { return each.first == parent; });
}

}  // namespace weft::nccl_shim
