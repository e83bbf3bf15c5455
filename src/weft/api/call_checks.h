// What is checked of the arguments of collectives and transfers before anything happens.
//
// Thread safety: all functions.
#pragma once

#include <cstdint>

#include "api/handles.h"

namespace weft::api {

/// Elements have powers of two as sizes.
inline bool usable_buffer(const void* buffer, uint64_t bytes, size_t element) {
  return bytes == 0 || (buffer && (reinterpret_cast<uintptr_t>(buffer) & (element - 1)) == 0);
}
/// What is wrong with a buffer that is not usable.
Status refuse_buffer(const char* name, const void* buffer, uint64_t bytes, size_t element);
Status check_type(int type);
/// Puts a call on host memory into a stream, if it is not null.
Status use_stream(weftStream_t stream, engine::Call& call);
Status check_root(const char* name, int root, const engine::Communicator& comm);
/// Fills in the operator: a built-in one, or a pre-multiplied sum of this communicator. `late_scalar` is a
/// scalar that is still to be read, and may be device memory; else it stays as it is.
Status resolve_operator(weftComm_t handle, const engine::Communicator& comm, int op, engine::Call& call,
                        const void*& late_scalar);

}  // namespace weft::api
