// RunFolder: run.out as a run finds and leaves it: its lock, its checkpoints, and which of them the run
// begins with.
//
// Thread safety: one thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/folder_lock.h"
#include "engine/groups.h"
#include "format/checkpoints.h"
#include "train/config.h"
#include "train/same_on_all.h"

namespace loom::train {

class RunFolder {
 public:
  /// Rank 0, which alone writes what lies in run.out itself, locks it; `notes` gets what it finds there. A
  /// collective. Errors: as FolderLock::take() and Checkpoints::open().
  static Result<RunFolder> open(const Config::Run& run, const engine::Groups& groups,
                                std::vector<std::string>& notes);

  format::Checkpoints& checkpoints() { return checkpoints_; }
  const format::Checkpoints& checkpoints() const { return checkpoints_; }

  /// This run's newest checkpoint, so that the run goes on where it was interrupted, or else the one that the
  /// config names; "": there is none. Damaged ones are passed over where a whole one is left. Where none is,
  /// the run is refused, since beginning anew would lose what may be mended. `notes` gets what is passed
  /// over.
  Result<std::string> checkpoint_to_begin_with(std::vector<std::string>& notes) const;
  /// Whether it is a checkpoint of this run, and not one that the config names.
  bool is_own(const std::string& checkpoint) const { return checkpoint != run_.resume_from; }

  /// Of a checkpoint of this run that cannot be read, what could be used instead.
  Status with_one_before(const Status& status, const Beginning& beginning) const;
  /// Of a run that has diverged, the checkpoint to go back to.
  Status with_way_back(Status status) const;

 private:
  RunFolder(const Config::Run& run, format::Checkpoints checkpoints)
      : run_(run), checkpoints_(std::move(checkpoints)) {}
  Status begins_alone(const format::FoundCheckpoints& found) const;

  Config::Run run_;
  format::Checkpoints checkpoints_;
  std::optional<FolderLock> lock_;  // on rank 0
};

}  // namespace loom::train
