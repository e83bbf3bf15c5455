// Files of texts with labels, read.
#include "text/examples.h"
#include "text/fields.h"

namespace loom::text {
namespace {

/// A label that another one differs from by a blank alone would be a class of its own.
Status check_example(const TwoFields& example) {
  constexpr const char* kWhite = " \t\n\v\f\r";
  const std::string& label = example.second;
  if (label.find_first_not_of(kWhite) == std::string::npos)
    return fail(Code::invalid_data, "the label is empty, must be a name or a number");
  if (label.find_last_not_of(kWhite) + 1 != label.size() || label.find_first_not_of(kWhite) != 0)
    return fail(Code::invalid_data, "the label \"{}\" has white space around it, which a label must not have",
                label);
  LOOM_TRY(check_text("label", label));
  return check_text("text", example.first);
}

/// What a line of the plainest form says: a label, a tab, and the text as it stands there.
Result<TwoFields> example_of_tab(std::string_view line) {
  const size_t tab = line.find('\t');
  if (tab == std::string_view::npos)
    return fail(Code::invalid_data, "it must be a label, a tab and a text, but has no tab");
  return TwoFields{std::string(line.substr(tab + 1)), std::string(line.substr(0, tab))};
}

constexpr FieldRules kRules = {.first = "text",
                               .second = "label",
                               .second_may_be_whole = true,
                               .check = check_example,
                               .of_plain_line = example_of_tab};

}  // namespace

Result<std::vector<Example>> read_examples(const std::string& path) {
  const Result<TextFile> file = TextFile::open(path);
  LOOM_TRY(file.status());
  return read_examples(*file, "");
}

Result<std::vector<Example>> read_examples(const TextFile& file, const std::string& format) {
  Result<std::vector<TwoFields>> records = read_fields(file, format, kRules);
  LOOM_TRY(records.status());
  std::vector<Example> examples;
  for (TwoFields& record : *records)
    examples.push_back({std::move(record.first), std::move(record.second), record.line});
  return examples;
}

}  // namespace loom::text
