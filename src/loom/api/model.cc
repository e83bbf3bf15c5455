// A model that is only asked: one engine at a time, made for the shape of what is asked.
#include "loom/model.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <thread>

#include "engine/engine.h"
#include "model/hugging_face.h"
#include "text/batches.h"
#include "text/tokenizer.h"

namespace loom {
namespace {

/// A token drawn from softmax(logits / temperature) among the `top_k` largest; the largest at temperature 0.
int32_t draw(const std::vector<float>& logits, const SamplingOptions& options, uint64_t number) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  if (options.temperature <= 0) return order[0];
  if (options.top_k > 0) order.resize(std::min<size_t>(order.size(), static_cast<size_t>(options.top_k)));
  std::vector<double> sums;
  double sum = 0;
  for (const int32_t token : order) {
    const double below = static_cast<double>(logits[token]) - static_cast<double>(logits[order[0]]);
    sums.push_back(sum += std::exp(below / options.temperature));
  }
  const ops::RandomKey key{options.seed, 0, 0};
  const double at = static_cast<double>(ops::uniform(ops::random_word(key, number))) * sum;
  const auto found = std::upper_bound(sums.begin(), sums.end(), at);
  return order[std::min<size_t>(static_cast<size_t>(found - sums.begin()), order.size() - 1)];
}

}  // namespace

struct Model::Inside {
  std::string folder;
  int threads = 1;
  model::ModelSpec spec;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::unique_ptr<engine::Groups> groups;
  std::unique_ptr<engine::Engine> engine;

  /// The engine for this shape, with the weights in it.
  Result<engine::Engine*> engine_for(int64_t batch, int64_t tokens) {
    if (engine != nullptr && engine->job().batch == batch && engine->job().tokens == tokens)
      return engine.get();
    engine.reset();  // first, so that two models are never there at once
    program::Job job;
    job.spec = spec;
    job.batch = batch;
    job.tokens = tokens;
    Result<std::unique_ptr<engine::Engine>> made = engine::Engine::create(job, *groups, threads);
    LOOM_TRY(made.status());
    const Result<format::SafetensorsReader> file = format::SafetensorsReader::open(folder);
    LOOM_TRY(file.status());
    LOOM_TRY((*made)->load_model(*file));
    engine = made.take();
    return engine.get();
  }
};

Model::Model(std::unique_ptr<Inside> inside) : inside_(std::move(inside)) {}
Model::Model(Model&& other) noexcept = default;
Model& Model::operator=(Model&& other) noexcept = default;
Model::~Model() = default;

Result<Model> Model::open(const std::string& folder, int threads) {
  if (threads < 0) return fail(Code::invalid_argument, "threads is {}, must not be negative", threads);
  auto inside = std::make_unique<Inside>();
  inside->folder = folder;
  const int cpus = static_cast<int>(std::thread::hardware_concurrency());
  inside->threads = threads > 0 ? threads : std::max(1, cpus);
  const Result<format::Json> config = format::read_config(folder);
  LOOM_TRY(config.status());
  const Result<model::ModelSpec> spec = model::spec_from_config(*config);
  LOOM_TRY(spec.status().in(folder));
  inside->spec = *spec;
  Result<engine::Groups> groups = engine::Groups::create(nullptr, {}, false);
  LOOM_TRY(groups.status());
  inside->groups = std::make_unique<engine::Groups>(groups.take());
  // Models that Loom did not save may come without one; it is missed where it is needed.
  Result<std::shared_ptr<const text::Tokenizer>> tokenizer = text::open_tokenizer(folder);
  if (tokenizer.ok()) inside->tokenizer = tokenizer.take();
  else if (tokenizer.status().code() != Code::not_found) return tokenizer.status();
  return Model(std::move(inside));
}

int64_t Model::context() const { return inside_->spec.context; }
int64_t Model::vocabulary() const { return inside_->spec.vocabulary; }

