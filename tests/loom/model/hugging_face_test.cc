// Checkpoints that `transformers` made, and what PyTorch computes with them: fixtures/gpt2.py.
#include "model/hugging_face.h"

#include <cstring>

#include "model/whole_model.h"
#include "ops/arrays.h"
#include "support.h"

namespace loom::testing {
namespace {

using format::SafetensorsReader;

/// A fixture, opened. Failures to open end the test at the first use.
struct Fixture {
  explicit Fixture(const std::string& name)
      : folder(fixture(name)), expected(SafetensorsReader::open(folder + "/expected.safetensors").take()) {}

  std::vector<float> floats(const std::string& name) const {
    const auto view = expected.tensor(name);
    std::vector<float> values(view->elements());
    std::memcpy(values.data(), view->bytes.data(), view->bytes.size());
    return values;
  }
  std::vector<int32_t> integers(const std::string& name) const {
    const auto view = expected.tensor(name);
    std::vector<int32_t> values(view->elements());
    std::memcpy(values.data(), view->bytes.data(), view->bytes.size());
    return values;
  }

  std::string folder;
  SafetensorsReader expected;
};

WholeModel<float> load(const std::string& folder) {
  WholeModel<float> whole(*model::spec_from_config(*format::read_config(folder)));
  const SafetensorsReader file = SafetensorsReader::open(folder).take();
  for (size_t u = 0; u < whole.units().size(); ++u)
    EXPECT_TRUE(model::read_parameters(file, whole.units()[u], 0, whole.parameters(u)).ok());
  return whole;
}

class Gpt2Fixtures : public ::testing::TestWithParam<const char*> {};

TEST_P(Gpt2Fixtures, LossLogitsAndGradientsArePyTorchs) {
  const Fixture given(GetParam());
  WholeModel<float> whole = load(given.folder);
  const double loss = whole.step(given.integers("tokens"), given.integers("targets"), 2);
  EXPECT_NEAR(loss, given.floats("loss")[0], 1e-5 * loss);

  const std::vector<float> logits = given.floats("logits");
  Doubles got;
  for (size_t row = 0; row < given.integers("tokens").size(); ++row)
    for (const float value : whole.logits(row)) got.push_back(value);
  EXPECT_LT(error_of(got, doubles(logits)), 1e-5);

  for (size_t u = 0; u < whole.units().size(); ++u)
    for (const model::Parameter& parameter : whole.units()[u].parameters) {
      const std::vector<float>& all = whole.gradients(u);
      const std::vector<float> gradient(all.begin() + parameter.offset,
                                        all.begin() + parameter.offset + parameter.elements());
      EXPECT_LT(error_of(doubles(gradient), doubles(given.floats("grad." + parameter.name))), 1e-4)
          << parameter.name;
    }
}

TEST_P(Gpt2Fixtures, TenStepsOfAdamWArePyTorchs) {
  const Fixture given(GetParam());
  WholeModel<float> whole = load(given.folder);
  Workers workers(1);
  std::vector<std::vector<float>> first, second;
  for (const model::Unit& unit : whole.units()) {
    first.emplace_back(unit.elements);
    second.emplace_back(unit.elements);
  }
  const std::vector<float> wanted = given.floats("adamw_losses");
  for (int step = 1; step <= 10; ++step) {
    const double loss = whole.step(given.integers("tokens"), given.integers("targets"), 2);
    EXPECT_NEAR(loss, wanted[step - 1], 1e-4 * loss) << "step " << step;
    for (size_t u = 0; u < whole.units().size(); ++u)
      for (const model::Parameter& p : whole.units()[u].parameters) {
        const ops::AdamW settings{1e-2f, 0.9f, 0.95f, 1e-8f, p.decays ? 0.1f : 0.0f, 1.0f, step};
        float* master = whole.parameters(u).data() + p.offset;
        ops::operators<float>().adamw(workers, settings, whole.gradients(u).data() + p.offset, master,
                                      first[u].data() + p.offset, second[u].data() + p.offset, master,
                                      p.elements());
      }
  }
}

TEST_P(Gpt2Fixtures, WhatIsWrittenIsReadBack) {
  const Fixture given(GetParam());
  WholeModel<float> whole = load(given.folder);
  const TemporaryFolder folder;
  const model::ModelSpec spec = *model::spec_from_config(*format::read_config(given.folder));
  LOOM_ASSERT_OK(format::write_config(folder.path(), model::config_of(spec)));
  auto writer = format::ModelWriter::create(folder.path(), model::tensor_specs(whole.units()));
  LOOM_ASSERT_OK(writer);
  for (size_t u = 0; u < whole.units().size(); ++u)
    LOOM_ASSERT_OK(model::write_parameters(*writer, whole.units()[u], whole.parameters(u)));
  LOOM_ASSERT_OK(writer->finish());

  WholeModel<float> again = load(folder.path());
  for (size_t u = 0; u < whole.units().size(); ++u) EXPECT_EQ(again.parameters(u), whole.parameters(u));
  EXPECT_EQ(again.step(given.integers("tokens"), given.integers("targets"), 2),
            whole.step(given.integers("tokens"), given.integers("targets"), 2));
}

INSTANTIATE_TEST_SUITE_P(Made, Gpt2Fixtures, ::testing::Values("gpt2-tied", "gpt2-untied"),
                         [](const auto& info) { return std::string(info.param).substr(5); });

TEST(HuggingFace, ARangeIsReadAlone) {
  WholeModel<float> whole = load(fixture("gpt2-tied"));
  const SafetensorsReader file = SafetensorsReader::open(fixture("gpt2-tied")).take();
  const auto& all = whole.parameters(1);
  std::vector<float> part(1001, -1.0f);
  LOOM_ASSERT_OK(model::read_parameters(file, whole.units()[1], 77, part));
  EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + 77));
}

