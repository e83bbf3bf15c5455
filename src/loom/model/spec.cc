// What a spec must keep, and the work that it stands for.
#include "model/spec.h"

#include <cmath>

namespace loom::model {

float ModelSpec::attention_scale() const { return 1.0f / std::sqrt(static_cast<float>(head_size())); }

Status ModelSpec::check() const {
  const auto positive = [](const char* name, int64_t value) -> Status {
    if (value > 0) return {};
    return fail(Code::invalid_argument, "model.{} is {}, must be at least 1", name, value);
  };
  LOOM_TRY(positive("vocabulary", vocabulary));
  LOOM_TRY(positive("context", context));
  LOOM_TRY(positive("width", width));
  LOOM_TRY(positive("layers", layers));
  LOOM_TRY(positive("heads", heads));
  LOOM_TRY(positive("feed_forward", feed_forward));
  if (width % heads != 0)
    return fail(Code::invalid_argument, "model.width is {}, must be a multiple of model.heads, {}", width,
                heads);
  if (vocabulary > INT32_MAX)
    return fail(Code::invalid_argument, "model.vocabulary is {}, must be below 2^31", vocabulary);
  const auto probability = [](const char* name, float value) -> Status {
    if (value >= 0 && value < 1) return {};
    return fail(Code::invalid_argument, "model.{} is {}, must be at least 0 and below 1", name, value);
  };
  LOOM_TRY(probability("embedding_dropout", embedding_dropout));
  LOOM_TRY(probability("residual_dropout", residual_dropout));
  LOOM_TRY(probability("attention_dropout", attention_dropout));
  if (!(epsilon > 0)) return fail(Code::invalid_argument, "model.epsilon is {}, must be positive", epsilon);
  return {};
}

double ModelSpec::flops_per_token(int64_t tokens) const {
  const double block = 4.0 * width * width + 2.0 * width * feed_forward;
  const double weights = layers * block + static_cast<double>(width) * vocabulary;
  return 6.0 * weights + 6.0 * layers * static_cast<double>(width) * tokens;
}

const char* activation_name(ops::Activation activation) {
  switch (activation) {
    case ops::Activation::gelu_tanh: return "gelu_new";
    case ops::Activation::gelu_erf: return "gelu";
    case ops::Activation::relu: return "relu";
  }
  return "";
}

}  // namespace loom::model
