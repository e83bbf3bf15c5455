// The parameters of every unit, as the spec asks for them.
#include "model/units.h"

#include <algorithm>
#include <cmath>

#include "base/round.h"
#include "model/names.h"
#include "model/objectives/objective.h"
#include "ops/operators.h"

namespace loom::model {
namespace {

/// Tells initial values apart from the draws of training steps.
constexpr uint32_t kInitialStep = 0xffffffffu;

class Builder {
 public:
  Builder(const ModelSpec& spec, UnitKind kind, int64_t index) : spec_(spec), layer_(index - 1) {
    unit_.kind = kind, unit_.index = static_cast<int>(index);
  }

  Builder& add(Part part, std::vector<uint64_t> shape, Init init, float deviation = 0,
               std::vector<int64_t> blocks = {}) {
    std::vector<Source> sources = sources_of(spec_, part, layer_, shape, blocks);
    Parameter parameter;
    parameter.blocks = std::move(blocks);
    parameter.part = part;
    parameter.name = sources.front().name;
    parameter.shape = std::move(shape);
    parameter.init = init;
    parameter.deviation = deviation;
    parameter.decays = parameter.shape.size() > 1;
    parameter.begins_anew =
        (part >= Part::dense_weight && spec_.new_head) || (part >= Part::head_weight && spec_.new_classes);
    parameter.undivided = unit_.kind == UnitKind::head && spec_.objective().predicts_classes;
    parameter.offset = unit_.elements;
    parameter.sources = std::move(sources);
    unit_.elements += round_up(parameter.elements(), Unit::kAlign);
    unit_.parameters.push_back(std::move(parameter));
    return *this;
  }
  Builder& add_norm(Part weight) {
    add(weight, {width()}, Init::ones);
    return spec_.rms_norm ? *this : add(bias_of(weight), {width()}, Init::zeros);
  }
  /// `out` columns, of which `blocks` are parts.
  Builder& add_linear(Part weight, uint64_t in, uint64_t out, float deviation, bool bias,
                      const std::vector<int64_t>& blocks = {}) {
    add(weight, {in, out}, Init::normal, deviation, blocks);
    return bias ? add(bias_of(weight), {out}, Init::zeros, 0, blocks) : *this;
  }
  Unit take() { return std::move(unit_); }

 private:
  uint64_t width() const { return static_cast<uint64_t>(spec_.width); }

  const ModelSpec& spec_;
  int64_t layer_;
  Unit unit_;
};

Unit embedding(const ModelSpec& spec) {
  const auto size = [](int64_t n) { return static_cast<uint64_t>(n); };
  const float deviation = spec.initial_deviation;
  Builder unit(spec, UnitKind::embedding, 0);
  unit.add(Part::token_embedding, {size(spec.vocabulary), size(spec.width)}, Init::normal, deviation);
  if (spec.position == Position::learned)
    unit.add(Part::position_embedding, {size(spec.first_position + spec.context), size(spec.width)},
             Init::normal, deviation);
  if (spec.token_types > 0)
    unit.add(Part::type_embedding, {size(spec.token_types), size(spec.width)}, Init::normal, deviation);
  if (spec.embedding_norm) unit.add_norm(Part::embedding_norm_weight);
  return unit.take();
}

Unit block(const ModelSpec& spec, int64_t layer) {
  const auto width = static_cast<uint64_t>(spec.width), hidden = static_cast<uint64_t>(spec.feed_forward);
  const float deviation = spec.initial_deviation;
  // What adds to a residual that nothing normalizes is smaller, so that the sum over all layers keeps its
  // size (Radford et al., 2019).
  const float residual = spec.norms == NormPlacement::pre
                             ? deviation / std::sqrt(2.0f * static_cast<float>(spec.layers))
                             : deviation;
  const AttentionGeometry attention = spec.attention();
  Builder unit(spec, UnitKind::block, layer + 1);
  unit.add_norm(Part::norm1_weight)
      .add_linear(Part::qkv_weight, width, static_cast<uint64_t>(attention.qkv_width()), deviation,
                  spec.qkv_bias, {attention.width(), attention.key_width(), attention.key_width()});
  if (spec.head_norms)
    unit.add(Part::head_norm_weight, {2 * static_cast<uint64_t>(attention.head_size)}, Init::ones, 0,
             {attention.head_size, attention.head_size});
  unit.add_linear(Part::projection_weight, static_cast<uint64_t>(attention.width()), width, residual,
                  spec.projection_bias);
  if (spec.residual != Residual::parallel_one_norm) unit.add_norm(Part::norm2_weight);
  std::vector<int64_t> gate_and_up;
  if (spec.gated) gate_and_up = {spec.feed_forward, spec.feed_forward};
  return unit
      .add_linear(Part::up_weight, width, static_cast<uint64_t>(spec.up_columns(spec.feed_forward)),
                  deviation, spec.feed_forward_bias, gate_and_up)
      .add_linear(Part::down_weight, hidden, width, residual, spec.feed_forward_bias)
      .take();
}

Unit head(const ModelSpec& spec) {
  const auto width = static_cast<uint64_t>(spec.width), outputs = static_cast<uint64_t>(spec.outputs());
  const float deviation = spec.initial_deviation;
  Builder unit(spec, UnitKind::head, spec.layers + 1);
  if (spec.norms == NormPlacement::pre) unit.add_norm(Part::final_norm_weight);
  if (spec.head_transform || spec.pooler) unit.add_linear(Part::dense_weight, width, width, deviation, true);
  if (spec.head_transform) unit.add_norm(Part::transform_norm_weight);
  if (!spec.tied) unit.add(Part::head_weight, {outputs, width}, Init::normal, deviation);
  if (spec.head_bias) unit.add(Part::head_bias, {outputs}, Init::zeros);
  return unit.take();
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
  std::vector<Unit> units = {embedding(spec)};
  for (int64_t layer = 0; layer < spec.layers; ++layer) units.push_back(block(spec, layer));
  units.push_back(head(spec));
  if (spec.tied) units.back().borrows = 0;
  return units;
}

int64_t parameter_count(std::span<const Unit> units) {
  int64_t count = 0;
  for (const Unit& unit : units)
    for (const Parameter& parameter : unit.parameters) count += parameter.elements();
  return count;
}

void initialize(Workers& workers, const Unit& unit, uint64_t seed, int64_t begin, std::span<float> into) {
  std::fill(into.begin(), into.end(), 0.0f);
  const int64_t end = begin + static_cast<int64_t>(into.size());
  for (size_t number = 0; number < unit.parameters.size(); ++number) {
    const Parameter& parameter = unit.parameters[number];
    const ops::RandomKey key{seed, kInitialStep, static_cast<uint32_t>(unit.index * 64 + number)};
    const int64_t first = std::max(begin, parameter.offset);
    const int64_t last = std::min(end, parameter.offset + parameter.elements());
    if (first >= last) continue;
    float* const y = into.data() + (first - begin);
    switch (parameter.init) {
      case Init::zeros: break;
      case Init::ones: std::fill_n(y, last - first, 1.0f); break;
      case Init::normal:
        ops::operators<float>().normal(workers, key, static_cast<uint64_t>(first - parameter.offset),
                                       parameter.deviation, y, last - first);
    }
  }
}

}  // namespace loom::model
