// Fields: named texts of every record of a file, such as a text and its label, or a prompt and its
// completion.
//
// Thread safety: pure functions.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "format/json_file.h"
#include "text/text_file.h"

namespace loom::text {

struct TwoFields {
  std::string first, second;
  int64_t line = 0;  // where the record begins
};

struct FieldRules {
  const char *first, *second;        // their names: keys of JSON, or columns
  bool second_may_be_whole = false;  // JSON's whole numbers count as the text that they are written as
  /// Refuses values of a record.
  Status (*check)(const TwoFields& record);
  /// Reads a line of a .tsv whose first line names no columns; nullptr: such a file is refused.
  Result<TwoFields> (*of_plain_line)(std::string_view line) = nullptr;
};

/// `format` is "jsonl", "csv" or "tsv", or empty: as the file's name says.
/// * jsonl: an object on each line
/// * csv: columns separated by commas, which the first line names
/// * tsv, and names that say nothing: the same separated by tabs, or plain lines
/// Fields of columns may be in quotation marks (text/delimited.h); in plain lines they have no meaning.
/// Errors: invalid_argument (another format); invalid_data with the line.
Result<std::vector<TwoFields>> read_fields(const TextFile& file, const std::string& format,
                                           const FieldRules& rules);

/// Whether a file that read_fields() reads is read as "jsonl".
bool is_json_lines(const TextFile& file, const std::string& format);

/// Gives `read` the object of each line of such a file that is not empty. Errors: invalid_data, those of
/// `read`, with file and line.
Status read_objects(const TextFile& file, const std::function<Status(const format::Json&)>& read);

/// The fields of an object. Errors: invalid_data.
Result<TwoFields> fields_of(const format::Json& object, const FieldRules& rules);

/// That a value has no NUL, which JSON alone can spell, and is not empty. Errors: invalid_data.
Status check_text(const char* name, const std::string& value);

}  // namespace loom::text
