// loom eval, loom sample: what a model in Hugging Face's form says, on one rank.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <thread>

#include "engine/engine.h"
#include "loom/commands.h"
#include "model/hugging_face.h"
#include "model/inference.h"
#include "text/batches.h"
#include "text/bigram.h"
#include "text/examples.h"
#include "text/masked_batches.h"
#include "text/tokenizer.h"
#include "train/data.h"

namespace loom::command {
namespace {

int thread_count() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

/// A model ready to compute.
struct Loaded {
  std::unique_ptr<engine::Groups> groups;
  std::unique_ptr<engine::Engine> engine;
};

Result<Loaded> load(const std::string& folder, int64_t batch, int64_t tokens) {
  const Result<format::Json> config = format::read_config(folder);
  LOOM_TRY(config.status());
  const Result<model::ModelSpec> spec = model::spec_from_config(*config);
  LOOM_TRY(spec.status().in(folder));
  program::Job job;
  job.spec = *spec;
  job.batch = batch;
  job.tokens = tokens > 0 ? tokens : spec->context;
  if (spec->task == model::Task::masked) job.targets = text::masked_targets(job.tokens);
  Loaded loaded;
  Result<engine::Groups> groups = engine::Groups::create(nullptr, 1, false);
  LOOM_TRY(groups.status());
  loaded.groups = std::make_unique<engine::Groups>(groups.take());
  Result<std::unique_ptr<engine::Engine>> engine =
      engine::Engine::create(job, *loaded.groups, thread_count());
  LOOM_TRY(engine.status());
  loaded.engine = engine.take();
  const Result<format::SafetensorsReader> file = format::SafetensorsReader::open(folder);
  LOOM_TRY(file.status());
  LOOM_TRY(loaded.engine->load_model(*file));
  return loaded;
}

/// A token drawn from softmax(logits / temperature) among the `top_k` largest; the largest at temperature 0.
int32_t draw(const std::vector<float>& logits, double temperature, int64_t top_k, ops::RandomKey key,
             uint64_t number) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  if (temperature <= 0) return order[0];
  if (top_k > 0) order.resize(std::min<size_t>(order.size(), static_cast<size_t>(top_k)));
  std::vector<double> sums;
  double sum = 0;
  for (const int32_t token : order)
    sums.push_back(
        sum +=
        std::exp((static_cast<double>(logits[token]) - static_cast<double>(logits[order[0]])) / temperature));
  const double at = static_cast<double>(ops::uniform(ops::random_word(key, number))) * sum;
  const auto found = std::upper_bound(sums.begin(), sums.end(), at);
  return order[std::min<size_t>(static_cast<size_t>(found - sums.begin()), order.size() - 1)];
}

/// Accuracy over all texts of the validation split, each once.
Status evaluate_classes(const EvaluateOptions& options) {
  Result<std::unique_ptr<model::Inference>> opened = model::Inference::open(options.model, thread_count());
  LOOM_TRY(opened.status());
  model::Inference& model = **opened;
  const auto data = text::ExampleDataset::open(options.data, text::Split::validation);
  LOOM_TRY(data.status());
  const model::ModelSpec& spec = model.spec();
  if ((*data)->vocabulary_size() > spec.vocabulary ||
      static_cast<int64_t>((*data)->label_names().size()) != spec.labels)
    return fail(Code::invalid_argument,
                "the dataset has {} tokens and {} labels, the model {} and {}: not what it was trained on",
                (*data)->vocabulary_size(), (*data)->label_names().size(), spec.vocabulary, spec.labels);
  const int64_t length = options.sequence_length > 0 ? options.sequence_length : spec.context;
  text::BatchOptions settings{length, options.batch, 0, false};
  const auto batches = text::ExampleBatches::create(*data, settings);
  LOOM_TRY(batches.status());
  std::vector<text::Token> inputs(static_cast<size_t>(options.batch * length)), targets(inputs.size());
  uint64_t right = 0, seen = 0;
  const uint64_t all =
      options.batches > 0
          ? std::min<uint64_t>((*data)->size(), static_cast<uint64_t>(options.batches * options.batch))
          : (*data)->size();
  double loss = 0;
  for (uint64_t step = 0; seen < all; ++step) {
    LOOM_TRY(batches->read(step, {0, options.batch}, inputs, targets));
    const Result<std::vector<float>> logits = model.classify(inputs, options.batch);
    LOOM_TRY(logits.status());
    for (int64_t row = 0; row < options.batch && seen < all; ++row, ++seen) {
      const auto first = logits->begin() + row * spec.labels, last = first + spec.labels;
      const auto best = std::max_element(first, last);
      const int32_t wanted = targets[static_cast<size_t>(row * length)];
      right += static_cast<uint64_t>(best - first == wanted);
      double sum = 0;
      for (auto logit = first; logit != last; ++logit) sum += std::exp(static_cast<double>(*logit - *best));
      loss += std::log(sum) + static_cast<double>(*best - first[wanted]);
    }
  }
  fmt::print("validation accuracy {:.4f} ({} of {} texts), loss {:.4f} nats; {} labels: {}\n",
             static_cast<double>(right) / static_cast<double>(seen), right, seen,
             loss / static_cast<double>(seen), spec.labels, fmt::join((*data)->label_names(), ", "));
  return {};
}

/// Mean loss over hidden tokens.
Status evaluate_masked(const EvaluateOptions& options, engine::Engine& engine) {
  const auto tokenizer = text::open_tokenizer(options.data);
  LOOM_TRY(tokenizer.status());
  const auto batches = train::open_batches(options.data, text::Split::validation, model::Task::masked,
                                           **tokenizer, {engine.job().tokens, options.batch, 0, false});
  LOOM_TRY(batches.status());
  const int64_t all = std::max<int64_t>(1, static_cast<int64_t>((*batches)->windows()) / options.batch);
  const int64_t count = options.batches > 0 ? std::min(options.batches, all) : all;
  double sum = 0;
  for (int64_t step = 0; step < count; ++step) {
    LOOM_TRY((*batches)->read(static_cast<uint64_t>(step), {0, options.batch}, engine.tokens(0),
                              engine.targets(0)));
    const Result<double> loss = engine.evaluate();
    LOOM_TRY(loss.status());
    sum += *loss;
  }
  const double loss = sum / static_cast<double>(count);
  fmt::print("validation loss {:.4f} nats a hidden token, perplexity {:.2f}; {} batches of {} x {} tokens\n",
             loss, std::exp(loss), count, options.batch, engine.job().tokens);
  return {};
}

}  // namespace

