// GPT-2's keys and names.
#include "model/hugging_face.h"

#include <algorithm>

#include "format/float16.h"

namespace loom::model {
namespace {

using format::Json;

constexpr std::string_view kPrefix = "transformer.";

Result<ops::Activation> activation_from(const std::string& name) {
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast")
    return ops::Activation::gelu_tanh;
  if (name == "gelu") return ops::Activation::gelu_erf;
  if (name == "relu") return ops::Activation::relu;
  return fail(Code::unsupported,
              "activation_function is \"{}\", must be gelu_new, gelu_pytorch_tanh, gelu or relu", name);
}

/// Reads keys into places; the first failure stays.
class Keys {
 public:
  explicit Keys(const Json& json) : json_(json) {}
  template <typename F, typename T>
  Keys& required(const char* key, T& into) {
    return take(format::required<F>(json_, key), into);
  }
  template <typename F, typename T>
  Keys& optional(const char* key, T& into) {
    return take(format::value_or<F>(json_, key, static_cast<F>(into)), into);
  }
  /// Only `value` is computed here.
  Keys& only(const char* key, bool value) {
    bool found = value;
    optional<bool>(key, found);
    if (status_.ok() && found != value)
      status_ = fail(Code::unsupported, "{} is {}; only {} is supported", key, found, value);
    return *this;
  }
  Status status() const { return status_; }

 private:
  template <typename R, typename T>
  Keys& take(R result, T& into) {
    if (!status_.ok()) return *this;
    if (result.ok()) into = static_cast<T>(*result);
    else status_ = result.status();
    return *this;
  }
  const Json& json_;
  Status status_;
};

Result<format::TensorView> find(const format::SafetensorsReader& file, const Parameter& parameter) {
  std::string name = parameter.name;
  if (!file.contains(name) && name.starts_with(kPrefix)) {
    const std::string bare = name.substr(kPrefix.size());
    if (file.contains(bare)) name = bare;
  }
  Result<format::TensorView> view = file.tensor(name);
  if (view.ok() && view->shape != parameter.shape) {
    const auto text = [](const std::vector<uint64_t>& shape) {
      std::string joined;
      for (const uint64_t side : shape) joined += (joined.empty() ? "" : ", ") + std::to_string(side);
      return fmt::format("[{}]", joined);
    };
    return fail(Code::invalid_data, "tensor {} is {}, but the model needs {}", name, text(view->shape),
                text(parameter.shape));
  }
  return view;
}

}  // namespace

Result<ModelSpec> spec_from_config(const Json& config) {
  ModelSpec spec;
  std::string family, activation = "gelu_new";
  Keys keys(config);
  keys.required<std::string>("model_type", family);
  LOOM_TRY(keys.status());
  if (family != "gpt2")
    return fail(Code::unsupported, "model_type is \"{}\"; only \"gpt2\" is supported", family);
  keys.required<int64_t>("vocab_size", spec.vocabulary)
      .required<int64_t>("n_positions", spec.context)
      .required<int64_t>("n_embd", spec.width)
      .required<int64_t>("n_layer", spec.layers)
      .required<int64_t>("n_head", spec.heads);
  spec.feed_forward = 4 * spec.width;
  keys.optional<int64_t>("n_inner", spec.feed_forward)
      .optional<std::string>("activation_function", activation)
      .optional<float>("layer_norm_epsilon", spec.epsilon)
      .optional<float>("embd_pdrop", spec.embedding_dropout)
      .optional<float>("resid_pdrop", spec.residual_dropout)
      .optional<float>("attn_pdrop", spec.attention_dropout)
      .optional<float>("initializer_range", spec.initial_deviation)
      .optional<bool>("tie_word_embeddings", spec.tied)
      .only("scale_attn_weights", true)
      .only("scale_attn_by_inverse_layer_idx", false)
      .only("add_cross_attention", false);
  LOOM_TRY(keys.status());
  const Result<ops::Activation> chosen = activation_from(activation);
  LOOM_TRY(chosen.status());
  spec.activation = *chosen;
  LOOM_TRY(spec.check());
  return spec;
}

Json config_of(const ModelSpec& spec) {
  return {
      {"architectures", Json::array({"GPT2LMHeadModel"})},
      {"model_type", "gpt2"},
      {"vocab_size", spec.vocabulary},
      {"n_positions", spec.context},
      {"n_ctx", spec.context},
      {"n_embd", spec.width},
      {"n_layer", spec.layers},
      {"n_head", spec.heads},
      {"n_inner", spec.feed_forward},
      {"activation_function", activation_name(spec.activation)},
      {"layer_norm_epsilon", spec.epsilon},
      {"embd_pdrop", spec.embedding_dropout},
      {"resid_pdrop", spec.residual_dropout},
      {"attn_pdrop", spec.attention_dropout},
      {"initializer_range", spec.initial_deviation},
      {"tie_word_embeddings", spec.tied},
      {"bos_token_id", nullptr},  // the tokenizer knows; the family's default may not be in the vocabulary
      {"eos_token_id", nullptr},
      {"dtype", "float32"},
      {"torch_dtype", "float32"}};
}

Status read_parameters(const format::SafetensorsReader& file, const Unit& unit, int64_t begin,
                       std::span<float> into) {
  std::fill(into.begin(), into.end(), 0.0f);
  const int64_t end = begin + static_cast<int64_t>(into.size());
  for (const Parameter& parameter : unit.parameters) {
    const int64_t first = std::max(begin, parameter.offset);
    const int64_t last = std::min(end, parameter.offset + parameter.elements());
    if (first >= last) continue;
    const Result<format::TensorView> view = find(file, parameter);
    LOOM_TRY(view.status());
    const size_t element_bytes = view->bytes.size() / parameter.elements();
    LOOM_TRY(format::to_f32(view->dtype,
                            view->bytes.subspan((first - parameter.offset) * element_bytes,
                                                (last - first) * element_bytes),
                            into.subspan(first - begin, last - first))
                 .in(parameter.name));
  }
  return {};
}

std::vector<format::TensorSpec> tensor_specs(std::span<const Unit> units) {
  std::vector<format::TensorSpec> specs;
  for (const Unit& unit : units)
    for (const Parameter& parameter : unit.parameters)
      specs.push_back({parameter.name, format::DType::f32, parameter.shape});
  return specs;
}

Status write_parameters(format::ModelWriter& file, const Unit& unit, std::span<const float> buffer) {
  for (const Parameter& parameter : unit.parameters)
    LOOM_TRY(file.write_f32(parameter.name, buffer.subspan(parameter.offset, parameter.elements())));
  return {};
}

}  // namespace loom::model
