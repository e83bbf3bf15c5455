// The meeting of a new communicator's ranks about their devices: whether they reach each other's GPU memory,
// whether the network does (GPUDirect), and which machine the cost model reckons with.
//
// Thread safety: none is needed, creation is one thread's.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace weft::engine {
class Communicator;
}

namespace weft::job {

/// Whether all ranks of a new communicator have a device.
enum class Siblings : uint8_t { on_devices, mixed };

/// Opens the device of a new communicator's options, if it has one. A collective of ranks with devices, that
/// takes `meeting_s` at most. One that is shrunk from another sends nothing: what that one measured counts
/// on. Nor does one of mixed siblings, since ranks of host memory would not answer; the first operation tells
/// of them.
Status open_device(engine::Communicator& comm, Siblings siblings, double meeting_s,
                   const engine::Communicator* shrunk_from = nullptr);

}  // namespace weft::job