Status evaluate(const EvaluateOptions& options) {
  if (text::holds_examples(options.data)) return evaluate_classes(options);
  Result<Loaded> loaded = load(options.model, options.batch, options.sequence_length);
  LOOM_TRY(loaded.status());
  engine::Engine& engine = *loaded->engine;
  if (engine.job().spec.task == model::Task::classification)
    return fail(Code::invalid_argument,
                "the model classifies, but {} has no labels; `loom tokenize --labels` makes data that has",
                options.data);
  const auto data = text::TokenDataset::open(options.data, text::Split::validation);
  LOOM_TRY(data.status());
  if ((*data)->vocabulary_size() > engine.job().spec.vocabulary)
    return fail(Code::invalid_argument,
                "the dataset's vocabulary has {} tokens, the model's {}: not its tokenizer",
                (*data)->vocabulary_size(), engine.job().spec.vocabulary);
  if (engine.job().spec.task == model::Task::masked) return evaluate_masked(options, engine);
  const auto batches = text::Batches::create(*data, {engine.job().tokens, options.batch, 0, false});
  LOOM_TRY(batches.status());
  const int64_t all = std::max<int64_t>(1, static_cast<int64_t>(batches->windows()) / options.batch);
  const int64_t count = options.batches > 0 ? std::min(options.batches, all) : all;
  double sum = 0;
  for (int64_t step = 0; step < count; ++step) {
    LOOM_TRY(
        batches->read(static_cast<uint64_t>(step), {0, options.batch}, engine.tokens(0), engine.targets(0)));
    const Result<double> loss = engine.evaluate();
    LOOM_TRY(loss.status());
    sum += *loss;
  }
  const double loss = sum / static_cast<double>(count);
  const double bytes = static_cast<double>((*data)->text_bytes()),
               tokens = static_cast<double>((*data)->tokens());
  fmt::print(
      "validation loss {:.4f} nats a token, perplexity {:.2f}, {:.4f} nats a byte; {} batches of {} x {} "
      "tokens\n",
      loss, std::exp(loss), loss * tokens / bytes, count, options.batch, engine.job().tokens);
  if (!options.baseline) return {};
  const Result<double> baseline = text::bigram_baseline(options.data);
  LOOM_TRY(baseline.status());
  fmt::print("a model of byte pairs, trained on the same text: {:.4f} nats a byte\n", *baseline);
  return {};
}

Status sample(const SampleOptions& options) {
  Result<std::unique_ptr<model::Inference>> opened = model::Inference::open(options.model, thread_count());
  LOOM_TRY(opened.status());
  model::Inference& model = **opened;
  const auto tokenizer = text::open_tokenizer(options.model);
  LOOM_TRY(tokenizer.status());
  std::vector<text::Token> tokens = (*tokenizer)->encode(options.prompt);
  if (tokens.empty()) tokens = (*tokenizer)->encode("\n");
  const ops::RandomKey key{options.seed, 0, 0};
  size_t fed = 0;
  for (int64_t made = 0; made < options.tokens; ++made) {
    // A full context goes on with its later half, which is read again from the beginning.
    if (model.position() + static_cast<int64_t>(tokens.size() - fed) > model.spec().context) {
      const size_t kept = static_cast<size_t>(std::max<int64_t>(1, model.spec().context / 2));
      fed = tokens.size() - std::min(tokens.size(), kept);
      model.restart();
    }
    std::vector<float> logits;
    for (; fed < tokens.size(); ++fed) {
      Result<std::vector<float>> next = model.feed(tokens[fed]);
      LOOM_TRY(next.status());
      logits = next.take();
    }
    tokens.push_back(draw(logits, options.temperature, options.top_k, key, static_cast<uint64_t>(made)));
    if (tokens.back() == (*tokenizer)->end_of_text()) break;
  }
  const Result<std::string> text = (*tokenizer)->decode(tokens);
  LOOM_TRY(text.status());
  fmt::print("{}\n", *text);
  return {};
}

}  // namespace loom::command
