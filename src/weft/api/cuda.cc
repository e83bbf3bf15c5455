// The CUDA driver's functions for other programs (weft/weft_cuda.h).
#include <dlfcn.h>

#include "api/handles.h"
#include "device/cuda/driver.h"
#include "weft/weft_cuda.h"

using namespace weft;
using namespace weft::api;

weftResult_t weftCudaFunction(const char* name, void** function) {
  if (!name || !function)
    return report(fail(Code::invalid_pointer, "{} is NULL", name ? "function" : "name").in(__func__));
  *function = nullptr;
  const auto driver = device::cuda::driver();
  if (!driver) return report(driver.status());
  *function = dlsym((*driver)->library, name);
  return weftSuccess;
}
