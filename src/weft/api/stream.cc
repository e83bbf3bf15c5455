// Streams of host memory.
#include "api/handles.h"

using namespace weft;
using namespace weft::api;

namespace {

Status check(weftStream_t stream) {
  if (!stream)
    return fail(Code::invalid_pointer, "stream is NULL: the blocking stream is never created or waited for");
  WEFT_TRY(stream->owner.check("stream"));
  if (!stream->live.load()) return fail(Code::invalid_pointer, "stream has been destroyed");
  return {};
}

Status check_position(weftStream_t stream, uint64_t position) {
  const uint64_t had = stream->stream->position();
  if (position <= had) return {};
  return fail(
      Code::invalid_argument,
      "position {} of a stream that has had {} operations: must be one that weftStreamGetPosition told",
      position, had);
}

// Operations that are unfinished are no error.
weftResult_t report_state(const Status& state) {
  return state.code() == Code::in_progress ? weftInProgress : report(state);
}

}  // namespace

weftResult_t weftStreamCreate(weftStream_t* stream) {
  if (!stream) return report(fail(Code::invalid_pointer, "weftStreamCreate: stream is NULL"));
  *stream = new_stream_handle();
  (*stream)->stream = std::make_unique<engine::Stream>();
  return weftSuccess;
}

weftResult_t weftStreamDestroy(weftStream_t stream) {
  if (Status valid = check(stream); !valid) return report(valid.in(__func__));
  if (engine::Notifier::is_calling_here())
    return report(fail(Code::invalid_usage,
                       "a callback of weftStreamNotify destroys a stream: destroying waits for callbacks, so "
                       "leave it to another thread")
                      .in(__func__));
  const Status finished = stream->stream->synchronize();
  stream->live.store(false);
  stream->stream.reset();
  return report(finished);
}

weftResult_t weftStreamSynchronize(weftStream_t stream) {
  if (Status valid = check(stream); !valid) return report(valid.in(__func__));
  return report(stream->stream->synchronize());
}

weftResult_t weftStreamGetPosition(weftStream_t stream, uint64_t* position) {
  if (Status valid = check(stream); !valid) return report(valid.in(__func__));
  if (!position)
    return report(fail(Code::invalid_pointer, "position is NULL, must point to a uint64_t").in(__func__));
  *position = stream->stream->position();
  return weftSuccess;
}

weftResult_t weftStreamSynchronizeTo(weftStream_t stream, uint64_t position) {
  if (Status valid = check(stream); !valid) return report(valid.in(__func__));
  if (Status valid = check_position(stream, position); !valid) return report(valid.in(__func__));
  return report(stream->stream->synchronize(position));
}

weftResult_t weftStreamWait(weftStream_t stream, uint64_t position, double timeoutSeconds) {
  if (Status valid = check(stream); !valid) return report(valid.in(__func__));
  if (Status valid = check_position(stream, position); !valid) return report(valid.in(__func__));
  if (!(timeoutSeconds >= 0))
    return report(
        fail(Code::invalid_argument, "timeoutSeconds is {}, must be 0 or more", timeoutSeconds).in(__func__));
  return report_state(stream->stream->synchronize(position, Deadline::in_seconds(timeoutSeconds)));
}

weftResult_t weftStreamQuery(weftStream_t stream) {
  if (Status valid = check(stream); !valid) return report(valid.in(__func__));
  return report_state(stream->stream->query());
}

weftResult_t weftStreamQueryTo(weftStream_t stream, uint64_t position) {
  if (Status valid = check(stream); !valid) return report(valid.in(__func__));
  if (Status valid = check_position(stream, position); !valid) return report(valid.in(__func__));
  return report_state(stream->stream->query(position));
}

weftResult_t weftStreamNotify(weftStream_t stream, weftNotify_t notify, void* arg) {
  if (Status valid = check(stream); !valid) return report(valid.in(__func__));
  if (!notify)
    return report(fail(Code::invalid_pointer, "notify is NULL, must be a function to call").in(__func__));
  const Status noted =
      stream->stream->notify([notify, arg](const Status& outcome) { notify(report(outcome), arg); });
  return report(noted.in(__func__));
}
