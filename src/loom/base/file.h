// Whole files and folders: reading one at once, and replacing one so that a crash leaves either the old
// content or the new, never a part.
//
// Thread safety: functions are safe from any thread; an AtomicFile belongs to one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/status.h"

namespace loom {

/// A file under construction: it is written beside its place under a temporary name, and moved there by
/// commit(). Destroyed without commit(), or after a failed one, it leaves nothing behind; a process that is
/// killed leaves FILE.PID-N.tmp.
class AtomicFile {
 public:
  /// `bytes`, where known, are reserved at once, so that a full disk is found before anything is written.
  /// Errors: disk_full, not_found (no such folder), system_error.
  static Result<AtomicFile> create(const std::string& path, uint64_t bytes = 0);

  AtomicFile(AtomicFile&& other) noexcept = default;
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  ~AtomicFile();

  /// Writes at a position; positions never written are zeros. After an error the file is given up.
  Status write_at(uint64_t position, std::span<const std::byte> bytes);
  /// Writes after what append() has written so far.
  Status append(std::span<const std::byte> bytes);
  /// Waits until the content is on the disk, moves the file to its place, and waits for the folder.
  Status commit();
  const std::string& path() const { return path_; }

 private:
  AtomicFile(std::string path, std::string temporary, UniqueFd fd);
  void discard();

  std::string path_;
  std::string temporary_;
  UniqueFd fd_;
  uint64_t end_ = 0;
};

/// FILE of a name that an AtomicFile has until it is committed; any other name as it is.
std::string_view final_name(std::string_view name);

/// The content of a file of at most `limit` bytes. Errors: not_found, system_error, invalid_data (larger).
Result<std::string> read_file(const std::string& path, uint64_t limit = uint64_t{1} << 30);
/// A hash of a file's content, which is read in pieces. Errors: not_found, system_error.
Result<uint64_t> hash_of_file(const std::string& path);
/// Replaces a file, atomically.
Status write_file(const std::string& path, std::string_view content);
/// The same with the content of another one. Errors: as read_file() and write_file().
Status copy_file(const std::string& from, const std::string& to);

/// Creates a folder and those above it; one that is there already is no error.
Status make_folders(const std::string& path);
/// Removes a folder and everything in it; one that is not there is no error.
Status remove_folder(const std::string& path);
/// Waits until the entries of a folder are on the disk.
Status sync_folder(const std::string& path);
/// The names in a folder, sorted; neither "." nor "..".
Result<std::vector<std::string>> list_folder(const std::string& path);
bool is_folder(const std::string& path);
bool is_file(const std::string& path);
/// Where a file lies: "." for a name alone.
std::string folder_of(const std::string& path);
/// `folder`/`name`.
std::string join_path(const std::string& folder, std::string_view name);

}  // namespace loom
