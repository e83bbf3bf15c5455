// A model that is only asked: one engine at a time, made for the shape of what is asked.
#include "loom/model.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/control_group.h"
#include "engine/engine.h"
#include "model/hugging_face.h"
#include "model/inference.h"
#include "model/model_file.h"
#include "model/objectives/objective.h"
#include "text/batches.h"
#include "text/bigram.h"
#include "text/completions.h"
#include "text/examples.h"
#include "text/same_tokenizer.h"
#include "text/tokenizer.h"
#include "train/classes.h"
#include "train/folders.h"

namespace loom {
namespace {

using Told = std::function<void(int64_t done, int64_t all)>;

/// What has no order cannot be sorted.
Status check_finite(std::span<const float> logits) {
  for (size_t i = 0; i < logits.size(); ++i)
    if (!std::isfinite(logits[i]))
      return fail(Code::not_finite, "logit {} is {}: the model's weights are damaged, or have diverged", i,
                  logits[i]);
  return {};
}

/// A token drawn from softmax(logits / temperature) among the `top_k` largest; the largest at temperature 0.
/// A model's vocabulary may be larger than its tokenizer's, whose tokens alone are drawn.
Result<int32_t> draw(const std::vector<float>& logits, const text::Tokenizer& tokenizer,
                     const SamplingOptions& options, uint64_t number) {
  LOOM_TRY(check_finite(logits));
  std::vector<int32_t> order;
  for (size_t token = 0; token < logits.size(); ++token)
    if (tokenizer.has(static_cast<text::Token>(token))) order.push_back(static_cast<int32_t>(token));
  if (order.empty())
    return fail(Code::invalid_data, "the tokenizer has none of the model's {} tokens", logits.size());
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
  std::vector<std::string> label_names;  // of a classification
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::unique_ptr<engine::Groups> groups;
  std::unique_ptr<engine::Engine> engine;
  std::unique_ptr<model::Inference> inference;
  std::vector<std::string> notes;

  Result<format::SafetensorsReader> open_tensors() {
    Result<model::ModelFile> file = model::open_model_file(folder, spec);
    LOOM_TRY(file.status());
    notes = std::move(file->notes);
    return std::move(file->tensors);
  }
  /// Reads token by token, or classifies.
  Result<model::Inference*> reader() {
    if (inference == nullptr) {
      engine.reset();  // first, so that two models are never there at once
      const Result<format::SafetensorsReader> file = open_tensors();
      LOOM_TRY(file.status());
      Result<std::unique_ptr<model::Inference>> opened = model::Inference::create(spec, *file, threads);
      LOOM_TRY(opened.status());
      inference = opened.take();
    }
    return inference.get();
  }
  /// Mean of the losses of a source's first `sequences`, in batches of `batch`; the last may be smaller.
  Result<double> mean_loss(const text::BatchSource& source, int64_t sequences, int64_t batch, int64_t tokens,
                           bool packed, const Told& tell) {
    double sum = 0, counted = 0;
    for (int64_t done = 0; done < sequences;) {
      const int64_t rows = std::min(batch, sequences - done);
      const auto step = static_cast<uint64_t>(done / batch);
      const Result<engine::Engine*> with = engine_for(rows, tokens, packed);
      LOOM_TRY(with.status());
      LOOM_TRY(source.read(step, {0, rows}, (*with)->tokens(0), (*with)->targets(0)));
      const auto targets = static_cast<double>(source.targets(step, rows));
      const Result<double> loss = (*with)->evaluate(targets);
      LOOM_TRY(loss.status());
      if (!std::isfinite(*loss))
        return fail(Code::not_finite,
                    "the loss of batch {} is {}: the model's weights are damaged, or have diverged",
                    done / batch + 1, *loss);
      sum += *loss * targets;
      counted += targets;
      done += rows;
      if (tell) tell((done - 1) / batch + 1, (sequences - 1) / batch + 1);
    }
    return sum / counted;
  }
  Status evaluate_classes(const std::string& dataset, int64_t batches, const Told& tell, Evaluation& result);

  /// The engine for this shape, with the weights in it.
  Result<engine::Engine*> engine_for(int64_t batch, int64_t tokens, bool packed) {
    if (engine != nullptr && engine->job().batch == batch && engine->job().tokens == tokens &&
        engine->job().packed == packed)
      return engine.get();
    engine.reset();
    inference.reset();
    program::Job job;
    job.spec = spec;
    job.batch = batch;
    job.tokens = tokens;
    job.packed = packed;
    job.targets = spec.objective().targets(tokens);
    Result<std::unique_ptr<engine::Engine>> made = engine::Engine::create(job, *groups, {.threads = threads});
    LOOM_TRY(made.status());
    const Result<format::SafetensorsReader> file = open_tensors();
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
  LOOM_TRY(train::expect(folder, train::Wanted::model));
  auto inside = std::make_unique<Inside>();
  inside->folder = folder;
  inside->threads = threads > 0 ? threads : available_cpus();
  const Result<format::Json> config = format::read_config(folder);
  LOOM_TRY(config.status());
  const Result<model::ModelSpec> spec = model::spec_from_config(*config);
  LOOM_TRY(spec.status().in(folder));
  inside->spec = *spec;
  if (spec->objective().predicts_classes) {
    Result<text::ModelClasses> classes = train::classes_of(*config, folder);
    LOOM_TRY(classes.status());
    inside->label_names = std::move(classes->names);
  }
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
  LOOM_TRY(at_least_one("the batch", options.batch));
  LOOM_TRY(not_negative("sequence_length", options.sequence_length));
  LOOM_TRY(not_negative("batches", options.batches));
  LOOM_TRY(train::expect(dataset, train::Wanted::dataset));
  Evaluation result;
  result.batch = options.batch;
  result.tokens = options.sequence_length > 0 ? options.sequence_length : context();
  const model::Objective& objective = inside_->spec.objective();
  result.masked = objective.rows == model::HeadRows::with_targets;
  if (text::holds_examples(dataset)) {
    LOOM_TRY(inside_->evaluate_classes(dataset, options.batches, options.tell, result));
    return result;
  }
  if (objective.predicts_classes)
    return fail(Code::invalid_argument,
                "the model classifies, but {} has no labels; `loom tokenize --labels` makes data that has",
                dataset);
  const auto tokenizer = text::open_tokenizer(dataset);
  LOOM_TRY(tokenizer.status());
  LOOM_TRY(text::check_tokenizer_of_model(inside_->folder, dataset, **tokenizer));
  LOOM_TRY(text::check_vocabulary_of_model(inside_->folder, vocabulary(), (*tokenizer)->vocabulary_size()));
  result.completions = text::holds_completions(dataset);
  if (result.completions && options.sequence_length == 0) {
    const auto texts = text::open_completions(dataset, text::Split::validation);
    LOOM_TRY(texts.status());
    constexpr int64_t kRoom = 512;  // for several short texts
    result.tokens = std::min(result.tokens, std::max(kRoom, static_cast<int64_t>((*texts)->longest())));
  }
  text::BatchOptions batches{result.tokens, result.batch, 0, false};
  batches.pack = result.completions;
  const auto source = objective.open({dataset, text::Split::validation, **tokenizer, batches});
  LOOM_TRY(source.status());
  const auto windows = static_cast<int64_t>((*source)->windows());
  const int64_t all = (windows - 1) / result.batch + 1;  // the last of what is left over
  result.batches = options.batches > 0 ? std::min(options.batches, all) : all;
  result.sequences = result.batches < all ? result.batches * result.batch : windows;
  const Result<double> loss =
      inside_->mean_loss(**source, result.sequences, result.batch, result.tokens, batches.pack, options.tell);
  LOOM_TRY(loss.status());
  result.loss = *loss;
  result.note = (*source)->note();
  if (objective.metric != model::Metric::loss_per_byte || result.completions) return result;
  const auto data = text::TokenDataset::open(dataset, text::Split::validation);
  LOOM_TRY(data.status());
  uint64_t tokens = (*data)->tokens(), bytes = (*data)->text_bytes();
  if (result.batches < all) {
    tokens = static_cast<uint64_t>(result.sequences * result.tokens + 1);  // a window has a target behind it
    const Result<uint64_t> part = text::text_bytes_of_part(dataset, **tokenizer, tokens);
    LOOM_TRY(part.status());
    bytes = std::max<uint64_t>(*part, 1);
  }
  result.loss_per_byte = result.loss * static_cast<double>(tokens) / static_cast<double>(bytes);
  return result;
}

/// Every text of the validation split once.
Status Model::Inside::evaluate_classes(const std::string& dataset, int64_t most, const Told& tell,
                                       Evaluation& result) {
  const Result<model::Inference*> opened = reader();
  LOOM_TRY(opened.status());
  const auto data = text::ExampleDataset::open(dataset, text::Split::validation);
  LOOM_TRY(data.status());
  result.labels = (*data)->label_names();
  if ((*data)->texts().vocabulary_size() > spec.vocabulary ||
      static_cast<int64_t>(result.labels.size()) != spec.labels)
    return fail(Code::invalid_argument,
                "the dataset has {} tokens and {} labels, the model {} and {}: not what it was trained on",
                (*data)->texts().vocabulary_size(), result.labels.size(), spec.vocabulary, spec.labels);
  LOOM_TRY(train::check_classes(result.labels, dataset, {label_names, folder}));
  const auto tokenizer_of_data = text::open_tokenizer(dataset);
  LOOM_TRY(tokenizer_of_data.status());
  LOOM_TRY(text::check_tokens_of(dataset, (*data)->texts().tokenizer_hash(), **tokenizer_of_data));
  LOOM_TRY(text::check_tokenizer_of_model(folder, dataset, **tokenizer_of_data));
  const auto batches = text::ExampleBatches::create(*data, {result.tokens, result.batch, 0, false});
  LOOM_TRY(batches.status());
  if (result.tokens > spec.context)
    return fail(Code::invalid_argument, "sequences of {} tokens, must be 1 to the model's context, {}",
                result.tokens, spec.context);
  const auto size = static_cast<int64_t>((*data)->texts().size());
  const int64_t all = most > 0 && most < size / result.batch + 1 ? std::min(size, most * result.batch) : size;
  std::vector<text::Token> inputs, targets;
  for (uint64_t step = 0; result.texts < all; ++step) {
    const int64_t rows = std::min(result.batch, all - result.texts);  // the last time those that are left
    inputs.resize(static_cast<size_t>(rows * result.tokens));
    targets.resize(inputs.size());
    LOOM_TRY(batches->read(step, {0, rows}, inputs, targets));
    const Result<std::vector<float>> logits = (*opened)->classify(inputs, rows, (*data)->texts().padding());
    LOOM_TRY(logits.status());
    LOOM_TRY(check_finite(*logits));
    ++result.batches;
    for (int64_t row = 0; row < rows; ++row, ++result.texts) {
      const auto first = logits->begin() + row * spec.labels, last = first + spec.labels;
      const auto best = std::max_element(first, last);
      const int32_t wanted = targets[static_cast<size_t>(row * result.tokens)];
      result.right += best - first == wanted ? 1 : 0;
      double sum = 0;
      for (auto logit = first; logit != last; ++logit) sum += std::exp(static_cast<double>(*logit - *best));
      result.loss += std::log(sum) + static_cast<double>(*best - first[wanted]);
    }
    if (tell) tell(result.batches, (all - 1) / result.batch + 1);
  }
  result.sequences = result.texts;
  result.loss /= static_cast<double>(result.texts);
  return {};
}

const std::vector<std::string>& Model::notes() const { return inside_->notes; }

std::vector<std::string> Model::labels() const {
  std::vector<std::string> names = inside_->label_names;
  if (names != text::unnamed_classes(inside_->spec.labels)) return names;
  names.clear();
  for (int64_t label = 0; label < inside_->spec.labels; ++label) names.push_back(fmt::format("{}", label));
  return names;
}

Result<std::vector<ClassProbability>> Model::classify(const std::string& text) {
  const Result<model::Inference*> opened = inside_->reader();
  LOOM_TRY(opened.status());
  if (inside_->tokenizer == nullptr)
    return fail(Code::not_found, "{}: no tokenizer beside the model", inside_->folder);
  std::vector<text::Token> tokens = text::example_tokens(text, *inside_->tokenizer);
  if (tokens.empty()) return fail(Code::invalid_argument, "the text is empty, must have a token");
  std::vector<text::Token> cut(std::min(tokens.size(), static_cast<size_t>(context())));
  text::copy_example(tokens, inside_->tokenizer->sequence_template().after.size(), cut);
  tokens = std::move(cut);
  const Result<std::vector<float>> logits = (*opened)->classify(tokens, 1, inside_->spec.padding);
  LOOM_TRY(logits.status());
  LOOM_TRY(check_finite(*logits));
  const float best = *std::max_element(logits->begin(), logits->end());
  double sum = 0;
  for (const float logit : *logits) sum += std::exp(static_cast<double>(logit - best));
  const std::vector<std::string> names = labels();
  std::vector<ClassProbability> classes;
  for (size_t label = 0; label < names.size(); ++label)
    classes.push_back({names[label], std::exp(static_cast<double>((*logits)[label] - best)) / sum});
  std::stable_sort(classes.begin(), classes.end(), [](const ClassProbability& a, const ClassProbability& b) {
    return a.probability > b.probability;
  });
  return classes;
}

Result<std::vector<float>> Model::logits(std::span<const int32_t> tokens) {
  if (tokens.empty()) return fail(Code::invalid_argument, "there are no tokens to go on from");
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= vocabulary())
      return fail(Code::invalid_argument, "token {} is {}, must be from 0 to {}", i, tokens[i],
                  vocabulary() - 1);
  LOOM_TRY(model::check_continues(inside_->spec));
  const Result<engine::Engine*> engine = inside_->engine_for(1, context(), false);
  LOOM_TRY(engine.status());
  const auto length = std::min<int64_t>(context(), static_cast<int64_t>(tokens.size()));
  const std::span<int32_t> input = (*engine)->tokens(0);
  std::fill(input.begin(), input.end(), 0);  // behind the last token nothing is seen
  std::copy(tokens.end() - length, tokens.end(), input.begin());
  return (*engine)->logits(length - 1);
}

Result<std::string> Model::sample(const std::string& prompt, const SamplingOptions& options) {
  if (!std::isfinite(options.temperature) || options.temperature < 0)
    return fail(Code::invalid_argument, "temperature is {}, must be a number from 0 on", options.temperature);
  if (options.top_k < 0)
    return fail(Code::invalid_argument, "top_k is {}, must be from 0 on; 0 draws among all", options.top_k);
  if (options.tokens < 0)
    return fail(Code::invalid_argument, "{} tokens are asked for, must be from 0 on", options.tokens);
  const Result<model::Inference*> opened = inside_->reader();
  LOOM_TRY(opened.status());
  model::Inference& model = **opened;
  if (inside_->tokenizer == nullptr)
    return fail(Code::not_found, "{}: no tokenizer beside the model", inside_->folder);
  const text::Tokenizer& tokenizer = *inside_->tokenizer;
  std::vector<int32_t> tokens = tokenizer.encode_document(prompt);
  if (tokens.empty()) tokens = tokenizer.encode("\n");
  // Word pieces have no white space; what ends a text stands before the next one.
  if (tokens.empty() && tokenizer.end_of_text()) tokens.push_back(*tokenizer.end_of_text());
  if (tokens.empty()) return fail(Code::invalid_argument, "the prompt has no tokens, must have one");
  model.restart();
  size_t fed = 0;
  for (int64_t made = 0; made < options.tokens; ++made) {
    // A full context goes on with its later half, which is read again from the beginning.
    if (model.position() + static_cast<int64_t>(tokens.size() - fed) > context()) {
      const size_t kept = static_cast<size_t>(std::max<int64_t>(1, context() / 2));
      fed = tokens.size() - std::min(tokens.size(), kept);
      model.restart();
    }
    std::vector<float> scores;
    for (; fed < tokens.size(); ++fed) {
      Result<std::vector<float>> next = model.feed(tokens[fed]);
      LOOM_TRY(next.status());
      scores = next.take();
    }
    const Result<int32_t> token = draw(scores, tokenizer, options, static_cast<uint64_t>(made));
    LOOM_TRY(token.status());
    tokens.push_back(*token);
    if (tokens.back() == tokenizer.end_of_text()) break;
  }
  return decode(std::span<const int32_t>(tokens).subspan(tokenizer.begun(tokens)));
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
