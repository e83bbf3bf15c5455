#include "api/call_checks.h"

#include <cstring>

namespace weft::api {

using engine::Call;
using engine::Communicator;

Status refuse_buffer(const char* name, const void* buffer, uint64_t bytes, size_t element) {
  if (!buffer) return fail(Code::invalid_pointer, "{} is NULL, but {} bytes are needed", name, bytes);
  return fail(Code::invalid_pointer, "{} is {}, not aligned to its element of {} bytes", name, buffer,
              element);
}

Status check_type(int type) {
  if (type >= 0 && type < device::kDataTypes) return {};
  return fail(Code::invalid_type, "datatype is {}, must be in [0, {}): weftInt8 to weftFloat8e5m2", type,
              device::kDataTypes);
}

Status resolve_operator(weftComm_t handle, const Communicator& comm, int op, Call& call,
                        const void*& late_scalar) {
  if (op >= 0 && op < device::kReduceOps) {
    call.op = static_cast<device::ReduceOp>(op);
    if (device::applies(call.op, call.type)) return {};
    return fail(Code::invalid_op,
                "op is {}, a bitwise operator, which {} does not have: must be of an integer type",
                device::name_of(call.op), device::name_of(call.type));
  }
  const int index = op - weftNumOps - (handle->serial << 12);
  const MutexLock guard(handle->mutex);
  if (op < 0 || index < 0 || index >= static_cast<int>(handle->operators.size()) ||
      !handle->operators[index].live)
    return fail(
        Code::invalid_op,
        "op is {}, must be in [0, {}) (weftSum to weftBxor) or made by weftRedOpCreatePreMulSum for this "
        "communicator and not destroyed",
        op, static_cast<int>(weftNumOps));
  const PreMulSum& premul = handle->operators[index];
  if (premul.type != call.type)
    return fail(Code::invalid_op, "op was made for {}, datatype is {}", device::name_of(premul.type),
                device::name_of(call.type));
  call.op = device::ReduceOp::sum;
  call.premultiply = true;
  if (premul.late_scalar && comm.options().device >= 0) {
    late_scalar = premul.late_scalar;
    return {};
  }
  std::memcpy(call.scalar, premul.late_scalar ? premul.late_scalar : premul.scalar,
              device::size_of(call.type));
  return {};
}

Status use_stream(weftStream_t stream, Call& call) {
  if (!stream) return {};
  WEFT_TRY(stream->owner.check("stream"));
  if (!stream->live.load()) return fail(Code::invalid_argument, "stream has been destroyed");
  call.stream = stream->stream.get();
  return {};
}

Status check_root(const char* name, int root, const Communicator& comm) {
  if (root >= 0 && root < comm.size()) return {};
  return fail(Code::invalid_root, "{} is {}, must be in [0, {})", name, root, comm.size());
}

}  // namespace weft::api
