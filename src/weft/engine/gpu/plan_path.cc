#include "engine/gpu/plan_path.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/clock.h"
#include "base/settings.h"
#include "device/cuda/deferred_free.h"
#include "engine/run/operation.h"
#include "model/gpu_paths.h"
#include "plan/plan.h"

namespace weft::engine {
namespace {

constexpr uint64_t kLongest = 256 << 10;  // of a put: what one_hop sends to each rank
constexpr uint32_t kSlotBytes =
    kLongest;  // one put to each rank; as packets a short one takes twice its bytes
constexpr uint64_t kBytesOfBlock = 8 << 10;
constexpr uint32_t kMostBlocks = 8;
// A CPU notices an operation that is overdue, asks the ranks what they have called, and sets the abort word.
// A kernel gives up by itself only when no CPU has done that.
constexpr double kGraceSeconds = 2;
constexpr const char* kAlgorithm = "one_hop";
constexpr const char* kName = "one_hop_kernel";  // how statistics and the flight recorder call it

template <typename Word>
Word load(const Word& word) {
  return std::atomic_ref(const_cast<Word&>(word)).load(std::memory_order_acquire);
}

/// Zeroes a block of device memory by copies, and waits for them.
Status clear(DeviceExecutor& executor, std::byte* data, size_t bytes) {
  auto zeros = executor.host_blocks().take(std::min<size_t>(bytes, 1 << 20));
  if (!zeros) return zeros.status();
  const size_t piece = std::min<size_t>(bytes, 1 << 20);
  std::memset(zeros->data, 0, piece);
  Status cleared;
  for (size_t at = 0; at < bytes && cleared.ok(); at += piece)
    cleared = executor.queue(0).copy(data + at, zeros->data, std::min(piece, bytes - at));
  if (Status drained = executor.queue(0).drain(); cleared.ok()) cleared = drained;
  executor.host_blocks().give(*zeros);
  return cleared;
}

}  // namespace

Result<std::shared_ptr<PlanPath>> PlanPath::create(DeviceExecutor& executor, int rank, int ranks) {
  if (ranks > static_cast<int>(cuda::kPlanRanks))
    return fail(Code::unsupported, "a plan kernel serves at most {} ranks", cuda::kPlanRanks);
  WEFT_TRY(
      executor.device().why_no_memory_operations().in("a plan kernel waits in its stream for its peers"));
  auto kernels = cuda::PlanKernels::of(executor.device());
  if (!kernels) return kernels.status();
  std::shared_ptr<PlanPath> path(new PlanPath(executor, rank, ranks));
  path->kernels_ = *kernels;
  WEFT_TRY(path->take_memory());
  return path;
}

Status PlanPath::take_memory() {
  const uint64_t bytes = cuda::control_bytes(static_cast<uint32_t>(ranks_), kSlotBytes);
  // Behind the slots is the scratch of a plan: one_hop has a place for the data of every rank.
  const uint64_t scratch = static_cast<uint64_t>(ranks_) * kLongest;
  auto control = executor_.device_blocks().take(bytes + scratch);
  if (!control) return control.status();
  control_ = *control;
  auto words = executor_.host_blocks().take(sizeof(cuda::PlanHost));
  if (!words) return words.status();
  words_ = *words;
  std::memset(words_.data, 0, sizeof(cuda::PlanHost));
  host_ = reinterpret_cast<cuda::PlanHost*>(words_.data);
  WEFT_TRY(clear(executor_, control_.data, bytes));
  return cuda::check((*cuda::driver())->event_create(&last_, cuda::kEventDisableTiming), "cuEventCreate");
}

// A peer's kernel that is about to end may still write here. A kernel that has yet to leave writes to the
// peers: their mappings stay for ever then.
PlanPath::~PlanPath() {
  const cuda::Scope scope(executor_.device());
  if (host_ && load(host_->ended) < launched_) (void)new auto(std::move(mappings_));
  if (last_) (void)(*cuda::driver())->event_destroy(last_);
  if (offered_) executor_.device_blocks().retire(control_);
  else executor_.device_blocks().give(control_);
  if (launched_ > 0) executor_.host_blocks().retire(words_);
  else executor_.host_blocks().give(words_);
}

Result<PlanPath::Offer> PlanPath::offer() {
  auto control = executor_.exporter().describe(control_.data, sizeof(cuda::PlanControl), true);
  if (!control) return control.status();
  offered_ = true;
  return Offer{control->process, executor_.device().uuid(), kernels_->resident_blocks(), *control};
}

Result<uint32_t> PlanPath::most_blocks(std::span<const Offer> offers) {
  uint32_t most = std::min(kMostBlocks, cuda::kPlanBlocks);
  for (const Offer& a : offers) {
    if (a.resident_blocks == 0)
      return fail(Code::unsupported, "rank {} has no plan kernels", &a - offers.data());
    uint32_t sharing = 0;
    for (const Offer& b : offers) {
      if (std::memcmp(&a.device, &b.device, sizeof a.device) != 0) continue;
      ++sharing;
      if (a.process != b.process)
        return fail(Code::unsupported, "processes share a device, which takes turns between them");
    }
    most = std::min(most, a.resident_blocks / 2 / sharing);
    if (most == 0)
      return fail(Code::unsupported, "{} ranks share a device with room for {} blocks", sharing,
                  a.resident_blocks);
  }
  return most;
}

Status PlanPath::connect(std::span<const Offer> offers) {
  const auto most = most_blocks(offers);
  if (!most) return most.status();
  most_blocks_ = *most;
  peers_.assign(offers.size(), {});
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    std::byte* control = control_.data;
    if (static_cast<int>(rank) != rank_) {
      auto reached = executor_.importer().reach(offers[rank].control);
      const Status why = reached && !reached->address ? reached->why : reached.status();
      WEFT_TRY(why.in(fmt::format("rank {}", rank)));
      control = reached->address;
      if (reached->mapping) mappings_.push_back(reached->mapping);
    }
    peers_[rank].control = control;
  }
  peers_[static_cast<size_t>(rank_)].space[2] =
      control_.data + cuda::control_bytes(static_cast<uint32_t>(ranks_), kSlotBytes);
  return {};
}

