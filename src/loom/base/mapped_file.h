// MappedFile: a whole file, read-only, as bytes in memory. Pages are read when they are touched, and shared
// by every process that maps the file.
//
// A file that is cut short while it is mapped kills the process with SIGBUS when the lost part is touched;
// Loom replaces files by renaming and never shortens one that it has written.
//
// Thread safety: reading is safe from any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace loom {

class MappedFile {
 public:
  /// Errors: not_found, system_error; invalid_argument when `path` is a folder or no plain file.
  static Result<MappedFile> open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  /// Valid until this object is destroyed or assigned; a move does not change the address.
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  /// The same bytes.
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace loom
