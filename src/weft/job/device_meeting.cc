#include "job/device_meeting.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/log.h"
#include "base/settings.h"
#include "engine/gpu/copy_path.h"
#include "engine/gpu/node_board.h"
#include "engine/gpu/plan_path.h"
#include "engine/run/communicator.h"
#include "job/gpu_tuning.h"

namespace weft::job {
namespace {

using namespace engine;

constexpr uint64_t kDevices = uint64_t{0x64657669} << 32;  // sets ids apart: see founding.cc

uint32_t meeting_id(const Communicator& comm) { return hash_32(kDevices, comm.id()); }

// Other ranks may wait for this one in an exchange. They hear why it does not come, and fail.
Status stay_away(const Communicator& comm, const Status& why) {
  for (const uint32_t id : {meeting_id(comm), comm.id()})
    comm.context().bootstrap().tell_failed(id, why.message());
  return why;
}

Status reach_neighbours(Communicator& comm, const std::vector<cuda::SharedMemory>& offers) {
  DeviceExecutor& executor = *comm.on_device().executor;
  const Lock lock = comm.context().lock();
  const cuda::Scope scope(executor.device());
  for (const int neighbour : comm.members().layout().on_node(comm.members().layout().node_of(comm.rank()))) {
    const cuda::SharedMemory& offer = offers[static_cast<size_t>(neighbour)];
    if (neighbour == comm.rank()) continue;
    if (offer.bytes == 0) return fail(Code::unsupported, "rank {} cannot share its memory", neighbour);
    const auto reached = executor.importer().reach(offer);
    const Status why = reached && !reached->address ? reached->why : reached.status();
    WEFT_TRY(why.in(fmt::format("rank {}", neighbour)));
  }
  return {};
}

// What every rank of a communicator has asked for by a setting.
constexpr uint8_t kReached = 1, kWantsKernel = 2, kWantsCopies = 4;

uint8_t own_wishes() {
  return static_cast<uint8_t>((settings().cuda_kernel ? kWantsKernel : 0) |
                              (settings().cuda_copy_bytes > 0 ? kWantsCopies : 0));
}

// Ways to do collectives on the caller's stream: all ranks ask for one, and all reach the memory of their
// node's ranks.
template <typename Gather>
class PathMeeting {
 public:
  /// `gather` gathers a value of every rank.
  PathMeeting(Communicator& comm, const Gather& gather)
      : comm_(comm), executor_(*comm.on_device().executor), gather_(gather) {}

  /// The words that ranks of a path share. Whether all have them.
  Result<bool> settle_board() {
    NodeBoard::Offer offer;
    std::vector<NodeBoard::Offer> offers(size());
    std::unique_ptr<NodeBoard> board;
    const auto keep = [&](Result<std::unique_ptr<NodeBoard>> made) {
      if (made) board = made.take();
      return made.status();
    };
    Status can;
    const topology::Layout& layout = comm_.members().layout();
    const int lowest = layout.on_node(layout.node_of(comm_.rank())).front();
    if (comm_.rank() == lowest)
      can = on_device([&]() -> Status {
        WEFT_TRY(keep(NodeBoard::create(executor_.device(), comm_.rank(), comm_.size())));
        auto offered = board->offer();
        if (offered) offer = *offered;
        return offered.status();
      });
    WEFT_TRY(gather_(&offer, offers.data(), sizeof offer));
    if (comm_.rank() != lowest)
      can = on_device([&] {
        return keep(NodeBoard::open(executor_.device(), comm_.rank(), comm_.size(),
                                    offers[static_cast<size_t>(lowest)]));
      });
    auto all_can = can_all(can, "collectives");
    if (all_can && *all_can) comm_.on_device().board = std::move(board);
    return all_can;
  }