// ---- Plans

uint32_t PlanPath::blocks_for(uint64_t bytes) const {
  const uint64_t wanted = (bytes + kBytesOfBlock - 1) / kBytesOfBlock;
  return static_cast<uint32_t>(std::clamp<uint64_t>(wanted, 1, most_blocks_));
}

std::shared_ptr<StreamPath::Served> PlanPath::make(const plan::Request& request, const Prices& prices) const {
  auto made = std::make_shared<Kernel>();
  double predicted_us = 0;
  made->why_not = [&]() -> Status {
    if (!settings().algo.empty()) return fail(Code::unsupported, "WEFT_ALGO pins algorithms");
    auto program = make_program(request, rank_, ranks_, blocks_for(request.bytes()));
    if (!program) return program.status();
    made->program = *program;
    if (prices.known()) predicted_us = model::plan_kernel_us(prices.machine, request, ranks_);
    return model::plan_kernel_pays(predicted_us, prices.known() ? prices.steps_us : nullptr);
  }();
  if (!made->why_not.ok()) return made;
  for (int i = 0; i < made->program.lane_begin[made->program.lanes]; ++i)
    if (made->program.step[i].action == cuda::PlanAction::wait)
      made->partners |= 1u << made->program.step[i].peer;
  made->tables = PlanTables::make(plan::Builder(kName, request, ranks_, rank_).finish(),
                                  topology::Layout::blocks(1, ranks_), 1, predicted_us);
  return made;
}

