// DeferredFreeClaim: keeps memory from being given back while a call makes streams wait for Weft. What is
// being given back at its begin may take as long as a program's kernels, and a thread that waits for that
// must have no lock of a context: the claim is made before, and the streams' own find the way free.
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
