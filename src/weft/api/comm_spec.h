// The specification of a new communicator, as the engine takes it: a configuration of weft.h, completed by
// the settings and the parent, and the library that performs its operations.
//
// Thread safety: every function.
#pragma once

#include "api/handles.h"
#include "base/status.h"
#include "engine/run/communicator.h"
#include "nccl/decision.h"
#include "weft/weft.h"

namespace weft::api {

struct CommSpec {
  engine::CommOptions options;
  nccl::Backend backend;
  int device;    // also one that Weft yields to NCCL, so that options have none
  Status lacks;  // why it does
};

/// The ordinal of what config.device names; -1 for host memory.
Result<int> device_from(int device);

/// A communicator that begins a job; `config` may be null. With auto, a device that Weft cannot use is
/// yielded to NCCL. If it is not yielded, the code that opens the device reports its error.
Result<CommSpec> spec_of(const weftConfig_t* config);
/// A child of split or shrink. If it inherits a device that the parent yielded, it yields it, too, with
/// backend auto and without strict. Otherwise a split decides as spec_of() does. A shrink yields nothing,
/// since its ranks exchange nothing.
Result<CommSpec> spec_of_child(weftComm_t parent, const engine::CommOptions& parents,
                               const weftConfig_t* config, bool is_split);

}  // namespace weft::api
