// GPT-2's units, under the names that Hugging Face gives their parameters.
#include "model/units.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ops/philox.h"

namespace loom::model {
namespace {

/// Tells initial values apart from the draws of training steps.
constexpr uint32_t kInitialStep = 0xffffffffu;

class Builder {
 public:
  Builder(UnitKind kind, int index) { unit_.kind = kind, unit_.index = index; }

  Builder& add(Part part, std::string name, std::vector<uint64_t> shape, Init init, float deviation = 0) {
    Parameter parameter{part, std::move(name), std::move(shape), init, deviation, false, unit_.elements};
    parameter.decays = parameter.shape.size() > 1;
    unit_.elements += (parameter.elements() + Unit::kAlign - 1) / Unit::kAlign * Unit::kAlign;
    unit_.parameters.push_back(std::move(parameter));
    return *this;
  }
  Builder& add_norm(Part weight, const std::string& name, uint64_t width) {
    add(weight, name + ".weight", {width}, Init::ones);
    return add(bias_of(weight), name + ".bias", {width}, Init::zeros);
  }
  Builder& add_linear(Part weight, const std::string& name, uint64_t in, uint64_t out, float deviation) {
    add(weight, name + ".weight", {in, out}, Init::normal, deviation);
    return add(bias_of(weight), name + ".bias", {out}, Init::zeros);
  }
  Unit take() { return std::move(unit_); }

 private:
  Unit unit_;
};

Unit block(const ModelSpec& spec, int layer) {
  const auto width = static_cast<uint64_t>(spec.width), hidden = static_cast<uint64_t>(spec.feed_forward);
  const float deviation = spec.initial_deviation;
  // What adds to the residual is smaller, so that the sum over all layers keeps its size (Radford et al.,
  // 2019).
  const float residual = deviation / std::sqrt(2.0f * static_cast<float>(spec.layers));
  const std::string prefix = "transformer.h." + std::to_string(layer) + ".";
  return Builder(UnitKind::block, layer + 1)
      .add_norm(Part::norm1_weight, prefix + "ln_1", width)
      .add_linear(Part::qkv_weight, prefix + "attn.c_attn", width, 3 * width, deviation)
      .add_linear(Part::projection_weight, prefix + "attn.c_proj", width, width, residual)
      .add_norm(Part::norm2_weight, prefix + "ln_2", width)
      .add_linear(Part::up_weight, prefix + "mlp.c_fc", width, hidden, deviation)
      .add_linear(Part::down_weight, prefix + "mlp.c_proj", hidden, width, residual)
      .take();
}

float normal(ops::RandomKey key, uint64_t element) {
  const ops::Philox4 words = ops::philox(key, element);
  const double radius = std::sqrt(-2.0 * std::log(static_cast<double>(ops::uniform(words.word[0]))));
  return static_cast<float>(
      radius * std::cos(2.0 * std::numbers::pi * static_cast<double>(ops::uniform(words.word[1]))));
}

}  // namespace

int64_t Parameter::elements() const {
  int64_t count = 1;
  for (const uint64_t side : shape) count *= static_cast<int64_t>(side);
  return count;
}

std::string Unit::name() const {
  switch (kind) {
    case UnitKind::embedding: return "embedding";
    case UnitKind::block: return "block " + std::to_string(index - 1);
    case UnitKind::head: return "head";
  }
  return "";
}

const Parameter* Unit::find(Part part) const {
  for (const Parameter& parameter : parameters)
    if (parameter.part == part) return &parameter;
  return nullptr;
}

std::vector<Unit> units_of(const ModelSpec& spec) {
  const auto width = static_cast<uint64_t>(spec.width), vocabulary = static_cast<uint64_t>(spec.vocabulary);
  const float deviation = spec.initial_deviation;
  std::vector<Unit> units;
  units.push_back(
      Builder(UnitKind::embedding, 0)
          .add(Part::token_embedding, "transformer.wte.weight", {vocabulary, width}, Init::normal, deviation)
          .add(Part::position_embedding, "transformer.wpe.weight",
               {static_cast<uint64_t>(spec.context), width}, Init::normal, deviation)
          .take());
  for (int layer = 0; layer < spec.layers; ++layer) units.push_back(block(spec, layer));
  Builder head(UnitKind::head, static_cast<int>(spec.layers) + 1);
  head.add_norm(Part::final_norm_weight, "transformer.ln_f", width);
  if (!spec.tied) head.add(Part::head_weight, "lm_head.weight", {vocabulary, width}, Init::normal, deviation);
  units.push_back(head.take());
  if (spec.tied) units.back().borrows = 0;
  return units;
}

int64_t parameter_count(std::span<const Unit> units) {
  int64_t count = 0;
  for (const Unit& unit : units)
    for (const Parameter& parameter : unit.parameters) count += parameter.elements();
  return count;
}

void initialize(const Unit& unit, uint64_t seed, int64_t begin, std::span<float> into) {
  std::fill(into.begin(), into.end(), 0.0f);
  const int64_t end = begin + static_cast<int64_t>(into.size());
  for (size_t number = 0; number < unit.parameters.size(); ++number) {
    const Parameter& parameter = unit.parameters[number];
    const ops::RandomKey key{seed, kInitialStep, static_cast<uint32_t>(unit.index * 64 + number)};
    const int64_t first = std::max(begin, parameter.offset);
    const int64_t last = std::min(end, parameter.offset + parameter.elements());
    for (int64_t i = first; i < last; ++i) switch (parameter.init) {
        case Init::zeros: break;
        case Init::ones: into[i - begin] = 1; break;
        case Init::normal:
          into[i - begin] = parameter.deviation * normal(key, static_cast<uint64_t>(i - parameter.offset));
      }
  }
}

}  // namespace loom::model
