// Checkpoints that `transformers` made: read, computed with as PyTorch does, and written back.
#include "model/hugging_face.h"

#include <algorithm>
#include <cstring>

#include "model/fixtures.h"

namespace loom::testing {
namespace {

using format::SafetensorsReader;

class Gpt2Fixtures : public ::testing::TestWithParam<const char*> {};

TEST_P(Gpt2Fixtures, LossLogitsAndGradientsArePyTorchs) {
  const Fixture given(GetParam());
  WholeModel<float> whole = load_whole(given.folder);
  const double loss = whole.step(given.integers("tokens"), given.integers("targets"), 2);
  EXPECT_NEAR(loss, given.floats("loss")[0], 1e-5 * loss);

  EXPECT_LT(logits_error(whole, given), 1e-5);

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
  WholeModel<float> whole = load_whole(given.folder);
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
        ops::operators<float>().update(workers, settings, whole.gradients(u).data() + p.offset, master,
                                       {first[u].data() + p.offset, second[u].data() + p.offset}, master,
                                       p.elements());
      }
  }
}

/// What gives elements of a whole unit's buffer.
model::ReadRange reader_of(const std::vector<float>& buffer) {
  return [&](int64_t begin, std::span<float> into) -> Status {
    std::copy_n(buffer.begin() + begin, into.size(), into.begin());
    return {};
  };
}

TEST_P(Gpt2Fixtures, WhatIsWrittenIsReadBack) {
  const Fixture given(GetParam());
  WholeModel<float> whole = load_whole(given.folder);
  const TemporaryFolder folder;
  const model::ModelSpec spec = given.spec();
  LOOM_ASSERT_OK(format::write_config(folder.path(), model::config_of(spec)));
  auto writer = format::ModelWriter::create(folder.path(), model::tensor_specs(whole.units()));
  LOOM_ASSERT_OK(writer);
  for (size_t u = 0; u < whole.units().size(); ++u)
    LOOM_ASSERT_OK(model::write_parameters(&*writer, whole.units()[u], reader_of(whole.parameters(u))));
  LOOM_ASSERT_OK(writer->finish());

  WholeModel<float> again = load_whole(folder.path());
  for (size_t u = 0; u < whole.units().size(); ++u) EXPECT_EQ(again.parameters(u), whole.parameters(u));
  EXPECT_EQ(again.step(given.integers("tokens"), given.integers("targets"), 2),
            whole.step(given.integers("tokens"), given.integers("targets"), 2));
}

INSTANTIATE_TEST_SUITE_P(Made, Gpt2Fixtures, ::testing::Values("gpt2-tied", "gpt2-untied"),
                         [](const auto& info) { return std::string(info.param).substr(5); });

class FamilyFixtures : public ::testing::TestWithParam<const char*> {
 protected:
  Fixture given_{std::string("families/") + GetParam()};
  std::vector<int32_t> tokens_ = given_.integers("tokens"), targets_ = given_.integers("targets");
  WholeModel<float> whole_ = load_whole(given_.folder);
  model::ModelSpec spec_ = given_.spec();
  int64_t counted_ = std::count_if(targets_.begin(), targets_.end(), [](int32_t t) { return t >= 0; });
};

/// The loss of step() is the mean over all tokens, PyTorch's over those with a target.
TEST_P(FamilyFixtures, LossLogitsAndGradientsArePyTorchs) {
  const double part = static_cast<double>(counted_) / static_cast<double>(tokens_.size());
  const double loss = whole_.step(tokens_, targets_, 2) / part;
  EXPECT_NEAR(loss, given_.floats("loss")[0], 1e-5 * loss);

  EXPECT_LT(logits_error(whole_, given_), 1e-5);

  const SafetensorsReader gradients =
      SafetensorsReader::open(given_.folder + "/gradients.safetensors").take();
  for (size_t u = 0; u < whole_.units().size(); ++u) {
    const model::Unit& unit = whole_.units()[u];
    std::vector<float> all(unit.elements);
    LOOM_ASSERT_OK(model::read_parameters(gradients, unit, 0, all));
    for (const model::Parameter& p : unit.parameters) {
      Doubles mine, theirs;
      for (int64_t i = p.offset; i < p.offset + p.elements(); ++i) {
        mine.push_back(static_cast<double>(whole_.gradients(u)[i]) / part);
        theirs.push_back(all[i]);
      }
      EXPECT_LT(error_of(mine, theirs), 1e-4) << p.name;
    }
  }
}

