// What a context does when something goes wrong: ranks that die or leave, news of failures, deadlines,
// questions of peers. See departures.h and verdict.h.
#include <algorithm>
#include <array>
#include <utility>

#include "base/clock.h"
#include "base/memory_watch.h"
#include "base/settings.h"
#include "base/thread.h"
#include "engine/run/communicator.h"
#include "engine/context/context.h"
#include "engine/run/interpreter.h"
#include "engine/failure/verdict.h"

namespace weft::engine {
namespace {

// After a failure here, until peers that are not held up know: what they read before, they find.
constexpr int64_t kNewsTakeNs = 2'000'000'000;
constexpr size_t kLostBuffers = 64;

/// A buffer that an operation uses.
struct Memory {
  const void* begin;
  uint64_t bytes;
  const char* name;

  bool meets(const void* other, uint64_t count) const {
    return MemoryWatch::Run{static_cast<const char*>(begin), static_cast<const char*>(begin) + bytes, false}
        .meets(other, count);
  }
};

std::array<Memory, 2> memories_of(const Operation& op) {
  const plan::Plan& plan = op.prepared->plan;
  const int ranks = op.comm->size();
  return {Memory{op.call.send, plan::input_bytes(plan.request, ranks, plan.rank), "its input"},
          Memory{op.call.recv, plan::output_bytes(plan.request, ranks, plan.rank), "its output"}};
}

/// What another rank of this process has exposed: touched here directly.
Memory memory_of(const Learned& learned) {
  return {learned.mapped, learned.door ? learned.buffer.bytes : 0,
          "a buffer of another rank of this process"};
}

}  // namespace

void Context::fail_operations(Communicator& comm, const Status& why) {
  comm.shut_door();  // before anybody gets buffers back
  for (Operation* op : std::vector<Operation*>(comm.operations()))
    finish(*op, why.message().starts_with(comm.describe(*op)) ? why : why.in(comm.describe(*op)));
  stash_.drop(comm.id());  // nobody will ask for them
}

bool Context::owns(const void* self, const void* address) {
  const auto& context = *static_cast<const Context*>(self);
  const auto holds = [address](const Memory& memory) { return memory.meets(address, 1); };
  const auto uses = [&](const Operation& op) {
    const auto memories = memories_of(op);
    return std::any_of(memories.begin(), memories.end(), holds) ||
           std::any_of(op.learned.begin(), op.learned.end(),
                       [&](const Learned& learned) { return holds(memory_of(learned)); });
  };
  return (context.hot_ && uses(*context.hot_)) ||
         std::any_of(context.active_.begin(), context.active_.end(),
                     [&](const Operation* op) { return uses(*op); }) ||
         std::any_of(context.lost_buffers_.begin(), context.lost_buffers_.end(), [&](const auto& lost) {
           return holds({lost.first, lost.second, ""});
         });
}

Status Context::lost_memory(const Operation& op) const {
  const auto gone = [](const Memory& memory) {
    return MemoryWatch::lost(memory.begin, memory.bytes)
               ? fail(Code::invalid_usage,
                      "{} is not mapped ({} bytes at {}): it was freed while the operation used it, or never "
                      "valid; buffers must stay until their operation has ended",
                      memory.name, memory.bytes, memory.begin)
               : Status();
  };
  for (const Memory& memory : memories_of(op))
    if (Status why = gone(memory); !why.ok()) return why;
  for (const Learned& learned : op.learned)
    if (Status why = gone(memory_of(learned)); !why.ok()) return why;
  return {};
}

void Context::remember_lost(const void* begin, uint64_t bytes) {
  const std::pair<const void*, uint64_t> buffer(begin, bytes);
  if (bytes == 0 || std::find(lost_buffers_.begin(), lost_buffers_.end(), buffer) != lost_buffers_.end())
    return;
  if (lost_buffers_.size() == kLostBuffers) lost_buffers_.erase(lost_buffers_.begin());
  lost_buffers_.push_back(buffer);
}

void Context::settle_lost_memory() {
  std::vector<std::pair<Communicator*, Status>> failures;
  for (Operation* op : active_) {
    Status why = lost_memory(*op);
    if (why.ok()) continue;
    failures.emplace_back(op->comm, why.in(op->comm->describe(*op)));
    for (const Memory& memory : memories_of(*op)) remember_lost(memory.begin, memory.bytes);
  }
  MemoryWatch::settle([](const MemoryWatch::Run&) {});
  for (auto& [comm, why] : failures) comm->fail(why, true);
}

void Context::fail_later(Communicator& comm, Status why) {
  pending_failures_.emplace_back(comm.id(), std::move(why));
}

bool Context::ask_peers(std::function<void()> inquiry) {
  if (inquiry_running_) return false;
  if (inquiry_.joinable()) inquiry_.join();  // it has ended: the flag was down
  inquiry_running_ = true;
  inquiry_ = std::thread([this, inquiry = std::move(inquiry)]() mutable {
    name_thread("weft-inquiry");
    for (; inquiry; inquiry = next_inquiry()) inquiry();
  });
  return true;
}

void Context::ask_peers_in_turn(uint32_t comm, std::function<void()> inquiry) {
  if (inquiry_running_) inquiries_in_turn_.try_emplace(comm, std::move(inquiry));
  else (void)ask_peers(std::move(inquiry));
}

// On the thread of the one that has ended; none: the thread ends, and the next inquiry has one of its own.
std::function<void()> Context::next_inquiry() {
  const Lock lock = this->lock();
  inquiry_running_ = !inquiries_in_turn_.empty();
  if (!inquiry_running_) return {};
  return std::move(inquiries_in_turn_.extract(inquiries_in_turn_.begin()).mapped());
}

// A closed connection is not yet a death: a rank that has no more to do with us may leave in good order. It
// matters to the operations that wait for that rank, and the bootstrap tells deaths.
void Context::lost(int peer, const Status& why) { partings_.add(peer, why, now_ns(), events_); }

void Context::on_dead(int rank, const Status& why) {
  Lock lock = this->lock();
  deaths_.add(rank, why, now_ns(), events_);
  bool idle = true;
  for (auto& [id, comm] : communicators_) idle = idle && comm->operations().empty();
  if (idle) act_on_deaths(INT64_MAX);
  ring_sleeper();
}

void Context::act_on_partings(int64_t now) {
  for (const Departures::Departure& parting : partings_.due(now, events_)) {
    for (Operation* op : std::vector<Operation*>(active_)) {
      if (op->finished.load(std::memory_order_relaxed)) continue;
      for (int rank : awaited_peers(*op))
        if (op->comm->world_rank(rank) == parting.rank)
          op->comm->fail(fail(Code::remote_error, "{}: rank {} has gone: {}", op->comm->describe(*op), rank,
                              parting.why.message()),
                         true);
    }
  }
}

void Context::act_on_deaths(int64_t now) {
  for (const Departures::Departure& death : deaths_.take_due(now, events_)) {
    dead_.emplace(death.rank, death.why);
    for (auto& [id, comm] : std::unordered_map(communicators_))
      if (const Status loss = loss_of(*comm, death.rank, death.why); !loss) comm->fail(loss, false);
  }
}

// Not told to others: the bootstrap tells them, and what they wait for may still end in their own time of
// grace.
Status Context::loss_of(const Communicator& comm, int world_rank, const Status& why) {
  const int rank = comm.rank_of_world(world_rank);
  if (rank < 0 || comm.is_lane()) return {};
  return fail(Code::remote_error, "rank {} of communicator {} is gone: {}", rank, comm.name(), why.message());
}

Status Context::first_loss_of(const Communicator& comm) {
  for (const auto& [rank, why] : dead_)
    if (Status loss = loss_of(comm, rank, why); !loss) return loss;
  return {};
}

void Context::on_failed(int from, uint32_t comm, const std::string& why) {
  {
    const std::lock_guard guard(news_mutex_);
    news_.try_emplace(comm, from, why);
  }
  Lock lock = this->lock();
  auto found = communicators_.find(comm);
  if (found == communicators_.end()) return;
  found->second->fail(news_of(*found->second), false);
}

Status Context::news_of(const Communicator& comm) {
  const std::lock_guard guard(news_mutex_);
  const auto found = news_.find(comm.id());
  if (found == news_.end()) return {};
  const auto& [from, why] = found->second;
  return fail(Code::remote_error, "rank {} reports: {}", comm.rank_of_world(from), why);
}

// A transfer is asked about by its other end: those with others may have the same number.
bootstrap::OpReport Context::on_question(int from, uint32_t comm, uint32_t number) {
  Lock lock = this->lock();
  auto found = communicators_.find(comm);
  if (found == communicators_.end() || from < 0 || from >= ranks()) return {};
  bootstrap::OpReport report{true, found->second->last_called(), ""};
  const int asking = found->second->rank_of_world(from);
  const auto tell = [&](const Record& record) {
    if (record.number == number && (!(number & kTransferBit) || record.root == asking))
      report.description = fmt::format("{} by {}", record.describe(), record.algorithm);
  };
  for (const Record& record : found->second->recorder().snapshot()) tell(record);
  // The ring may have come round since an unfinished one was called.
  for (const Operation* op : found->second->operations()) tell(record_of(*op));
  return report;
}

void Context::check_deadlines(int64_t now) {
  last_check_ns_ = now;
  if (scratch_.holds_retired() && !fabric_->reads_forgotten()) scratch_.empty_retired(now - kNewsTakeNs);
  if (!deaths_.empty()) act_on_deaths(now);
  if (!partings_.empty()) act_on_partings(now);
  if (!awaiting_.empty()) check_awaiting(now);
  if (active_.empty()) return;
  std::vector<Operation*> looked_at = std::exchange(spare_active_, {});  // a verdict may end some of them
  looked_at = active_;
  for (Operation* op : looked_at) {
    if (op->deadline_ns == 0) {
      op->deadline_ns = now + static_cast<int64_t>(op->comm->options().timeout_s * 1e9);
      op->next_check_ns =
          std::min(op->deadline_ns, now + static_cast<int64_t>(settings().stall_check_s * 1e9));
    }
    if (now >= op->next_check_ns) Verdict::on_stall(*this, *op, now);
  }
  spare_active_ = std::move(looked_at);
}

}  // namespace weft::engine
