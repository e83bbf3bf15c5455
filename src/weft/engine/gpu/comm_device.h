// CommDevice: what a communicator of GPU memory knows of its device, as its ranks have agreed on when it was
// made.
//
// Thread safety: a value, under the context's lock.
#pragma once

#include <memory>
#include <vector>

#include "engine/gpu/device_executor.h"
#include "engine/gpu/may_call_driver.h"
#include "model/cost.h"
#include "transport/transport.h"

namespace weft::engine {

class NodeBoard;
class StreamPath;

struct CommDevice {
  DeviceExecutor* executor = nullptr;  // the context's; null: host memory
  /// The network's way to GPU memory, where every rank has one; null: GPU memory is staged between nodes.
  transport::GpuDirect* direct = nullptr;
  /// Whether ranks of a node reach each other's GPU memory; else it is staged. The same on all ranks.
  bool shares_memory = false;
  std::shared_ptr<const model::Machine> machine;  // null: the job's
  MayCallDriver first_use;
  /// Ways to do collectives on the caller's stream alone, the first that serves a call: as one kernel, as
  /// copies.
  std::vector<std::shared_ptr<StreamPath>> paths;
  std::shared_ptr<NodeBoard> board;  // where there are such paths
};

}  // namespace weft::engine
