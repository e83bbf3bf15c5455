// Whether Weft can take the memory of a CUDA device, asked before there is anything to take: no context is
// made.
//
// Thread safety: every function.
#pragma once

#include "base/status.h"

namespace weft::device::cuda {

/// Errors: unsupported, with what the driver or the device lacks; invalid_argument for an ordinal that does
/// not exist. Device::open() may still fail for want of memory.
Status suits(int ordinal);

}  // namespace weft::device::cuda
