#include "engine/gpu/copy_path.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/settings.h"
#include "device/cuda/deferred_free.h"
#include "engine/gpu/device_calls.h"
#include "engine/run/operation.h"
#include "model/gpu_paths.h"
#include "plan/staged_copies.h"

namespace weft::engine {

static_assert(2 * plan::kMostStagedRounds <= NodeBoard::kTags);

constexpr uint64_t kLeastBytes = 1 << 20;  // of a block that shares its allocation with no other

/// Puts copies, and rows of writes and waits, into a stream.
class CopyPath::Writer {
 public:
  explicit Writer(cuda::StreamHandle* stream) : stream_(stream) {}

  Status write(cuda::DevicePointer word, uint64_t value) {
    return add(cuda::kWriteValue32, word, value, cuda::kWriteValueDefault);
  }
  Status wait(cuda::DevicePointer word, uint64_t value) {
    return add(cuda::kWaitValue32, word, value, cuda::kWaitValueGeq);
  }
  Status copy(void* to, const void* from, uint64_t bytes) {
    if (to == from) return {};
    WEFT_TRY(flush());
    return cuda::check((*cuda::driver())
                           ->memcpy_async(reinterpret_cast<uintptr_t>(to), reinterpret_cast<uintptr_t>(from),
                                          bytes, stream_),
                       "a copy of GPU memory (cuMemcpyAsync)");
  }
  /// What is written and waited for comes into the stream now.
  Status flush() {
    if (row_.empty()) return {};
    const cuda::Driver& d = **cuda::driver();
    Status put;
    if (d.stream_batch_mem_op) {
      put = cuda::check(d.stream_batch_mem_op(stream_, static_cast<unsigned>(row_.size()), row_.data(), 0),
                        "cuStreamBatchMemOp");
    } else {
      for (const cuda::StreamOperation& op : row_) {
        const bool waits = op.kind == cuda::kWaitValue32;
        put = cuda::check((waits ? d.stream_wait_value : d.stream_write_value)(
                              stream_, op.address, static_cast<uint32_t>(op.value), op.flags),
                          waits ? "cuStreamWaitValue32" : "cuStreamWriteValue32");
        if (!put.ok()) break;
      }
    }
    row_.clear();
    return put;
  }

 private:
  Status add(int kind, cuda::DevicePointer word, uint64_t value, unsigned flags) {
    if (row_.size() == cuda::kMostStreamOperations) WEFT_TRY(flush());
    row_.push_back({.kind = kind, .address = word, .value = static_cast<uint32_t>(value), .flags = flags});
    return {};
  }

  cuda::StreamHandle* const stream_;
  std::vector<cuda::StreamOperation> row_;
};

// ---- A communicator's beginning and end

Result<std::shared_ptr<CopyPath>> CopyPath::create(DeviceExecutor& executor, std::shared_ptr<NodeBoard> board,
                                                   int rank, int ranks) {
  WEFT_TRY(executor.device().why_no_memory_operations().in("streams of ranks wait for each other"));
  std::shared_ptr<CopyPath> path(new CopyPath(executor, std::move(board), rank, ranks));
  path->staging_bytes_ = static_cast<uint64_t>(settings().cuda_copy_bytes);
  path->from_bytes_ = static_cast<uint64_t>(settings().cuda_copy_from);
  auto staging = executor.device_blocks().take(std::max<uint64_t>(path->staging_bytes_, kLeastBytes));
  if (!staging) return staging.status();
  path->memory_.blocks.push_back(*staging);
  return path;
}

CopyPath::CopyPath(DeviceExecutor& executor, std::shared_ptr<NodeBoard> board, int rank, int ranks)
    : executor_(executor), board_(std::move(board)), rank_(rank), ranks_(ranks), memory_{&executor.device(),
                                                                                         board_,
                                                                                         {},
                                                                                         {},
                                                                                         {},
                                                                                         {}} {
  board_->note_path_begins();
}

// Peers may still read the staging of a rank whose last operation failed. Where nobody knows what its streams
// still do, the flags and the mappings of the peers' staging stay for ever.
CopyPath::~CopyPath() {
  if (!is_clean()) {
    if (unknown_) memory_.under_way.push_back([] { return false; });
    give_back_unused(std::move(memory_));
    return;
  }
  board_->note_path_ends();
  for (const cuda::Block& staging : memory_.blocks) executor_.device_blocks().give(staging);
}

bool CopyPath::is_clean() const {
  if (!offered_ || arrived_ == 0) return true;
  return !failed_ && has_come_to(board_->ended(), static_cast<uint32_t>(arrived_)) &&
         std::all_of(unread_.begin(), unread_.end(), [this](const Notice& notice) {
           return has_come_to(board_->flag(notice.sender, notice.tag), static_cast<uint32_t>(arrived_));
         });
}

Result<CopyPath::Offer> CopyPath::offer() {
  auto staging = executor_.exporter().describe(memory_.blocks[0].data, staging_bytes_, true);
  if (!staging) return staging.status();
  offered_ = true;
  return Offer{staging_bytes_, from_bytes_, *staging};
}

Status CopyPath::connect(std::span<const Offer> offers) {
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    const Offer& offer = offers[rank];
    staging_bytes_ = std::min(staging_bytes_, offer.staging_bytes);
    from_bytes_ = std::max(from_bytes_, offer.from_bytes);
    std::byte* staging = memory_.blocks[0].data;
    if (static_cast<int>(rank) != rank_) {
      auto reached = executor_.importer().reach_of_rank(static_cast<int>(rank), offer.staging);
      if (!reached) return reached.status();
      staging = reached->address;
      if (reached->mapping) memory_.mappings.push_back(reached->mapping);
    }
    staging_of_.push_back(staging);
  }
  return {};
}

