#include "engine/gpu/plan_path.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <new>
#include <utility>

#include "base/clock.h"
#include "base/settings.h"
#include "device/cuda/deferred_free.h"
#include "engine/gpu/checked_calls.h"
#include "engine/gpu/device_calls.h"
#include "engine/run/operation.h"
#include "model/gpu_paths.h"
#include "plan/plan.h"

namespace weft::engine {
namespace {

constexpr uint32_t kMostBlocks = 64;  // of a kernel, whatever room the device has
// A CPU notices an operation that is overdue, asks the ranks what they have called, and sets the abort word.
// A kernel gives up by itself only when no CPU has done that.
constexpr double kGraceSeconds = 2;

Status copy_in(void* stream, void* to, const void* from, uint64_t bytes) {
  return cuda::check((*cuda::driver())
                         ->memcpy_async(reinterpret_cast<uintptr_t>(to), reinterpret_cast<uintptr_t>(from),
                                        bytes, static_cast<cuda::StreamHandle*>(stream)),
                     "staging a buffer (cuMemcpyAsync)");
}

template <typename Word>
Word acquire(const Word& word) {
  return std::atomic_ref(const_cast<Word&>(word)).load(std::memory_order_acquire);
}

}  // namespace

static_assert(sizeof(cuda::PlanHost) <= offsetof(cuda::Device::Flags, done));

// Its end calls nothing of CUDA: a thread of the driver may let go of a graph.
class PlanPath::Words {
 public:
  Words(cuda::Device& device, cuda::Device::Flags& flags)
      : device_(device), flags_(flags), host_(*new (&flags) cuda::PlanHost{}) {}
  ~Words() {
    std::memset(static_cast<void*>(&host_), 0, sizeof host_);
    device_.give_flags(&flags_);
  }
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;

  cuda::PlanHost& host() const { return host_; }

 private:
  cuda::Device& device_;
  cuda::Device::Flags& flags_;
  cuda::PlanHost& host_;
};

static_assert(PlanMemory::kMostCaptures <= NodeBoard::kCaptures);

Result<std::shared_ptr<PlanPath>> PlanPath::create(DeviceExecutor& executor, std::shared_ptr<NodeBoard> board,
                                                   const topology::Layout& layout, int rank,
                                                   uint64_t message_bytes) {
  const int ranks = layout.ranks();
  if (ranks > static_cast<int>(cuda::kPlanRanks))
    return fail(Code::unsupported, "a plan kernel serves at most {} ranks", cuda::kPlanRanks);
  WEFT_TRY(
      executor.device().why_no_memory_operations().in("a plan kernel waits in its stream for its peers"));
  // Captured calls go step by step on several nodes.
  const uint32_t captures = layout.nodes() == 1 ? PlanMemory::kMostCaptures : 0;
  auto memory = PlanMemory::create(executor, board, rank, ranks, captures);
  if (!memory) return memory.status();
  std::shared_ptr<PlanPath> path(new PlanPath(executor, std::move(board), rank,
                                              reach_of(layout, 0, false, message_bytes), memory.take(), {}));
  WEFT_TRY(path->make_words());
  if (layout.nodes() == 1) return path;
  auto proxy = Proxy::create(executor, ranks);
  if (!proxy) return proxy.status();
  path->proxy_ = proxy.take();
  return path;
}

Status PlanPath::make_words() {
  auto kernels = cuda::PlanKernels::of(executor_.device());
  if (!kernels) return kernels.status();
  kernels_ = *kernels;
  auto flags = executor_.device().take_flags();
  if (!flags) return flags.status();
  words_ = std::make_shared<Words>(executor_.device(), **flags);
  host_ = &words_->host();
  return cuda::check((*cuda::driver())->event_create(&last_, cuda::kEventDisableTiming), "cuEventCreate");
}

// A kernel that has yet to leave reads its words, and the proxy's, which stay for ever then.
PlanPath::~PlanPath() {
  const cuda::Scope scope(executor_.device());
  if (last_) (void)(*cuda::driver())->event_destroy(last_);
  if (!words_) return;
  const auto has_left = [words = words_, launched = launched_] {
    const cuda::PlanHost& host = words->host();
    return acquire(host.ended) >= std::max(launched, acquire(host.begun));
  };
  if (!has_left()) {
    memory_->outlast(has_left);
    if (proxy_) proxy_->outlive();
  } else if (is_captured()) {
    board_->note_set_unused(own_.set, own_.capture);
  }
}

Result<PlanPath::Offer> PlanPath::offer() {
  auto control = memory_->offer();
  if (!control) return control.status();
  return Offer{control->process, executor_.device().uuid(), kernels_->resident_blocks(),
               static_cast<uint32_t>(reach_.message_bytes), *control};
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
  const topology::Layout layout = reach_.layout;
  one_process_ = one_device_ = true;
  uint32_t message_bytes = UINT32_MAX;
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    const Offer& offer = offers[static_cast<size_t>(rank)];
    const Offer& first = offers[static_cast<size_t>(layout.on_node(layout.node_of(rank)).front())];
    one_process_ &= offer.process == first.process;
    one_device_ &= std::memcmp(&offer.device, &first.device, sizeof offer.device) == 0;
    message_bytes = std::min(message_bytes, offer.message_bytes);
    if (layout.same_node(rank, rank_)) WEFT_TRY(memory_->reach(rank, offer.control));
  }
  reach_ = reach_of(layout, *most, one_process_, message_bytes);
  return {};
}

