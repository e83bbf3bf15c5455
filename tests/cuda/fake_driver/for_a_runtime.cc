// What a CUDA runtime needs of a driver and Weft does not: tests/nccl_shim/fake_runtime stands upon this one.
#include "cuda/fake_driver/control.h"
#include "cuda/fake_driver/entry.h"

using namespace fake;

FAKE_API int cuStreamQuery(StreamHandle* handle) {
  ENTER(cuStreamQuery);
  NEED_CONTEXT();
  StreamHandle* const stream = resolve(handle);
  if (!stream) return kInvalidHandle;
  const std::lock_guard guard(stream->mutex);
  return stream->done < stream->queued ? kNotReady : kSuccess;
}
FAKE_API int cuCtxSynchronize() {
  ENTER(cuCtxSynchronize);
  NEED_CONTEXT();
  World& world = World::instance();
  std::vector<StreamHandle*> streams{world.default_stream(context->ordinal)};
  {
    const std::lock_guard guard(world.mutex);
    for (StreamHandle* stream : world.streams)
      if (stream->ordinal == context->ordinal) streams.push_back(stream);
  }
  for (StreamHandle* stream : streams) stream->synchronize();
  return context->asynchronous_error.load();
}
FAKE_API void* fake_cuda_bytes_behind(const void* device) {
  const auto address = reinterpret_cast<uintptr_t>(device);
  const auto allocation = World::instance().find(address);
  return allocation ? allocation->backing + (address - allocation->address) : nullptr;
}
