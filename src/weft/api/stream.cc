// Streams of host memory.
#include "api/handles.h"

using namespace weft;
using namespace weft::api;

namespace {

Status check(weftStream_t stream) {
  if (!stream)
    return fail(Code::invalid_pointer, "stream is NULL: the blocking stream is never created or waited for");
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

weftResult_t weftStreamQuery(weftStream_t stream) {
  if (Status valid = check(stream); !valid) return report(valid.in(__func__));
  const Status state = stream->stream->query();
  return state.code() == Code::in_progress ? weftInProgress : report(state);
}
