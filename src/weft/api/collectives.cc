// The collective calls: check the arguments, make an engine::Call of them, run it or note it down in a group.
#include <limits>

#include "api/call_checks.h"
#include "api/group.h"
#include "api/handles.h"
#include "api/timeouts.h"
#include "engine/gpu/device_calls.h"
#include "nccl/transfers.h"
#include "plan/plan.h"

namespace weft::api {
namespace {

using engine::Call;
using engine::Communicator;
using plan::Collective;

// What each function passes on, unchecked.
struct Arguments : engine::Asked {
  const char* function;
  weftComm_t comm;
  weftStream_t stream;
};

/// Whether the call is for NCCL; if so, its stream is CUDA's.
Result<bool> is_for_nccl(const Arguments& a, device::ReduceOp op, const void* read, const void* written) {
  Fallback& fallback = *a.comm->fallback;
  Result<bool> theirs = fallback.takes(read, written);
  if (!theirs.ok()) return theirs;
  if (*theirs && a.stream && is_stream_handle(a.stream))
    return fail(
        Code::invalid_argument,
        "stream is one of weftStreamCreate, which orders operations on host memory: this call is for NCCL, "
        "which wants a CUDA stream or NULL");
  if (*theirs && a.collective == Collective::all_to_all)
    WEFT_TRY(nccl::check_all_to_all(a.send, a.recv, a.count, a.comm->comm->size()));
  if (*theirs && op >= device::ReduceOp::band)
    return fail(Code::unsupported, "op is {}, which NCCL does not have, and this call is for NCCL",
                device::name_of(op));
  fallback.count(*theirs);
  return theirs;
}

Status checked_run(const Arguments& a) {
  const InUse in_use(a.comm);
  Result<Communicator*> found = usable(a.comm);
  if (!found) return found.status();
  Communicator& comm = **found;
  WEFT_TRY(check_type(a.type));
  Call call;
  call.collective = a.collective;
  call.send = a.send;
  call.recv = a.recv;
  call.count = a.count;
  call.type = static_cast<device::DataType>(a.type);
  call.root = a.root;
  call.timeout_s = t_call_timeout_s;
  const void* late_scalar = nullptr;
  if (plan::reduces(a.collective)) WEFT_TRY(resolve_operator(a.comm, comm, a.op, call, late_scalar));
  WEFT_TRY(check_root(plan::is_transfer(a.collective) ? "peer" : "root", a.root, comm));

  const size_t element = device::size_of(call.type);
  const uint64_t block = element * static_cast<uint64_t>(comm.size());
  constexpr uint64_t most_bytes = std::numeric_limits<int64_t>::max();
  uint64_t all = 0;  // a product is quicker than a quotient
  if (__builtin_mul_overflow(a.count, block, &all) || all > most_bytes)
    return fail(Code::invalid_count,
                "count is {}: {} elements of {} bytes on {} ranks overflow, at most {} fit", a.count, a.count,
                element, comm.size(), most_bytes / block);
  const plan::Request request{a.collective, a.count, static_cast<uint32_t>(element), a.root, false};
  const uint64_t in = plan::input_bytes(request, comm.size(), comm.rank());
  if (!usable_buffer(a.send, in, element)) return refuse_buffer("sendbuff", a.send, in, element);
  const uint64_t out = plan::output_bytes(request, comm.size(), comm.rank());
  if (!usable_buffer(a.recv, out, element)) return refuse_buffer("recvbuff", a.recv, out, element);
  if (a.comm->fallback) [[unlikely]] {
    const Result<bool> theirs =
        is_for_nccl(a, call.op, in > 0 ? a.send : nullptr, out > 0 ? a.recv : nullptr);
    if (!theirs.ok()) return theirs.status();
    if (*theirs) return run_or_note(NcclCall{a.comm->fallback.get(), call, a.stream});
  }
  if (comm.device() >= 0) {
    call.on_device = true;
    call.cuda_stream = a.stream;
    WEFT_TRY(engine::check_device_call(comm, call, in, out));
    if (late_scalar) WEFT_TRY(engine::note_scalar(comm, late_scalar, call));
  } else if (a.stream) {
    WEFT_TRY(a.stream->owner.check("stream"));
    if (!a.stream->live.load()) return fail(Code::invalid_argument, "stream has been destroyed");
    call.stream = a.stream->stream.get();
  }
  return run_or_note(a.comm->comm, call);
}

// Whether it was a call like the last one, which needs few checks; `outcome` is what became of it then.
inline bool repeated(const Arguments& a, Status& outcome) {
  if (a.stream || !a.comm || plan::is_transfer(a.collective) || in_group() || t_call_timeout_s != 0)
    return false;
  const InUse in_use(a.comm);
  if (a.comm->state.load(std::memory_order_acquire) != weftComm::live || a.comm->fallback) return false;
  if (!a.comm->owner.here()) [[unlikely]]
    return false;
  return a.comm->comm->repeat(a, outcome);
}

weftResult_t run(const Arguments& a) {
  Status status;
  if (!repeated(a, status)) status = checked_run(a);
  if (status.ok()) [[likely]]
    return weftSuccess;
  status = status.in(a.function);
  spoil_group(status);
  return report(status, a.comm);
}

}  // namespace
}  // namespace weft::api

