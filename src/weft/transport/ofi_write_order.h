// Whether a network writes the bytes of a write into memory in order. A reader that polls before the write
// is complete depends on it. NCCL's low-latency protocols have a flag in the last 8 of each 128 bytes, and
// take the other bytes as arrived when they see the flag.
//
// Thread safety: as of the endpoint.
#pragma once

#include <rdma/fi_endpoint.h>

#include "base/status.h"

namespace weft::transport::ofi {

/// Asks that from now on each aligned 128 bytes of peers' writes become visible in order, and once. Called
/// before the endpoint is enabled. Errors: unsupported, with the reason.
Status ask_for_ordered_writes(fid_ep* endpoint);

}  // namespace weft::transport::ofi
