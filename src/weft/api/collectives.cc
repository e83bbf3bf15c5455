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

/// Whether the call is for NCCL; if so, its stream is CUDA's.
Result<bool> is_for_nccl(const Call& call, weftComm_t comm, weftStream_t stream, const void* read,
                         const void* written) {
  Fallback& fallback = *comm->fallback;
  Result<bool> theirs = fallback.takes(read, written);
  if (!theirs.ok()) return theirs;
  if (*theirs && stream && is_stream_handle(stream))
    return fail(
        Code::invalid_argument,
        "stream is one of weftStreamCreate, which orders operations on host memory: this call is for NCCL, "
        "which wants a CUDA stream or NULL");
  if (*theirs && call.collective == Collective::all_to_all)
    WEFT_TRY(nccl::check_all_to_all(call.send, call.recv, call.count, comm->comm->size()));
  if (*theirs && call.op >= device::ReduceOp::band)
    return fail(Code::unsupported, "op is {}, which NCCL does not have, and this call is for NCCL",
                device::name_of(call.op));
  fallback.count(*theirs);
  return theirs;
}

// Does a call of which nothing has been checked. `type` and `op` are what Call has enums for.
Status checked_run(Call& call, int type, int op, weftComm_t handle, weftStream_t stream) {
  const InUse in_use(handle);
  Result<Communicator*> found = usable(handle);
  if (!found) return found.status();
  Communicator& comm = **found;
  WEFT_TRY(check_type(type));
  call.timeout_s = t_call_timeout_s;
  const void* late_scalar = nullptr;
  if (plan::reduces(call.collective)) WEFT_TRY(resolve_operator(handle, comm, op, call, late_scalar));
  WEFT_TRY(check_root(plan::is_transfer(call.collective) ? "peer" : "root", call.root, comm));

  const size_t element = device::size_of(call.type);
  const uint64_t block = element * static_cast<uint64_t>(comm.size());
  constexpr uint64_t most_bytes = std::numeric_limits<int64_t>::max();
  uint64_t all = 0;  // a product is quicker than a quotient
  if (__builtin_mul_overflow(call.count, block, &all) || all > most_bytes)
    return fail(Code::invalid_count,
                "count is {}: {} elements of {} bytes on {} ranks overflow, at most {} fit", call.count,
                call.count, element, comm.size(), most_bytes / block);
  const plan::Request request{call.collective, call.count, static_cast<uint32_t>(element), call.root, false};
  const uint64_t in = plan::input_bytes(request, comm.size(), comm.rank());
  if (!usable_buffer(call.send, in, element)) return refuse_buffer("sendbuff", call.send, in, element);
  const uint64_t out = plan::output_bytes(request, comm.size(), comm.rank());
  if (!usable_buffer(call.recv, out, element)) return refuse_buffer("recvbuff", call.recv, out, element);
  if (handle->fallback) [[unlikely]] {
    const Result<bool> theirs =
        is_for_nccl(call, handle, stream, in > 0 ? call.send : nullptr, out > 0 ? call.recv : nullptr);
    if (!theirs.ok()) return theirs.status();
    if (*theirs) {
      call.cuda_stream = stream;
      return run_or_note(NcclCall{handle->fallback.get(), call});
    }
  }
  if (comm.options().device >= 0) {
    call.on_device = true;
    call.cuda_stream = stream;
    const device::cuda::Scope scope(comm.on_device().executor->device());
    WEFT_TRY(engine::check_device_call(comm, call, in, out));
    if (late_scalar) WEFT_TRY(engine::note_scalar(comm, late_scalar, call));
    return run_or_note(handle->comm, call);
  }
  WEFT_TRY(use_stream(stream, call));
  return run_or_note(handle->comm, call);
}

// Whether it was a call like the last one, which needs few checks; `outcome` is what became of it then.
inline bool repeated(const Call& call, weftComm_t comm, weftStream_t stream, Status& outcome) {
  if (stream || !comm || plan::is_transfer(call.collective) || in_group() || t_call_timeout_s != 0)
    return false;
  const InUse in_use(comm);
  if (comm->state.load(std::memory_order_acquire) != weftComm::live || comm->fallback) return false;
  if (!comm->owner.here()) [[unlikely]]
    return false;
  return comm->comm->repeat(call, outcome);
}

[[gnu::noinline]] weftResult_t refuse(const char* function, const Status& why, weftComm_t comm) {
  const Status status = why.in(function);
  spoil_group(status);
  return report(status, comm);
}