TEST_P(FamilyFixtures, WhatIsWrittenIsReadBack) {
  const TemporaryFolder folder;
  LOOM_ASSERT_OK(format::write_config(folder.path(), model::config_of(spec_)));
  auto writer = format::ModelWriter::create(folder.path(), model::tensor_specs(whole_.units()));
  LOOM_ASSERT_OK(writer);
  for (size_t u = 0; u < whole_.units().size(); ++u)
    LOOM_ASSERT_OK(model::write_parameters(&*writer, whole_.units()[u], reader_of(whole_.parameters(u))));
  LOOM_ASSERT_OK(writer->finish());

  // The same tensors as there were, and the same model.
  const SafetensorsReader before = SafetensorsReader::open(given_.folder).take(),
                          after = SafetensorsReader::open(folder.path()).take();
  for (const std::string& name : after.names()) {
    ASSERT_TRUE(before.contains(name)) << name;
    const auto old_bytes = before.tensor(name)->bytes, new_bytes = after.tensor(name)->bytes;
    EXPECT_TRUE(std::equal(old_bytes.begin(), old_bytes.end(), new_bytes.begin(), new_bytes.end())) << name;
  }
  WholeModel<float> again = load_whole(folder.path());
  EXPECT_EQ(again.step(tokens_, targets_, 2), whole_.step(tokens_, targets_, 2));
}

