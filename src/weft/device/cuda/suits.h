// Whether Weft can take the memory of a CUDA device, without making a context on it.
//
// Thread safety: every function.
#pragma once

#include "base/status.h"

namespace weft::device::cuda {

/// Errors: unsupported, naming what the driver or the device lacks; invalid_argument for an ordinal that does
/// not exist. Device::open() may still fail for want of memory.
Status suits(int ordinal);

}  // namespace weft::device::cuda
