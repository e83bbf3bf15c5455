// Checkpoints: a folder of training checkpoints, and which of them are complete.
//
//   ROOT/step-00000100/…             what ranks wrote
//   ROOT/step-00000100/manifest.json written last: the mark of a complete checkpoint. It lists the files
//   with their sizes, and, where who writes them knows them, hashes
//
// All ranks of a job write one checkpoint in four moves, with a barrier between them:
//   1. one rank: begin(step)         makes an empty folder; what an interrupted write had left there goes
//   2. each rank: its files          into step_folder(step), each of them atomic
//   3. one rank: commit(step, …)     waits for the disk, and writes the manifest
//   4. one rank: prune()             removes what is older than the `keep` newest complete ones
// Until 3 is over, find() gives the checkpoint before; a crash at any time leaves that one as it was.
//
// Thread safety: functions of one object may be called from any thread; begin, commit and prune of one folder
// from one process at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/json_file.h"

namespace loom::format {

/// Of a manifest: an object with hashes (hash_text()) by the names of files. Those of older versions have
/// none.
inline constexpr char kHashes[] = "hashes";
std::string hash_text(uint64_t hash);

/// What is there to go on from.
struct FoundCheckpoints {
  std::optional<uint64_t> newest;  // complete one
  // Newer than that, what is wrong with each, a sentence each:
  std::vector<std::string> damaged;     // those that were complete
  std::vector<std::string> unfinished;  // those without a manifest
};

class Checkpoints {
 public:
  /// `keep` is how many complete checkpoints prune() leaves, at least 1. The folder is made by begin().
  static Result<Checkpoints> open(const std::string& root, int keep);

  std::string step_folder(uint64_t step) const;
  /// Errors: system_error, disk_full; invalid_argument when a complete checkpoint of this step is the only
  /// one there, since an interrupted write would then leave none.
  Status begin(uint64_t step);
  /// Writes the manifest: `content` (an object), "step", and `files` with their sizes. Other files of the
  /// folder are not listed. Waits until all of it is on the disk. Errors: invalid_argument when
  /// there are no files; not_found for one that is not there, as those of a rank that sees another folder of
  /// this name; disk_full, system_error.
  Status commit(uint64_t step, const Json& content, const std::vector<std::string>& files);
  /// Removes complete checkpoints but the `keep` newest, and incomplete ones older than the newest complete
  /// one. What cannot be read, or is of another version, stays.
  Status prune();

  /// Steps of complete checkpoints, ascending. One whose files are missing or of another size than the
  /// manifest says is not complete.
  Result<std::vector<uint64_t>> complete_steps() const;
  /// Looks from the newest on for a complete one. What is newer is told: what has no manifest, as a crash in
  /// the middle of writing leaves it, and what has one but not its files, or a damaged one.
  /// Errors: unsupported (a newer one is of another version), system_error (nobody can say what it is).
  Result<FoundCheckpoints> find() const;
  /// Its newest; nothing when there is none, or no folder.
  Result<std::optional<uint64_t>> latest() const;

 private:
  Checkpoints(std::string root, int keep) : root_(std::move(root)), keep_(keep) {}
  Result<std::vector<uint64_t>> all_steps() const;

  std::string root_;
  int keep_;
};

/// The manifest of a checkpoint's folder, after checking that it is complete. Errors: not_found (no manifest:
/// the checkpoint was never completed), invalid_data (a file is missing, of another size, or outside of the
/// folder, by name; a step that no run has; no manifest of ours), unsupported (of another version),
/// system_error (it cannot be read).
Result<Json> read_manifest(const std::string& step_folder);

/// That files have the hashes that the manifest says: of those that have one the first, and each `every`
/// after it, so that ranks can share the work. Errors: invalid_data, naming the file, also one that
/// the manifest does not list; system_error.
Status check_hashes(const Json& manifest, const std::string& step_folder, int first = 0, int every = 1);

}  // namespace loom::format
