// Functions of a driver that Loom calls and Weft does not.
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "cuda/fake_driver/entry.h"
#include "cuda/fake_driver/races.h"

using namespace fake;

FAKE_API int cuDevicePrimaryCtxRelease_v2(DeviceNumber device) {
  ENTER(cuDevicePrimaryCtxRelease);
  return device >= 0 && device < World::instance().devices ? kSuccess : kInvalidDevice;
}
FAKE_API int cuMemGetInfo_v2(size_t* free, size_t* all) {
  ENTER(cuMemGetInfo);
  NEED_CONTEXT();
  World& world = World::instance();
  *all = world.memory_bytes;
  *free = *all - std::min(*all, world.allocated_on(context->ordinal));
  return kSuccess;
}
FAKE_API int cuMemFreeHost(void* pointer) {
  ENTER(cuMemFreeHost);
  NEED_NO_CAPTURE();
  World::instance().synchronize_for("cuMemFreeHost");
  if (const int unknown = World::instance().unpin(pointer, true)) return unknown;
  std::free(pointer);
  return kSuccess;
}
FAKE_API int cuMemsetD8Async(DevicePointer to, unsigned char value, size_t bytes, StreamHandle* handle) {
  ENTER(cuMemsetD8Async);
  NEED_CONTEXT();
  StreamHandle* const stream = resolve(handle);
  if (!stream) return kInvalidHandle;
  std::byte* const target =
      bytes_for_kernel(reinterpret_cast<void*>(static_cast<uintptr_t>(to)), bytes, context->ordinal);
  if (!target) return kInvalidValue;
  const auto keep = World::instance().find(to);  // until then
  return submit(stream, [=] {
    (void)keep;
    note_accesses("a fill", {{to, bytes, true}});
    std::memset(target, value, bytes);
  });
}
FAKE_API int cuEventSynchronize(EventHandle* event) {
  ENTER(cuEventSynchronize);
  NEED_NO_CAPTURE();
  if (is_captured(event)) return kCapturedEvent;
  const auto& error = World::instance().context(event->ordinal)->asynchronous_error;
  while (error.load() == 0 && event->reached->load() != event->recorded.load()) usleep(20);
  host_waited_for(event->reached.get(), event->recorded.load());
  return error.load();
}
FAKE_API int cuEventElapsedTime(float* milliseconds, EventHandle* begin, EventHandle* end) {
  ENTER(cuEventElapsedTime);
  if (begin->recorded.load() == 0 || end->recorded.load() == 0) return kInvalidHandle;
  if (begin->reached->load() != begin->recorded.load() || end->reached->load() != end->recorded.load())
    return kNotReady;
  *milliseconds =
      std::chrono::duration<float, std::milli>(end->reached_at->load() - begin->reached_at->load()).count();
  return kSuccess;
}