// ---- Plans

// Ranks of several processes have a staging in set 0.
KernelReach PlanPath::reach_of(const topology::Layout& layout, uint32_t blocks, bool one_process,
                               uint64_t message_bytes, uint32_t set) {
  return {.layout = layout,
          .blocks = blocks,
          .slot_bytes = PlanMemory::slot_bytes(set),
          .message_bytes = std::min<uint64_t>(message_bytes, Proxy::kSlotBytes),
          .proxy_bytes = Proxy::kSlotBytes,
          .scratch_bytes = PlanMemory::scratch_bytes(layout.ranks(), set),
          .exposed_bytes = one_process ? UINT32_MAX
                           : set == 0  ? PlanMemory::kStagingBytes
                                       : 0};
}

std::shared_ptr<StreamPath::Served> PlanPath::make(const plan::Request& request, bool scaled,
                                                   const Prices& prices) const {
  auto made = std::make_shared<Kernel>();
  if (!settings().algo.empty()) {
    made->why_not = fail(Code::unsupported, "WEFT_ALGO pins algorithms");
    return made;
  }
  const auto chosen =
      choose_kernel_plan(request, scaled, rank_, reach_, prices.known() ? &prices.machine : nullptr);
  made->why_not =
      chosen ? model::plan_kernel_pays(chosen->predicted_us, prices.known() ? prices.steps_us : nullptr)
             : chosen.status();
  if (!made->why_not.ok()) return made;
  made->program = chosen->program;
  for (int i = 0; i < made->program.lane_begin[made->program.lanes]; ++i) {
    const cuda::Instruction& step = made->program.step[i];
    if (step.action == cuda::PlanAction::wait && !(step.flags & cuda::kCrosses))
      made->partners |= 1u << step.peer;
    if (step.action == cuda::PlanAction::signal && (step.flags & cuda::kExposes))
      made->exposes[step.dst.space()] = true;
  }
  made->tables = PlanTables::make(
      proxy_ ? chosen->crossing : plan::Builder(chosen->name, request, reach_.ranks(), rank_).finish(),
      reach_.layout, 1, chosen->predicted_us);
  if (proxy_)
    made->proxy_places = std::make_shared<ProxyPlaces>(proxy_places(made->tables->plan, made->program));
  return made;
}

// ---- Kernels

// Kernels of one communicator follow each other, whatever their streams: they count the same epochs, and use
// the same staging.
Status PlanPath::follow_last(cuda::StreamHandle* stream) {
  if (launched_ == 0 || number_of_stream(executor_.device(), stream) == last_stream_) return {};
  if (!copies_last_) {
    if (acquire(host_->ended) >= launched_) return {};
    // The lower half of the word: a kernel writes it when it ends, and so does one that is aborted.
    return cuda::check((*cuda::driver())
                           ->stream_wait_value(stream, reinterpret_cast<uintptr_t>(&host_->ended),
                                               static_cast<uint32_t>(launched_), cuda::kWaitValueGeq),
                       "cuStreamWaitValue32");
  }
  return cuda::check((*cuda::driver())->stream_wait_event(stream, last_, 0), "cuStreamWaitEvent");
}

