// Text files to datasets.
#include "loom/dataset.h"

#include "base/check.h"
#include "base/mapped_file.h"
#include "text/bigram.h"
#include "text/bpe_trainer.h"
#include "text/examples.h"
#include "text/tokenize_files.h"
#include "text/tokenizer.h"

namespace loom {
namespace {

Result<std::shared_ptr<const text::Tokenizer>> trained_tokenizer(const std::vector<std::string>& files,
                                                                 int64_t vocabulary, bool labels) {
  text::BpeTraining settings;
  settings.vocabulary_size = vocabulary;
  Result<text::BpeTrainer> trainer = text::BpeTrainer::create(settings);
  LOOM_TRY(trainer.status());
  for (const std::string& path : files) {
    if (labels) {
      const Result<std::vector<text::Example>> examples = text::read_examples(path);
      LOOM_TRY(examples.status());
      for (const text::Example& example : *examples) trainer->add(example.text + "\n");
      continue;
    }
    const Result<MappedFile> file = MappedFile::open(path);
    LOOM_TRY(file.status());
    LOOM_TRY(text::check_text(file->text()).in(path));
    trainer->add(file->text());
  }
  Result<std::shared_ptr<const text::BpeTokenizer>> made = trainer->train();
  LOOM_TRY(made.status());
  return std::shared_ptr<const text::Tokenizer>(made.take());
}

}  // namespace

Result<DatasetSummary> make_dataset(const std::vector<std::string>& files, const std::string& folder,
                                    const DatasetOptions& options) {
  LOOM_TRY(not_negative("train_vocabulary", options.train_vocabulary));
  LOOM_TRY(not_negative("threads", options.threads));
  const Result<std::shared_ptr<const text::Tokenizer>> tokenizer =
      options.train_vocabulary > 0 ? trained_tokenizer(files, options.train_vocabulary, options.labels)
                                   : text::open_tokenizer(options.tokenizer);
  LOOM_TRY(tokenizer.status());
  if (options.labels) {
    const Result<text::ExampleSummary> made =
        text::tokenize_examples(files, folder, **tokenizer, options.validation_fraction);
    LOOM_TRY(made.status());
    DatasetSummary summary;
    summary.tokenizer = (*tokenizer)->description();
    summary.train_texts = made->train;
    summary.validation_texts = made->validation;
    summary.labels = made->labels;
    summary.vocabulary = (*tokenizer)->vocabulary_size();
    return summary;
  }
  text::TokenizeOptions settings;
  settings.validation_fraction = options.validation_fraction;
  settings.threads = options.threads;
  const Result<text::TokenizeSummary> summary = text::tokenize_files(files, folder, **tokenizer, settings);
  LOOM_TRY(summary.status());
  DatasetSummary made;
  made.train_tokens = summary->train_tokens;
  made.validation_tokens = summary->validation_tokens;
  made.train_bytes = summary->train_bytes;
  made.validation_bytes = summary->validation_bytes;
  made.tokenizer = (*tokenizer)->description();
  made.vocabulary = (*tokenizer)->vocabulary_size();
  return made;
}

Result<double> bigram_baseline(const std::string& folder, uint64_t tokens) {
  return text::bigram_baseline(folder, tokens);
}

}  // namespace loom
