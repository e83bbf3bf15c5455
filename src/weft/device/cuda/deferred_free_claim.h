// DeferredFreeClaim: prevents that memory is given back while a call makes streams wait for Weft. Its
// construction waits for memory that is being given back, perhaps for as long as a program's kernels run. A
// thread that waits so must hold no lock of a context. So the call makes the claim before it takes the lock,
// and its streams need not wait.
#pragma once

#include "device/cuda/deferred_free.h"

namespace weft::device::cuda {

class DeferredFreeClaim {
 public:
  DeferredFreeClaim() { DeferredFree::instance().stream_waits(); }
  ~DeferredFreeClaim() { DeferredFree::instance().stream_goes_on(); }
  DeferredFreeClaim(const DeferredFreeClaim&) = delete;
  DeferredFreeClaim& operator=(const DeferredFreeClaim&) = delete;
};

}  // namespace weft::device::cuda
