// Which machine the cost model of a communicator of GPU memory reckons with: the job's (tuning.h), with
// what its devices do in the place of CPUs. Rank 0 of the communicator decides for all, as there: a
// measurement that this process or the tuning cache has for such a device, or a new one.
//
//   copies       One device's memory to itself, short and long, by the engine's queues: Memory::copy_*.
//   latency      From queueing the shortest copy until it is found done: Machine::engine_us.
//   calls        What queueing it, and finding it done, takes the thread: Machine::engine_step_us.
//   reductions   By kernels, or on the CPU with its copies: Memory::reduce_*.
//   peers        From the memory of another rank of the node, as the plans reach it (CUDA IPC, another
//                device, or staged in host memory): Machine::intra.
//   staging      Between the device and pinned memory. Where the network needs that, a message waits for
//                two such copies more, and data flows no faster than the slower direction: Machine::inter.
//
// Who shares rank 0's device, and its progress thread, is counted, on its node: Machine::device_ranks and
// thread_ranks. The queues of a device count as one engine, since they share its memory's bandwidth.
// WEFT_TUNE=off leaves the job's machine, of host memory.
//
// Thread safety: none is needed, creation is one thread's.
#pragma once

#include "base/status.h"
#include "engine/gpu/device_executor.h"
#include "model/cost.h"

namespace weft::engine {
class Communicator;
}

namespace weft::job {

using engine::Communicator;
using engine::DeviceExecutor;

/// A collective of `comm`, a communicator of GPU memory, that measures if need be (some 100 ms, 128 MiB of
/// GPU memory on two ranks). The same machine on all ranks. What cannot be measured is taken from the job's
/// machine, which is logged. Errors: those of the ranks' exchange; timeout, where the device has not done
/// what measures it within the communicator's timeout.
Result<model::Machine> machine_for_gpu(Communicator& comm, DeviceExecutor& executor);

}  // namespace weft::job
