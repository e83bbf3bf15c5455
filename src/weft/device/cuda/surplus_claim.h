// SurplusClaim: keeps memory from being given back while a call makes streams wait for Weft. What is being
// given back at its begin may take as long as a program's kernels, and a thread that waits for that must have
// no lock of a context: the claim is made before, and the streams' own find the way free.
#pragma once

#include "device/cuda/surplus.h"

namespace weft::device::cuda {

class SurplusClaim {
 public:
  SurplusClaim() { Surplus::instance().stream_waits(); }
  ~SurplusClaim() { Surplus::instance().stream_goes_on(); }
  SurplusClaim(const SurplusClaim&) = delete;
  SurplusClaim& operator=(const SurplusClaim&) = delete;
};

}  // namespace weft::device::cuda