using namespace weft::api;
using weft::plan::Collective;

weftResult_t weftAllReduce(const void* sendbuff, void* recvbuff, size_t count, weftDataType_t datatype,
                           weftRedOp_t op, weftComm_t comm, weftStream_t stream) {
  return run({{Collective::all_reduce, sendbuff, recvbuff, count, datatype, op, 0}, __func__, comm, stream});
}

weftResult_t weftReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                               weftDataType_t datatype, weftRedOp_t op, weftComm_t comm,
                               weftStream_t stream) {
  return run(
      {{Collective::reduce_scatter, sendbuff, recvbuff, recvcount, datatype, op, 0}, __func__, comm, stream});
}

weftResult_t weftAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, weftDataType_t datatype,
                           weftComm_t comm, weftStream_t stream) {
  return run({{Collective::all_gather, sendbuff, recvbuff, sendcount, datatype, weftSum, 0},
              __func__,
              comm,
              stream});
}

weftResult_t weftBroadcast(const void* sendbuff, void* recvbuff, size_t count, weftDataType_t datatype,
                           int root, weftComm_t comm, weftStream_t stream) {
  return run(
      {{Collective::broadcast, sendbuff, recvbuff, count, datatype, weftSum, root}, __func__, comm, stream});
}

weftResult_t weftBcast(void* buff, size_t count, weftDataType_t datatype, int root, weftComm_t comm,
                       weftStream_t stream) {
  return run({{Collective::broadcast, buff, buff, count, datatype, weftSum, root}, __func__, comm, stream});
}

weftResult_t weftReduce(const void* sendbuff, void* recvbuff, size_t count, weftDataType_t datatype,
                        weftRedOp_t op, int root, weftComm_t comm, weftStream_t stream) {
  return run({{Collective::reduce, sendbuff, recvbuff, count, datatype, op, root}, __func__, comm, stream});
}

weftResult_t weftAlltoAll(const void* sendbuff, void* recvbuff, size_t count, weftDataType_t datatype,
                          weftComm_t comm, weftStream_t stream) {
  return run(
      {{Collective::all_to_all, sendbuff, recvbuff, count, datatype, weftSum, 0}, __func__, comm, stream});
}

weftResult_t weftGather(const void* sendbuff, void* recvbuff, size_t count, weftDataType_t datatype, int root,
                        weftComm_t comm, weftStream_t stream) {
  return run(
      {{Collective::gather, sendbuff, recvbuff, count, datatype, weftSum, root}, __func__, comm, stream});
}

weftResult_t weftScatter(const void* sendbuff, void* recvbuff, size_t count, weftDataType_t datatype,
                         int root, weftComm_t comm, weftStream_t stream) {
  return run(
      {{Collective::scatter, sendbuff, recvbuff, count, datatype, weftSum, root}, __func__, comm, stream});
}

weftResult_t weftSend(const void* sendbuff, size_t count, weftDataType_t datatype, int peer, weftComm_t comm,
                      weftStream_t stream) {
  return run({{Collective::send, sendbuff, nullptr, count, datatype, weftSum, peer}, __func__, comm, stream});
}

weftResult_t weftRecv(void* recvbuff, size_t count, weftDataType_t datatype, int peer, weftComm_t comm,
                      weftStream_t stream) {
  return run({{Collective::recv, nullptr, recvbuff, count, datatype, weftSum, peer}, __func__, comm, stream});
}
