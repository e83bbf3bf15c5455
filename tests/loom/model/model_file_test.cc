// Files of models as `save_pretrained` of several versions leaves them: what they have twice, leave out, or
// have beside the model.
#include "model/model_file.h"

#include <cstring>
#include <functional>

#include "model/fixtures.h"

namespace loom::testing {
namespace {

using format::Json;
using format::SafetensorsReader;

/// A copy of a fixture whose tensors can be renamed, left out, added and changed.
class ModelFiles : public ::testing::Test {
 protected:
  struct Tensor {
    std::vector<uint64_t> shape;
    std::vector<float> values;
  };
  using Tensors = std::map<std::string, Tensor>;

  void copy(const char* name, const std::function<void(Tensors&)>& change,
            const std::function<void(Json&)>& change_config = {}) {
    const SafetensorsReader file = SafetensorsReader::open(fixture(name)).take();
    Tensors tensors;
    for (const std::string& tensor : file.names()) {
      const format::TensorView view = file.tensor(tensor).take();
      Tensor& own = tensors[tensor];
      own.shape = view.shape;
      own.values.resize(view.elements());
      std::memcpy(own.values.data(), view.bytes.data(), view.bytes.size());
    }
    change(tensors);
    std::vector<format::TensorSpec> specs;
    for (const auto& [tensor, own] : tensors) specs.push_back({tensor, format::DType::f32, own.shape});
    auto writer = format::SafetensorsWriter::create(folder_ / "model.safetensors", specs);
    LOOM_ASSERT_OK(writer);
    for (const auto& [tensor, own] : tensors) LOOM_ASSERT_OK(writer->write_f32(tensor, own.values));
    LOOM_ASSERT_OK(writer->finish());
    Json config = format::read_config(fixture(name)).take();
    if (change_config) change_config(config);
    LOOM_ASSERT_OK(format::write_config(folder_.path(), config));
  }
  Result<model::ModelFile> open() const {
    return model::open_model_file(folder_.path(),
                                  *model::spec_from_config(*format::read_config(folder_.path())));
  }
  /// That every parameter is the fixture's, and that nothing is to be said.
  void expect_the_same(const char* name) {
    const auto file = open();
    LOOM_ASSERT_OK(file);
    EXPECT_EQ(file->notes, std::vector<std::string>{});
    WholeModel<float> before = load_whole(fixture(name)), after = load_whole(folder_.path());
    for (size_t u = 0; u < before.units().size(); ++u)
      EXPECT_EQ(before.parameters(u), after.parameters(u)) << "unit " << u;
  }

