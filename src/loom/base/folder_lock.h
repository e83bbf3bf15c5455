// FolderLock: that one at a time writes into a folder. The kernel keeps the lock of an open file, and gives
// it back when the process ends, however it ends; the file stays.
//
// Thread safety: values; take() from any thread.
#pragma once

#include <string>

#include "base/fd.h"
#include "base/status.h"

namespace loom {

class FolderLock {
 public:
  /// Locks `folder`/lock until this is destroyed; the folder must be there. Errors: invalid_argument when
  /// somebody has it, another object of this process included, saying who; system_error, disk_full,
  /// not_found.
  static Result<FolderLock> take(const std::string& folder);

  /// Why nothing is locked, where the file system knows no locks; "": it is locked.
  const std::string& note() const { return note_; }

 private:
  explicit FolderLock(UniqueFd file) : file_(std::move(file)) {}

  UniqueFd file_;
  std::string note_;
};

}  // namespace loom
