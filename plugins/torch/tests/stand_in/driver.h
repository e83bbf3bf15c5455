// The functions of a CUDA driver that the stand-in device needs, loaded from a library by its path. The types
// are CUDA's, with handles as void*.
#pragma once

#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace stand_in {

constexpr int kNotReady = 600;
constexpr unsigned kWaitValueGeq = 0;

struct Driver {
  int (*init)(unsigned);
  int (*device_count)(int*);
  int (*retain)(void** context, int device);
  int (*set_current)(void* context);
  int (*alloc)(uint64_t* pointer, size_t bytes);
  int (*host_alloc)(void** pointer, size_t bytes, unsigned flags);
  int (*copy)(uint64_t to, uint64_t from, size_t bytes, void* stream);
  int (*stream_create)(void** stream, unsigned flags);
  int (*stream_synchronize)(void* stream);
  int (*stream_query)(void* stream);
  int (*stream_wait_event)(void* stream, void* event, unsigned flags);
  int (*stream_wait_value)(void* stream, uint64_t address, uint32_t value, unsigned flags);
  int (*event_create)(void** event, unsigned flags);
  int (*event_record)(void* event, void* stream);
  int (*event_query)(void* event);
  int (*event_destroy)(void* event);
  std::vector<void*> contexts;  // one a device

  explicit Driver(const std::string& path) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    TORCH_CHECK(library, "the stand-in's driver cannot be loaded: ", dlerror());
    auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
      TORCH_CHECK(function, path, " has no ", name);
    };
    find(init, "cuInit");
    find(device_count, "cuDeviceGetCount");
    find(retain, "cuDevicePrimaryCtxRetain");
    find(set_current, "cuCtxSetCurrent");
    find(alloc, "cuMemAlloc_v2");
    find(host_alloc, "cuMemHostAlloc");
    find(copy, "cuMemcpyAsync");
    find(stream_create, "cuStreamCreate");
    find(stream_synchronize, "cuStreamSynchronize");
    find(stream_query, "cuStreamQuery");
    find(stream_wait_event, "cuStreamWaitEvent");
    find(stream_wait_value, "cuStreamWaitValue32_v2");
    find(event_create, "cuEventCreate");
    find(event_record, "cuEventRecord");
    find(event_query, "cuEventQuery");
    find(event_destroy, "cuEventDestroy_v2");
    int count = 0;
    TORCH_CHECK(init(0) == 0 && device_count(&count) == 0, path, " has no device");
    contexts.resize(count);
    for (int device = 0; device < count; ++device) TORCH_CHECK(retain(&contexts[device], device) == 0);
  }
};

// Loads it at the first call, which names it.
inline Driver& driver(const std::string& path = "") {
  static Driver* loaded = new Driver(path);
  return *loaded;
}

// The driver for a device, on this thread.
inline Driver& driver_on(int device) {
  Driver& made = driver();
  made.set_current(made.contexts.at(device));
  return made;
}

inline void check(int error, const char* what) {
  TORCH_CHECK(error == 0, "the stand-in's driver: ", what, " returned ", error);
}

}  // namespace stand_in
