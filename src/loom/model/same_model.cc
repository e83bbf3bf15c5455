// Fields one by one, in the order in which people would name them.
#include "model/same_model.h"

#include <fmt/format.h>

#include "model/families.h"
#include "model/objectives/objective.h"

namespace loom::model {
namespace {

std::string layers_of(const ModelSpec& spec) {
  std::string kinds;
  for (int64_t layer = 0; layer < spec.layers; ++layer) kinds += spec.window_of(layer) > 0 ? 'l' : 'g';
  return kinds;
}

}  // namespace

std::string difference(const ModelSpec& stored, const ModelSpec& wanted) {
  std::string found;
  const auto compare = [&](const char* name, const auto& there, const auto& here) {
    if (found.empty() && there != here) found = fmt::format("{} {}, not {}", name, there, here);
  };
  compare("model.family", std::string(family_name(stored.family)), std::string(family_name(wanted.family)));
  compare("model.task", std::string(stored.objective().name), std::string(wanted.objective().name));
  compare("model.vocabulary", stored.vocabulary, wanted.vocabulary);
  compare("model.width", stored.width, wanted.width);
  compare("model.layers", stored.layers, wanted.layers);
  compare("model.heads", stored.heads, wanted.heads);
  compare("model.key_value_heads", stored.attention().key_value_heads, wanted.attention().key_value_heads);
  compare("heads of size", stored.attention().head_size, wanted.attention().head_size);
  compare("model.feed_forward", stored.feed_forward, wanted.feed_forward);
  compare("model.activation", std::string(activation_name(stored.activation)),
          std::string(activation_name(wanted.activation)));
  compare("model.tied", stored.tied, wanted.tied);
  if (stored.position == Position::learned) compare("model.context", stored.context, wanted.context);
  compare("labels", stored.labels, wanted.labels);
  compare("the epsilon of norms", stored.epsilon, wanted.epsilon);
  compare("parallel residuals", static_cast<int>(stored.residual), static_cast<int>(wanted.residual));
  compare("rotary dimensions", stored.rotary_dims, wanted.rotary_dims);
  compare("the rotary base", stored.rotary_base, wanted.rotary_base);
  const ops::RotaryScaling &there = stored.rotary_scaling, &here = wanted.rotary_scaling;
  compare("rotary positions scaled by", there.factor, here.factor);
  compare("rotary positions scaled over tokens", there.context, here.context);
  if (there.context > 0) {
    compare("the low frequency factor", there.low, here.low);
    compare("the high frequency factor", there.high, here.high);
  }
  compare("kinds of layers (global, local)", layers_of(stored), layers_of(wanted));
  if (layers_of(stored).find('l') != std::string::npos) compare("a window of", stored.window, wanted.window);
  compare("token types", stored.token_types, wanted.token_types);
  compare("norms of heads", stored.head_norms, wanted.head_norms);
  compare("biases of attention", stored.qkv_bias, wanted.qkv_bias);
  compare("biases of projections", stored.projection_bias, wanted.projection_bias);
  compare("biases of feed-forward", stored.feed_forward_bias, wanted.feed_forward_bias);
  return found;
}

}  // namespace loom::model
