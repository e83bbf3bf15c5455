#include "engine/run/group_run.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "device/cuda/deferred_free_claim.h"
#include "engine/gpu/captures.h"
#include "engine/gpu/checked_calls.h"
#include "engine/gpu/device_calls.h"
#include "engine/gpu/device_run.h"
#include "engine/run/stream.h"
#include "plan/plan.h"
#include "plan/schedule.h"

namespace weft::engine {
namespace {

struct GroupPart {
  Communicator* comm;
  PlannedCall plan;
  cuda::Capture capture;
};

// The other half of a rank's transfer to itself among the calls of a group, or `i` if there is none.
size_t counterpart(const std::vector<GroupCall>& calls, const std::vector<bool>& taken, size_t i) {
  const auto& [comm, call] = calls[i];
  for (size_t other = i + 1; other < calls.size(); ++other) {
    const auto& [its_comm, its_call] = calls[other];
    if (!taken[other] && its_comm == comm && plan::is_transfer(its_call.collective) && !its_call.one_sided &&
        its_call.root == call.root && its_call.collective != call.collective)
      return other;
  }
  return i;
}

// A rank's transfer to itself: Send and Recv of one group become one copy.
Result<PlannedCall> planned_self_copy(Communicator& comm, const Call& send, const Call& recv)
    WEFT_REQUIRES(context_lock) {
  if (!comm.failure().ok()) return comm.failure();
  if (send.count != recv.count || send.type != recv.type)
    return fail(Code::mismatch, "rank {} sends {} {} to itself but receives {} {}", comm.rank(), send.count,
                device::name_of(send.type), recv.count, device::name_of(recv.type));
  // One copy stands in one stream.
  if (send.stream != recv.stream || send.cuda_stream != recv.cuda_stream)
    return fail(Code::invalid_usage,
                "rank {} sends to itself on one stream and receives on another: give its Send and its Recv "
                "the same stream",
                comm.rank());
  Call call = recv;
  call.send = send.send;
  return PlannedCall{call, comm.plans().make_self_copy(call)};
}

// The plan of a group's call that is not `taken` yet; of a transfer to itself, that of both halves.
Result<PlannedCall> planned_in_group(const std::vector<GroupCall>& calls, std::vector<bool>& taken, size_t i,
                                     const CallStreak& streak) WEFT_REQUIRES(context_lock) {
  const auto& [comm, call] = calls[i];
  const bool to_itself = plan::is_transfer(call.collective) && !call.one_sided && call.root == comm->rank();
  const size_t other = to_itself ? counterpart(calls, taken, i) : i;
  taken[other] = true;
  if (other == i) {
    const auto tables = comm->tables_for(call, streak);
    if (!tables) return tables.status();
    return PlannedCall{call, **tables};
  }
  const Call& theirs = calls[other].second;
  return call.collective == plan::Collective::send ? planned_self_copy(*comm, call, theirs)
                                                   : planned_self_copy(*comm, theirs, call);
}

// What a group comes to, call by call; nothing is started.
Result<std::vector<GroupPart>> planned_group(const std::vector<GroupCall>& calls) {
  std::vector<GroupPart> parts;
  std::vector<bool> taken(calls.size(), false);
  std::unordered_map<const Communicator*, CallStreak> streaks;  // as they will be
  for (size_t i = 0; i < calls.size(); ++i) {
    if (taken[i]) continue;
    Communicator* const comm = calls[i].first.get();
    const Result<cuda::Capture> capture = capture_of(*comm, calls[i].second);
    if (!capture) return capture.status();
    const Lock lock = comm->context().lock();
    // Graphs are run whenever their owner likes: no streak can be told for their calls.
    CallStreak captured,
        &streak = *capture ? captured : streaks.try_emplace(comm, comm->operations().streak()).first->second;
    Result<PlannedCall> plan = planned_in_group(calls, taken, i, streak);
    if (!plan) return plan.status();
    const Call& planned = plan->call;
    if (!plan::is_transfer(planned.collective)) streak.add(planned.collective, planned.root);
    parts.push_back({comm, plan.take(), *capture});
  }
  return parts;
}

}  // namespace

Status run_group(std::vector<GroupCall>& calls) {
  const ForgetCheckedCalls forget;
  const Result<std::vector<GroupPart>> parts = planned_group(calls);
  if (!parts) return parts.status();
  std::optional<cuda::DeferredFreeClaim> claim;
  if (std::any_of(parts->begin(), parts->end(),
                  [](const GroupPart& part) { return part.plan.call.on_device; }))
    claim.emplace();
  Status first_failure;
  auto note = [&](const Status& status) {
    if (first_failure.ok()) first_failure = status;
  };
  // All are started before any is waited for, whatever their order.
  struct OnDevice {
    Operation* op;
    bool first_use;
  };
  std::vector<OnDevice> on_device;
  std::vector<Operation*> waited;
  CapturedGroup captured;
  const uint64_t batch = Stream::new_batch();
  for (const auto& [comm, plan, capture] : *parts) {
    if (capture) {
      const Result<bool> on_path = comm->captures()->capture_on_path(capture, plan.call);
      if (!on_path || *on_path) {
        note(on_path.status());
        continue;
      }
      note(captured.add(*comm, capture, plan.call, plan.tables));
      continue;
    }
    Lock lock = comm->context().lock();
    if (comm->captures()) comm->captures()->check();
    if (!comm->failure().ok()) {  // only now
      note(comm->failure());
      continue;
    }
    Operation* op = plan.call.on_device ? enroll_on_path(*comm, plan.call) : nullptr;
    const bool first_use = plan.call.on_device && may_call_driver(*comm, plan.call, op);
    if (!op) op = comm->enroll(plan.call, plan.tables);
    if (op->device) {
      // A stream may not wait for one of a group before it has told of all: they may need each other.
      if (Status arrived = arrive_on_device(lock, *op); !arrived) note(arrived);
      on_device.push_back({op, first_use});
    } else if (op->call.stream) {
      op->call.stream->push(op, batch);
      comm->context().operations().release(op);
    } else {
      comm->context().start(*op);
      waited.push_back(op);
    }
  }
  note(captured.arrive());
  note(captured.wait());
  for (const auto& [op, first_use] : on_device) {
    Lock lock = op->context->lock();
    note(leave_on_device(lock, *op));
  }
  claim.reset();
  const Deadline deadline = first_use_deadline();
  for (const auto& [op, first_use] : on_device) {
    Lock lock = op->context->lock();
    if (first_use) stay_with(lock, *op, deadline);
    if (op->end.finished.load(std::memory_order_acquire)) note(op->end.status);
    const bool asynchronous = has_memory_operations(*op->comm);
    if (asynchronous) op->context->operations().release(op);
    else waited.push_back(op);
  }
  // While one is waited for, its context's others move too; those of other contexts are the progress
  // threads'.
  for (Operation* op : waited)
    if (op->context != waited.front()->context) op->context->waiting().wake_progress();
  for (Operation* op : waited) {
    Lock lock = op->context->lock();
    note(op->context->waiting().result_of(lock, *op));
    if (op->device) hold_stream(lock, *op);
    op->context->operations().release(op);
  }
  return first_failure;
}

}  // namespace weft::engine
