// Text files to datasets.
#include "loom/dataset.h"

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "base/check.h"
#include "text/bigram.h"
#include "text/bpe_trainer.h"
#include "text/completions.h"
#include "text/examples.h"
#include "text/replace_tokenizer.h"
#include "text/tokenize_files.h"
#include "text/tokenizer.h"
#include "train/classes.h"
#include "train/folders.h"

namespace loom {
namespace {

/// What was read: texts as they are, texts with labels, or texts of which parts are learned. A pipe can be
/// read only once.
struct Input {
  std::vector<text::TextFile> files;
  std::vector<text::ExampleFile> labelled;
  std::vector<text::Segments> completions;
};

Result<Input> read_input(const std::vector<std::string>& paths, const DatasetOptions& options) {
  if (options.labels && options.completions)
    return fail(
        Code::invalid_argument,
        "labels and completions are both asked for, must be one: a classifier learns labels, a causal model "
        "completions");
  if (!options.labels && !options.completions && !options.format.empty())
    return fail(
        Code::invalid_argument,
        "the format is {}, but only files with labels or completions have one: without, every file is a text",
        options.format);
  Input input;
  for (const std::string& path : paths) {
    Result<text::TextFile> file = text::TextFile::open(path);
    LOOM_TRY(file.status());
    if (options.completions) {
      Result<std::vector<text::Segments>> some = text::read_completions(*file, options.format);
      LOOM_TRY(some.status());
      std::ranges::move(*some, std::back_inserter(input.completions));
      continue;
    }
    if (!options.labels) {
      input.files.push_back(file.take());
      continue;
    }
    Result<std::vector<text::Example>> examples = text::read_examples(*file, options.format);
    LOOM_TRY(examples.status());
    input.labelled.push_back({file->name(), examples.take()});
  }
  return input;
}

Result<std::shared_ptr<const text::Tokenizer>> trained_tokenizer(const Input& input, int64_t vocabulary) {
  text::BpeTraining settings;
  settings.vocabulary_size = vocabulary;
  Result<text::BpeTrainer> trainer = text::BpeTrainer::create(settings);
  LOOM_TRY(trainer.status());
  for (const text::TextFile& file : input.files) trainer->add(file.text());
  for (const text::ExampleFile& file : input.labelled)
    for (const text::Example& example : file.examples) trainer->add(example.text + "\n");
  for (const text::Segments& segments : input.completions) {
    std::string whole;
    for (const text::Segment& segment : segments) whole += segment.text;
    trainer->add(whole + "\n");
  }
  Result<std::shared_ptr<const text::BpeTokenizer>> made = trainer->train();
  LOOM_TRY(made.status());
  return std::shared_ptr<const text::Tokenizer>(made.take());
}

DatasetSummary of_sequences(const text::Tokenizer& tokenizer, const text::SplitSizes& sizes) {
  DatasetSummary summary;
  summary.tokenizer = tokenizer.description();
  summary.vocabulary = tokenizer.vocabulary_size();
  summary.train_texts = sizes.train;
  summary.validation_texts = sizes.validation;
  summary.longest_tokens = sizes.longest;
  return summary;
}

Result<DatasetSummary> make_examples(const std::vector<text::ExampleFile>& files, const std::string& folder,
                                     const text::Tokenizer& tokenizer, const DatasetOptions& options) {
  Result<text::ModelClasses> classes = text::ModelClasses();
  if (options.train_vocabulary == 0) classes = train::classes_beside(options.tokenizer);
  LOOM_TRY(classes.status());
  const Result<text::ExampleSummary> made =
      text::tokenize_examples(files, folder, tokenizer, options.validation_fraction, *classes);
  LOOM_TRY(made.status());
  DatasetSummary summary = of_sequences(tokenizer, made->sizes);
  summary.labels = made->labels;
  summary.note = made->note;
  return summary;
}

Result<DatasetSummary> make_completions(const std::vector<text::Segments>& completions,
                                        const std::string& folder, const text::Tokenizer& tokenizer,
                                        const DatasetOptions& options) {
  const Result<text::SplitSizes> made =
      text::tokenize_completions(completions, folder, tokenizer, options.validation_fraction);
  LOOM_TRY(made.status());
  return of_sequences(tokenizer, *made);
}

/// A note for users who expect Loom to read fields of files without labels. "" if no file's name ends as
/// those of fields do.
std::string note_on_fields(const std::vector<std::string>& files) {
  for (const std::string& path : files) {
    const std::string extension = std::filesystem::path(path).extension().string();
    if (extension == ".jsonl" || extension == ".csv")
      return fmt::format(
          "{} is taken as it stands, as one plain text: only --labels and --completions read fields, so "
          "other texts must be in files of their own, without {}",
          path, extension == ".jsonl" ? "JSON" : "columns");
  }
  return "";
}

/// Before anything of the folder is replaced or removed.
Status check_place(const std::vector<std::string>& files, const std::string& folder) {
  LOOM_TRY(train::expect_place_for(train::Made::dataset, folder));
  for (const std::filesystem::path path : files) {
    std::error_code none;
    const std::filesystem::path beside = path.has_parent_path() ? path.parent_path() : ".";
    if (text::is_tokenizer_file(path.filename().string()) &&
        std::filesystem::equivalent(beside, folder, none))
      return fail(Code::invalid_argument,
                  "{} would be replaced by the dataset's tokenizer: name another folder", path.string());
  }
  return {};
}

}  // namespace

Result<DatasetSummary> make_dataset(const std::vector<std::string>& files, const std::string& folder,
                                    const DatasetOptions& options) {
  LOOM_TRY(not_negative("train_vocabulary", options.train_vocabulary));
  LOOM_TRY(not_negative("threads", options.threads));
  LOOM_TRY(check_place(files, folder));
  Result<std::shared_ptr<const text::Tokenizer>> tokenizer = std::shared_ptr<const text::Tokenizer>();
  if (options.train_vocabulary == 0) tokenizer = text::open_tokenizer(options.tokenizer);
  LOOM_TRY(tokenizer.status());  // before a pipe is waited for
  const Result<Input> input = read_input(files, options);
  LOOM_TRY(input.status());
  if (options.train_vocabulary > 0) tokenizer = trained_tokenizer(*input, options.train_vocabulary);
  LOOM_TRY(tokenizer.status());
  if (options.completions) return make_completions(input->completions, folder, **tokenizer, options);
  if (options.labels) return make_examples(input->labelled, folder, **tokenizer, options);
  text::TokenizeOptions settings;
  settings.validation_fraction = options.validation_fraction;
  settings.threads = options.threads;
  const Result<text::TokenizeSummary> summary =
      text::tokenize_texts(input->files, folder, **tokenizer, settings);
  LOOM_TRY(summary.status());
  DatasetSummary made;
  made.train_tokens = summary->train_tokens;
  made.validation_tokens = summary->validation_tokens;
  made.train_bytes = summary->train_bytes;
  made.validation_bytes = summary->validation_bytes;
  made.tokenizer = (*tokenizer)->description();
  made.vocabulary = (*tokenizer)->vocabulary_size();
  made.note = note_on_fields(files);
  return made;
}

Result<double> bigram_baseline(const std::string& folder, uint64_t tokens) {
  return text::bigram_baseline(folder, tokens);
}

}  // namespace loom