Result<Evaluation> Model::evaluate(const std::string& dataset, const EvaluationOptions& options) {
  if (options.batch < 1 || options.sequence_length < 0 || options.batches < 0)
    return fail(Code::invalid_argument,
                "the batch is {}, must be at least 1; sequence_length is {} and batches {}, must not be "
                "negative",
                options.batch, options.sequence_length, options.batches);
  const auto data = text::TokenDataset::open(dataset, text::Split::validation);
  LOOM_TRY(data.status());
  if ((*data)->vocabulary_size() > vocabulary())
    return fail(Code::invalid_argument,
                "the dataset's vocabulary has {} tokens, the model's {}: not its tokenizer",
                (*data)->vocabulary_size(), vocabulary());
  Evaluation result;
  result.batch = options.batch;
  result.tokens = options.sequence_length > 0 ? options.sequence_length : context();
  const Result<engine::Engine*> made = inside_->engine_for(result.batch, result.tokens);
  LOOM_TRY(made.status());
  engine::Engine& engine = **made;
  const auto batches = text::Batches::create(*data, {result.tokens, result.batch, 0, false});
  LOOM_TRY(batches.status());
  const int64_t all = std::max<int64_t>(1, static_cast<int64_t>(batches->windows()) / result.batch);
  result.batches = options.batches > 0 ? std::min(options.batches, all) : all;
  double sum = 0;
  for (int64_t step = 0; step < result.batches; ++step) {
    LOOM_TRY(
        batches->read(static_cast<uint64_t>(step), {0, result.batch}, engine.tokens(0), engine.targets(0)));
    const Result<double> loss = engine.evaluate();
    LOOM_TRY(loss.status());
    sum += *loss;
  }
  result.loss = sum / static_cast<double>(result.batches);
  result.loss_per_byte =
      result.loss * static_cast<double>((*data)->tokens()) / static_cast<double>((*data)->text_bytes());
  return result;
}

Result<std::vector<float>> Model::logits(std::span<const int32_t> tokens) {
  if (tokens.empty()) return fail(Code::invalid_argument, "there are no tokens to go on from");
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= vocabulary())
      return fail(Code::invalid_argument, "token {} is {}, must be from 0 to {}", i, tokens[i],
                  vocabulary() - 1);
  const Result<engine::Engine*> engine = inside_->engine_for(1, context());
  LOOM_TRY(engine.status());
  const auto length = std::min<int64_t>(context(), static_cast<int64_t>(tokens.size()));
  const std::span<int32_t> input = (*engine)->tokens(0);
  std::fill(input.begin(), input.end(), 0);  // behind the last token nothing is seen
  std::copy(tokens.end() - length, tokens.end(), input.begin());
  return (*engine)->logits(length - 1);
}

Result<std::string> Model::sample(const std::string& prompt, const SamplingOptions& options) {
  if (!std::isfinite(options.temperature) || options.top_k < 0 || options.tokens < 0)
    return fail(Code::invalid_argument,
                "temperature is {}, must be a number; top_k is {} and tokens {}, must not be negative",
                options.temperature, options.top_k, options.tokens);
  Result<std::vector<int32_t>> tokens = encode(prompt.empty() ? "\n" : prompt);
  LOOM_TRY(tokens.status());
  for (int64_t made = 0; made < options.tokens; ++made) {
    const Result<std::vector<float>> scores = logits(*tokens);
    LOOM_TRY(scores.status());
    tokens->push_back(draw(*scores, options, static_cast<uint64_t>(made)));
    if (tokens->back() == inside_->tokenizer->end_of_text()) break;
  }
  return decode(*tokens);
}

Result<std::vector<int32_t>> Model::encode(const std::string& text) const {
  if (inside_->tokenizer == nullptr)
    return fail(Code::not_found, "{}: no tokenizer beside the model", inside_->folder);
  return inside_->tokenizer->encode(text);
}

Result<std::string> Model::decode(std::span<const int32_t> tokens) const {
  if (inside_->tokenizer == nullptr)
    return fail(Code::not_found, "{}: no tokenizer beside the model", inside_->folder);
  return inside_->tokenizer->decode(tokens);
}

}  // namespace loom