// The stream counts as one that waits before the kernel is in it: from then on nothing is freed, for which
// CUDA would wait for the kernel.
Result<uint64_t> PlanPath::arrive(Lock& lock, const Operation& op,
                                  const std::shared_ptr<const Served>& served) {
  auto* const stream = static_cast<cuda::StreamHandle*>(op.call.cuda_stream);
  const auto staged =
      prepare({op.call, op.end.timeout_s, op.reduction.order == device::Order::tree, op.signature},
              static_cast<const Kernel&>(*served));
  if (!staged) return staged.status();
  Launched launched;
  lock.without([&] {
    cuda::DeferredFree::instance().stream_waits();
    launched.status = follow_last(stream);
    if (launched.status.ok()) launched = launch(op.call, *staged);
    if (!launched.kernel) return cuda::DeferredFree::instance().stream_goes_on();
    if (launched.status.ok() && copies_last_)
      launched.status = cuda::check((*cuda::driver())->event_record(last_, stream), "cuEventRecord");
  });
  if (!launched.kernel) return launched.status;
  ++launched_;
  last_stream_ = number_of_stream(executor_.device(), stream);
  if (proxy_) proxy_->note_launched(launched_);
  if (!launched.status.ok()) {
    let_go(launched_);
    return launched.status;
  }
  return launched_;
}

Result<PlanPath::BothStaged> PlanPath::prepare(const StreamCall& call, const Kernel& kernel) {
  arguments_.program = kernel.program;
  set_call(call);
  return expose(kernel);
}

void PlanPath::set_call(const StreamCall& stream_call) {
  const Call& call = stream_call.call;
  cuda::PlanCall& to = arguments_.call;
  for (int rank = 0; rank < reach_.ranks(); ++rank) to.peer[rank] = memory_->peer(rank, own_.set);
  to.peer[rank_].space[0] = const_cast<void*>(call.send);
  to.peer[rank_].space[1] = call.recv;
  to.host = host_;
  to.proxy = proxy_ ? proxy_->memory() : nullptr;
  to.proxy_slot_bytes = Proxy::kSlotBytes;
  to.timeout_ns = static_cast<uint64_t>((stream_call.timeout_s + kGraceSeconds) * 1e9);
  to.slot_bytes = PlanMemory::slot_bytes(own_.set);
  to.signature = stream_call.signature;
  to.captured = is_captured();
  cuda::set_reduction(to, call.type, call.op, stream_call.strict);
  to.scalar_at = nullptr;
  static_assert(sizeof to.scalar_at == sizeof call.scalar && sizeof to.scalar == sizeof call.scalar);
  if (!call.premultiply) return;
  if (call.scalar_is_address) std::memcpy(&to.scalar_at, call.scalar, sizeof to.scalar_at);
  else std::memcpy(to.scalar, call.scalar, sizeof to.scalar);
}

/// A scalar in another device's memory is copied to the own control memory: the device may not reach it.
Status PlanPath::fetch_scalar(const Call& call) {
  const void*& scalar = arguments_.call.scalar_at;
  if (!scalar) return {};
  const auto place = cuda::locate(scalar);
  if (!place) return place.status();
  if (place->kind != cuda::Place::Kind::device || place->ordinal == executor_.device().ordinal()) return {};
  auto* const own =
      static_cast<std::byte*>(arguments_.call.peer[rank_].control) + offsetof(cuda::PlanControl, scalar);
  WEFT_TRY(copy_in(call.cuda_stream, own, scalar, device::size_of(call.type)));
  scalar = own;
  return {};
}