TEST_P(FamilyFixtures, RangesAreReadAlone) {
  const SafetensorsReader file = SafetensorsReader::open(given_.folder).take();
  for (size_t u : {0, 1, static_cast<int>(whole_.units().size()) - 1}) {
    const auto& all = whole_.parameters(u);
    for (size_t begin = 0; begin < all.size(); begin += 211) {
      std::vector<float> part(std::min<size_t>(211, all.size() - begin), -1.0f);
      LOOM_ASSERT_OK(model::read_parameters(file, whole_.units()[u], static_cast<int64_t>(begin), part));
      ASSERT_TRUE(std::equal(part.begin(), part.end(), all.begin() + static_cast<int64_t>(begin)))
          << u << " " << begin;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Made, FamilyFixtures,
                         ::testing::Values("gptj", "gptj-classification", "gpt_neox", "gpt_neox-serial",
                                           "gpt_neo", "bloom", "llama", "llama-llama3", "llama-linear",
                                           "llama-classification", "mistral", "qwen2", "qwen2-window",
                                           "qwen3", "qwen3-window", "bert", "bert-classification", "roberta",
                                           "roberta-classification", "bert-untied", "roberta-untied",
                                           "roberta-relu"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(HuggingFace, ANewTasksHeadBeginsAtRandom) {
  const std::string folder = fixture("families/gptj");
  const format::Json config = *format::read_config(folder);
  const auto spec = model::spec_from_config(config, model::Task::classification, 5);
  LOOM_ASSERT_OK(spec);
  const model::Unit head = model::units_of(*spec).back();
  std::vector<float> values(head.elements), initial(head.elements);
  Workers workers(1);
  LOOM_ASSERT_OK(model::read_parameters(*SafetensorsReader::open(folder), head, 0, values));
  model::initialize(workers, head, 1, 0, initial);
  const model::Parameter& score = *head.find(model::Part::head_weight);
  EXPECT_EQ(score.shape, (std::vector<uint64_t>{5, 16}));
  EXPECT_TRUE(std::equal(initial.begin() + score.offset, initial.end(), values.begin() + score.offset));
  EXPECT_NE(values[0], initial[0]);  // the last norm is the checkpoint's
}

TEST(HuggingFace, ARangeIsReadAlone) {
  WholeModel<float> whole = load_whole(fixture("gpt2-tied"));
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

/// bert-base-uncased and its like were published with these names.
TEST(HuggingFace, NormsMayHaveTheirOlderNames) {
  const std::string given = fixture("families/bert");
  const SafetensorsReader file = SafetensorsReader::open(given).take();
  for (const size_t prefix : {0, 5}) {  // with "bert." and without
    const TemporaryFolder folder;
    const auto renamed = [&](std::string name) {
      for (const auto& [now, then] :
           {std::pair("LayerNorm.weight", "LayerNorm.gamma"), std::pair("LayerNorm.bias", "LayerNorm.beta")})
        if (name.ends_with(now)) name.replace(name.size() - std::string(now).size(), std::string::npos, then);
      return name.starts_with("bert.") ? name.substr(prefix) : name;
    };
    std::vector<format::TensorSpec> specs;
    for (const std::string& name : file.names())
      specs.push_back({renamed(name), file.tensor(name)->dtype, file.tensor(name)->shape});
    auto writer = format::SafetensorsWriter::create(folder / "model.safetensors", specs);
    LOOM_ASSERT_OK(writer);
    for (const std::string& name : file.names()) {
      std::vector<float> values(file.tensor(name)->elements());
      std::memcpy(values.data(), file.tensor(name)->bytes.data(), file.tensor(name)->bytes.size());
      LOOM_ASSERT_OK(writer->write_f32(renamed(name), values));
    }
    LOOM_ASSERT_OK(writer->finish());
    const SafetensorsReader older = SafetensorsReader::open(folder.path()).take();
    EXPECT_TRUE(older.contains(std::string("bert.embeddings.LayerNorm.gamma").substr(prefix)));
    WholeModel<float> whole = load_whole(given);
    for (size_t u = 0; u < whole.units().size(); ++u) {
      std::vector<float> read(whole.units()[u].elements);
      LOOM_ASSERT_OK(model::read_parameters(older, whole.units()[u], 0, read));
      EXPECT_EQ(read, whole.parameters(u)) << "unit " << u;
    }
  }
}

TEST(HuggingFace, RefusesWhatItCannotCompute) {
  const format::Json good = *format::read_config(fixture("gpt2-tied"));
  const auto changed = [&](const char* key, format::Json value) {
    format::Json other = good;
    other[key] = std::move(value);
    return model::spec_from_config(other);
  };
  EXPECT_TRUE(changed("n_layer", 3).ok());
  EXPECT_TRUE(fails_with(changed("model_type", "mamba"), Code::unsupported,
                         "\"mamba\" is unknown, must be gpt2, gptj"));
  EXPECT_TRUE(fails_with(changed("activation_function", "mish"), Code::unsupported, "is \"mish\", must be"));
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

TEST(HuggingFace, NamesOfClassesAreKept) {
  format::Json config = *format::read_config(fixture("families/bert-classification"));
  EXPECT_TRUE(model::label_names(config)->empty()) << "LABEL_0 is no name";
  const std::vector<std::string> names = {"weft", "warp", "selvedge"};
  model::set_label_names(names, config);
  EXPECT_EQ(*model::label_names(config), names);
  EXPECT_EQ(config["label2id"], (format::Json{{"weft", 0}, {"warp", 1}, {"selvedge", 2}}));
  EXPECT_EQ(model::spec_from_config(config)->labels, 3);
  config["id2label"].erase("0");
  EXPECT_TRUE(fails_with(model::label_names(config), Code::invalid_data, "id2label has no text for \"0\""));
}

TEST(HuggingFace, ScaledRotaryPositionsAreRefused) {
  format::Json config = *format::read_config(fixture("families/gpt_neox"));
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  EXPECT_TRUE(fails_with(model::spec_from_config(config), Code::unsupported, "rope_scaling is {\"type\""));
  config["rope_scaling"] = nullptr;
  LOOM_ASSERT_OK(model::spec_from_config(config));
  config["rope_parameters"]["rope_type"] = "yarn";
  EXPECT_TRUE(fails_with(model::spec_from_config(config), Code::unsupported, "rope_type is \"yarn\""));
}

/// Published BLOOMs have these names, which its config takes for the others.
TEST(HuggingFace, BloomsSizesHaveOlderNamesToo) {
  const format::Json config = *format::read_config(fixture("families/bloom"));
  format::Json older = config;
  for (const auto& [now, then] : {std::pair("hidden_size", "n_embed"),
                                  {"n_head", "num_attention_heads"},
                                  {"n_layer", "num_hidden_layers"}}) {
    older[then] = older[now];
    older.erase(now);
  }
  const auto spec = model::spec_from_config(older);
  LOOM_ASSERT_OK(spec);
  EXPECT_EQ(model::config_of(*spec), model::config_of(*model::spec_from_config(config)));
  older.erase("n_embed");
  EXPECT_TRUE(fails_with(model::spec_from_config(older), Code::invalid_data, "hidden_size"));
}

/// Of every parameter of the head, and what else the model has: whether it is the checkpoint's or begins
/// anew.
TEST(HuggingFace, AnyTasksHeadBeginsAtRandomWhereTheCheckpointIsForAnother) {
  struct Begun {
    const char *from, *architecture;
    model::Task task;
    int anew;
  };
  for (const auto& [from, architecture, task, anew] :
       {Begun{"bert-classification", "", model::Task::masked, 5},
        {"bert", "BertModel", model::Task::masked, 0},
        {"gptj-classification", "", model::Task::causal, 2},
        {"roberta-classification", "", model::Task::masked, 5}}) {
    SCOPED_TRACE(fmt::format("{} {}", from, architecture));
    const std::string folder = fixture(std::string("families/") + from);
    format::Json config = *format::read_config(folder);
    if (*architecture != 0) config["architectures"] = format::Json::array({architecture});
    const auto spec = model::spec_from_config(config, task);
    LOOM_ASSERT_OK(spec);
    const model::Unit head = model::units_of(*spec).back();
    std::vector<float> values(static_cast<size_t>(head.elements)), initial(values.size());
    Workers workers(1);
    LOOM_ASSERT_OK(model::read_parameters(*SafetensorsReader::open(folder), head, 0, values));
    model::initialize(workers, head, 1, 0, initial);
    int begun = 0;
    for (const model::Parameter& p : head.parameters)
      begun += std::equal(values.begin() + p.offset, values.begin() + p.offset + p.elements(),
                          initial.begin() + p.offset);
    EXPECT_EQ(begun, anew);
  }
}

/// Nobody would notice the answers of a head at random.
TEST(HuggingFace, AModelsOwnHeadMustBeThere) {
  for (const auto& [config_from, tensors_from, name] :
       {std::tuple("bert-classification", "bert", "bert.pooler.dense.weight"),
        {"bert", "bert-classification", "cls.predictions.transform.dense.weight"}}) {
    const model::ModelSpec spec =
        *model::spec_from_config(*format::read_config(fixture(std::string("families/") + config_from)));
    const model::Unit head = model::units_of(spec).back();
    std::vector<float> values(static_cast<size_t>(head.elements));
    const SafetensorsReader file =
        SafetensorsReader::open(fixture(std::string("families/") + tensors_from)).take();
    EXPECT_TRUE(fails_with(model::read_parameters(file, head, 0, values), Code::not_found, name));
  }
}

}  // namespace
}  // namespace loom::testing
