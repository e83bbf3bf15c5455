#include "text/fields.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "format/json_file.h"
#include "text/delimited.h"

namespace loom::text {
namespace {

using format::Json;

/// Names for a sentence, the first ones where there are many.
std::string keys_of(const Json& object) {
  constexpr size_t kNamed = 5, kShown = 40;
  std::vector<std::string> keys;
  for (const auto& item : object.items())
    if (keys.size() < kNamed) keys.push_back(fmt::format("\"{}\"", item.key().substr(0, kShown)));
  return fmt::format("{}{}", fmt::join(keys, ", "), object.size() > kNamed ? ", …" : "");
}

/// Gives `read` the lines that are not empty, with their numbers.
template <typename Read>
Status for_each_line(std::string_view content, Read read) {
  int64_t number = 0;
  for (size_t at = 0; at < content.size();) {
    const size_t end = std::min(content.find('\n', at), content.size());
    std::string_view line = content.substr(at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    at = end + 1;
    ++number;
    if (!line.empty()) LOOM_TRY(read(line, number).in(fmt::format("line {}", number)));
  }
  return {};
}

template <typename Read>
Result<std::vector<TwoFields>> of_lines(std::string_view content, const FieldRules& rules, Read read) {
  std::vector<TwoFields> records;
  LOOM_TRY(for_each_line(content, [&](std::string_view line, int64_t number) -> Status {
    Result<TwoFields> record = read(line);
    LOOM_TRY(record.status());
    LOOM_TRY(rules.check(*record));
    record->line = number;
    records.push_back(record.take());
    return {};
  }));
  return records;
}

/// A line of JSON.
Result<Json> object_of(std::string_view line) {
  Result<Json> json = format::parse_json(line);
  if (!json.ok()) return json.status().in("each line must be a JSON object");
  if (!json->is_object())
    return fail(Code::invalid_data, "each line must be a JSON object, not {}", json->type_name());
  return json;
}

/// Which columns of a file hold what.
struct Columns {
  size_t first = 0, second = 0, all = 0;
};

/// Those that the first line names; nothing where it does not.
std::optional<Columns> columns_of(const Record& names, const FieldRules& rules) {
  const auto find = [&](const char* name) {
    return static_cast<size_t>(std::find(names.fields.begin(), names.fields.end(), name) -
                               names.fields.begin());
  };
  const Columns columns{find(rules.first), find(rules.second), names.fields.size()};
  if (columns.first == columns.all || columns.second == columns.all) return std::nullopt;
  return columns;
}

/// Of a first line.
Status no_columns(const std::vector<std::string>& fields, const FieldRules& rules) {
  constexpr size_t kShown = 200;
  std::string line = fmt::format("\"{}\"", fmt::join(fields, "\", \""));
  const bool is_json = line.starts_with("\"{") || line.starts_with("\"[");
  if (line.size() > kShown) line = line.substr(0, line.find_last_of(' ', kShown) + 1) + "…";
  return fail(Code::invalid_data,
              "it must name the columns, of which \"{}\" and \"{}\" are read, and is {}{}", rules.first,
              rules.second, line, is_json ? "; --format jsonl reads JSON, an object on each line" : "");
}

Result<std::vector<TwoFields>> of_records(std::string_view content, char separator, const FieldRules& rules) {
  DelimitedReader reader(content, separator);
  std::vector<TwoFields> records;
  std::optional<Columns> columns;
  for (;;) {
    Result<std::optional<Record>> record = reader.next();
    LOOM_TRY(record.status());
    if (!*record) return records;
    std::vector<std::string>& fields = (*record)->fields;
    const std::string place = fmt::format("line {}", (*record)->line);
    if (!columns) {
      columns = columns_of(**record, rules);
      if (columns) continue;
      return no_columns(fields, rules).in(place);
    }
    if (fields.size() != columns->all)
      return fail(Code::invalid_data, "{}: it must be {} fields, but has {}", place, columns->all,
                  fields.size());
    TwoFields read{std::move(fields[columns->first]), std::move(fields[columns->second]), (*record)->line};
    LOOM_TRY(rules.check(read).in(place));
    records.push_back(std::move(read));
  }
}

/// Plain lines, whose texts may have any quotation marks and tabs, or columns that the first line names.
Result<std::vector<TwoFields>> of_tabs(std::string_view content, const FieldRules& rules) {
  if (rules.of_plain_line == nullptr) return of_records(content, '\t', rules);
  const Result<std::optional<Record>> first = DelimitedReader(content, '\t').next();
  if (first.ok() && *first) {
    if (columns_of(**first, rules)) return of_records(content, '\t', rules);
    const std::vector<std::string>& fields = (*first)->fields;
    if (fields.size() == 2 && fields[1] == rules.second)
      return fail(
          Code::invalid_data,
          "line {}: it names the columns \"{}\" and \"{}\", must name \"{}\" and \"{}\"; without such "
          "a line, others are a {}, a tab and a {}",
          (*first)->line, fields[0], fields[1], rules.first, rules.second, rules.second, rules.first);
  }
  return of_lines(content, rules, rules.of_plain_line);
}

std::string format_of(const TextFile& file, const std::string& format) {
  if (!format.empty()) return format;
  const std::string extension = std::filesystem::path(file.path()).extension().string();
  return extension == ".jsonl" ? "jsonl" : extension == ".csv" ? "csv" : "tsv";
}

}  // namespace

Result<TwoFields> fields_of(const Json& object, const FieldRules& rules) {
  for (const char* name : {rules.first, rules.second})
    if (!object.empty() && !object.contains(name))
      return fail(Code::invalid_data, "\"{}\" is missing, must be a text; the object has {}", name,
                  keys_of(object));
  Result<std::string> first = format::required<std::string>(object, rules.first);
  LOOM_TRY(first.status());
  if (rules.second_may_be_whole && object.contains(rules.second) && object[rules.second].is_number_integer())
    return TwoFields{first.take(), object[rules.second].dump()};
  Result<std::string> second = format::required<std::string>(object, rules.second);
  LOOM_TRY(second.status());
  return TwoFields{first.take(), second.take()};
}

Status read_objects(const TextFile& file, const std::function<Status(const Json&)>& read) {
  const auto read_line = [&](std::string_view line, int64_t) -> Status {
    const Result<Json> object = object_of(line);
    LOOM_TRY(object.status());
    return read(*object);
  };
  return for_each_line(file.text(), read_line).in(file.name());
}

bool is_json_lines(const TextFile& file, const std::string& format) {
  return format_of(file, format) == "jsonl";
}

Status check_text(const char* name, const std::string& value) {
  if (const size_t nul = value.find('\0'); nul != std::string::npos)
    return fail(Code::invalid_data, "the {} has a NUL as its byte {}, which no text has", name, nul);
  if (value.empty()) return fail(Code::invalid_data, "the {} is empty, must have a character", name);
  return {};
}

Result<std::vector<TwoFields>> read_fields(const TextFile& file, const std::string& format,
                                           const FieldRules& rules) {
  const std::string wanted = format_of(file, format);
  const auto of_json = [&](std::string_view line) -> Result<TwoFields> {
    const Result<Json> object = object_of(line);
    LOOM_TRY(object.status());
    return fields_of(*object, rules);
  };
  Result<std::vector<TwoFields>> records =
      wanted == "jsonl" ? of_lines(file.text(), rules, of_json)
      : wanted == "csv" ? of_records(file.text(), ',', rules)
      : wanted == "tsv"
          ? of_tabs(file.text(), rules)
          : fail(Code::invalid_argument, "the format \"{}\" is unknown, must be jsonl, csv or tsv", wanted);
  LOOM_TRY(records.status().in(file.name()));
  return records;
}

}  // namespace loom::text
