// How the ranks of a new communicator open their devices. They find out whether they reach each other's GPU
// memory, whether the network does (GPUDirect), and which machine the cost model uses.
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

/// Opens the device that a new communicator's options name, if they name one. A collective of ranks with
/// devices; it takes `meeting_s` at most. A communicator that is shrunk from another sends nothing and keeps
/// what its parent has found out. A communicator of mixed siblings sends nothing either, since ranks of host
/// memory would not answer; its first operation reports them.
Status open_device(engine::Communicator& comm, Siblings siblings, double meeting_s,
                   const engine::Communicator* shrunk_from = nullptr);

}  // namespace weft::job