// ---- Plans

// It serves no reductions, and so none that are scaled.
std::shared_ptr<StreamPath::Served> CopyPath::make(const plan::Request& request, bool,
                                                   const Prices& prices) const {
  auto made = std::make_shared<Copies>();
  double predicted_us = 0;
  made->why_not = [&]() -> Status {
    if (!settings().algo.empty()) return fail(Code::unsupported, "WEFT_ALGO pins algorithms");
    WEFT_TRY(plan::staged_copies_fit(request, ranks_, staging_bytes_));
    if (prices.known())
      predicted_us = model::staged_copies_us(prices.machine, request, ranks_, staging_bytes_);
    return model::staged_copies_pay(request, ranks_, from_bytes_, predicted_us,
                                    prices.known() ? prices.steps_us : nullptr);
  }();
  if (!made->why_not.ok()) return made;
  made->plan = plan::make_staged_copies(request, ranks_, rank_, staging_bytes_);
  const std::vector<plan::Step>& steps = made->plan.steps;
  size_t end = steps.size();
  for (; end > 0 && steps[end - 1].kind == plan::StepKind::wait; --end)
    made->last.push_back({steps[end - 1].peer, steps[end - 1].tag});
  for (const plan::Step& step : steps)
    if (step.kind == plan::StepKind::wait) made->partners |= 1u << step.peer;
  const auto waits = [](const plan::Step& step) { return step.kind == plan::StepKind::wait; };
  made->begin_steps = static_cast<size_t>(
      std::find_if(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(end), waits) - steps.begin());
  made->end_steps = end;
  made->tables = PlanTables::make(plan::Builder(plan::kStagedCopies, request, ranks_, rank_).finish(),
                                  topology::Layout::blocks(1, ranks_), 1, predicted_us);
  return made;
}

// ---- Operations

std::byte* CopyPath::place(const plan::Region& region, const InFlight& call) const {
  switch (region.space) {
    case plan::Space::input: return const_cast<std::byte*>(call.input) + region.offset;
    case plan::Space::output: return call.output + region.offset;
    default: return staging_of_[static_cast<size_t>(region.rank)] + region.offset;
  }
}

/// Steps [first, end) of the plan: its only lane has them in this order.
Status CopyPath::put(Writer& writer, const InFlight& call, uint64_t epoch, size_t first, size_t end) {
  const plan::Plan& plan = call.copies->plan;
  for (size_t i = first; i < end; ++i) {
    const plan::Step& step = plan.steps[i];
    switch (step.kind) {
      case plan::StepKind::copy:
        WEFT_TRY(writer.copy(place(step.dst, call), place(plan.sources_of(step)[0], call), step.bytes));
        break;
      case plan::StepKind::signal:
        WEFT_TRY(writer.write(board_->flag_on_device(step.peer, rank_, step.tag), epoch));
        break;
      case plan::StepKind::wait:
        WEFT_TRY(writer.wait(board_->flag_on_device(rank_, step.peer, step.tag), epoch));
        break;
      default: return fail(Code::internal_error, "a stream does no {}", plan::name_of(step.kind));
    }
  }
  return {};
}

// Operations of one communicator follow each other, whatever their streams: they share the staging. So the
// begin of an operation waits for the end of the one before, which has to be in the stream if it is the same.
Result<uint64_t> CopyPath::arrive(Lock& lock, const Operation& op,
                                  const std::shared_ptr<const Served>& served) {
  auto* const stream = static_cast<cuda::StreamHandle*>(op.call.cuda_stream);
  const uint64_t number = number_of_stream(executor_.device(), stream);
  std::vector<uint64_t> before;
  for (const auto& [epoch, earlier] : in_flight_)
    if (!earlier.left && earlier.stream_number == number) before.push_back(epoch);
  for (const uint64_t epoch : before) WEFT_TRY(leave(lock, epoch));
  const auto copies = std::static_pointer_cast<const Copies>(served);
  const uint64_t epoch = ++arrived_;
  const InFlight call{.copies = copies,
                      .input = static_cast<const std::byte*>(op.call.send),
                      .output = static_cast<std::byte*>(op.call.recv),
                      .stream = stream,
                      .stream_number = number};
  in_flight_.emplace(epoch, call);
  const std::vector<Notice> unread = std::exchange(unread_, copies->last);
  Status begun, ended;
  lock.without([&] {
    cuda::DeferredFree::instance().stream_waits();
    begun = begin(call, epoch, unread);
    if (begun.ok()) return;
    Writer writer(stream);
    ended = end(writer, epoch);
  });
  if (begun.ok()) return epoch;
  note_left(epoch, ended);
  let_go(epoch);
  return begun;
}

