#include "model/inference.h"

#include <algorithm>

#include "base/process_memory.h"
#include "format/json_file.h"
#include "model/families.h"
#include "model/hugging_face.h"
#include "model/model_file.h"
#include "model/objectives/objective.h"
#include "ops/tables.h"

namespace loom::model {
namespace {

/// A config.json may ask for any sizes; the kernel would promise them, and end the process when they are
/// used.
Status check_memory(const char* what, double bytes) {
  const int64_t there = machine_bytes();
  if (bytes <= static_cast<double>(there)) return {};
  return fail(Code::out_of_memory, "{} take {:.0f} MiB, this machine has {} MiB", what, bytes / (1 << 20),
              there >> 20);
}

}  // namespace

Status check_continues(const ModelSpec& spec) {
  if (spec.objective().continues_texts) return {};
  return fail(Code::unsupported, "a {} model of task {} does not continue texts; a causal one would",
              family_name(spec.family), spec.objective().name);
}

Inference::Inference(const ModelSpec& spec, int threads)
    : spec_(spec),
      units_(units_of(spec)),
      workers_(std::make_unique<Workers>(threads)),
      runner_(spec, Share::whole(spec)) {
  pass_.context = *workers_;
  pass_.spec = &spec_;
}

Result<std::unique_ptr<Inference>> Inference::open(const std::string& folder, int threads) {
  const Result<format::Json> config = format::read_config(folder);
  LOOM_TRY(config.status());
  const Result<ModelSpec> spec = spec_from_config(*config);
  LOOM_TRY(spec.status().in(folder));
  const Result<ModelFile> file = open_model_file(folder, *spec);
  LOOM_TRY(file.status());
  return create(*spec, file->tensors, threads);
}

Result<std::unique_ptr<Inference>> Inference::create(const ModelSpec& spec,
                                                     const format::SafetensorsReader& file, int threads) {
  LOOM_TRY(ops::check_instructions());
  double elements = 0;
  for (const Unit& unit : units_of(spec)) elements += static_cast<double>(unit.elements);
  LOOM_TRY(check_memory("the model's parameters", elements * sizeof(float)));
  std::unique_ptr<Inference> model(new Inference(spec, threads));
  LOOM_TRY(model->workers_->started());
  for (const Unit& unit : model->units_) {
    model->parameters_.emplace_back(static_cast<size_t>(unit.elements));
    LOOM_TRY(read_parameters(file, unit, 0, model->parameters_.back()));
  }
  return model;
}

Status Inference::check_tokens(std::span<const int32_t> token) const {
  for (const int32_t one : token)
    if (one < 0 || one >= spec_.vocabulary)
      return fail(Code::invalid_argument, "token {} is not in the model's vocabulary, [0, {})", one,
                  spec_.vocabulary);
  return {};
}

void Inference::prepare(int64_t batch, int64_t tokens) {
  if (recipes_ && pass_.batch == batch && pass_.tokens == tokens) return;
  pass_.batch = batch;
  pass_.tokens = tokens;
  const RecipeSizes sizes = sizes_for<float>(Share::whole(spec_), batch, tokens);
  recipes_.emplace(spec_, sizes);
  layout_.emplace(spec_, sizes);
  const BufferSizes bytes = buffer_sizes(spec_, sizes, *recipes_);
  x_.resize(static_cast<size_t>(batch * tokens * spec_.width));
  y_.resize(x_.size());
  saved_.resize(static_cast<size_t>(bytes.saved));
  workspace_.resize(static_cast<size_t>(bytes.workspace));
}

void Inference::run_unit(const Unit& unit, const Recipe& recipe, Bound<float>& bound) {
  bound.parameters = parameters_[static_cast<size_t>(unit.index)].data();
  bound.tied_parameters = parameters_.front().data();
  bound.saved = saved_.data();
  bound.workspace = workspace_.data();
  bound.give(Given::input, x_.data());
  runner_.run(pass_, unit, recipe, recipe.forward, bound);
}

void Inference::derive(int64_t only_row) {
  arrays_.resize(static_cast<size_t>(layout_->bytes()));
  pass_.arrays = layout_->fill(token_.data(), nullptr, only_row, arrays_.data(), arrays_.data());
}

void Inference::run(std::span<const int32_t> token, int64_t batch, int64_t tokens) {
  prepare(batch, tokens);
  token_ = token;
  derive(-1);
  Bound<float> bound;
  bound.give(Given::tokens, token.data());
  bound.give(Given::output, x_.data());
  run_unit(units_.front(), recipes_->embedding, bound);
  const size_t past_of_layer = past_.size() / static_cast<size_t>(spec_.layers);
  for (size_t u = 1; u + 1 < units_.size(); ++u) {
    if (pass_.past != nullptr) pass_.past = past_.data() + (u - 1) * past_of_layer;
    bound.give(Given::output, y_.data());
    run_unit(units_[u], recipes_->block, bound);
    std::swap(x_, y_);
  }
}

std::vector<float> Inference::head_logits(int64_t row) {
  std::vector<float> logits(static_cast<size_t>(spec_.outputs()));
  Bound<float> bound;
  bound.give(Given::logits, logits.data());
  derive(row);
  run_unit(units_.back(), recipes_->logits, bound);
  return logits;
}

Result<std::vector<float>> Inference::classify(std::span<const int32_t> token, int64_t batch,
                                               int32_t padding) {
  if (!spec_.objective().predicts_classes)
    return fail(Code::unsupported, "the model is {}, must be a classification", spec_.objective().name);
  const int64_t tokens = static_cast<int64_t>(token.size()) / batch;
  if (tokens < 1 || tokens > spec_.context)
    return fail(Code::invalid_argument, "sequences of {} tokens, must be 1 to the model's context, {}",
                tokens, spec_.context);
  if (spec_.first_position > 0 && padding != spec_.padding)
    return fail(Code::invalid_argument,
                "sequences are filled up with token {}, must be with the model's padding, {}: it counts its "
                "positions from there",
                padding, spec_.padding);
  LOOM_TRY(check_tokens(token));
  const RecipeSizes shape = sizes_for<float>(Share::whole(spec_), batch, tokens);
  const BufferSizes sizes = buffer_sizes(spec_, shape, Recipes(spec_, shape));
  LOOM_TRY(check_memory("the activations of so many texts at a time",
                        2.0 * static_cast<double>(batch * tokens * spec_.width) * sizeof(float) +
                            static_cast<double>(sizes.saved) + static_cast<double>(sizes.workspace)));
  if (spec_.padding != padding) recipes_.reset();  // prepare() makes the layout anew
  spec_.padding = padding;
  pass_.past = nullptr;
  pass_.first_token = 0;
  run(token, batch, tokens);
  std::vector<float> all;
  for (int64_t sequence = 0; sequence < batch; ++sequence) {
    const std::vector<float> logits = head_logits(sequence * tokens);
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

/// Contexts are longer than most texts, so room grows with the text, to twice as much whenever it is full.
Status Inference::make_room() {
  constexpr int64_t kFirst = 256;
  const int64_t before = pass_.past_tokens, across = spec_.attention().key_width();
  if (position_ < before) return {};
  const int64_t tokens = std::min(spec_.context, std::max(kFirst, 2 * before));
  const double row_bytes = static_cast<double>(across) * sizeof(float),
               arrays = 2.0 * static_cast<double>(spec_.layers);
  LOOM_TRY(check_memory("the keys and values of so many tokens",
                        arrays * row_bytes * static_cast<double>(before + tokens)));
  const auto bytes_of = [&](int64_t count) { return static_cast<size_t>(count * across) * sizeof(float); };
  std::vector<std::byte> larger(static_cast<size_t>(2 * spec_.layers) * bytes_of(tokens));
  for (size_t array = 0; before > 0 && array < static_cast<size_t>(2 * spec_.layers); ++array)
    std::copy_n(past_.data() + array * bytes_of(before), bytes_of(before),
                larger.data() + array * bytes_of(tokens));
  past_ = std::move(larger);
  pass_.past_tokens = tokens;
  return {};
}

Result<std::vector<float>> Inference::feed(int32_t token) {
  LOOM_TRY(check_continues(spec_));
  if (position_ == spec_.context)
    return fail(Code::invalid_argument, "the context of {} tokens is full", spec_.context);
  LOOM_TRY(check_tokens({&token, 1}));
  LOOM_TRY(make_room());
  pass_.past = past_.data();
  pass_.first_token = position_;
  run({&token, 1}, 1, 1);
  ++position_;
  return head_logits(0);
}

}  // namespace loom::model
