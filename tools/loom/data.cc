// loom tokenize, loom export, loom inspect.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <loom/dataset.h>

#include "base/file.h"
#include "format/checkpoints.h"
#include "format/safetensors_reader.h"
#include "loom/commands.h"
#include "model/hugging_face.h"
#include "model/model_file.h"
#include "text/completions.h"
#include "text/examples.h"
#include "text/same_tokenizer.h"
#include "train/folders.h"
#include "train/stored_state.h"

namespace loom::command {
namespace {

void print(const DatasetSummary& summary, const TokenizeOptions& options) {
  if (options.labels)
    fmt::print(
        "{}: {} texts to train on, {} to validate with, the longest has {} tokens; {} labels: {}; {}\n",
        options.out, summary.train_texts, summary.validation_texts, summary.longest_tokens,
        summary.labels.size(), fmt::join(summary.labels, ", "), summary.tokenizer);
  else if (options.completions)
    fmt::print(
        "{}: {} prompts with completions to train on, {} to validate with, the longest has {} tokens; {}\n",
        options.out, summary.train_texts, summary.validation_texts, summary.longest_tokens,
        summary.tokenizer);
  else
    fmt::print("{}: {} tokens of {} bytes to train on, {} of {} to validate with; {}\n", options.out,
               summary.train_tokens, summary.train_bytes, summary.validation_tokens, summary.validation_bytes,
               summary.tokenizer);
  if (!summary.note.empty()) fmt::print("note: {}\n", summary.note);
  if (summary.vocabulary < options.train_vocabulary)
    fmt::print(
        "the vocabulary has {} tokens, not {}: no two tokens stand together twice any more in this "
        "text; more text gives more\n",
        summary.vocabulary, options.train_vocabulary);
}

/// "30 texts, 600 tokens, the longest has 28".
std::string sizes_of(const text::StoredSequences& stored, const char* what) {
  uint64_t tokens = 0;
  for (uint64_t i = 0; i < stored.size(); ++i) tokens += stored.tokens(i).size();
  return fmt::format("{} {}, {} tokens, the longest has {}", stored.size(), what, tokens, stored.longest());
}

/// What a split holds, in words.
Result<std::string> inspect_split(const std::string& folder, text::Split split,
                                  const text::Tokenizer& tokenizer) {
  if (text::holds_examples(folder)) {
    const auto data = text::ExampleDataset::open(folder, split);
    LOOM_TRY(data.status());
    LOOM_TRY(text::check_tokens_of(folder, (*data)->texts().tokenizer_hash(), tokenizer));
    return fmt::format("{}; {} labels", sizes_of((*data)->texts(), "texts"), (*data)->label_names().size());
  }
  if (text::holds_completions(folder)) {
    const auto data = text::open_completions(folder, split);
    LOOM_TRY(data.status());
    LOOM_TRY(text::check_tokens_of(folder, (*data)->tokenizer_hash(), tokenizer));
    int64_t learned = 0;
    for (uint64_t i = 0; i < (*data)->size(); ++i) learned += text::count_targets((*data)->numbers(i));
    return fmt::format("{}; {} tokens are learned", sizes_of(**data, "prompts with completions"), learned);
  }
  const auto data = text::TokenDataset::open(folder, split);
  LOOM_TRY(data.status());
  LOOM_TRY(text::check_tokens_of(folder, (*data)->tokenizer_hash(), tokenizer));
  LOOM_TRY((*data)->verify());
  return fmt::format("{} tokens of {} bytes of text", (*data)->tokens(), (*data)->text_bytes());
}

/// All of it is read, so that a bit that has changed is found.
Status inspect_dataset(const std::string& folder) {
  const auto tokenizer = text::open_tokenizer(folder);
  LOOM_TRY(tokenizer.status());
  std::string lines = fmt::format("a dataset of {}\n", (*tokenizer)->description());
  for (const text::Split split : {text::Split::train, text::Split::validation}) {
    const Result<std::string> found = inspect_split(folder, split, **tokenizer);
    if (found.status().code() == Code::not_found && split == text::Split::validation) continue;
    LOOM_TRY(found.status());
    lines += fmt::format("{}: {}, with the hashes of their files\n", split_name(split), *found);
  }
  fmt::print("{}", lines);
  return {};
}

/// The notes of open_model_file() on a folder with config.json, or its refusal: tensors are shown all the
/// same.
std::vector<std::string> notes_on_model(const std::string& folder) {
  if (!is_folder(folder)) return {};
  const Result<format::Json> config = format::read_config(folder);
  if (config.status().code() == Code::not_found) return {};
  const Result<model::ModelSpec> spec =
      config.ok() ? model::spec_from_config(*config) : Result<model::ModelSpec>(config.status());
  if (!spec.ok()) return {spec.status().message()};
  Result<model::ModelFile> file = model::open_model_file(folder, *spec);
  return file.ok() ? file->notes : std::vector<std::string>{file.status().message()};
}

}  // namespace

Status tokenize(const TokenizeOptions& options) {
  DatasetOptions settings;
  settings.tokenizer = options.tokenizer;
  settings.train_vocabulary = options.train_vocabulary;
  settings.labels = options.labels;
  settings.completions = options.completions;
  settings.format = options.format;
  settings.validation_fraction = options.validation;
  const Result<DatasetSummary> summary = make_dataset(options.files, options.out, settings);
  LOOM_TRY(summary.status());
  print(*summary, options);
  return {};
}

Status export_model(const ExportOptions& options) {
  const Result<train::Exported> made = train::export_model(options.checkpoint, options.out, options.dtype);
  LOOM_TRY(made.status());
  fmt::print("{}: the model after step {}, {} parameters, {}\n", options.out, made->step, made->parameters,
             made->tokenizer
                 ? "with its tokenizer"
                 : fmt::format("without a tokenizer: {}, the folder of the run's dataset, does not have the "
                               "one that the run used, seen from here",
                               made->dataset));
  if (!made->lost.empty())
    fmt::print(
        "note: {}, with which the run began, is not there, so its chat template, generation_config.json and "
        "other files of transformers are missing\n",
        made->lost);
  return {};
}

Status inspect(const std::string& path) {
  LOOM_TRY(train::expect(path, train::Wanted::stored));
  if (is_folder(path) && is_file(join_path(path, "manifest.json"))) {
    const Result<format::Json> manifest = format::read_manifest(path);
    LOOM_TRY(manifest.status());
    LOOM_TRY(format::check_hashes(*manifest, path));
    const size_t hashes = manifest->value(format::kHashes, format::Json::object()).size();
    fmt::print("a complete checkpoint{}\n{}\n",
               hashes > 0 ? fmt::format(", with the {} of its {}", hashes == 1 ? "hash" : "hashes",
                                        counted(static_cast<int64_t>(hashes), "file"))
                          : "",
               manifest->dump(2));
    return {};
  }
  if (is_file(join_path(path, text::kDatasetFile))) return inspect_dataset(path);
  const Result<format::SafetensorsReader> file = format::SafetensorsReader::open(path);
  LOOM_TRY(file.status());
  const std::vector<std::string> notes = notes_on_model(path);
  uint64_t elements = 0;
  for (const std::string& name : file->names()) {
    const Result<format::TensorView> tensor = file->tensor(name);
    LOOM_TRY(tensor.status());
    fmt::print("{:<5} [{}]  {}\n", format::dtype_name(tensor->dtype), fmt::join(tensor->shape, ", "), name);
    elements += tensor->elements();
  }
  for (const std::string& note : notes) fmt::print("note: {}\n", note);
  fmt::print("{}, {} elements, {}\n", counted(static_cast<int64_t>(file->names().size()), "tensor"), elements,
             counted(static_cast<int64_t>(file->files().size()), "file"));
  return {};
}

}  // namespace loom::command