TEST(HuggingFace, NamesNeedNoPrefix) {
  const TemporaryFolder folder;
  const model::ModelSpec spec = small_spec();
  const model::Unit unit = model::units_of(spec).back();
  std::vector<format::TensorSpec> specs;
  for (const model::Parameter& p : unit.parameters)
    specs.push_back({p.name.substr(12), format::DType::f32, p.shape});
  auto writer = format::SafetensorsWriter::create(folder / "model.safetensors", specs);
  LOOM_ASSERT_OK(writer);
  const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8};
  for (const auto& spec_of : specs) LOOM_ASSERT_OK(writer->write_f32(spec_of.name, values));
  LOOM_ASSERT_OK(writer->finish());
  std::vector<float> read(unit.elements);
  LOOM_ASSERT_OK(model::read_parameters(*SafetensorsReader::open(folder.path()), unit, 0, read));
  EXPECT_EQ(read[7], 8);
}

TEST(HuggingFace, RefusesWhatItCannotCompute) {
  const format::Json good = *format::read_config(fixture("gpt2-tied"));
  const auto changed = [&](const char* key, format::Json value) {
    format::Json other = good;
    other[key] = std::move(value);
    return model::spec_from_config(other);
  };
  EXPECT_TRUE(changed("n_layer", 3).ok());
  EXPECT_TRUE(fails_with(changed("model_type", "llama"), Code::unsupported, "only \"gpt2\" is supported"));
  EXPECT_TRUE(fails_with(changed("activation_function", "silu"), Code::unsupported, "is \"silu\", must be"));
  EXPECT_TRUE(
      fails_with(changed("scale_attn_weights", false), Code::unsupported, "scale_attn_weights is false"));
  EXPECT_TRUE(fails_with(changed("n_head", 5), Code::invalid_argument, "multiple of model.heads, 5"));
  EXPECT_TRUE(fails_with(changed("n_embd", "wide"), Code::invalid_data, "n_embd"));
}

TEST(HuggingFace, AWrongShapeIsSaidWithBoth) {
  model::ModelSpec spec = *model::spec_from_config(*format::read_config(fixture("gpt2-tied")));
  spec.vocabulary = 64;
  const model::Unit unit = model::units_of(spec)[0];
  std::vector<float> values(unit.elements);
  EXPECT_TRUE(
      fails_with(model::read_parameters(*SafetensorsReader::open(fixture("gpt2-tied")), unit, 0, values),
                 Code::invalid_data, "transformer.wte.weight is [61, 32], but the model needs [64, 32]"));
}

}  // namespace
}  // namespace loom::testing