  TemporaryFolder folder_;
};

struct TiedModel {
  const char *name, *embedding, *head;
};
const TiedModel kTied[] = {
    {"gpt2-tied", "transformer.wte.weight", "lm_head.weight"},
    {"families/gpt_neo", "transformer.wte.weight", "lm_head.weight"},
    {"families/bloom", "transformer.word_embeddings.weight", "lm_head.weight"},
    {"families/bert", "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"},
    {"families/roberta", "roberta.embeddings.word_embeddings.weight", "lm_head.decoder.weight"}};

/// Such a head was read past, and the embedding taken in its place, without a word.
TEST_F(ModelFiles, ATiedHeadThatDiffersFromTheEmbeddingIsRefusedWithWhatToDo) {
  for (const auto& [name, embedding, head] : kTied) {
    copy(name, [&](Tensors& tensors) {
      tensors[head] = tensors.at(embedding);
      tensors[head].values[3] += 1;
    });
    EXPECT_TRUE(fails_with(open(), Code::invalid_data, fmt::format("{} differs from {}", head, embedding)));
    EXPECT_TRUE(fails_with(open(), Code::invalid_data, "\"tie_word_embeddings\": false"));
  }
}

TEST_F(ModelFiles, ATiedHeadIsTheSameTensorUnderEitherNameOrBoth) {
  for (const auto& [name, embedding, head] : kTied) {
    SCOPED_TRACE(name);
    copy(name, [&](Tensors& tensors) { tensors[head] = tensors.at(embedding); });
    expect_the_same(name);
    // As safetensors' save_model() leaves it, which keeps the first of the two by name.
    copy(name, [&](Tensors& tensors) {
      tensors[head] = tensors.at(embedding);
      tensors.erase(embedding);
    });
    expect_the_same(name);
  }
}

TEST_F(ModelFiles, TheBiasOfAMaskedHeadIsTheSameTensorUnderEitherName) {
  for (const auto& [name, bias, other] :
       {std::tuple("families/bert", "cls.predictions.bias", "cls.predictions.decoder.bias"),
        {"families/roberta", "lm_head.bias", "lm_head.decoder.bias"}}) {
    copy(name, [&](Tensors& tensors) {
      tensors[other] = tensors.at(bias);
      tensors.erase(bias);
    });
    expect_the_same(name);
    copy(name, [&](Tensors& tensors) {
      tensors[other] = tensors.at(bias);
      tensors[other].values[0] += 1;
    });
    EXPECT_TRUE(fails_with(open(), Code::invalid_data, fmt::format("{} differs from {}", other, bias)));
  }
}

TEST_F(ModelFiles, TensorsThatAreNotUsedAreNamedInOneLine) {
  copy("gpt2-tied", [](Tensors& tensors) {
    for (const char* name : {"score.weight", "transformer.h.7.ln_1.weight"}) tensors[name] = {{1}, {1}};
  });
  const auto file = open();
  LOOM_ASSERT_OK(file);
  ASSERT_EQ(file->notes.size(), 1u);
  EXPECT_NE(file->notes[0].find("2 tensors are not used: score.weight, transformer.h.7.ln_1.weight"),
            std::string::npos)
      << file->notes[0];
  copy("gpt2-tied", [](Tensors& tensors) {
    for (int i = 0; i < 20; ++i) tensors[fmt::format("more.{:02}", i)] = {{1}, {1}};
  });
  EXPECT_NE(open()->notes.at(0).find("20 tensors are not used: more.00, "), std::string::npos);
  EXPECT_NE(open()->notes.at(0).find("more.07 and 12 more"), std::string::npos) << open()->notes[0];
}

/// Older versions saved masks, positions and frequencies; every class makes them again.
TEST_F(ModelFiles, BuffersOfOlderVersionsAreNoTensorsOfTheModel) {
  for (const auto& [name, buffers] : std::initializer_list<std::pair<const char*, std::vector<const char*>>>{
           {"gpt2-tied", {"transformer.h.0.attn.bias", "transformer.h.0.attn.masked_bias"}},
           {"families/gptj", {"transformer.h.0.attn.bias", "transformer.h.1.attn.masked_bias"}},
           {"families/gpt_neo",
            {"transformer.h.0.attn.attention.bias", "transformer.h.0.attn.attention.masked_bias"}},
           {"families/gpt_neox",
            {"gpt_neox.layers.0.attention.bias", "gpt_neox.layers.0.attention.masked_bias",
             "gpt_neox.layers.1.attention.rotary_emb.inv_freq"}},
           {"families/bert", {"bert.embeddings.position_ids"}},
           {"families/roberta", {"roberta.embeddings.position_ids", "roberta.embeddings.token_type_ids"}}}) {
    copy(name, [&names = buffers](Tensors& tensors) {
      for (const char* buffer : names) tensors[buffer] = {{1}, {1}};
    });
    expect_the_same(name);
  }
}

TEST_F(ModelFiles, NeoXsHeadIsFoundUnderItsNewerNameToo) {
  copy("families/gpt_neox", [](Tensors& tensors) {
    tensors["lm_head.weight"] = tensors.at("embed_out.weight");
    tensors.erase("embed_out.weight");
  });
  expect_the_same("families/gpt_neox");
}

TEST_F(ModelFiles, UnknownKeysOfTheConfigAreNamed) {
  copy(
      "families/bert", [](Tensors&) {}, [](Json& config) { config["n_head"] = 4, config["zoom"] = 4; });
  const auto file = open();
  LOOM_ASSERT_OK(file);
  ASSERT_EQ(file->notes.size(), 1u);
  EXPECT_NE(file->notes[0].find("2 keys of its config.json are unknown"), std::string::npos)
      << file->notes[0];
  EXPECT_NE(file->notes[0].find(": n_head, zoom"), std::string::npos) << file->notes[0];
}

TEST_F(ModelFiles, AnAdapterBesideTheModelIsRefused) {
  copy("gpt2-tied", [](Tensors&) {});
  put_file(folder_ / "adapter_config.json", "{}");
  EXPECT_TRUE(fails_with(open(), Code::unsupported, "merge_and_unload"));
}

/// The last layer is of other classes, what is below it is not.
TEST_F(ModelFiles, AClassifierOfOtherClassesBeginsWithAllButItsLastLayer) {
  for (const char* name :
       {"families/bert-classification", "families/roberta-classification", "families/gptj-classification"}) {
    const Json config = format::read_config(fixture(name)).take();
    const auto own = model::spec_from_config(config, model::Task::classification, 3),
               other = model::spec_from_config(config, model::Task::classification, 5);
    LOOM_ASSERT_OK(other);
    EXPECT_FALSE(own->new_classes);
    EXPECT_TRUE(other->new_classes);
    const auto file = model::open_model_file(fixture(name), *other);
    LOOM_ASSERT_OK(file);
    EXPECT_EQ(file->notes.size(), 0u) << "the run tells it, with the names of both";
    const model::Unit head = model::units_of(*other).back(), before = model::units_of(*own).back();
    std::vector<float> values(static_cast<size_t>(head.elements)),
        stored(static_cast<size_t>(before.elements));
    LOOM_ASSERT_OK(model::read_parameters(file->tensors, head, 0, values));
    LOOM_ASSERT_OK(model::read_parameters(file->tensors, before, 0, stored));
    for (const model::Parameter& p : head.parameters) {
      if (p.part >= model::Part::head_weight) continue;
      EXPECT_TRUE(std::equal(values.begin() + p.offset, values.begin() + p.offset + p.elements(),
                             stored.begin() + before.find(p.part)->offset))
          << p.name;
    }
  }
}

}  // namespace
}  // namespace loom::testing
