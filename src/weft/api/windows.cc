// Windows and one-sided operations: check the arguments, make an engine::Call of them, run it or note it
// down.
#include "engine/run/windows.h"

#include <limits>

#include "api/call_checks.h"
#include "api/group.h"
#include "api/handles.h"
#include "api/timeouts.h"
#include "engine/gpu/device_calls.h"
#include "engine/run/one_sided.h"

namespace weft::api {
namespace {

using engine::Call;
using engine::Communicator;
using engine::OneSided;
using engine::Purpose;
using plan::Collective;

constexpr int kSignals = WEFT_NUM_SIGNALS;

/// A window's handle is a number, so that one that has ended can be recognised: the communicator's serial
/// number and the window's in it.
weftWindow_t handle_of(weftComm_t comm, uint32_t number) {
  return reinterpret_cast<weftWindow_t>(static_cast<uintptr_t>(comm->serial + 1) << 32 | number);
}

Result<uint32_t> number_of(weftComm_t comm, weftWindow_t window) {
  const auto number = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(window));
  if (window && handle_of(comm, number) == window) return number;
  return fail(Code::invalid_argument,
              "window is {}, which is none of this communicator: pass what weftCommWindowRegister gave",
              static_cast<const void*>(window));
}

Status refuse_closed() { return fail(Code::invalid_argument, "window has been deregistered"); }

/// One-sided operations are Weft's alone.
Status check_backend(weftComm_t comm) {
  if (!comm->fallback || !comm->fallback->takes_all()) return {};
  return fail(
      Code::unsupported,
      "this communicator's operations are NCCL's, and Weft hands on no one-sided ones: create it with "
      "WEFT_BACKEND=weft");
}

// ---- Windows

Status check_memory(const Communicator& comm, const void* buffer, size_t bytes) {
  if (bytes == 0) return {};
  if (!buffer) return fail(Code::invalid_pointer, "buff is NULL, but size is {}", bytes);
  if (comm.on_device().executor) {
    const device::cuda::Device& device = comm.on_device().executor->device();
    const device::cuda::Scope scope(device);
    return device::cuda::check_buffer(device, "buff", buffer, bytes).status();
  }
  if (Fallback::is_device_memory(buffer))
    return fail(
        Code::unsupported,
        "buff is device memory, but this communicator is of host memory: create it with config.device");
  return {};
}

Status register_window(weftComm_t handle, void* buffer, size_t bytes, weftWindow_t* window, int flags) {
  if (!window) return fail(Code::invalid_pointer, "win is NULL");
  *window = nullptr;
  const InUse in_use(handle);
  const Result<Communicator*> found = usable(handle);
  if (!found) return found.status();
  constexpr int kKnown = WEFT_WIN_COLL_SYMMETRIC | WEFT_WIN_STRICT_ORDERING;
  if (flags & ~kKnown)
    return fail(Code::invalid_argument,
                "winFlags is {:#x}, may hold WEFT_WIN_COLL_SYMMETRIC (1) and WEFT_WIN_STRICT_ORDERING (2)",
                flags);
  WEFT_TRY(check_backend(handle));
  WEFT_TRY(check_memory(**found, buffer, bytes));
  const auto open = [=, comm = handle->comm]() -> Status {
    const Result<uint32_t> number = engine::open_window(*comm, buffer, bytes);
    if (number) *window = handle_of(handle, *number);
    return number.status();
  };
  return create_or_note({.parent = *found, .create = open, .cancel = [](const Status&) {}});
}

Status deregister_window(weftComm_t handle, weftWindow_t window) {
  const InUse in_use(handle);
  const Result<Communicator*> found = existing(handle);
  if (!found) return found.status();
  const Result<uint32_t> number = number_of(handle, window);
  if (!number) return number.status();
  const engine::Lock lock = (*found)->context().lock();
  engine::Windows& windows = (*found)->buffers().windows;
  if (!windows.find(*number)) return refuse_closed();
  windows.close(*number);
  return {};
}

// ---- Operations

Result<engine::SignalName> read_signal(int index, int context) {
  if (index < 0 || index >= kSignals)
    return fail(Code::invalid_argument, "sigIdx is {}, must be in [0, {})", index, kSignals);
  if (context < 0 || context >= kSignals)
    return fail(Code::invalid_argument, "ctx is {}, must be in [0, {})", context, kSignals);
  return engine::SignalName{static_cast<uint32_t>(index), static_cast<uint32_t>(context)};
}

Status check_flags(unsigned flags) {
  if (flags == 0) return {};
  return fail(Code::invalid_argument, "flags is {:#x}, must be 0", flags);
}

Status run(weftComm_t handle, Call& call, weftStream_t stream, uint64_t read_bytes) {
  Communicator& comm = *handle->comm;
  call.timeout_s = t_call_timeout_s;
  if (comm.options().device < 0) {
    WEFT_TRY(use_stream(stream, call));
    return run_or_note(handle->comm, call);
  }
  call.on_device = true;
  call.cuda_stream = stream;
  const device::cuda::Scope scope(comm.on_device().executor->device());
  WEFT_TRY(engine::check_device_call(comm, call, read_bytes, 0));
  const Result<device::cuda::Capture> capture = engine::capture_of(comm, call);
  if (!capture) return capture.status();
  if (*capture)
    return fail(Code::unsupported,
                "a CUDA graph is being captured on the stream, which cannot hold a one-sided operation: call "
                "it outside of captures");
  return run_or_note(handle->comm, call);
}

/// Fills in where a put goes: bytes of the window of call.root.
Status aim(weftComm_t handle, Communicator& comm, weftWindow_t window, size_t offset, uint64_t bytes,
           Call& call, OneSided& put) {
  const Result<uint32_t> number = number_of(handle, window);
  if (!number) return number.status();
  const engine::Lock lock = comm.context().lock();
  const engine::Window* const found = comm.buffers().windows.find(*number);
  if (!found) return refuse_closed();
  const uint64_t room = found->sizes[static_cast<size_t>(call.root)];
  if (offset > room || bytes > room - offset)
    return fail(
        Code::invalid_argument,
        "peerWinOffset is {}: {} bytes from there do not fit into the window of rank {}, which has {} "
        "bytes",
        offset, bytes, call.root, room);
  put.window = *number;
  put.offset = offset;
  if (call.root == comm.rank()) {
    call.collective = Collective::recv;
    call.recv = found->base + offset;
  }
  return {};
}

struct Put {
  const void* local = nullptr;
  size_t count = 0;
  int type = weftInt8;
  weftWindow_t window = nullptr;
  size_t offset = 0;
};

/// Of no elements it is a bare signal, which needs no window.
Status put(const Put& what, int peer, int index, int context, unsigned flags, weftComm_t handle,
           weftStream_t stream) {
  const InUse in_use(handle);
  const Result<Communicator*> found = usable(handle);
  if (!found) return found.status();
  Communicator& comm = **found;
  WEFT_TRY(check_backend(handle));
  WEFT_TRY(check_type(what.type));
  WEFT_TRY(check_root("peer", peer, comm));
  WEFT_TRY(check_flags(flags));
  auto one_sided = std::make_shared<OneSided>();
  one_sided->signals = index != WEFT_SIGNAL_NONE;
  const Result<engine::SignalName> signal = read_signal(one_sided->signals ? index : 0, context);
  if (!signal) return signal.status();
  one_sided->signal = *signal;
  Call call{.collective = Collective::send, .send = what.local, .count = what.count, .root = peer};
  call.type = static_cast<device::DataType>(what.type);
  call.purpose = Purpose::put;
  const size_t element = device::size_of(call.type);
  constexpr uint64_t most_bytes = std::numeric_limits<int64_t>::max();
  if (what.count > most_bytes / element)
    return fail(Code::invalid_count, "count is {}: at most {} elements of {} bytes fit", what.count,
                most_bytes / element, element);
  const uint64_t bytes = what.count * element;
  if (!usable_buffer(what.local, bytes, element))
    return refuse_buffer("localbuff", what.local, bytes, element);
  if (what.window || bytes > 0)
    WEFT_TRY(aim(handle, comm, what.window, what.offset, bytes, call, *one_sided));
  else if (peer == comm.rank()) call.collective = Collective::recv;
  call.one_sided = std::move(one_sided);
  return run(handle, call, stream, bytes);
}

Status wait_signal(int count, const weftWaitSignalDesc_t* descriptors, weftComm_t handle,
                   weftStream_t stream) {
  const InUse in_use(handle);
  const Result<Communicator*> found = usable(handle);
  if (!found) return found.status();
  WEFT_TRY(check_backend(handle));
  if (count < 0 || count > std::numeric_limits<uint16_t>::max())
    return fail(Code::invalid_argument, "nDesc is {}, must be in [0, 65535]", count);
  if (count > 0 && !descriptors)
    return fail(Code::invalid_pointer, "signalDescs is NULL, but nDesc is {}", count);
  auto one_sided = std::make_shared<OneSided>();
  for (int i = 0; i < count; ++i) {
    const weftWaitSignalDesc_t& each = descriptors[i];
    const auto name = fmt::format("signalDescs[{}]", i);
    if (each.opCnt < 0)
      return fail(Code::invalid_argument, "{}: opCnt is {}, must be at least 0", name, each.opCnt);
    if (Status known = check_root("peer", each.peer, **found); !known) return known.in(name);
    const Result<engine::SignalName> signal = read_signal(each.sigIdx, each.ctx);
    if (!signal) return signal.status().in(name);
    one_sided->awaited.push_back({each.peer, *signal, static_cast<uint64_t>(each.opCnt)});
  }
  Call call{.collective = Collective::recv, .root = (*found)->rank()};
  call.type = device::DataType::int8;
  call.purpose = Purpose::wait;
  call.one_sided = std::move(one_sided);
  return run(handle, call, stream, 0);
}

weftResult_t conclude(const char* function, const Status& status, weftComm_t comm) {
  if (status.ok()) return weftSuccess;
  const Status named = status.in(function);
  spoil_group(named);
  return report(named, comm);
}

}  // namespace
}  // namespace weft::api

