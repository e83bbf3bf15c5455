// loom tokenize, loom inspect.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/file.h"
#include "format/checkpoints.h"
#include "format/safetensors_reader.h"
#include "loom/commands.h"
#include "text/bpe_trainer.h"
#include "text/examples.h"
#include "text/tokenize_files.h"

namespace loom::command {

Status tokenize(const TokenizeOptions& options) {
  Result<std::shared_ptr<const text::Tokenizer>> tokenizer =
      [&]() -> Result<std::shared_ptr<const text::Tokenizer>> {
    if (options.train_vocabulary == 0) return text::open_tokenizer(options.tokenizer);
    text::BpeTraining settings;
    settings.vocabulary_size = options.train_vocabulary;
    Result<text::BpeTrainer> trainer = text::BpeTrainer::create(settings);
    LOOM_TRY(trainer.status());
    for (const std::string& path : options.files) {
      if (options.labels) {
        const Result<std::vector<text::Example>> examples = text::read_examples(path);
        LOOM_TRY(examples.status());
        for (const text::Example& example : *examples) trainer->add(example.text + "\n");
        continue;
      }
      const Result<std::string> content = read_file(path);
      LOOM_TRY(content.status());
      LOOM_TRY(text::check_text(*content).in(path));
      trainer->add(*content);
    }
    Result<std::shared_ptr<const text::BpeTokenizer>> made = trainer->train();
    LOOM_TRY(made.status());
    return std::shared_ptr<const text::Tokenizer>(made.take());
  }();
  LOOM_TRY(tokenizer.status());
  if (options.labels) {
    const Result<text::ExampleSummary> made =
        text::tokenize_examples(options.files, options.out, **tokenizer, options.validation);
    LOOM_TRY(made.status());
    fmt::print("{}: {} texts to train on, {} to validate with; {} labels: {}; {}\n", options.out, made->train,
               made->validation, made->labels.size(), fmt::join(made->labels, ", "),
               (*tokenizer)->description());
    return {};
  }
  text::TokenizeOptions settings;
  settings.validation_fraction = options.validation;
  const Result<text::TokenizeSummary> summary =
      text::tokenize_files(options.files, options.out, **tokenizer, settings);
  LOOM_TRY(summary.status());
  fmt::print("{}: {} tokens of {} bytes to train on, {} of {} to validate with; {}\n", options.out,
             summary->train_tokens, summary->train_bytes, summary->validation_tokens,
             summary->validation_bytes, (*tokenizer)->description());
  return {};
}

Status inspect(const std::string& path) {
  if (is_folder(path) && is_file(join_path(path, "manifest.json"))) {
    const Result<format::Json> manifest = format::read_manifest(path);
    LOOM_TRY(manifest.status());
    fmt::print("a complete checkpoint\n{}\n", manifest->dump(2));
    return {};
  }
  const Result<format::SafetensorsReader> file = format::SafetensorsReader::open(path);
  LOOM_TRY(file.status());
  uint64_t elements = 0;
  for (const std::string& name : file->names()) {
    const Result<format::TensorView> tensor = file->tensor(name);
    LOOM_TRY(tensor.status());
    fmt::print("{:<5} [{}]  {}\n", format::dtype_name(tensor->dtype), fmt::join(tensor->shape, ", "), name);
    elements += tensor->elements();
  }
  fmt::print("{} tensors, {} elements, {} files\n", file->names().size(), elements, file->files().size());
  return {};
}

}  // namespace loom::command
