#include "text/completions.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "base/file.h"
#include "text/best_fit.h"
#include "text/fields.h"

namespace loom::text {
namespace {

using format::Json;

constexpr char kFormat[] = "loom completions";

Status check_completion(const TwoFields& record) {
  LOOM_TRY(check_text("prompt", record.first));
  return check_text("completion", record.second);
}

constexpr FieldRules kRules = {.first = "prompt", .second = "completion", .check = check_completion};
constexpr char kSegments[] = "segments";

Segments segments_of(TwoFields fields) {
  return {{std::move(fields.first), false}, {std::move(fields.second), true}};
}

Result<Segments> segments_of(const Json& list) {
  if (!list.is_array())
    return fail(Code::invalid_data, "\"{}\" is {}, must be a list", kSegments, list.type_name());
  Segments segments;
  for (const Json& item : list) {
    const std::string place = fmt::format("segment {}", segments.size() + 1);
    Result<std::string> text = format::required<std::string>(item, "text");
    LOOM_TRY(text.status().in(place));
    LOOM_TRY(check_text("text", *text).in(place));
    const Result<bool> learned = format::required<bool>(item, "label");
    LOOM_TRY(learned.status().in(place));
    segments.push_back({text.take(), *learned});
  }
  if (std::ranges::none_of(segments, &Segment::learned))
    return fail(Code::invalid_data,
                "none of the {} segments has \"label\": true, so nothing of them is learned",
                segments.size());
  return segments;
}

bool is_of_completions(const Json& json) {
  return json.is_object() && json.contains("format") && json["format"] == kFormat;
}

}  // namespace

Result<std::vector<Segments>> read_completions(const TextFile& file, const std::string& format) {
  std::vector<Segments> all;
  if (is_json_lines(file, format)) {
    LOOM_TRY(read_objects(file, [&](const Json& object) -> Status {
      if (const auto list = object.find(kSegments); list != object.end()) {
        for (const char* other : {kRules.first, kRules.second})
          if (object.contains(other))
            return fail(Code::invalid_data, "it has \"{}\" and \"{}\", must have one of them", kSegments,
                        other);
        Result<Segments> segments = segments_of(*list);
        LOOM_TRY(segments.status());
        all.push_back(segments.take());
        return {};
      }
      Result<TwoFields> fields = fields_of(object, kRules);
      LOOM_TRY(fields.status().in("it must have \"prompt\" and \"completion\", or \"segments\""));
      LOOM_TRY(check_completion(*fields));
      all.push_back(segments_of(fields.take()));
      return {};
    }));
    return all;
  }
  Result<std::vector<TwoFields>> records = read_fields(file, format, kRules);
  LOOM_TRY(records.status());
  for (TwoFields& record : *records) all.push_back(segments_of(std::move(record)));
  return all;
}

NumberedSequence completion_tokens(const Segments& segments, const Tokenizer& tokenizer) {
  std::string text;
  for (const Segment& segment : segments) text += segment.text;
  NumberedSequence sequence{tokenizer.encode_document(text), {}};
  std::vector<Token>& tokens = sequence.tokens;
  std::vector<Token>& bounds = sequence.numbers;
  bool learned = false;
  std::string before;
  for (const Segment& segment : segments) {
    if (segment.learned != learned) {
      learned = !learned;
      const std::vector<Token> own = tokenizer.encode_document(before);
      const auto shared =
          std::mismatch(own.begin(), own.end(), tokens.begin(), tokens.end()).first - own.begin();
      bounds.push_back(std::max(static_cast<Token>(shared), bounds.empty() ? 0 : bounds.back()));
    }
    before += segment.text;
  }
  const std::optional<Token> end = tokenizer.end_of_text();
  if (end && (tokens.empty() || tokens.back() != *end)) tokens.push_back(*end);
  if (learned) bounds.push_back(static_cast<Token>(tokens.size()));
  return sequence;
}

Result<SplitSizes> tokenize_completions(std::span<const Segments> completions, const std::string& folder,
                                        const Tokenizer& tokenizer, double validation) {
  std::vector<NumberedSequence> sequences;
  for (const Segments& one : completions) sequences.push_back(completion_tokens(one, tokenizer));
  return write_sequences(sequences, folder, tokenizer, validation, "prompts", {{"format", kFormat}});
}

bool holds_completions(const std::string& folder) {
  const Result<Json> json = format::read_json(join_path(folder, kDatasetFile));
  return json.ok() && is_of_completions(*json);
}

Result<std::shared_ptr<const StoredSequences>> open_completions(const std::string& folder, Split split) {
  const std::string path = join_path(folder, kDatasetFile);
  const Result<Json> json = format::read_json(path);
  LOOM_TRY(json.status());
  if (!is_of_completions(*json))
    return fail(Code::invalid_data,
                "{} is of other data; `loom tokenize --completions` makes prompts with completions", path);
  Result<StoredSequences> stored = StoredSequences::open(folder, split, *json);
  LOOM_TRY(stored.status());
  for (uint64_t i = 0; i < stored->size(); ++i) {
    const std::span<const Token> bounds = stored->numbers(i);
    const auto tokens = static_cast<Token>(stored->tokens(i).size());
    if (bounds.size() % 2 != 0 || !std::ranges::is_sorted(bounds) ||
        (!bounds.empty() && bounds.back() > tokens))
      return fail(Code::invalid_data,
                  "sequence {} of the {} split of {} learns [{}) of {} tokens, must be pairs in order", i,
                  split_name(split), folder, fmt::join(bounds, ", "), tokens);
  }
  return std::make_shared<const StoredSequences>(stored.take());
}

Result<CompletionBatches> CompletionBatches::create(std::shared_ptr<const StoredSequences> completions,
                                                    const BatchOptions& options) {
  LOOM_TRY(check_sizes(options));
  CompletionBatches batches(std::move(completions), options);
  const StoredSequences& all = *batches.completions_;
  std::vector<uint64_t> used;
  std::vector<int64_t> sizes;
  for (uint64_t i = 0; i < all.size(); ++i) {
    if (batches.targets_of(i) == 0) continue;
    used.push_back(i);
    sizes.push_back(batches.tokens_of(i));
    if (static_cast<int64_t>(all.tokens(i).size()) - 1 > options.sequence_length) ++batches.cut_;
  }
  const auto add = [&](std::span<const uint64_t> texts) {
    for (const uint64_t text : texts) batches.texts_.push_back(used[text]);
    batches.starts_.push_back(batches.texts_.size());
  };
  if (options.pack)
    for (const std::vector<uint64_t>& texts : best_fit(sizes, options.sequence_length)) add(texts);
  else
    for (uint64_t text = 0; text < used.size(); ++text) add({&text, 1});
  if (!used.empty()) return batches;
  constexpr int64_t kUncut = std::numeric_limits<int64_t>::max();
  int64_t shortest = kUncut;  // T that has room for a target
  for (uint64_t i = 0; i < all.size(); ++i)
    for_targets(all.numbers(i), kUncut,
                [&](int64_t begin, int64_t) { shortest = std::min(shortest, begin + 1); });
  if (shortest == kUncut)
    return fail(Code::invalid_argument,
                "none of the {} completions has a token that is learned and stands behind another one",
                all.size());
  return fail(Code::invalid_argument,
              "sequences of {} tokens have no room for any of the {} completions behind their prompts; the "
              "shortest needs {}",
              options.sequence_length, all.size(), shortest);
}

uint64_t CompletionBatches::dataset_key() const {
  Hash64 key;
  completions_->add_to(key);
  if (options_.pack) key.add(options_.pack);
  return key.value();
}

std::string CompletionBatches::note() const {
  std::string note;
  if (texts_.size() > windows()) {
    int64_t tokens = 0;
    for (const uint64_t text : texts_) tokens += tokens_of(text);
    note = fmt::format("{} texts share {} sequences of {} tokens, which are {:.0f} % full", texts_.size(),
                       windows(), options_.sequence_length,
                       100.0 * static_cast<double>(tokens) /
                           (static_cast<double>(windows()) * static_cast<double>(options_.sequence_length)));
  }
  const uint64_t left_out = completions_->size() - texts_.size();
  if (left_out == 0 && cut_ == 0) return note;
  const std::string without =
      left_out == 0 ? "" : fmt::format(" and leave out {}, of which nothing learned is left", left_out);
  const auto all = static_cast<int64_t>(completions_->longest()) - 1;
  const std::string enough =
      all > options_.sequence_length ? fmt::format("; {} tokens are enough for all", all) : "";
  if (!note.empty()) note += "; ";
  return note + fmt::format("of {} texts, sequences of {} tokens cut {}{}{}", completions_->size(),
                            options_.sequence_length, cut_, without, enough);
}

int64_t CompletionBatches::targets(uint64_t step, int64_t rows) const {
  int64_t count = 0;
  for (int64_t row = 0; row < rows; ++row)
    for (const uint64_t text : texts_of(example_at(step, row, options_, windows())))
      count += targets_of(text);
  return count;
}

void CompletionBatches::put(std::span<const uint64_t> texts, std::span<Token> inputs,
                            std::span<Token> targets) const {
  size_t first = 0;
  for (const uint64_t text : texts) {
    const std::span<const Token> tokens = completions_->tokens(text);
    const auto count = static_cast<size_t>(tokens_of(text));
    std::copy_n(tokens.begin(), count, inputs.subspan(first).begin());
    for_targets(completions_->numbers(text), options_.sequence_length, [&](int64_t begin, int64_t end) {
      for (auto place = static_cast<size_t>(begin); place < static_cast<size_t>(end); ++place)
        targets[first + place] = tokens[place + 1];
    });
    first += count;
    if (options_.pack && first < targets.size()) targets[first - 1] = kEndsText;
  }
}

Status CompletionBatches::read(uint64_t step, Rows rows, std::span<Token> inputs,
                               std::span<Token> targets) const {
  const auto length = static_cast<size_t>(options_.sequence_length);
  LOOM_TRY(check_rows(rows, options_.global_batch, options_.sequence_length, inputs.size(), targets.size()));
  std::ranges::fill(inputs, completions_->padding());
  std::ranges::fill(targets, kNoTarget);
  for (int64_t row = 0; row < rows.count; ++row) {
    const size_t first = static_cast<size_t>(row) * length;
    put(texts_of(example_at(step, rows.begin + row, options_, windows())), inputs.subspan(first, length),
        targets.subspan(first, length));
  }
  return {};
}

}  // namespace loom::text
