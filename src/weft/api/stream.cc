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

}  // namespace

weftResult_t weftStreamCreate(weftStream_t* stream) {
  if (!stream) return report(fail(Code::invalid_pointer, "weftStreamCreate: stream is NULL"));
  *stream = new_stream_handle();
  (*stream)->stream = std::make_unique<engine::Stream>();
  return weftSuccess;
}

weftResult_t weftStreamDestroy(weftStream_t stream) {
  if (Status valid = check(stream); !valid) return report(valid.in(__func__));
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
  if (const uint64_t had = stream->stream->position(); position > had)
    return report(fail(Code::invalid_argument,
                       "position {} of a stream that has had {} operations: must be one that "
                       "weftStreamGetPosition told",
                       position, had)
                      .in(__func__));
  return report(stream->stream->synchronize(position));
}

weftResult_t weftStreamQuery(weftStream_t stream) {
  if (Status valid = check(stream); !valid) return report(valid.in(__func__));
  const Status state = stream->stream->query();
  return state.code() == Code::in_progress ? weftInProgress : report(state);
}