Result<cuda::PlanProgram> PlanPath::make_program(const plan::Request& request, int rank, int ranks,
                                                 uint32_t blocks) {
  if (request.bytes() == 0 || request.uneven || plan::is_transfer(request.collective))
    return fail(Code::unsupported, "a plan kernel serves even collectives only");
  const topology::Layout layout = topology::Layout::blocks(1, ranks);
  const plan::Limits limits{.eager_intra_bytes = kLongest, .eager_inter_bytes = kLongest};
  const plan::Algorithm& algorithm = *plan::find_algorithm(request.collective, kAlgorithm);
  WEFT_TRY(algorithm.fits(request, layout, limits));
  std::vector<plan::Plan> plans;
  for (int each = 0; each < ranks; ++each) plans.push_back(algorithm.make(request, layout, limits, each));
  return plan::make_program(plans, rank, layout, limits, {.blocks = blocks, .slot_bytes = kSlotBytes});
}

// ---- Kernels

// Kernels of one communicator follow each other, whatever their streams: they count the same epochs.
Status PlanPath::follow_last(cuda::StreamHandle* stream) {
  if (launched_ == 0 || stream == last_stream_ || load(host_->ended) >= launched_) return {};
  return cuda::check((*cuda::driver())->stream_wait_event(stream, last_, 0), "cuStreamWaitEvent");
}

Result<uint64_t> PlanPath::arrive(const Operation& op, const std::shared_ptr<const Served>& served) {
  const Call& call = op.call;
  auto* const stream = static_cast<cuda::StreamHandle*>(call.cuda_stream);
  WEFT_TRY(follow_last(stream));
  arguments_.program = static_cast<const Kernel&>(*served).program;
  cuda::PlanCall& to = arguments_.call;
  std::copy(peers_.begin(), peers_.end(), to.peer);
  cuda::PlanPeer& own = to.peer[rank_];
  own.space[0] = const_cast<void*>(call.send);
  own.space[1] = call.recv;
  to.host = host_;
  to.timeout_ns = static_cast<uint64_t>((op.end.timeout_s + kGraceSeconds) * 1e9);
  to.slot_bytes = kSlotBytes;
  cuda::set_reduction(to, call.type, call.op, op.reduction.order == device::Order::tree);
  const bool reduces = plan::reduces(call.collective);
  WEFT_TRY(kernels_->launch(stream, cuda::plan_kernel_name(reduces, call.type, call.op), arguments_));
  cuda::DeferredFree::instance().stream_waits();
  last_stream_ = stream;
  ++launched_;
  Status recorded = cuda::check((*cuda::driver())->event_record(last_, stream), "cuEventRecord");
  if (recorded.ok()) return launched_;
  let_go(launched_);
  return recorded;
}

bool PlanPath::has_begun(uint64_t epoch) const { return load(host_->begun) >= epoch; }

Result<bool> PlanPath::has_ended(uint64_t epoch) {
  if (load(host_->reported)) return fail(Code::timeout, "{}", holds_up(epoch));
  return load(host_->ended) >= epoch;
}

std::string PlanPath::holds_up(uint64_t) const {
  if (!load(host_->reported)) return "";
  const cuda::PlanHost::Report& report = host_->report;
  return fmt::format(
      "its kernel waited too long for rank {}: step {}, tag {}, whose flag is at operation {} of the kernels "
      "and not at {}",
      report.peer, report.step, report.tag, report.seen, report.epoch);
}

// Until a kernel has left, it may touch memory of every rank. So its stream counts as one that waits.
void PlanPath::let_go(uint64_t epoch) {
  if (load(host_->ended) >= epoch) return cuda::DeferredFree::instance().stream_goes_on();
  std::atomic_ref(host_->abort).store(1, std::memory_order_release);
  if (lingering_++ > 0) return;
  PendingRelease release;
  release.path = shared_from_this();
  executor_.drain(std::move(release));
}

bool PlanPath::is_drained() {
  if (load(host_->ended) < launched_ && executor_.alive(now_ns()).ok()) return false;
  for (; lingering_ > 0; --lingering_) cuda::DeferredFree::instance().stream_goes_on();
  return true;
}

}  // namespace weft::engine
