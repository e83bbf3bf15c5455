// A family's choices, as its authors published them and `transformers` computes them.
#include "model/families.h"

#include <algorithm>
#include <array>

namespace loom::model {
namespace {

constexpr std::array kFamilies = {Family::gpt2,  Family::gptj, Family::gpt_neox, Family::gpt_neo,
                                  Family::bloom, Family::bert, Family::roberta};
constexpr std::array kTasks = {Task::causal, Task::masked, Task::classification};

/// What BERT and RoBERTa share (Devlin et al., 2019; Liu et al., 2019).
void encoder(ModelSpec& spec) {
  spec.norms = NormPlacement::post;
  spec.causal = false;
  spec.embedding_norm = true;
  spec.activation = ops::Activation::gelu_erf;
  spec.pooling = Pooling::first;
  spec.head_bias = true;
  spec.head_transform = spec.task == Task::masked;
  spec.pooler = spec.task == Task::classification;
  spec.tied = spec.task == Task::masked;
}

void set_choices(ModelSpec& spec) {
  switch (spec.family) {
    case Family::gpt2: return;
    case Family::gptj:
      spec.residual = Residual::parallel_one_norm;
      spec.position = Position::rotary_interleaved;
      spec.qkv_bias = spec.projection_bias = false;
      spec.tied = false;
      spec.head_bias = spec.task == Task::causal;
      return;
    case Family::gpt_neox:
      spec.residual = Residual::parallel_two_norms;
      spec.position = Position::rotary_half;
      spec.activation = ops::Activation::gelu_erf;
      spec.tied = false;
      return;
    case Family::gpt_neo:
      spec.scaled_scores = false;
      spec.qkv_bias = false;
      return;
    case Family::bloom:
      spec.position = Position::alibi;
      spec.embedding_norm = true;
      return;
    case Family::bert:
      encoder(spec);
      spec.token_types = 2;
      spec.epsilon = 1e-12f;
      return;
    case Family::roberta:
      encoder(spec);
      spec.token_types = 1;
      spec.dropout_before_pooler = true;
      spec.head_activation = ops::Activation::gelu_erf;
      return;
  }
}

}  // namespace

const char* family_name(Family family) {
  switch (family) {
    case Family::gpt2: return "gpt2";
    case Family::gptj: return "gptj";
    case Family::gpt_neox: return "gpt_neox";
    case Family::gpt_neo: return "gpt_neo";
    case Family::bloom: return "bloom";
    case Family::bert: return "bert";
    case Family::roberta: return "roberta";
  }
  return "";
}

const char* task_name(Task task) {
  switch (task) {
    case Task::causal: return "causal";
    case Task::masked: return "masked";
    case Task::classification: return "classification";
  }
  return "";
}

Result<Family> family_from(std::string_view name) {
  for (const Family family : kFamilies)
    if (name == family_name(family)) return family;
  return fail(Code::unsupported,
              "the family \"{}\" is unknown, must be gpt2, gptj, gpt_neox, gpt_neo, bloom, bert or roberta",
              name);
}

Result<Task> task_from(std::string_view name) {
  for (const Task task : kTasks)
    if (name == task_name(task)) return task;
  return fail(Code::invalid_argument, "the task \"{}\" is unknown, must be causal, masked or classification",
              name);
}

Task usual_task(Family family) {
  return family == Family::bert || family == Family::roberta ? Task::masked : Task::causal;
}

Result<ModelSpec> choices_of(Family family, Task task) {
  const bool encoder = usual_task(family) == Task::masked;
  if (task == Task::causal && encoder)
    return fail(Code::unsupported, "{} reads both ways and cannot be causal; masked or classification can",
                family_name(family));
  if (task == Task::masked && !encoder)
    return fail(Code::unsupported, "{} reads one way and has no masked task; bert and roberta have",
                family_name(family));
  if (task == Task::classification && !encoder && family != Family::gptj)
    return fail(Code::unsupported, "{} has no classification head here; bert, roberta and gptj have",
                family_name(family));
  ModelSpec spec;
  spec.family = family;
  spec.task = task;
  if (task == Task::classification) spec.tied = false;
  set_choices(spec);
  return spec;
}

void complete(ModelSpec& spec) {
  if (spec.feed_forward == 0 && spec.width <= kMostWidth) spec.feed_forward = 4 * spec.width;
  if (spec.rotary() && spec.rotary_dims == 0 && spec.heads > 0)
    spec.rotary_dims = std::max<int64_t>(2, spec.head_size() / 8 * 2);
  if (spec.family == Family::gpt_neo && spec.local.empty() && spec.layers <= kMostLayers) {
    if (spec.window == 0) spec.window = 256;
    for (int64_t layer = 0; layer < spec.layers; ++layer) spec.local.push_back(layer % 2 == 1);
  }
  if (spec.padding < 0 && spec.family == Family::bert) spec.padding = 0;
  if (spec.family == Family::roberta) {
    if (spec.padding < 0) spec.padding = 1;
    spec.first_position = int64_t{spec.padding} + 1;
  }
}

}  // namespace loom::model
