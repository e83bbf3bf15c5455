// NCCL's low-latency protocols (LL, LL128), which a network may break. A GPU polls the buffer that is being
// written, its own or one in host memory. It takes 8 or 128 bytes as complete when it sees the flag at their
// end. If the network does not write them in that order, the GPU may compute with older data.
//
// Thread safety: for init() alone, of which NCCL makes one call at a time. It may change the environment.
#pragma once

#include "devices.h"

namespace weft::nccl_net::low_latency {

/// Has NCCL leave them alone, for a device that does not keep the order, for the reason `why`: by NCCL_PROTO,
/// which it reads later. What the user has set stays. Says so, once in a process.
void keep_off(const Device& device, const Status& why);

}  // namespace weft::nccl_net::low_latency
