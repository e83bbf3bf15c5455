// loom eval, loom sample: what a model in Hugging Face's form says, on one rank.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <thread>

#include "engine/engine.h"
#include "loom/commands.h"
#include "model/hugging_face.h"
#include "text/batches.h"
#include "text/bigram.h"
#include "text/tokenizer.h"

namespace loom::command {
namespace {

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
  Loaded loaded;
  Result<engine::Groups> groups = engine::Groups::create(nullptr, {}, false);
  LOOM_TRY(groups.status());
  loaded.groups = std::make_unique<engine::Groups>(groups.take());
  const int threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  Result<std::unique_ptr<engine::Engine>> engine = engine::Engine::create(job, *loaded.groups, threads);
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

}  // namespace

Status evaluate(const EvaluateOptions& options) {
  Result<Loaded> loaded = load(options.model, options.batch, options.sequence_length);
  LOOM_TRY(loaded.status());
  engine::Engine& engine = *loaded->engine;
  const auto data = text::TokenDataset::open(options.data, text::Split::validation);
  LOOM_TRY(data.status());
  if ((*data)->vocabulary_size() > engine.job().spec.vocabulary)
    return fail(Code::invalid_argument,
                "the dataset's vocabulary has {} tokens, the model's {}: not its tokenizer",
                (*data)->vocabulary_size(), engine.job().spec.vocabulary);
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
  Result<Loaded> loaded = load(options.model, 1, 0);
  LOOM_TRY(loaded.status());
  engine::Engine& engine = *loaded->engine;
  const auto tokenizer = text::open_tokenizer(options.model);
  LOOM_TRY(tokenizer.status());
  std::vector<text::Token> tokens = (*tokenizer)->encode(options.prompt);
  if (tokens.empty()) tokens = (*tokenizer)->encode("\n");
  const int64_t context = engine.job().tokens;
  const ops::RandomKey key{options.seed, 0, 0};
  for (int64_t made = 0; made < options.tokens; ++made) {
    const auto length = std::min<int64_t>(context, static_cast<int64_t>(tokens.size()));
    const std::span<int32_t> input = engine.tokens(0);
    std::fill(input.begin(), input.end(), 0);  // behind the last token nothing is seen
    std::copy(tokens.end() - length, tokens.end(), input.begin());
    const Result<std::vector<float>> logits = engine.logits(length - 1);
    LOOM_TRY(logits.status());
    tokens.push_back(draw(*logits, options.temperature, options.top_k, key, static_cast<uint64_t>(made)));
    if (tokens.back() == (*tokenizer)->end_of_text()) break;
  }
  const Result<std::string> text = (*tokenizer)->decode(tokens);
  LOOM_TRY(text.status());
  fmt::print("{}\n", *text);
  return {};
}

}  // namespace loom::command
