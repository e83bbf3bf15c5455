#include "train/run_folder.h"

#include "base/file.h"
#include "train/folders.h"

namespace loom::train {
namespace {

std::string checkpoints_of(const Config::Run& run) { return join_path(run.out, "checkpoints"); }

}  // namespace

Result<RunFolder> RunFolder::open(const Config::Run& run, const engine::Groups& groups,
                                  std::vector<std::string>& notes) {
  std::optional<FolderLock> lock;
  const auto take_lock = [&]() -> Status {
    if (groups.rank() != 0) return {};
    LOOM_TRY(expect_place_for(Made::run, run.out).in("run.out"));
    LOOM_TRY(make_folders(run.out));
    Result<FolderLock> taken = FolderLock::take(run.out);
    LOOM_TRY(taken.status().in("run.out"));
    lock.emplace(taken.take());
    if (!lock->note().empty()) notes.push_back(lock->note());
    return {};
  };
  LOOM_TRY(groups.agree(take_lock()));
  Result<format::Checkpoints> checkpoints =
      format::Checkpoints::open(checkpoints_of(run), static_cast<int>(run.keep));
  LOOM_TRY(groups.agree(checkpoints.status()));
  RunFolder folder(run, checkpoints.take());
  folder.lock_ = std::move(lock);
  return folder;
}

Result<std::string> RunFolder::checkpoint_to_begin_with(std::vector<std::string>& notes) const {
  const std::string checkpoints = checkpoints_of(run_);
  const Result<format::FoundCheckpoints> found = checkpoints_.find();
  if (!found.ok())
    return fail(found.status().code(),
                "{}; a run that went on without it would lose it: mend that, or remove it from {}, or name "
                "another run.out",
                found.status().message(), checkpoints);
  if (!run_.resume) {
    LOOM_TRY(begins_alone(*found));
    return run_.resume_from;
  }
  const auto passed_over = [&](const std::string& what, const std::string& instead) {
    notes.push_back(fmt::format("a checkpoint is passed over: {}; {}", what, instead));
  };
  if (!found->newest && found->damaged.empty()) {
    const std::string& from = run_.resume_from;
    for (const std::string& what : found->unfinished)
      passed_over(what, from.empty() ? "there is none before it: the run begins anew"
                                     : fmt::format("there is none before it: the run begins with {}", from));
    return from;
  }
  if (!found->newest)
    return fail(Code::invalid_data,
                "{}; no other checkpoint in {} is complete: put back what is missing, remove that folder to "
                "begin anew, or name another run.out",
                found->damaged.front(), checkpoints);
  for (const auto* each : {&found->unfinished, &found->damaged})
    for (const std::string& what : *each)
      passed_over(what, fmt::format("goes on from step {}", *found->newest));
  return checkpoints_.step_folder(*found->newest);
}

/// Only its step distinguishes a checkpoint. Among those of an earlier run, the new ones would be the
/// oldest: they would be removed first, and a resumed run would go on with the earlier run.
Status RunFolder::begins_alone(const format::FoundCheckpoints& found) const {
  if (!found.newest && found.damaged.empty()) return {};
  return fail(
      Code::invalid_argument,
      "{} has checkpoints of an earlier run, among which a run with run.resume=false would lose its own: "
      "remove that folder, name another run.out, or let the run resume",
      checkpoints_of(run_));
}

Status RunFolder::with_one_before(const Status& status, const Beginning& beginning) const {
  if (status.code() != Code::invalid_data || !is_own(beginning.checkpoint)) return status;
  std::optional<uint64_t> before;
  const Result<std::vector<uint64_t>> steps = checkpoints_.complete_steps();
  if (steps.ok())
    for (const uint64_t step : *steps)
      if (static_cast<int64_t>(step) < beginning.step) before = step;
  if (before)
    return fail(Code::invalid_data,
                "{}; the checkpoint before it is of step {}: without the folder {} the run "
                "goes on from that",
                status.message(), *before, beginning.checkpoint);
  return fail(
      Code::invalid_data,
      "{}; there is no complete checkpoint before it: put back what is damaged, remove that folder to "
      "begin anew, or name another run.out",
      status.message());
}

Status RunFolder::with_way_back(Status status) const {
  if (status.ok() || status.code() != Code::not_finite) return status;
  const Result<std::optional<uint64_t>> latest = checkpoints_.latest();
  if (!latest.ok() || !latest->has_value())
    return fail(Code::not_finite, "{}; there is no checkpoint to go back to, run.checkpoint_every makes some",
                status.message());
  return fail(
      Code::not_finite,
      "{}; the newest checkpoint is of step {}: the same run.out goes on from it, and another one with "
      "run.resume_from={}",
      status.message(), **latest, checkpoints_.step_folder(**latest));
}

}  // namespace loom::train
