#include "engine/gpu/plan_path.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/settings.h"
#include "device/cuda/deferred_free.h"
#include "engine/gpu/checked_calls.h"
#include "engine/run/operation.h"
#include "model/gpu_paths.h"
#include "plan/plan.h"

namespace weft::engine {
namespace {

constexpr uint32_t kSlotBytes = 256 << 10;   // the longest eager put: what one_hop sends to each rank
constexpr uint64_t kStagingBytes = 2 << 20;  // of an input or output, between processes
constexpr uint32_t kMostBlocks = 64;         // of a kernel, whatever room the device has
// A CPU notices an operation that is overdue, asks the ranks what they have called, and sets the abort word.
// A kernel gives up by itself only when no CPU has done that.
constexpr double kGraceSeconds = 2;

// The control memory of a rank: PlanControl and slots, the scratch of a plan, and a staging. one_hop has a
// place in its scratch for the data of every rank, and for its own as a scalar multiplies it.
uint64_t scratch_at(int ranks) { return cuda::control_bytes(static_cast<uint32_t>(ranks), kSlotBytes); }
uint64_t scratch_bytes(int ranks) { return (static_cast<uint64_t>(ranks) + 1) * kSlotBytes; }
uint64_t staging_at(int ranks) { return scratch_at(ranks) + scratch_bytes(ranks); }

Status copy_in(void* stream, void* to, const void* from, uint64_t bytes) {
  return cuda::check((*cuda::driver())
                         ->memcpy_async(reinterpret_cast<uintptr_t>(to), reinterpret_cast<uintptr_t>(from),
                                        bytes, static_cast<cuda::StreamHandle*>(stream)),
                     "staging a buffer (cuMemcpyAsync)");
}

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
  auto control = executor_.device_blocks().take(staging_at(ranks_) + 2 * kStagingBytes);
  if (!control) return control.status();
  control_ = *control;
  auto words = executor_.host_blocks().take(sizeof(cuda::PlanHost));
  if (!words) return words.status();
  words_ = *words;
  std::memset(words_.data, 0, sizeof(cuda::PlanHost));
  host_ = reinterpret_cast<cuda::PlanHost*>(words_.data);
  WEFT_TRY(clear(executor_, control_.data, scratch_at(ranks_)));
  return cuda::check((*cuda::driver())->event_create(&last_, cuda::kEventDisableTiming), "cuEventCreate");
}

// A peer's kernel that is about to end may still write here. A kernel that has yet to leave writes to the
// peers: their mappings stay for ever then.
PlanPath::~PlanPath() {
  const cuda::Scope scope(executor_.device());
  if (host_ && load(host_->ended) < launched_) (void)new auto(std::move(mappings_));
  if (last_) (void)(*cuda::driver())->event_destroy(last_);
  for (const cuda::Block& staging : staging_)
    if (staging.data) executor_.device_blocks().retire(staging);
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
  uint32_t most = kMostBlocks;
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
  const auto all_alike = [&](const auto& alike) {
    return std::all_of(offers.begin(), offers.end(), [&](const Offer& offer) { return alike(offer); });
  };
  one_process_ = all_alike([&](const Offer& offer) { return offer.process == offers[0].process; });
  one_device_ = all_alike([&](const Offer& offer) {
    return std::memcmp(&offer.device, &offers[0].device, sizeof offer.device) == 0;
  });
  reach_ = reach_of(ranks_, *most, one_process_);
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
    peers_[rank] = {control, {nullptr, nullptr, control + scratch_at(ranks_)}};
  }
  return {};
}

// ---- Plans

KernelReach PlanPath::reach_of(int ranks, uint32_t blocks, bool one_process) {
  return {.ranks = ranks,
          .blocks = blocks,
          .slot_bytes = kSlotBytes,
          .scratch_bytes = scratch_bytes(ranks),
          .exposed_bytes = one_process ? UINT32_MAX : kStagingBytes};
}

std::shared_ptr<StreamPath::Served> PlanPath::make(const plan::Request& request, bool scaled,
                                                   const Prices& prices) const {
  auto made = std::make_shared<Kernel>();
  const char* name = "";
  double predicted_us = 0;
  made->why_not = [&]() -> Status {
    if (!settings().algo.empty()) return fail(Code::unsupported, "WEFT_ALGO pins algorithms");
    const auto chosen =
        choose_kernel_plan(request, scaled, rank_, reach_, prices.known() ? &prices.machine : nullptr);
    if (!chosen) return chosen.status();
    name = chosen->name;
    predicted_us = chosen->predicted_us;
    made->program = chosen->program;
    return model::plan_kernel_pays(predicted_us, prices.known() ? prices.steps_us : nullptr);
  }();
  if (!made->why_not.ok()) return made;
  for (int i = 0; i < made->program.lane_begin[made->program.lanes]; ++i) {
    const cuda::Instruction& step = made->program.step[i];
    if (step.action == cuda::PlanAction::wait) made->partners |= 1u << step.peer;
    if (step.action == cuda::PlanAction::signal && (step.flags & cuda::kExposes))
      made->exposes[step.dst.space()] = true;
  }
  made->tables = PlanTables::make(plan::Builder(name, request, ranks_, rank_).finish(),
                                  topology::Layout::blocks(1, ranks_), 1, predicted_us);
  return made;
}

// ---- Kernels

