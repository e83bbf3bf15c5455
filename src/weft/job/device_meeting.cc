#include "job/device_meeting.h"

#include <algorithm>
#include <functional>
#include <numeric>
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

// What every rank of a communicator has, or has asked for by a setting.
constexpr uint8_t kReached = 1, kWantsKernel = 2, kWantsCopies = 4, kHasBoard = 8;

uint8_t own_wishes() {
  return static_cast<uint8_t>((settings().cuda_kernel ? kWantsKernel : 0) |
                              (settings().cuda_copy_bytes > 0 ? kWantsCopies : 0));
}

// How the ranks of a communicator find out whether they reach each other's GPU memory, and which ways they
// have to do collectives on the caller's stream. A rank has such a way if all ranks ask for it, and all reach
// the memory of their node's ranks.
class DeviceMeeting {
 public:
  DeviceMeeting(Communicator& comm, double meeting_s)
      : comm_(comm),
        executor_(*comm.on_device().executor),
        layout_(comm.members().layout()),
        lowest_(layout_.on_node(layout_.node_of(comm.rank())).front()),
        meeting_(comm.context().shared_from_this(), meeting_id(comm), comm.members().worlds(),
                 options_of(comm, meeting_s)) {}

  Status settle() {
    Status met = meet();
    if (met.ok() && all_say(kReached) && (all_say(kWantsKernel) || all_say(kWantsCopies)))
      met = settle_paths();
    const Lock lock = comm_.context().lock();
    const cuda::Scope scope(executor_.device());
    executor_.device_blocks().give(lent_);
    if (comm_.on_device().paths.empty()) comm_.on_device().board = nullptr;
    if (!met.ok()) return met.in("settling how GPU memory is shared");
    comm_.on_device().shares_memory = all_say(kReached);
    if (!reached_.ok() && settings().cuda_ipc)
      log::warn("communicator \"{}\": GPU memory is staged in pinned host memory inside nodes: rank {}: {}",
                comm_.name(), comm_.rank(), reached_.message());
    return {};
  }

 private:
  /// What a rank says first, as plain bytes.
  struct Offer {
    cuda::SharedMemory memory;
    NodeBoard::Offer board;  // of the node's lowest rank, if it asks for a path
    uint8_t says = 0;
  };

  static CommOptions options_of(const Communicator& comm, double meeting_s) {
    CommOptions apart;  // a communicator of its own, so that nothing of it shows in the user's
    apart.name = comm.name() + " devices";
    apart.timeout_s = meeting_s;
    return apart;
  }

  /// A value of every rank.
  Status gather(const void* mine, void* all, size_t bytes) {
    Call call;
    call.collective = plan::Collective::all_gather;
    call.send = mine;
    call.recv = all;
    call.count = bytes;
    call.type = device::DataType::uint8;
    return meeting_.run(call);
  }

  // Every rank lends a block, and the ranks of its node try to reach it. Then all ranks learn whether all
  // could: if one rank stages its data, its peers must not look for the data in GPU memory. A rank that is
  // alone on its node has nothing to try.
  Status meet() {
    const bool are_alone = layout_.nodes() == layout_.ranks();
    Offer mine = make_offer();
    if (are_alone) mine.says |= kReached;
    std::vector<Offer> offers(size());
    WEFT_TRY(gather(&mine, offers.data(), sizeof mine));
    std::vector<uint8_t> by_all(size());
    if (are_alone) {
      std::transform(offers.begin(), offers.end(), by_all.begin(), [](const Offer& o) { return o.says; });
    } else {
      reached_ = on_device([&] { return reach_neighbours(offers); });
      if (own_wishes() != 0 && comm_.rank() != lowest_)
        board_ = on_device([&] { return open_board(offers[static_cast<size_t>(lowest_)].board); });
      const auto says = static_cast<uint8_t>(own_says() | (reached_.ok() ? kReached : 0));
      WEFT_TRY(gather(&says, by_all.data(), sizeof says));
    }
    said_by_all_ = std::accumulate(by_all.begin(), by_all.end(), uint8_t{0xff}, std::bit_and<uint8_t>());
    return {};
  }

  Offer make_offer() {
    Offer offer;
    const Status made = on_device([&]() -> Status {
      if (comm_.on_device().shares_memory)
        if (auto block = executor_.device_blocks().take(1)) lent_ = *block;
      if (lent_.data)
        if (auto described = executor_.exporter().describe(lent_.data, 1, true)) offer.memory = *described;
      return own_wishes() != 0 && comm_.rank() == lowest_ ? make_board(offer.board) : board_;
    });
    board_ = made;
    offer.says = own_says();
    return offer;
  }
  uint8_t own_says() const { return static_cast<uint8_t>(own_wishes() | (board_.ok() ? kHasBoard : 0)); }
  bool all_say(uint8_t what) const { return (said_by_all_ & what) == what; }

