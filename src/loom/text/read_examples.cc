// Files of texts with labels, read.
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "format/json_file.h"
#include "text/delimited.h"
#include "text/examples.h"

namespace loom::text {
namespace {

using format::Json;

constexpr char kText[] = "text", kLabel[] = "label";

/// A label that another one differs from by a blank alone would be a class of its own. Only JSON can spell a
/// NUL that no file of text has.
Status check_example(const Example& example) {
  constexpr const char* kWhite = " \t\n\v\f\r";
  const std::string& label = example.label;
  if (label.find_first_not_of(kWhite) == std::string::npos)
    return fail(Code::invalid_data, "the label is empty, must be a name or a number");
  if (label.find_last_not_of(kWhite) + 1 != label.size() || label.find_first_not_of(kWhite) != 0)
    return fail(Code::invalid_data, "the label \"{}\" has white space around it, which a label must not have",
                label);
  for (const auto& [what, value] : {std::pair("label", &label), {"text", &example.text}})
    if (const size_t nul = value->find('\0'); nul != std::string::npos)
      return fail(Code::invalid_data, "the {} has a NUL as its byte {}, which no text has", what, nul);
  if (example.text.empty()) return fail(Code::invalid_data, "the text is empty, must have a character");
  return {};
}

Result<Example> example_of_json(std::string_view line) {
  const Result<Json> json = format::parse_json(line);
  LOOM_TRY(json.status());
  Result<std::string> text = format::required<std::string>(*json, kText);
  LOOM_TRY(text.status());
  if (json->contains(kLabel) && (*json)[kLabel].is_number_integer())
    return Example{text.take(), (*json)[kLabel].dump()};
  Result<std::string> label = format::required<std::string>(*json, kLabel);
  LOOM_TRY(label.status());
  return Example{text.take(), label.take()};
}

/// What a line of the plainest form says: a label, a tab, and the text as it stands there.
Result<Example> example_of_tab(std::string_view line) {
  const size_t tab = line.find('\t');
  if (tab == std::string_view::npos)
    return fail(Code::invalid_data, "it must be a label, a tab and a text, but has no tab");
  return Example{std::string(line.substr(tab + 1)), std::string(line.substr(0, tab))};
}

Result<std::vector<Example>> examples_of_lines(std::string_view content,
                                               Result<Example> (*example_of)(std::string_view)) {
  std::vector<Example> examples;
  int64_t number = 0;
  for (size_t at = 0; at < content.size();) {
    const size_t end = std::min(content.find('\n', at), content.size());
    std::string_view line = content.substr(at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    at = end + 1;
    ++number;
    if (line.empty()) continue;
    Result<Example> example = example_of(line);
    LOOM_TRY(example.status().in(fmt::format("line {}", number)));
    LOOM_TRY(check_example(*example).in(fmt::format("line {}", number)));
    example->line = number;
    examples.push_back(example.take());
  }
  return examples;
}

/// Which columns of a file hold what.
struct Columns {
  size_t label = 0, text = 0, all = 0;
};

/// Those that the first line names; nothing where it does not.
std::optional<Columns> columns_of(const Record& first) {
  const auto find = [&](const char* name) {
    return static_cast<size_t>(std::find(first.fields.begin(), first.fields.end(), name) -
                               first.fields.begin());
  };
  const Columns columns{find(kLabel), find(kText), first.fields.size()};
  if (columns.label == columns.all || columns.text == columns.all) return std::nullopt;
  return columns;
}

Result<std::vector<Example>> examples_of_records(std::string_view content, char separator) {
  DelimitedReader reader(content, separator);
  std::vector<Example> examples;
  std::optional<Columns> columns;
  for (;;) {
    Result<std::optional<Record>> record = reader.next();
    LOOM_TRY(record.status());
    if (!*record) return examples;
    std::vector<std::string>& fields = (*record)->fields;
    const std::string place = fmt::format("line {}", (*record)->line);
    if (!columns) {
      columns = columns_of(**record);
      if (columns) continue;
      return fail(Code::invalid_data,
                  "{}: it must name the columns, of which \"{}\" and \"{}\" are read, and is \"{}\"", place,
                  kText, kLabel, fmt::join(fields, "\", \""));
    }
    if (fields.size() != columns->all)
      return fail(Code::invalid_data, "{}: it must be {} fields, but has {}", place, columns->all,
                  fields.size());
    Example example{std::move(fields[columns->text]), std::move(fields[columns->label]), (*record)->line};
    LOOM_TRY(check_example(example).in(place));
    examples.push_back(std::move(example));
  }
}

/// Plain lines, whose texts may have any quotation marks and tabs, or columns that the first line names.
Result<std::vector<Example>> examples_of_tabs(std::string_view content) {
  const Result<std::optional<Record>> first = DelimitedReader(content, '\t').next();
  if (first.ok() && *first) {
    if (columns_of(**first)) return examples_of_records(content, '\t');
    const std::vector<std::string>& fields = (*first)->fields;
    if (fields.size() == 2 && fields[1] == kLabel)
      return fail(
          Code::invalid_data,
          "line {}: it names the columns \"{}\" and \"{}\", must name \"{}\" and \"{}\"; without such "
          "a line, others are a label, a tab and a text",
          (*first)->line, fields[0], fields[1], kText, kLabel);
  }
  return examples_of_lines(content, example_of_tab);
}

}  // namespace

Result<std::vector<Example>> read_examples(const std::string& path) {
  const Result<TextFile> file = TextFile::open(path);
  LOOM_TRY(file.status());
  return read_examples(*file, "");
}

Result<std::vector<Example>> read_examples(const TextFile& file, const std::string& format) {
  const std::string extension = std::filesystem::path(file.path()).extension().string();
  const std::string wanted = !format.empty()         ? format
                             : extension == ".jsonl" ? "jsonl"
                             : extension == ".csv"   ? "csv"
                                                     : "tsv";
  Result<std::vector<Example>> examples =
      wanted == "jsonl" ? examples_of_lines(file.text(), example_of_json)
      : wanted == "csv" ? examples_of_records(file.text(), ',')
      : wanted == "tsv"
          ? examples_of_tabs(file.text())
          : fail(Code::invalid_argument, "the format \"{}\" is unknown, must be jsonl, csv or tsv", wanted);
  LOOM_TRY(examples.status().in(file.name()));
  return examples;
}

}  // namespace loom::text