  template <typename Path>
  Status settle(const char* calls, const std::function<Result<std::shared_ptr<Path>>()>& create) {
    using Offer = typename Path::Offer;
    Offer offer;
    std::vector<Offer> offers(size());
    std::shared_ptr<Path> path;
    Status can = on_device([&]() -> Status {
      auto made = create();
      if (!made) return made.status();
      path = made.take();
      auto offered = path->offer();
      if (offered) offer = *offered;
      return offered.status();
    });
    Status met = gather_(&offer, offers.data(), sizeof offer);
    if (met.ok() && can.ok()) can = on_device([&] { return path->connect(offers); });
    Result<bool> all_can = met.ok() ? can_all(can, calls) : met;
    const Lock lock = comm_.context().lock();  // for the end of a path, too
    if (all_can && *all_can) comm_.on_device().paths.push_back(std::move(path));
    else if (all_can && path) path->withdraw();
    path.reset();
    return all_can.status();
  }

 private:
  size_t size() const { return static_cast<size_t>(comm_.size()); }
  template <typename Work>
  Status on_device(const Work& work) {
    const Lock lock = comm_.context().lock();
    const cuda::Scope scope(executor_.device());
    return work();
  }
  Result<bool> can_all(const Status& can, const char* calls) {
    std::vector<uint8_t> by_all(size());
    const uint8_t mine = can.ok();
    WEFT_TRY(gather_(&mine, by_all.data(), sizeof mine));
    if (!can.ok())
      log::info("communicator \"{}\": {} go step by step, not on the caller's stream alone: rank {}: {}",
                comm_.name(), calls, comm_.rank(), can.message());
    return std::count(by_all.begin(), by_all.end(), 1) == comm_.size();
  }

