#include "engine/failure/failures.h"

#include <algorithm>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/settings.h"
#include "engine/context/context.h"
#include "engine/failure/verdict.h"
#include "engine/gpu/device_run.h"
#include "engine/run/communicator.h"
#include "plan/uneven.h"

namespace weft::engine {

namespace {

/// Why an operation's communicator fails, with the operation's name.
Status reason(const Operation& op, const Status& why) {
  return (op.device ? op.device->explain(why) : why).in(describe(op));
}

}  // namespace

void Failures::fail(Operation& op, const Status& why) { op.comm->fail(reason(op, why), true); }

Status Failures::fail_later(const Operation& op, const Status& why) {
  Status with_name = reason(op, why);
  fail_later(*op.comm, with_name);
  return with_name;
}

void Failures::fail_later(const Communicator& comm, Status why) {
  pending_.emplace_back(comm.id(), std::move(why));
}

void Failures::act_on_pending() {
  for (auto& [id, why] : std::exchange(pending_, {}))
    if (Communicator* comm = context_.find_communicator(id)) comm->fail(why, true);
}

void Failures::act_on_lost_memory() {
  for (auto& [comm, why] : context_.lost_memory().settle()) comm->fail(why, true);
}

// ---- Losses

void Failures::on_connection_lost(int peer, const Status& why) {
  losses_.add(PeerLosses::Kind::connection, peer, why, now_ns(), context_.events());
}

void Failures::on_unreachable(Operation& op) {
  if (op.health.why_unreachable.ok()) return;
  op.retain();
  losses_.add(op, std::exchange(op.health.why_unreachable, {}), now_ns(), context_.events());
}

void Failures::on_dead(int rank, const Status& why) {
  const Lock lock = context_.lock();
  losses_.add(PeerLosses::Kind::death, rank, why, now_ns(), context_.events());
  const auto idle = [](const auto& known) WEFT_REQUIRES(context_lock) {
    return known.second->operations().unfinished().empty();
  };
  if (std::all_of(context_.communicators().begin(), context_.communicators().end(), idle))
    act_on_losses(INT64_MAX);
  context_.sleepers().ring();
}

void Failures::act_on_losses(int64_t now_ns) {
  for (const PeerLosses::Report& report : losses_.due(now_ns, context_.events())) {
    switch (report.kind) {
      case PeerLosses::Kind::death: act_on_death(report.rank, report.why); break;
      case PeerLosses::Kind::connection: act_on_connection(report.rank, report.why); break;
      case PeerLosses::Kind::operation: act_on_unreachable(*report.op, report.why); break;
    }
  }
}

// The bootstrap tells the other ranks of the death. Their operations may still end, in their own time of
// grace.
void Failures::act_on_death(int world_rank, const Status& why) {
  for (auto& [id, comm] : std::unordered_map(context_.communicators()))
    if (const Status loss = loss_of(*comm, world_rank, why); !loss) comm->fail(loss, false);
}

// Only operations that wait for that rank fail. A rank may leave in good order.
void Failures::act_on_connection(int world_rank, const Status& why) {
  for (Operation* op : std::vector<Operation*>(context_.operations().active())) {
    if (op->end.finished.load(std::memory_order_relaxed)) continue;
    for (int rank : op->progress.awaited_peers(*op->tables))
      if (op->comm->members().world_rank(rank) == world_rank)
        fail(*op, weft::fail(Code::remote_error, "rank {} has gone: {}", rank, why.message()));
  }
}

void Failures::act_on_unreachable(Operation& op, const Status& why) {
  if (!op.end.finished.load(std::memory_order_relaxed)) fail(op, why);
  context_.operations().release(&op);
}

Status Failures::loss_of(const Communicator& comm, int world_rank, const Status& why) {
  const int rank = comm.members().rank_of_world(world_rank);
  if (rank < 0 || comm.is_shadow()) return {};
  return weft::fail(Code::remote_error, "rank {} of communicator {} is gone: {}", rank, comm.name(),
                    why.message());
}

Status Failures::first_loss_of(const Communicator& comm) const {
  for (const auto& [rank, why] : losses_.dead())
    if (Status loss = loss_of(comm, rank, why); !loss) return loss;
  return {};
}

// ---- Reports of other ranks, and their questions

void Failures::on_failed(int from, uint32_t comm, const std::string& why) {
  {
    const MutexLock guard(reports_mutex_);
    reports_.try_emplace(comm, from, why);
  }
  const Lock lock = context_.lock();
  if (Communicator* const known = context_.find_communicator(comm)) known->fail(reported(*known), false);
}

Status Failures::reported(const Communicator& comm) {
  const MutexLock guard(reports_mutex_);
  const auto found = reports_.find(comm.id());
  if (found == reports_.end()) return {};
  const auto& [from, why] = found->second;
  return weft::fail(Code::remote_error, "rank {} reports: {}", comm.members().rank_of_world(from), why);
}

void Failures::forget(const Communicator& comm) {
  const MutexLock guard(reports_mutex_);
  reports_.erase(comm.id());
}

// The other end of a transfer asks about it. Transfers with other ranks may have the same number.
bootstrap::OpReport Failures::on_question(int from, uint32_t comm, uint32_t number) {
  const Lock lock = context_.lock();
  const Communicator* const known = context_.find_communicator(comm);
  if (from < 0 || from >= context_.ranks()) return {};
  bootstrap::OpReport report;
  if (!known) {
    report.ended = context_.inbox().ended().lack(comm, number, from);
    return report;
  }
  report.known = true;
  report.last_started = known->operations().last_collective();
  const int asking = known->members().rank_of_world(from);
  if (asking < 0) return {};
  const auto tell = [&](const Record& record, const plan::Request& request) {
    if (record.number != number || ((number & kTransferBit) && record.root != asking)) return;
    report.call = record.describe() + plan::describe_counts(request, asking);
    report.algorithm = record.algorithm;
  };
  for (const Record& record : known->recorder().snapshot()) tell(record, {});
  // The recorder may have overwritten the record of an unfinished operation, and has no counts of blocks.
  for (const Operation* op : known->operations().unfinished()) tell(record_of(*op), op->tables->plan.request);
  return report;
}

// ---- Deadlines

void Failures::check(int64_t now_ns) {
  checked_ns_ = now_ns;
  if (!losses_.empty()) act_on_losses(now_ns);
  OperationTable& operations = context_.operations();
  if (operations.empty()) return;
  std::vector<Operation*> active = operations.snapshot();  // a verdict may end some of them
  for (Operation* op : active) {
    if (op->end.finished.load(std::memory_order_relaxed)) continue;
    if (op->end.deadline_ns == 0) {
      op->end.deadline_ns = now_ns + static_cast<int64_t>(op->end.timeout_s * 1e9);
      op->health.next_check_ns =
          std::min(op->end.deadline_ns, now_ns + static_cast<int64_t>(settings().stall_check_s * 1e9));
    }
    if (now_ns >= op->health.next_check_ns) Verdict::on_stall(context_, *op, now_ns);
  }
  operations.recycle(std::move(active));
}

}  // namespace weft::engine
