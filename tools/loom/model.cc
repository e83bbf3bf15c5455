// loom eval, loom sample: what a model in Hugging Face's form says, on one rank.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <loom/dataset.h>
#include <loom/model.h>

#include <algorithm>
#include <cmath>

#include "loom/commands.h"
#include "loom/progress.h"

namespace loom::command {
namespace {

/// On standard error: what is asked for is on standard output.
void print_notes(const Model& model) {
  for (const std::string& note : model.notes()) fmt::print(stderr, "note: {}\n", note);
}

}  // namespace

Status evaluate(const EvaluateOptions& options) {
  Result<Model> model = Model::open(options.model);
  LOOM_TRY(model.status());
  EvaluationOptions settings{options.sequence_length, options.batch, options.batches};
  settings.tell = Progress("batches");
  const Result<Evaluation> result = model->evaluate(options.data, settings);
  print_notes(*model);
  LOOM_TRY(result.status());
  if (result->texts > 0) {
    fmt::print("validation accuracy {:.4f} ({} of {} texts), loss {:.4f} nats; {} labels: {}\n",
               static_cast<double>(result->right) / static_cast<double>(result->texts), result->right,
               result->texts, result->loss, result->labels.size(), fmt::join(result->labels, ", "));
    return {};
  }
  if (!result->note.empty()) fmt::print(stderr, "note: {}\n", result->note);
  if (options.baseline && (result->completions || result->masked || result->texts > 0))
    fmt::print(stderr, "note: --baseline is of plain text for causal models, not of this dataset\n");
  const int64_t at_a_time = std::min(result->batch, result->sequences);
  if (result->completions) {
    fmt::print(
        "validation loss {:.4f} nats a token of a completion, perplexity {:.2f}; {} sequences of {} "
        "tokens, {} at a time\n",
        result->loss, std::exp(result->loss), result->sequences, result->tokens, at_a_time);
    return {};
  }
  if (result->masked) {
    fmt::print(
        "validation loss {:.4f} nats a hidden token, perplexity {:.2f}; {} sequences of {} tokens, {} at a "
        "time\n",
        result->loss, std::exp(result->loss), result->sequences, result->tokens, at_a_time);
    return {};
  }
  fmt::print(
      "validation loss {:.4f} nats a token, perplexity {:.2f}, {:.4f} nats a byte; {} sequences of {} "
      "tokens, {} at a time\n",
      result->loss, std::exp(result->loss), result->loss_per_byte, result->sequences, result->tokens,
      at_a_time);
  if (!options.baseline) return {};
  // Of the text that the model was asked about: a window has a target behind its last token.
  const Result<double> baseline =
      bigram_baseline(options.data, static_cast<uint64_t>(result->sequences * result->tokens + 1));
  LOOM_TRY(baseline.status());
  fmt::print("a model of byte pairs, trained on the same text: {:.4f} nats a byte\n", *baseline);
  return {};
}

Status sample(const SampleOptions& options) {
  Result<Model> model = Model::open(options.model);
  LOOM_TRY(model.status());
  if (!model->labels().empty()) {
    const Result<std::vector<ClassProbability>> classes = model->classify(options.prompt);
    print_notes(*model);
    LOOM_TRY(classes.status());
    for (const ClassProbability& one : *classes) fmt::print("{:.4f}  {}\n", one.probability, one.label);
    return {};
  }
  const Result<std::string> text =
      model->sample(options.prompt, {options.tokens, options.temperature, options.top_k, options.seed});
  print_notes(*model);
  LOOM_TRY(text.status());
  fmt::print("{}\n", *text);
  return {};
}

}  // namespace loom::command