  Status reach_neighbours(const std::vector<Offer>& offers) {
    for (const int neighbour : layout_.on_node(layout_.node_of(comm_.rank()))) {
      const cuda::SharedMemory& offer = offers[static_cast<size_t>(neighbour)].memory;
      if (neighbour != comm_.rank()) WEFT_TRY(executor_.importer().reach_of_rank(neighbour, offer).status());
    }
    return {};
  }

  // The words that ranks of a path share. The node's lowest rank makes them, and the others open them.
  Status make_board(NodeBoard::Offer& offer) {
    auto board = NodeBoard::create(executor_.device(), comm_.rank(), comm_.size());
    if (!board) return board.status();
    const auto made = (*board)->offer();
    if (!made) return made.status();
    offer = *made;
    comm_.on_device().board = board.take();
    return {};
  }
  Status open_board(const NodeBoard::Offer& offer) {
    auto board = NodeBoard::open(executor_.device(), comm_.rank(), comm_.size(), offer);
    if (board) comm_.on_device().board = board.take();
    return board.status();
  }

  Status settle_paths() {
    if (!board_.ok()) log_steps("collectives", board_);
    if (!all_say(kHasBoard)) return {};
    const auto& board = comm_.on_device().board;
    if (all_say(kWantsKernel))
      WEFT_TRY(settle_path<PlanPath>("collectives by kernels", [&] {
        return PlanPath::create(executor_, board, layout_, comm_.rank(),
                                comm_.context().fabric().eager_inter_bytes());
      }));
    if (!all_say(kWantsCopies) || layout_.nodes() > 1) return {};
    return settle_path<CopyPath>(
        "long collectives", [&] { return CopyPath::create(executor_, board, comm_.rank(), comm_.size()); });
  }

  template <typename Path>
  Status settle_path(const char* calls, const std::function<Result<std::shared_ptr<Path>>()>& create) {
    using PathOffer = typename Path::Offer;
    PathOffer offer;
    std::vector<PathOffer> offers(size());
    std::shared_ptr<Path> path;
    Status can = on_device([&]() -> Status {
      auto made = create();
      if (!made) return made.status();
      path = made.take();
      auto offered = path->offer();
      if (offered) offer = *offered;
      return offered.status();
    });
    const Status met = gather(&offer, offers.data(), sizeof offer);
    if (met.ok() && can.ok()) can = on_device([&] { return path->connect(offers); });
    const Result<bool> all_can = met.ok() ? can_all(can, calls) : met;
    const Lock lock = comm_.context().lock();  // for the end of a path, too
    if (all_can && *all_can) comm_.on_device().paths.push_back(std::move(path));
    else if (all_can && path) path->withdraw();
    path.reset();
    return all_can.status();
  }

  Result<bool> can_all(const Status& can, const char* calls) {
    std::vector<uint8_t> by_all(size());
    const uint8_t mine = can.ok();
    WEFT_TRY(gather(&mine, by_all.data(), sizeof mine));
    if (!can.ok()) log_steps(calls, can);
    return std::count(by_all.begin(), by_all.end(), 1) == comm_.size();
  }

  void log_steps(const char* calls, const Status& why) const {
    log::info("communicator \"{}\": {} go step by step, not on the caller's stream alone: rank {}: {}",
              comm_.name(), calls, comm_.rank(), why.message());
  }

  size_t size() const { return static_cast<size_t>(comm_.size()); }
  template <typename Work>
  Status on_device(const Work& work) {
    const Lock lock = comm_.context().lock();
    const cuda::Scope scope(executor_.device());
    return work();
  }

  Communicator& comm_;
  DeviceExecutor& executor_;
  const topology::Layout& layout_;
  const int lowest_;  // rank of the node
  Communicator meeting_;
  cuda::Block lent_;
  Status reached_, board_ = weft::fail(Code::unsupported, "no setting asks for flags of streams");
  uint8_t said_by_all_ = 0;
};

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
  if (comm.size() > 1) WEFT_TRY(DeviceMeeting(comm, meeting_s).settle());
  if (!comm.context().machine().tunes || comm.size() == 1) return {};
  auto machine = machine_for_gpu(comm, *own.executor);
  if (!machine) return machine.status();
  own.machine = std::make_shared<const model::Machine>(machine.take());
  return {};
}

}  // namespace weft::job
