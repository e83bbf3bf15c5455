#include "api/group.h"

#include <algorithm>
#include <thread>
#include <unordered_map>

#include "api/handles.h"
#include "base/thread.h"

namespace weft::api {
namespace {

struct Group {
  Status spoiled;
  std::vector<Creation> creations;
  std::vector<std::pair<std::shared_ptr<engine::Communicator>, engine::Call>> calls;
  std::vector<NcclCall> nccl_calls;
};

thread_local Group t_group;

/// A forked child forgets the group that its parent has open: the calls are the parent's. They are kept in
/// memory, so that the child destroys nothing of its parent's.
void forget_group() {
  if (t_group_depth == 0) return;
  t_group_depth = 0;
  static std::vector<Group>& forgotten = *new std::vector<Group>;
  forgotten.push_back(std::exchange(t_group, Group()));
}
const bool forgets_group = (on_fork_in_child(forget_group), true);

// Takes the outermost group's contents; the thread is outside groups again, also for what runs next.
Group take() { return std::exchange(t_group, Group()); }

// Which creations each thread has to do, by their numbers.
std::vector<std::vector<size_t>> rows_of(const std::vector<Creation>& creations) {
  std::vector<std::vector<size_t>> rows;
  for (size_t i = 0; i < creations.size(); ++i) {
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const std::vector<size_t>& others) {
      return creations[i].parent && creations[others.front()].parent == creations[i].parent;
    });
    if (row == rows.end()) rows.push_back({i});
    else row->push_back(i);
  }
  return rows;
}

Status run_creations(const std::vector<Creation>& creations) {
  std::vector<Status> outcomes(creations.size());
  const auto run = [&](const std::vector<size_t>& row) {
    for (const size_t i : row) outcomes[i] = creations[i].create();
  };
  const std::vector<std::vector<size_t>> rows = rows_of(creations);
  std::vector<std::thread> threads;
  for (size_t row = 1; row < rows.size(); ++row) {
    Result<std::thread> thread = start_thread("weft-create", [&run, &rows, row] { run(rows[row]); });
    if (thread) threads.push_back(thread.take());
    else
      for (const size_t i : rows[row]) creations[i].cancel(outcomes[i] = thread.status());
  }
  run(rows.front());
  for (std::thread& thread : threads) thread.join();
  for (const Status& outcome : outcomes) WEFT_TRY(outcome);
  return {};
}

void cancel_creations(const std::vector<Creation>& creations, const Status& why) {
  for (const Creation& creation : creations) creation.cancel(why);
}

// NCCL's calls are on their way while Weft's, without a stream, are waited for.
Status run_calls(Group& group) {
  if (!group.nccl_calls.empty()) WEFT_TRY(Fallback::start(group.nccl_calls));
  if (!group.calls.empty()) WEFT_TRY(engine::run_group(group.calls));
  return Fallback::finish(group.nccl_calls);
}

Status not_in_group() {
  return fail(Code::invalid_usage, "no group is open on this thread: call weftGroupStart first");
}

}  // namespace

thread_local int t_group_depth = 0;

void note(const std::shared_ptr<engine::Communicator>& comm, const engine::Call& call) {
  t_group.calls.emplace_back(comm, call);
}

Status run_or_note(const NcclCall& call) {
  if (in_group()) {
    t_group.nccl_calls.push_back(call);
    return {};
  }
  WEFT_TRY(Fallback::start({call}));
  return Fallback::finish({call});
}

Status create_or_note(Creation creation) {
  if (!in_group()) return creation.create();
  t_group.creations.push_back(std::move(creation));
  return {};
}

void spoil_group(const Status& why) {
  if (in_group() && t_group.spoiled.ok()) t_group.spoiled = why;
}

}  // namespace weft::api

using namespace weft;
using namespace weft::api;

weftResult_t weftGroupStart(void) {
  (void)process_generation();  // a child without handlers forgets its parent's group here
  ++t_group_depth;
  return weftSuccess;
}

weftResult_t weftGroupEnd(void) {
  (void)process_generation();
  if (t_group_depth == 0) return report(not_in_group());
  if (--t_group_depth > 0) return weftSuccess;
  Group group = take();
  if (!group.spoiled.ok()) {
    const Status why = group.spoiled.in("nothing of the group was started");
    cancel_creations(group.creations, why);
    return report(why);
  }
  if (!group.creations.empty())
    if (Status created = run_creations(group.creations); !created) return report(created);
  return report(run_calls(group));
}

weftResult_t weftGroupSimulateEnd(weftSimInfo_t* simInfo) {
  if (!simInfo) return report(fail(Code::invalid_pointer, "simInfo is NULL"));
  if (simInfo->size < sizeof(weftSimInfo_t) || simInfo->magic != WEFT_API_MAGIC)
    return report(fail(Code::invalid_argument, "simInfo does not start as WEFT_SIM_INFO_INITIALIZER"));
  (void)process_generation();
  if (t_group_depth == 0) return report(not_in_group());
  if (--t_group_depth > 0) return weftSuccess;
  Group group = take();
  cancel_creations(group.creations, fail(Code::invalid_usage, "the group was only simulated"));
  if (!group.spoiled.ok()) return report(group.spoiled);
  double total_us = group.calls.empty() ? WEFT_UNDEF_FLOAT : 0;
  std::unordered_map<const engine::Communicator*, engine::CallStreak> streaks;  // as they would be
  for (const auto& [comm, call] : group.calls) {
    const engine::Lock lock = comm->context().lock();
    engine::CallStreak& streak = streaks.try_emplace(comm.get(), comm->operations().streak()).first->second;
    auto predicted =
        comm->plans().predict_us(comm->plans().request_for(call), streak.expected(call), comm->machine());
    if (!predicted) return report(predicted.status());
    if (!plan::is_transfer(call.collective)) streak.add(call.collective, call.root);
    total_us += *predicted;
  }
  simInfo->estimatedTime = static_cast<float>(total_us);
  return weftSuccess;
}
