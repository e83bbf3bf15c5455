// TextFile: a text that users bring, whole: a large file, which is mapped, or a small one or a pipe, which is
// read to its end.
//
// Thread safety: reading is safe from any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/mapped_file.h"
#include "base/status.h"

namespace loom::text {

/// Standard input, as a name of a file.
inline constexpr char kStandardInput[] = "-";

class TextFile {
 public:
  /// Waits for the writer of a pipe. Errors: not_found, system_error; invalid_argument for a folder;
  /// invalid_data for a file that is empty, is no UTF-8 or has a NUL, with the offset. All name the file.
  static Result<TextFile> open(const std::string& path);

  /// Without a byte order mark, which is no text. Valid as long as this object.
  std::string_view text() const;
  /// "standard input", or the path.
  std::string name() const { return path_ == kStandardInput ? "standard input" : path_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_, read_;
  MappedFile mapped_;
};

/// Text without the byte order mark of UTF-8 that it may begin with.
std::string_view without_mark(std::string_view bytes);

/// Whether bytes are a text: valid UTF-8, not empty, without NUL. The sentence gives the offset of what is
/// not, and names UTF-16 by its byte order mark.
Status check_text(std::string_view bytes);

}  // namespace loom::text
