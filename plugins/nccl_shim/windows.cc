#include "windows.h"

#include <map>
#include <mutex>

#include "base/fork.h"
#include "export.h"
#include "route.h"

using namespace weft;
using namespace weft::nccl_shim;

namespace weft::nccl_shim {
namespace {

using nccl::Window_t;

struct Window {
  const Handle* owner;  // null: that communicator has ended
  void* buffer;
  weftWindow_t own;  // set when the group has ended in which it was made
};

/// A window is a number that is never used again, so that one that has ended can be recognised. No window of
/// NCCL's, which is an address, is as low.
struct Windows {
  ForkSafeMutex mutex;
  std::map<uintptr_t, Window> open;
  uintptr_t last = 0;

  static Windows& get() {
    static Windows& windows = *new Windows;
    return windows;
  }
};

Result<Window> find(const Windows& windows, const Handle* handle, Window_t window) {
  const auto found = windows.open.find(reinterpret_cast<uintptr_t>(window));
  if (found == windows.open.end() || found->second.owner != handle)
    return fail(Code::invalid_argument,
                "win is {}, which is no window of this communicator: pass what ncclCommWindowRegister gave",
                static_cast<void*>(window));
  return found->second;
}

Status check_arguments(const Handle* handle, const void* buffer, size_t bytes, int flags,
                       const Window_t* window) {
  if (!window) return fail(Code::invalid_pointer, "win is NULL");
  constexpr int kKnown = nccl::kWindowSymmetric | nccl::kWindowStrictOrdering;
  if (handle->backend == Backend::weft && (flags & ~kKnown) != 0)
    return fail(Code::unsupported,
                "winFlags is {:#x}, but this communicator is Weft's, which knows NCCL_WIN_COLL_SYMMETRIC and "
                "NCCL_WIN_STRICT_ORDERING only",
                flags);
  if (handle->backend == Backend::weft && !buffer) return fail(Code::invalid_pointer, "buff is NULL");
  if (handle->backend == Backend::weft && bytes == 0)
    return fail(Code::invalid_argument, "size is 0, must be at least 1");
  return {};
}

}  // namespace

bool is_own_window(Window_t window) {
  Windows& windows = Windows::get();
  const std::lock_guard guard(windows.mutex);
  const auto number = reinterpret_cast<uintptr_t>(window);
  return number != 0 && number <= windows.last;
}

weftWindow_t weft_window(Window_t window) {
  Windows& windows = Windows::get();
  const std::lock_guard guard(windows.mutex);
  const auto found = windows.open.find(reinterpret_cast<uintptr_t>(window));
  return found == windows.open.end() || !found->second.owner ? nullptr : found->second.own;
}

// They stay in memory: a group that has not ended, or another thread, may be about to write `own`.
void forget_windows(const Handle* handle) {
  Windows& windows = Windows::get();
  const std::lock_guard guard(windows.mutex);
  for (auto& [number, window] : windows.open)
    if (window.owner == handle) window.owner = nullptr;
}

}  // namespace weft::nccl_shim

namespace weft::nccl {

// NCCL makes a window NULL, without an error, where it has no symmetric memory. A window of Weft's is
// one of weft.h, and never NULL.
Result_t pncclCommWindowRegister(Comm_t comm, void* buffer, size_t bytes, Window_t* window, int flags) {
  constexpr const char* kName = "ncclCommWindowRegister";
  const Result<Handle*> handle = usable(comm);
  if (!handle.ok()) return refuse(handle.status().in(kName));
  if (window) *window = nullptr;
  if (Status right = check_arguments(*handle, buffer, bytes, flags, window); !right.ok())
    return refuse(right.in(kName));
  if (Status joined = join_group((*handle)->backend); !joined.ok()) return refuse(joined.in(kName));
  if ((*handle)->backend == Backend::nccl)
    return call_real(kName, &Functions::CommWindowRegister, *(*handle)->real, buffer, bytes, window, flags);
  Windows& windows = Windows::get();
  weftWindow_t* own = nullptr;  // where it is written, which may be when the group ends
  uintptr_t number = 0;
  {
    const std::lock_guard guard(windows.mutex);
    number = ++windows.last;
    own = &windows.open.emplace(number, nccl_shim::Window{*handle, buffer, nullptr}).first->second.own;
  }
  const weftResult_t registered = weftCommWindowRegister((*handle)->weft, buffer, bytes, own, flags);
  if (registered != weftSuccess) {
    const std::lock_guard guard(windows.mutex);
    windows.open.erase(number);
    return from_weft(registered, (*handle)->weft);
  }
  *window = reinterpret_cast<Window_t>(number);
  return kSuccess;
}
WEFT_NCCL_ALIAS(CommWindowRegister)

Result_t pncclCommWindowDeregister(Comm_t comm, Window_t window) {
  constexpr const char* kName = "ncclCommWindowDeregister";
  const Result<Handle*> handle = usable(comm);
  if (!handle.ok()) return report(handle.status().in(kName));
  if ((*handle)->backend == Backend::nccl)
    return call_real(kName, &Functions::CommWindowDeregister, *(*handle)->real, window);
  if (!window) return kSuccess;
  Windows& windows = Windows::get();
  weftWindow_t own = nullptr;
  {
    const std::lock_guard guard(windows.mutex);
    const auto found = find(windows, *handle, window);
    if (!found.ok()) return report(found.status().in(kName));
    own = found->own;
    if (!own)
      return report(fail(Code::invalid_usage,
                         "{}: win is not registered: the group that makes it has not ended, or has failed",
                         kName));
    windows.open.erase(reinterpret_cast<uintptr_t>(window));
  }
  return from_weft(weftCommWindowDeregister((*handle)->weft, own), (*handle)->weft);
}
WEFT_NCCL_ALIAS(CommWindowDeregister)

Result_t pncclWinGetUserPtr(Comm_t comm, Window_t window, void** pointer) {
  constexpr const char* kName = "ncclWinGetUserPtr";
  const Result<Handle*> handle = usable(comm);
  if (!handle.ok()) return report(handle.status().in(kName));
  if ((*handle)->backend == Backend::nccl)
    return call_real(kName, &Functions::WinGetUserPtr, *(*handle)->real, window, pointer);
  if (!pointer) return report(fail(Code::invalid_pointer, "{}: outUserPtr is NULL", kName));
  Windows& windows = Windows::get();
  const std::lock_guard guard(windows.mutex);
  const auto found = find(windows, *handle, window);
  if (!found.ok()) return report(found.status().in(kName));
  *pointer = found->buffer;
  return kSuccess;
}
WEFT_NCCL_ALIAS(WinGetUserPtr)

}  // namespace weft::nccl
