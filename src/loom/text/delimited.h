// DelimitedReader: records of fields with a separator between, as spreadsheets write them (RFC 4180): a field
// that begins with a quotation mark ends with one, and holds separators, line feeds and doubled quotation
// marks between. Debian's libcsv gives no numbers of lines and takes what is left open; a record here either
// is what the RFC says or is refused by its line.
//
// Thread safety: a reader belongs to one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace loom::text {

struct Record {
  std::vector<std::string> fields;
  int64_t line = 0;  // that it begins in, from 1 on
};

class DelimitedReader {
 public:
  /// `text` must outlive the reader.
  DelimitedReader(std::string_view text, char separator) : text_(text), separator_(separator) {}

  /// Empty lines are no records; nothing behind the last one. Errors: invalid_data, naming the line, for a
  /// quotation mark that is not closed, or that closes before its field ends.
  Result<std::optional<Record>> next();

 private:
  Status read_quoted(int64_t line, std::string& field);
  bool at_end_of_field() const;

  std::string_view text_;
  char separator_;
  size_t at_ = 0;
  int64_t line_ = 1;
};

}  // namespace loom::text