// Fills in the types' enums. In every function of its own: a call like the last one is copied nowhere.
[[gnu::always_inline]] inline weftResult_t run(const char* function, Call&& call, int type, int op,
                                               weftComm_t comm, weftStream_t stream) {
  call.type = static_cast<device::DataType>(type);
  call.op = static_cast<device::ReduceOp>(op);
  const bool known =
      static_cast<unsigned>(type) < device::kDataTypes && static_cast<unsigned>(op) < device::kReduceOps;
  Status status;
  if (!known || !repeated(call, comm, stream, status)) status = checked_run(call, type, op, comm, stream);
  if (status.ok()) [[likely]]
    return weftSuccess;
  return refuse(function, status, comm);
}

}  // namespace
}  // namespace weft::api

using namespace weft::api;
using weft::plan::Collective;

weftResult_t weftAllReduce(const void* sendbuff, void* recvbuff, size_t count, weftDataType_t datatype,
                           weftRedOp_t op, weftComm_t comm, weftStream_t stream) {
  return run(__func__,
             {.collective = Collective::all_reduce, .send = sendbuff, .recv = recvbuff, .count = count},
             datatype, op, comm, stream);
}

weftResult_t weftReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                               weftDataType_t datatype, weftRedOp_t op, weftComm_t comm,
                               weftStream_t stream) {
  return run(
      __func__,
      {.collective = Collective::reduce_scatter, .send = sendbuff, .recv = recvbuff, .count = recvcount},
      datatype, op, comm, stream);
}

weftResult_t weftAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, weftDataType_t datatype,
                           weftComm_t comm, weftStream_t stream) {
  return run(__func__,
             {.collective = Collective::all_gather, .send = sendbuff, .recv = recvbuff, .count = sendcount},
             datatype, weftSum, comm, stream);
}

weftResult_t weftBroadcast(const void* sendbuff, void* recvbuff, size_t count, weftDataType_t datatype,
                           int root, weftComm_t comm, weftStream_t stream) {
  return run(
      __func__,
      {.collective = Collective::broadcast, .send = sendbuff, .recv = recvbuff, .count = count, .root = root},
      datatype, weftSum, comm, stream);
}

weftResult_t weftBcast(void* buff, size_t count, weftDataType_t datatype, int root, weftComm_t comm,
                       weftStream_t stream) {
  return run(__func__,
             {.collective = Collective::broadcast, .send = buff, .recv = buff, .count = count, .root = root},
             datatype, weftSum, comm, stream);
}

weftResult_t weftReduce(const void* sendbuff, void* recvbuff, size_t count, weftDataType_t datatype,
                        weftRedOp_t op, int root, weftComm_t comm, weftStream_t stream) {
  return run(
      __func__,
      {.collective = Collective::reduce, .send = sendbuff, .recv = recvbuff, .count = count, .root = root},
      datatype, op, comm, stream);
}

weftResult_t weftAlltoAll(const void* sendbuff, void* recvbuff, size_t count, weftDataType_t datatype,
                          weftComm_t comm, weftStream_t stream) {
  return run(__func__,
             {.collective = Collective::all_to_all, .send = sendbuff, .recv = recvbuff, .count = count},
             datatype, weftSum, comm, stream);
}

weftResult_t weftGather(const void* sendbuff, void* recvbuff, size_t count, weftDataType_t datatype, int root,
                        weftComm_t comm, weftStream_t stream) {
  return run(
      __func__,
      {.collective = Collective::gather, .send = sendbuff, .recv = recvbuff, .count = count, .root = root},
      datatype, weftSum, comm, stream);
}

weftResult_t weftScatter(const void* sendbuff, void* recvbuff, size_t count, weftDataType_t datatype,
                         int root, weftComm_t comm, weftStream_t stream) {
  return run(
      __func__,
      {.collective = Collective::scatter, .send = sendbuff, .recv = recvbuff, .count = count, .root = root},
      datatype, weftSum, comm, stream);
}

weftResult_t weftSend(const void* sendbuff, size_t count, weftDataType_t datatype, int peer, weftComm_t comm,
                      weftStream_t stream) {
  return run(__func__, {.collective = Collective::send, .send = sendbuff, .count = count, .root = peer},
             datatype, weftSum, comm, stream);
}

weftResult_t weftRecv(void* recvbuff, size_t count, weftDataType_t datatype, int peer, weftComm_t comm,
                      weftStream_t stream) {
  return run(__func__, {.collective = Collective::recv, .recv = recvbuff, .count = count, .root = peer},
             datatype, weftSum, comm, stream);
}