// Kernels of one communicator follow each other, whatever their streams: they count the same epochs, and use
// the same staging.
Status PlanPath::follow_last(cuda::StreamHandle* stream) {
  if (launched_ == 0 || stream == last_stream_) return {};
  if (!copies_last_) {
    if (load(host_->ended) >= launched_) return {};
    // The lower half of the word: a kernel writes it when it ends, and so does one that is aborted.
    return cuda::check((*cuda::driver())
                           ->stream_wait_value(stream, reinterpret_cast<uintptr_t>(&host_->ended),
                                               static_cast<uint32_t>(launched_), cuda::kWaitValueGeq),
                       "cuStreamWaitValue32");
  }
  return cuda::check((*cuda::driver())->stream_wait_event(stream, last_, 0), "cuStreamWaitEvent");
}

Result<uint64_t> PlanPath::arrive(const Operation& op, const std::shared_ptr<const Served>& served) {
  const auto& kernel = static_cast<const Kernel&>(*served);
  WEFT_TRY(follow_last(static_cast<cuda::StreamHandle*>(op.call.cuda_stream)));
  arguments_.program = kernel.program;
  set_call(op);
  Staged staged[2];
  WEFT_TRY(expose(op, kernel, staged));
  WEFT_TRY(launch(op, staged));
  return launched_;
}

void PlanPath::set_call(const Operation& op) {
  const Call& call = op.call;
  cuda::PlanCall& to = arguments_.call;
  std::copy(peers_.begin(), peers_.end(), to.peer);
  to.peer[rank_].space[0] = const_cast<void*>(call.send);
  to.peer[rank_].space[1] = call.recv;
  to.host = host_;
  to.timeout_ns = static_cast<uint64_t>((op.end.timeout_s + kGraceSeconds) * 1e9);
  to.slot_bytes = kSlotBytes;
  to.signature = op.signature;
  cuda::set_reduction(to, call.type, call.op, op.reduction.order == device::Order::tree);
  to.scalar_at = nullptr;
  static_assert(sizeof to.scalar_at == sizeof call.scalar && sizeof to.scalar == sizeof call.scalar);
  if (!call.premultiply) return;
  if (call.scalar_is_address) std::memcpy(&to.scalar_at, call.scalar, sizeof to.scalar_at);
  else std::memcpy(to.scalar, call.scalar, sizeof to.scalar);
}

/// Says where peers find the buffers that the plan exposes. A staged input is copied.
Status PlanPath::expose(const Operation& op, const Kernel& kernel, Staged (&staged)[2]) {
  cuda::PlanPeer& own = arguments_.call.peer[rank_];
  const plan::Request& request = kernel.request;
  const uint64_t bytes[2] = {input_bytes(request, ranks_, rank_), output_bytes(request, ranks_, rank_)};
  for (int space = 0; space < 2; ++space) {
    if (!kernel.exposes[space]) continue;
    const auto reached = is_reached(own.space[space]);
    if (!reached) return reached.status();
    arguments_.call.exposed[space] = reinterpret_cast<uintptr_t>(own.space[space]);
    if (*reached) continue;
    auto staging = staging_for(space, bytes[space]);
    if (!staging) return staging.status();
    if (space == 0) WEFT_TRY(copy_in(op.call.cuda_stream, *staging, own.space[space], bytes[space]));
    staged[space] = {*staging, bytes[space]};
    own.space[space] = *staging;
    arguments_.call.exposed[space] =
        one_process_ ? reinterpret_cast<uintptr_t>(*staging)
                     : cuda::kFromControl | static_cast<uint64_t>(*staging - control_.data);
  }
  return {};
}

// Devices of one process reach each other's memory from cuMemAlloc, and memory of the host.
Result<bool> PlanPath::is_reached(const void* buffer) const {
  if (!one_process_) return false;
  if (one_device_) return true;
  if (const cuda::Place* known = CheckedCalls::of_this_thread().find(buffer))
    return known->shareable || known->kind != cuda::Place::Kind::device;
  const auto place = cuda::locate(buffer);
  if (!place) return place.status();
  return place->shareable || place->kind != cuda::Place::Kind::device;
}

// In one process it grows with the calls. Kernels that still use an old one may be under way.
Result<std::byte*> PlanPath::staging_for(int space, uint64_t bytes) {
  if (!one_process_) return control_.data + staging_at(ranks_) + static_cast<uint64_t>(space) * kStagingBytes;
  cuda::Block& block = staging_[space];
  if (block.data && uint64_t{1} << block.size_class >= bytes) return block.data;
  auto larger = executor_.device_blocks().take(bytes);
  if (!larger) return larger.status();
  const cuda::Block smaller = std::exchange(block, *larger);
  if (smaller.data) executor_.device_blocks().retire(smaller);
  return block.data;
}

Status PlanPath::launch(const Operation& op, const Staged (&staged)[2]) {
  const Call& call = op.call;
  auto* const stream = static_cast<cuda::StreamHandle*>(call.cuda_stream);
  const bool reduces = plan::reduces(call.collective);
  WEFT_TRY(kernels_->launch(stream, cuda::plan_kernel_name(reduces, call.type, call.op), arguments_));
  cuda::DeferredFree::instance().stream_waits();
  last_stream_ = stream;
  ++launched_;
  copies_last_ = staged[1].staging != nullptr;
  Status behind;
  if (copies_last_) behind = copy_in(stream, call.recv, staged[1].staging, staged[1].bytes);
  if (behind.ok() && copies_last_)
    behind = cuda::check((*cuda::driver())->event_record(last_, stream), "cuEventRecord");
  if (!behind.ok()) let_go(launched_);
  return behind;
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