using namespace weft::api;

weftResult_t weftCommWindowRegister(weftComm_t comm, void* buff, size_t size, weftWindow_t* win,
                                    int winFlags) {
  return conclude(__func__, register_window(comm, buff, size, win, winFlags), comm);
}

weftResult_t weftCommWindowDeregister(weftComm_t comm, weftWindow_t win) {
  return conclude(__func__, deregister_window(comm, win), comm);
}

weftResult_t weftPutSignal(const void* localbuff, size_t count, weftDataType_t datatype, int peer,
                           weftWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx,
                           unsigned int flags, weftComm_t comm, weftStream_t stream) {
  return conclude(
      __func__,
      put({localbuff, count, datatype, peerWin, peerWinOffset}, peer, sigIdx, ctx, flags, comm, stream),
      comm);
}

weftResult_t weftSignal(int peer, int sigIdx, int ctx, unsigned int flags, weftComm_t comm,
                        weftStream_t stream) {
  return conclude(__func__, put({}, peer, sigIdx, ctx, flags, comm, stream), comm);
}

weftResult_t weftWaitSignal(int nDesc, const weftWaitSignalDesc_t* signalDescs, weftComm_t comm,
                            weftStream_t stream) {
  return conclude(__func__, wait_signal(nDesc, signalDescs, comm, stream), comm);
}