  Communicator& comm_;
  DeviceExecutor& executor_;
  const Gather& gather_;
};

template <typename Gather>
Status settle_paths(Communicator& comm, const Gather& gather, bool kernel, bool copies) {
  if (!kernel && !copies) return {};
  DeviceExecutor& executor = *comm.on_device().executor;
  PathMeeting meeting(comm, gather);
  const auto board = meeting.settle_board();
  if (!board || !*board) return board.status();
  if (kernel)
    WEFT_TRY(meeting.template settle<PlanPath>("collectives by kernels", [&] {
      return PlanPath::create(executor, comm.on_device().board, comm.members().layout(), comm.rank(),
                              comm.context().fabric().eager_inter_bytes());
    }));
  if (!copies) return {};
  return meeting.template settle<CopyPath>("long collectives", [&] {
    return CopyPath::create(executor, comm.on_device().board, comm.rank(), comm.size());
  });
}

// Every rank lends a block. The ranks of its node try to reach it, and all ranks learn whether all could. If
// one rank stages its data, its peers must not look for the data in GPU memory.
Status settle_sharing(Communicator& comm, double meeting_s) {
  DeviceExecutor& executor = *comm.on_device().executor;
  if (comm.size() == 1) return {};
  CommOptions apart;  // a communicator of its own, so that nothing of it shows in the user's
  apart.name = comm.name() + " devices";
  apart.timeout_s = meeting_s;
  Communicator meeting(comm.context().shared_from_this(), meeting_id(comm), comm.members().worlds(),
                       std::move(apart));
  const auto gather = [&](const void* mine, void* all, size_t bytes) {
    Call call;
    call.collective = plan::Collective::all_gather;
    call.send = mine;
    call.recv = all;
    call.count = bytes;
    call.type = device::DataType::uint8;
    return meeting.run(call);
  };
  cuda::SharedMemory offer;
  cuda::Block lent;
  {
    const Lock lock = comm.context().lock();
    const cuda::Scope scope(executor.device());
    if (comm.on_device().shares_memory)
      if (auto block = executor.device_blocks().take(1)) lent = *block;
    if (lent.data)
      if (auto described = executor.exporter().describe(lent.data, 1, true)) offer = *described;
  }
  std::vector<cuda::SharedMemory> offers(static_cast<size_t>(comm.size()));
  std::vector<uint8_t> reached_by(static_cast<size_t>(comm.size()));
  Status reached;
  Status met = gather(&offer, offers.data(), sizeof offer);
  if (met.ok()) {
    reached = reach_neighbours(comm, offers);
    const auto mine = static_cast<uint8_t>((reached.ok() ? kReached : 0) | own_wishes());
    met = gather(&mine, reached_by.data(), sizeof mine);
  }
  const auto says = [&](uint8_t what) {
    return std::all_of(reached_by.begin(), reached_by.end(),
                       [what](uint8_t of) { return (of & what) == what; });
  };
  if (met.ok() && says(kReached)) {
    const bool one_node = comm.members().layout().nodes() == 1;
    met = settle_paths(comm, gather, says(kWantsKernel), one_node && says(kWantsCopies));
  }
  const Lock lock = comm.context().lock();
  const cuda::Scope scope(executor.device());
  executor.device_blocks().give(lent);
  if (!met.ok()) return met.in("settling how GPU memory is shared");
  comm.on_device().shares_memory = says(kReached);
  if (!reached.ok() && settings().cuda_ipc)
    log::warn("communicator \"{}\": GPU memory is staged in pinned host memory inside nodes: rank {}: {}",
              comm.name(), comm.rank(), reached.message());
  return {};
}

// (lock) The offers came with the addresses, so every rank decides the same.
Status settle_gpu_direct(Communicator& comm) {
  transport::Transport* const network = comm.context().fabric().between_nodes();
  if (comm.members().layout().nodes() == 1 || !network) return {};
  const auto offered_by_all = [&]() -> Status {
    if (settings().gpu_direct == "off") return fail(Code::unsupported, "WEFT_GPU_DIRECT is off");
    transport::GpuDirect* const direct = network->gpu_direct();
    if (!direct)
      return fail(Code::unsupported, "{} moves host memory only (WEFT_NET=ofi may do more)",
                  network->describe());
    for (int world : comm.members().worlds()) WEFT_TRY(direct->gpu_direct_with(world));
    comm.on_device().direct = direct;
    return {};
  };
  const Status offered = offered_by_all();
  if (offered.ok()) {
    log::info("communicator \"{}\": {} reaches GPU memory itself (GPUDirect)", comm.name(),
              network->describe());
  } else if (settings().gpu_direct == "on") {
    return fail(Code::unsupported,
                "WEFT_GPU_DIRECT is on, but communicator \"{}\" cannot have GPUDirect: {}; `auto` stages GPU "
                "memory instead",
                comm.name(), offered.message());
  } else {
    log::info("communicator \"{}\": GPU memory is staged in host memory between nodes: {}", comm.name(),
              offered.message());
  }
  return {};
}

}  // namespace

Status open_device(Communicator& comm, Siblings siblings, double meeting_s, const Communicator* shrunk_from) {
  if (comm.options().device < 0) return {};
  CommDevice& own = comm.on_device();
  {
    const Lock lock = comm.context().lock();
    auto executor = comm.context().device_operations().executor(comm.options().device);
    if (!executor) return stay_away(comm, executor.status());
    own.executor = *executor;
    WEFT_TRY(settle_gpu_direct(comm));
    comm.allow_captures();
  }
  if (shrunk_from) {  // its parent may be of host memory, and then has not tried to share
    own.shares_memory = shrunk_from->on_device().shares_memory;
    own.machine = shrunk_from->on_device().machine;
    return {};
  }
  own.shares_memory = own.executor->shares_memory();
  if (siblings == Siblings::mixed) return {};
  WEFT_TRY(settle_sharing(comm, meeting_s));
  if (!comm.context().machine().tunes || comm.size() == 1) return {};
  auto machine = machine_for_gpu(comm, *own.executor);
  if (!machine) return machine.status();
  own.machine = std::make_shared<const model::Machine>(machine.take());
  return {};
}

}  // namespace weft::job