Status CopyPath::begin(const InFlight& call, uint64_t epoch, std::span<const Notice> unread) {
  Writer writer(call.stream);
  WEFT_TRY(writer.wait(board_->ended_on_device(), epoch - 1));
  WEFT_TRY(writer.write(board_->begun_on_device(), epoch));
  for (const Notice& notice : unread)
    WEFT_TRY(writer.wait(board_->flag_on_device(rank_, notice.sender, notice.tag), epoch - 1));
  WEFT_TRY(put(writer, call, epoch, 0, call.copies->begin_steps));
  return writer.flush();
}

Status CopyPath::end(Writer& writer, uint64_t epoch) {
  WEFT_TRY(writer.write(board_->ended_on_device(), epoch));
  return writer.flush();
}

// What has been put into a stream is followed by the end in any case, since is_drained() waits for that.
Status CopyPath::leave(Lock& lock, uint64_t epoch) {
  const auto found = in_flight_.find(epoch);
  if (found == in_flight_.end() || found->second.left) return {};
  const InFlight call = found->second;
  Status left, ended;
  lock.without([&] {
    Writer writer(call.stream);
    if (!call.over) left = put(writer, call, epoch, call.copies->begin_steps, call.copies->end_steps);
    if (left.ok()) left = ended = end(writer, epoch);
    if (left.ok()) return;
    Writer last(call.stream);
    ended = end(last, epoch);
  });
  note_left(epoch, ended);
  return left;
}

void CopyPath::note_left(uint64_t epoch, const Status& ended) {
  InFlight& call = in_flight_.at(epoch);
  call.left = true;
  unknown_ |= !ended.ok();
  if (call.over) in_flight_.erase(epoch);
}

bool CopyPath::has_begun(uint64_t epoch) const {
  return has_come_to(board_->begun(), static_cast<uint32_t>(epoch));
}

// An operation ends for its rank when its readers are done, too. So a rank that never comes is noticed, and
// nobody reads the staging of a communicator that has ended.
Result<bool> CopyPath::has_ended(uint64_t epoch) {
  const auto value = static_cast<uint32_t>(epoch);
  if (!has_come_to(board_->ended(), value)) return false;
  for (const Notice& notice : in_flight_.at(epoch).copies->last)
    if (!has_come_to(board_->flag(notice.sender, notice.tag), value)) return false;
  return board_->peers_are_well();
}

std::string CopyPath::holds_up(uint64_t epoch) const {
  std::vector<int> peers;
  for (const plan::Step& step : in_flight_.at(epoch).copies->plan.steps)
    if (step.kind == plan::StepKind::wait &&
        !has_come_to(board_->flag(step.peer, step.tag), static_cast<uint32_t>(epoch)) &&
        std::find(peers.begin(), peers.end(), step.peer) == peers.end())
      peers.push_back(step.peer);
  if (peers.empty()) return "";
  return fmt::format("the stream{} of rank{} {} {} not done {} part", peers.size() == 1 ? "" : "s",
                     peers.size() == 1 ? "" : "s", fmt::join(peers, ", "), peers.size() == 1 ? "has" : "have",
                     peers.size() == 1 ? "its" : "their");
}

void CopyPath::let_go(uint64_t epoch) {
  InFlight& call = in_flight_.at(epoch);
  call.over = true;
  if (call.left) in_flight_.erase(epoch);
  if (has_come_to(board_->ended(), static_cast<uint32_t>(epoch)))
    return cuda::DeferredFree::instance().stream_goes_on();
  if (!std::exchange(failed_, true)) board_->set_failed();
  if (lingering_++ == 0) {
    PendingRelease release;
    release.path = shared_from_this();
    executor_.drain(std::move(release));
  }
  (void)is_drained();
}

// A peer's stream may lower a flag that was raised, by a write of an operation before: raised again until no
// wait is left.
bool CopyPath::is_drained() {
  const bool gone = has_come_to(board_->ended(), static_cast<uint32_t>(arrived_)) || unknown_ ||
                    !executor_.alive(now_ns()).ok();
  if (!gone) {
    board_->raise_flags(static_cast<uint32_t>(arrived_));
    return false;
  }
  for (; lingering_ > 0; --lingering_) cuda::DeferredFree::instance().stream_goes_on();
  return true;
}

}  // namespace weft::engine
