// What a spec must keep, and the work that it stands for.
#include "model/spec.h"

#include <cmath>

#include "base/check.h"
#include "model/objectives/objective.h"

namespace loom::model {

const Objective& ModelSpec::objective() const { return objective_of(task); }

int64_t ModelSpec::outputs() const { return objective().predicts_classes ? labels : vocabulary; }

AttentionGeometry ModelSpec::attention() const {
  return {heads, key_value_heads > 0 ? key_value_heads : heads,
          head_size > 0 ? head_size
          : heads > 0   ? width / heads
                        : 0};
}

float ModelSpec::attention_scale() const {
  return scaled_scores ? 1.0f / std::sqrt(static_cast<float>(attention().head_size)) : 1.0f;
}

int64_t ModelSpec::window_of(int64_t layer) const {
  const bool known = layer >= 0 && layer < static_cast<int64_t>(local.size());
  return known && local[static_cast<size_t>(layer)] ? window : 0;
}

double ModelSpec::keys_seen(int64_t layer, int64_t tokens) const {
  if (!causal) return static_cast<double>(tokens);
  const double all = static_cast<double>(tokens), window = static_cast<double>(window_of(layer));
  return window > 0 && window < all ? window - window * window / (2 * all) : all / 2;
}

Status ModelSpec::check() const {
  LOOM_TRY(from_one_to("model.vocabulary", vocabulary, INT32_MAX));
  LOOM_TRY(from_one_to("model.context", context, INT32_MAX));
  LOOM_TRY(from_one_to("model.width", width, kMostWidth));
  LOOM_TRY(from_one_to("model.layers", layers, kMostLayers));
  LOOM_TRY(from_one_to("model.heads", heads, kMostWidth));
  LOOM_TRY(from_one_to("model.feed_forward", feed_forward, kMostFeedForward));
  if (objective().predicts_classes) LOOM_TRY(from_one_to("model.labels", labels, INT32_MAX));
  if (token_types != 0) LOOM_TRY(from_one_to("model.token_types", token_types, kMostWidth));
  if (head_size != 0) LOOM_TRY(from_one_to("the size of a head", head_size, kMostWidth / heads));
  else if (width % heads != 0)
    return fail(Code::invalid_argument, "model.width is {}, must be a multiple of model.heads, {}", width,
                heads);
  if (key_value_heads < 0 || heads % attention().key_value_heads != 0)
    return fail(Code::invalid_argument, "model.key_value_heads is {}, must divide model.heads, {}",
                key_value_heads, heads);
  const double wide = static_cast<double>(width), block = block_weights();
  const double parameters = static_cast<double>(layers) * block +
                            wide * static_cast<double>(vocabulary + context + labels + token_types);
  if (parameters > kMostParameters)
    return fail(
        Code::invalid_argument,
        "the model has {:.1e} parameters, must have {:.0e} at most: model.layers is {}, model.width {}, "
        "model.feed_forward {}, model.vocabulary {}",
        parameters, kMostParameters, layers, width, feed_forward, vocabulary);
  if (rotary() && attention().head_size % 2 != 0)
    return fail(
        Code::invalid_argument,
        "heads have {} elements, model.width {} over model.heads {}; must be even, since positions turn "
        "pairs of them",
        attention().head_size, width, heads);
  if (rotary() && (rotary_dims < 2 || rotary_dims > attention().head_size || rotary_dims % 2 != 0))
    return fail(Code::invalid_argument,
                "model.rotary_dims is {}, must be even, at least 2 and at most the size of a head, {}",
                rotary_dims, attention().head_size);
  if (rotary() && !(rotary_base > 0))
    return fail(Code::invalid_argument, "model.rotary_base is {}, must be positive", rotary_base);
  const ops::RotaryScaling& slower = rotary_scaling;
  if (!(slower.factor > 0) || slower.context < 0 || !(slower.low > 0) || !(slower.high > slower.low))
    return fail(
        Code::invalid_argument,
        "rotary positions are scaled by {}, over {} tokens from {} to {} turns: must be positive, and "
        "the first number of turns below the second",
        slower.factor, slower.context, slower.low, slower.high);
  if (!local.empty() && (static_cast<int64_t>(local.size()) != layers || window < 1))
    return fail(Code::invalid_argument,
                "{} layers are local or global, with a window of {}: must be all {} layers and at least 1",
                local.size(), window, layers);
  if (padding >= vocabulary)
    return fail(Code::invalid_argument, "the padding token is {}, must be below the vocabulary, {}", padding,
                vocabulary);
  const auto probability = [](const char* name, float value) -> Status {
    if (value >= 0 && value < 1) return {};
    return fail(Code::invalid_argument, "model.{} is {}, must be at least 0 and below 1", name, value);
  };
  LOOM_TRY(probability("embedding_dropout", embedding_dropout));
  LOOM_TRY(probability("residual_dropout", residual_dropout));
  LOOM_TRY(probability("attention_dropout", attention_dropout));
  LOOM_TRY(probability("head_dropout", head_dropout));
  if (!(epsilon > 0)) return fail(Code::invalid_argument, "model.epsilon is {}, must be positive", epsilon);
  if (!(initial_deviation >= 0))
    return fail(Code::invalid_argument, "model.initial_deviation is {}, must not be negative",
                initial_deviation);
  return {};
}

double ModelSpec::block_weights() const {
  const double attending = static_cast<double>(attention().qkv_width() + attention().width());
  const double hidden = static_cast<double>(feed_forward) * (gated ? 3 : 2);
  return static_cast<double>(width) * (attending + hidden);
}

double ModelSpec::head_weights() const {
  const int64_t dense = pooler || head_transform ? width : 0;
  return static_cast<double>(width) * static_cast<double>(outputs() + dense);
}

double ModelSpec::flops_per_token(int64_t tokens, int64_t targets) const {
  const double read = static_cast<double>(objective().rows_of_sequence(tokens, targets));
  const double head = head_weights() * read / static_cast<double>(tokens);
  double seen = 0;
  for (int64_t layer = 0; layer < layers; ++layer) seen += keys_seen(layer, tokens);
  const double square = 12.0 * static_cast<double>(attention().width()) * seen;
  return 6.0 * (layers * block_weights() + head) + square;
}

const char* activation_name(ops::Activation activation) {
  switch (activation) {
    case ops::Activation::gelu_tanh: return "gelu_new";
    case ops::Activation::gelu_erf: return "gelu";
    case ops::Activation::relu: return "relu";
    case ops::Activation::silu: return "silu";
    case ops::Activation::tanh: return "tanh";
  }
  return "";
}

}  // namespace loom::model