/// Says where peers find the buffers that the plan exposes.
Result<PlanPath::BothStaged> PlanPath::expose(const Kernel& kernel) {
  BothStaged staged;
  cuda::PlanPeer& own = arguments_.call.peer[rank_];
  const plan::Request& request = kernel.request;
  const uint64_t bytes[2] = {input_bytes(request, reach_.ranks(), rank_),
                             output_bytes(request, reach_.ranks(), rank_)};
  for (int space = 0; space < 2; ++space) {
    if (!kernel.exposes[space]) continue;
    const auto reached = is_reached(own.space[space]);
    if (!reached) return reached.status();
    arguments_.call.exposed[space] = reinterpret_cast<uintptr_t>(own.space[space]);
    if (*reached) continue;
    auto staging = staging_for(space, bytes[space]);
    if (!staging) return staging.status();
    staged[static_cast<size_t>(space)] = {*staging, std::exchange(own.space[space], *staging), bytes[space]};
    arguments_.call.exposed[space] =
        one_process_
            ? reinterpret_cast<uintptr_t>(*staging)
            : cuda::kFromControl | static_cast<uint64_t>(*staging - static_cast<std::byte*>(own.control));
  }
  return staged;
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

bool PlanPath::may_take_memory(const Served& served) const {
  const auto& kernel = static_cast<const Kernel&>(served);
  return one_process_ && !one_device_ && (kernel.exposes[0] || kernel.exposes[1]);
}

// In one process it grows with the calls. Kernels that still use an old one may be under way.
Result<std::byte*> PlanPath::staging_for(int space, uint64_t bytes) {
  if (!one_process_) return memory_->staging(space);
  cuda::Block& block = staging_[space];
  if (block.data && uint64_t{1} << block.size_class >= bytes) return block.data;
  auto larger = memory_->take_more(bytes, own_.set);
  if (!larger) return larger.status();
  block = *larger;
  return block.data;
}

PlanPath::Launched PlanPath::launch(const Call& call, const BothStaged& staged) {
  auto* const stream = static_cast<cuda::StreamHandle*>(call.cuda_stream);
  const auto& [input, output] = staged;
  const bool reduces = plan::reduces(call.collective);
  Launched launched{false, fetch_scalar(call)};
  if (launched.status.ok() && input.staging)
    launched.status = copy_in(stream, input.staging, input.buffer, input.bytes);
  if (launched.status.ok())
    launched.status =
        kernels_->launch(stream, cuda::plan_kernel_name(reduces, call.type, call.op), arguments_);
  if (!launched.status.ok()) return launched;
  launched.kernel = true;
  copies_last_ = output.staging != nullptr;
  if (copies_last_) launched.status = copy_in(stream, output.buffer, output.staging, output.bytes);
  return launched;
}

// ---- Graphs

Result<std::shared_ptr<StreamPath>> PlanPath::for_capture(Lock& lock, uint32_t number) {
  if (memory_->captures() == 0) return std::shared_ptr<StreamPath>();
  const auto set = sets_.find(number, [this](uint32_t unused) { return memory_->clear_set(unused); });
  if (!set) return set.status();
  if (*set == 0) return std::shared_ptr<StreamPath>();
  std::shared_ptr<PlanPath> path(new PlanPath(executor_, board_, rank_,
                                              reach_of(reach_.layout, reach_.blocks, one_process_, 0, *set),
                                              memory_, {*set, number}));
  Status made;
  lock.without([&] { made = path->make_words(); });
  WEFT_TRY(made);
  path->one_process_ = one_process_;
  path->one_device_ = one_device_;
  return std::static_pointer_cast<StreamPath>(path);
}

Status PlanPath::capture(Lock& lock, const StreamCall& call, const std::shared_ptr<const Served>& served) {
  const auto staged = prepare(call, static_cast<const Kernel&>(*served));
  if (!staged) return staged.status();
  Launched launched;
  lock.without([&] { launched = launch(call.call, *staged); });
  return launched.status;
}

uint64_t PlanPath::begun() const { return acquire(host_->begun); }
uint64_t PlanPath::ended() const { return acquire(host_->ended); }
// A launch stores `begun` and then reads `abort` (plan_kernel.h).
void PlanPath::stop() { std::atomic_ref(host_->abort).store(1); }

// ---- Operations under way

bool PlanPath::has_begun(uint64_t epoch) const { return acquire(host_->begun) >= epoch; }

Result<bool> PlanPath::has_ended(uint64_t epoch) {
  if (acquire(host_->reported)) return fail(Code::timeout, "{}", holds_up(epoch));
  if (acquire(host_->ended) < epoch) return false;
  return board_->peers_are_well();
}

std::string PlanPath::holds_up(uint64_t) const {
  if (!acquire(host_->reported)) return "";
  const cuda::PlanHost::Report& report = host_->report;
  return fmt::format(
      "its kernel waited too long for rank {}: step {}, tag {}, "
      "whose flag is at operation {} of the kernels "
      "and not at {}",
      report.peer, report.step, report.tag, report.seen, report.epoch);
}

// Until a kernel has left, it may touch memory of every rank. So its stream counts as one that waits. What
// peers have read of this rank since may be wrong.
void PlanPath::let_go(uint64_t epoch) {
  if (acquire(host_->ended) >= epoch) return cuda::DeferredFree::instance().stream_goes_on();
  std::atomic_ref(host_->abort).store(1, std::memory_order_release);
  board_->set_failed();
  if (lingering_++ > 0) return;
  PendingRelease release;
  release.path = shared_from_this();
  executor_.drain(std::move(release));
}

bool PlanPath::is_drained() {
  if (acquire(host_->ended) < launched_ && executor_.alive(now_ns()).ok()) return false;
  for (; lingering_ > 0; --lingering_) cuda::DeferredFree::instance().stream_goes_on();
  return true;
}

}  // namespace weft::engine
