// Gradients of the whole model by finite differences in fp64, and what else must hold for any weights.
#include "model/families.h"
#include "model/objectives/objective.h"
#include "model/whole_model.h"
#include "ops/arrays.h"

namespace loom::testing {
namespace {

const std::vector<int32_t> kTokens = {1, 12, 0, 5, 5, 7, 3, 2, 9, 11};
const std::vector<int32_t> kTargets = {12, 0, 5, 5, 7, 2, -1, 9, 11, 4};

template <typename T>
WholeModel<T> random_model(const model::ModelSpec& spec) {
  WholeModel<T> whole(spec);
  for (size_t u = 0; u < whole.units().size(); ++u)
    whole.parameters(u) =
        as<T>(rounded<bf16>(random_values(whole.units()[u].elements, 40 + static_cast<uint32_t>(u), 0.3)));
  return whole;
}

void expect_finite_differences(const model::ModelSpec& spec, bool training) {
  // The targets of a classification are those of each sequence's first token.
  const std::vector<int32_t> classes = {2, -1, -1, -1, -1, 0, -1, -1, -1, -1};
  const auto& targets = spec.task == model::Task::classification ? classes : kTargets;
  WholeModel<double> whole = random_model<double>(spec);
  whole.pass().training = training;
  whole.pass().seed = 9;
  whole.step(kTokens, targets, 2);
  for (size_t u = 0; u < whole.units().size(); ++u) {
    const Doubles gradient = whole.gradients(u);
    const auto loss = [&](const Doubles& parameters) {
      whole.parameters(u) = parameters;
      return whole.step(kTokens, targets, 2);
    };
    const Doubles wanted = finite_differences(loss, whole.parameters(u));
    for (const model::Parameter& parameter : whole.units()[u].parameters) {
      const auto part = [&](const Doubles& all) {
        return Doubles(all.begin() + parameter.offset, all.begin() + parameter.offset + parameter.elements());
      };
      EXPECT_LT(error_of(part(gradient), part(wanted)), 1e-6) << parameter.name;
    }
  }
}

TEST(Model, GradientsAreFiniteDifferences) { expect_finite_differences(small_spec(), false); }

TEST(Model, GradientsOfAnUntiedHeadAreFiniteDifferences) {
  model::ModelSpec spec = small_spec();
  spec.tied = false;
  spec.layers = 1;
  spec.activation = ops::Activation::gelu_erf;
  expect_finite_differences(spec, false);
}

TEST(Model, GradientsThroughDropoutAreFiniteDifferences) {
  model::ModelSpec spec = small_spec();
  spec.layers = 1;
  spec.embedding_dropout = spec.residual_dropout = spec.attention_dropout = 0.3f;
  expect_finite_differences(spec, true);
}

model::ModelSpec small_family(model::Family family, model::Task task) {
  model::ModelSpec spec = *model::choices_of(family, task);
  const model::ModelSpec sizes = small_spec();
  spec.vocabulary = sizes.vocabulary, spec.context = sizes.context, spec.width = sizes.width;
  spec.layers = sizes.layers, spec.heads = sizes.heads, spec.feed_forward = sizes.feed_forward;
  spec.labels = 3;
  if (family == model::Family::gpt_neo || family == model::Family::mistral) spec.window = 2;
  if (spec.rms_norm) spec.key_value_heads = 1;
  // A RoBERTa's padding inside a sequence is not trained: none of the tokens is 4.
  spec.padding = task == model::Task::classification ? 11 : family == model::Family::roberta ? 4 : -1;
  model::complete(spec);
  return spec;
}

struct FamilyCase {
  model::Family family;
  model::Task task;
};

class Families : public ::testing::TestWithParam<FamilyCase> {};

TEST_P(Families, GradientsAreFiniteDifferences) {
  const auto [family, task] = GetParam();
  model::ModelSpec spec = small_family(family, task);
  EXPECT_TRUE(spec.check().ok()) << spec.check().message();
  expect_finite_differences(spec, false);
  spec.layers = 1;
  spec.local = {};
  spec.embedding_dropout = spec.residual_dropout = spec.attention_dropout = spec.head_dropout = 0.3f;
  expect_finite_differences(spec, true);
}

INSTANTIATE_TEST_SUITE_P(All, Families,
                         ::testing::Values(FamilyCase{model::Family::gptj, model::Task::causal},
                                           FamilyCase{model::Family::gptj, model::Task::classification},
                                           FamilyCase{model::Family::gpt_neox, model::Task::causal},
                                           FamilyCase{model::Family::gpt_neo, model::Task::causal},
                                           FamilyCase{model::Family::bloom, model::Task::causal},
                                           FamilyCase{model::Family::llama, model::Task::causal},
                                           FamilyCase{model::Family::llama, model::Task::classification},
                                           FamilyCase{model::Family::mistral, model::Task::causal},
                                           FamilyCase{model::Family::qwen2, model::Task::causal},
                                           FamilyCase{model::Family::qwen3, model::Task::causal},
                                           FamilyCase{model::Family::bert, model::Task::masked},
                                           FamilyCase{model::Family::bert, model::Task::classification},
                                           FamilyCase{model::Family::roberta, model::Task::masked},
                                           FamilyCase{model::Family::roberta, model::Task::classification}),
                         [](const auto& info) {
                           return std::string(model::family_name(info.param.family)) + "_" +
                                  model::objective_of(info.param.task).name;
                         });

TEST(Families, SayWhichTasksTheyHaveNoHeadFor) {
  EXPECT_EQ(model::choices_of(model::Family::bert, model::Task::causal).status().message(),
            "bert reads both ways and cannot be causal; masked or classification can");
  EXPECT_EQ(model::choices_of(model::Family::gpt2, model::Task::masked).status().message(),
            "gpt2 reads one way and has no masked task; bert and roberta have");
  EXPECT_EQ(
      model::choices_of(model::Family::bloom, model::Task::classification).status().message(),
      "bloom has no classification head here; gptj, llama, mistral, qwen2, qwen3, bert and roberta have");
}

TEST(Model, AMaskedMicrobatchWithoutTargetsHasNoGradient) {
  const model::ModelSpec spec = small_family(model::Family::bert, model::Task::masked);
  WholeModel<double> whole = random_model<double>(spec);
  EXPECT_EQ(whole.step(kTokens, std::vector<int32_t>(kTokens.size(), -1), 2), 0);
  for (size_t u = 0; u < whole.units().size(); ++u)
    for (const double value : whole.gradients(u)) EXPECT_TRUE(value == 0 || value == 123) << u;
}

TEST(Model, DropoutIsForTrainingOnly) {
  model::ModelSpec spec = small_spec();
  const double without = random_model<double>(spec).step(kTokens, kTargets, 2);
  spec.embedding_dropout = spec.residual_dropout = spec.attention_dropout = 0.3f;
  WholeModel<double> whole = random_model<double>(spec);
  EXPECT_EQ(whole.step(kTokens, kTargets, 2), without);
  whole.pass().training = true;
  EXPECT_NE(whole.step(kTokens, kTargets, 2), without);
}

TEST(Model, SmallerTypesAreCloseToFp64) {
  WholeModel<double> exact = random_model<double>(small_spec());
  WholeModel<float> fp32 = random_model<float>(small_spec());
  WholeModel<bf16> brain = random_model<bf16>(small_spec());
  WholeModel<fp16> half = random_model<fp16>(small_spec());
  const double loss = exact.step(kTokens, kTargets, 2);
  EXPECT_NEAR(fp32.step(kTokens, kTargets, 2), loss, 1e-6 * loss);
  EXPECT_NEAR(brain.step(kTokens, kTargets, 2), loss, 1e-2 * loss);
  EXPECT_NEAR(half.step(kTokens, kTargets, 2), loss, 2e-3 * loss);
  for (int u = 0; u < 4; ++u) {
    EXPECT_LT(error_of(doubles(fp32.gradients(u)), exact.gradients(u)), 1e-5) << u;
    EXPECT_LT(error_of(doubles(brain.gradients(u)), exact.gradients(u)), 5e-2) << u;
    EXPECT_LT(error_of(doubles(half.gradients(u)), exact.gradients(u)), 1e-2) << u;
  }
}

TEST(Model, EvaluationHasTheSameLoss) {
  WholeModel<float> whole = random_model<float>(small_spec());
  const double loss = whole.step(kTokens, kTargets, 2);
  EXPECT_EQ(whole.evaluate(kTargets), loss);
}

TEST(Units, InitialValuesDoNotDependOnTheSplit) {
  model::ModelSpec spec = small_spec();
  spec.tied = false;
  Workers workers(2);
  for (const model::Unit& unit : model::units_of(spec)) {
    std::vector<float> whole(unit.elements), parts(unit.elements);
    model::initialize(workers, unit, 5, 0, whole);
    for (int64_t begin = 0; begin < unit.elements; begin += 37)
      model::initialize(workers, unit, 5, begin,
                        std::span(parts).subspan(begin, std::min<int64_t>(37, unit.elements - begin)));
    EXPECT_EQ(whole, parts);
    std::vector<float> past(8, 1.0f);
    model::initialize(workers, unit, 5, unit.elements, past);
    EXPECT_EQ(past, std::vector<float>(8));
  }
}

TEST(Units, InitialWeightsHaveTheirDeviation) {
  model::ModelSpec spec = small_spec();
  spec.vocabulary = 5000;
  const model::Unit embedding = model::units_of(spec)[0];
  std::vector<float> values(spec.vocabulary * spec.width);
  Workers workers(1);
  model::initialize(workers, embedding, 1, 0, values);
  double sum = 0, squares = 0;
  for (const float value : values) sum += value, squares += double{value} * value;
  EXPECT_NEAR(sum / values.size(), 0, 3e-4);
  EXPECT_NEAR(std::sqrt(squares / values.size()), 0.02, 3e-4);
}

TEST(Spec, SaysWhatIsOutOfRange) {
  model::ModelSpec spec = small_spec();
  EXPECT_TRUE(spec.check().ok());
  spec.heads = 3;
  EXPECT_EQ(spec.check().message(), "model.width is 8, must be a multiple of model.heads, 3");
  spec = small_spec();
  spec.residual_dropout = 1;
  EXPECT_EQ(spec.check().message(), "model.residual_dropout is 1, must be at least 0 and below 1");
  spec = small_spec();
  spec.layers = 0;
  EXPECT_EQ(spec.check().message(), "model.layers is 0, must be from 1 to 65536");
}

}  // namespace
}  // namespace loom::testing
