// Calls on a communicator of GPU memory: what they check, and how an operation meets the caller's CUDA
// stream.
//
// Thread safety: functions marked (lock) need the context's lock; the others take it themselves.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/status.h"
#include "device/cuda/capture.h"
#include "engine/gpu/stream_path.h"
#include "engine/run/communicator.h"

namespace weft::engine {

/// Whether a call's stream and buffers, of so many bytes, will do for the communicator's device.
Status check_device_call(const Communicator& comm, const Call& call, uint64_t input_bytes,
                         uint64_t output_bytes);
/// Puts the scalar of a call's operator into the call: pageable memory's value, or where it is to be read
/// when the stream has come.
Status note_scalar(const Communicator& comm, const void* scalar, Call& call);
/// The capture that a call's stream is in, if any. Asked again at the end of a group: one may have begun or
/// ended since the call was noted down.
Result<cuda::Capture> capture_of(const Communicator& comm, const Call& call);
/// Queues an operation in the caller's stream, or puts it into a graph.
Status run_on_device(Communicator& comm, const Call& call);

/// A number for a stream of a device, among those of the process; never 0. On the thread that gave the
/// handle.
uint64_t number_of_stream(const cuda::Device& device, const void* stream);
/// Rank `other` has called the same collective on the same stream, where a path does both.
Status fail_on_same_stream(int other);

/// How a path does a call; null: not at all.
std::shared_ptr<const StreamPath::Served> find_on_path(Communicator& comm, StreamPath& path, const Call& call)
    WEFT_REQUIRES(context_lock);
/// The operation of a call that its stream does alone (StreamPath), with a reference, for arrive_on_device()
/// and leave_on_device(); null: it goes step by step.
Operation* enroll_on_path(Communicator& comm, const Call& call) WEFT_REQUIRES(context_lock);

/// Starts an operation that a graph has come to.
void run_captured(Communicator& shadow, const PlannedCall& planned, std::shared_ptr<CapturedCalls> calls)
    WEFT_REQUIRES(context_lock);
/// The stream will say when it has come to the operation. Then, for all of a group, leave_on_device(). Both
/// may give up the lock and take it again (DeviceRun::arrive_in).
Status arrive_on_device(Lock& lock, Operation& op) WEFT_REQUIRES(context_lock);
/// The stream waits for the operation's end, and the context for the stream.
Status leave_on_device(Lock& lock, Operation& op) WEFT_REQUIRES(context_lock);

/// Whether streams can wait for operations; else calls do.
bool has_memory_operations(const Communicator& comm);
/// After a call has waited for its operation, on the call's thread: what follows in the stream waits for what
/// a failed operation has left on the device.
void hold_stream(Lock& lock, const Operation& op) WEFT_REQUIRES(context_lock);
/// Whether a call may ask the driver for memory: see may_call_driver.h. `on_path`: the operation of a call
/// that a path does; null: it goes step by step.
bool may_call_driver(Communicator& comm, const Call& call, const Operation* on_path)
    WEFT_REQUIRES(context_lock);
/// How long the caller of a first use stays.
Deadline first_use_deadline();
/// The caller of a first use stays until its end, so that it asks the driver for nothing that would
/// keep the operation waiting.
void stay_with(Lock& lock, const Operation& op, const Deadline& deadline) WEFT_REQUIRES(context_lock);

}  // namespace weft::engine
