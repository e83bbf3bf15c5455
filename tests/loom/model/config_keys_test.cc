// Keys of config.json: each is understood as `transformers` understands it, or refused, or known to mean
// nothing, or named.
#include "model/config_keys.h"

#include <gtest/gtest.h>

#include <set>

#include "model/families.h"
#include "model/families/family.h"
#include "model/hugging_face.h"
#include "model/same_model.h"
#include "support.h"

namespace loom::testing {
namespace {

using format::Json;
using model::Family;

const std::pair<const char*, Family> kModels[] = {{"gpt2-tied", Family::gpt2},
                                                  {"families/gptj", Family::gptj},
                                                  {"families/gpt_neox", Family::gpt_neox},
                                                  {"families/gpt_neo", Family::gpt_neo},
                                                  {"families/bloom", Family::bloom},
                                                  {"families/llama", Family::llama},
                                                  {"families/mistral", Family::mistral},
                                                  {"families/qwen2", Family::qwen2},
                                                  {"families/qwen3", Family::qwen3},
                                                  {"families/bert", Family::bert},
                                                  {"families/roberta", Family::roberta}};

Json config_of(const char* model) { return format::read_config(fixture(model)).take(); }

/// The model of a fixture's config with one key set.
Result<model::ModelSpec> with(const char* model, const char* key, const Json& value) {
  Json config = config_of(model);
  config[key] = value;
  return model::spec_from_config(config);
}

/// What a difference is looked for in: all that config_of() writes.
Json written(const model::ModelSpec& spec) { return model::config_of(spec); }

/// `num_attention_heads` in a GPT-2's file used to be read past, and the model had another number of heads.
TEST(ConfigKeys, ANameOfAnotherFamilyThatTransformersMapsIsTheFamilysOwn) {
  int aliases = 0;
  for (const auto& [name, family] : kModels)
    for (const auto& [alias, own] : model::description_of(family).keys.aliases) {
      SCOPED_TRACE(fmt::format("{} for {} of {}", alias, own, name));
      Json renamed = config_of(name);
      // BLOOM's context is the one key that a config may leave out.
      renamed[alias] = renamed[own];
      renamed.erase(own);
      const auto before = model::spec_from_config(config_of(name)), after = model::spec_from_config(renamed);
      LOOM_ASSERT_OK(after);
      EXPECT_EQ(written(*before), written(*after));
      // Beside the family's own it wins, as in transformers; null is no value.
      Json both = config_of(name);
      const int64_t doubled = both[own].get<int64_t>() * 2;
      both[alias] = doubled;
      both["attention_types"] = nullptr;
      both["attention_layers"] = nullptr;
      const auto won = model::spec_from_config(both);
      both.erase(alias);
      both[own] = doubled;
      const auto wanted = model::spec_from_config(both);
      ASSERT_EQ(won.ok(), wanted.ok());
      if (won.ok()) {
        EXPECT_EQ(written(*won), written(*wanted));
      }
      EXPECT_TRUE(with(name, alias, nullptr).ok());
      ++aliases;
    }
  EXPECT_EQ(aliases, 4 + 4 + 2 + 3);
}

TEST(ConfigKeys, LayersByTheirListAreThoseOfTheList) {
  const char* const neo = "families/gpt_neo";  // global, local
  const auto changed = with(neo, "attention_layers", Json::array({"local", "global"}));
  LOOM_ASSERT_OK(changed);
  EXPECT_EQ(changed->local, (std::vector<bool>{true, false}));
  EXPECT_TRUE(fails_with(with(neo, "attention_layers", Json::array({"local"})), Code::invalid_data,
                         "attention_layers must have"));
  EXPECT_TRUE(fails_with(with(neo, "attention_layers", Json::array({"local", "here"})), Code::invalid_data,
                         "attention_layers must have"));
  EXPECT_TRUE(with(neo, "attention_layers", nullptr).ok());
  EXPECT_TRUE(with(neo, "attention_types", nullptr).ok());
}

TEST(ConfigKeys, WhatIsNotComputedHereIsRefusedByName) {
  struct Asked {
    const char *model, *key;
    Json value;
  };
  for (const auto& [model, key, value] :
       {Asked{"gpt2-tied", "scale_attn_weights", false},
        {"gpt2-tied", "scale_attn_weights", nullptr},
        {"gpt2-tied", "scale_attn_by_inverse_layer_idx", true},
        {"gpt2-tied", "add_cross_attention", true},
        {"gpt2-tied", "pruned_heads", {{"0", {1}}}},
        {"gpt2-tied", "quantization_config", {{"bits", 4}}},
        {"gpt2-tied", "transformers_weights", "other.safetensors"},
        {"gpt2-tied", "configuration_files", {"config.4.0.0.json"}},
        {"gpt2-tied", "per_layer_config", {{"0", {{"n_head", 2}}}}},
        {"gpt2-tied", "tie_word_embeddings", nullptr},
        {"families/gpt_neox", "rope_scaling", {{"type", "linear"}}},
        {"families/gpt_neox", "rope_parameters", 3},
        {"families/gpt_neox", "head_dim", 4},
        {"families/gpt_neox", "use_parallel_residual", nullptr},
        {"families/gpt_neox", "attention_bias", nullptr},
        {"families/bloom", "apply_residual_connection_post_layernorm", true},
        {"families/llama", "rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}},
        {"families/llama", "rope_scaling", {{"type", "linear"}}},
        {"families/llama", "rope_scaling", {{"type", "linear"}, {"factor", 0.5}}},
        {"families/llama", "rope_scaling", {{"type", "linear"}, {"rope_type", "llama3"}, {"factor", 2.0}}},
        {"families/llama", "rope_parameters", {{"partial_rotary_factor", 0.5}}},
        {"families/llama", "partial_rotary_factor", 0.5},
        {"families/llama", "num_key_value_heads", 3},
        {"families/llama", "head_dim", 5},
        {"families/llama", "is_causal", false},
        {"families/mistral", "sliding_window", 0},
        {"families/qwen2-window", "layer_types", {"full_attention"}},
        {"families/qwen2-window", "layer_types", {"full_attention", "chunked_attention"}},
        {"families/qwen2-window", "use_sliding_window", false},
        {"families/bert", "is_decoder", true},
        {"families/bert", "position_embedding_type", "relative_key"},
        {"families/bert", "is_encoder_decoder", true},
        {"families/roberta", "pad_token_id", -1},
        {"families/bert-classification", "problem_type", "regression"},
        {"families/bert-classification", "id2label", 3}}) {
    const auto spec = with(model, key, value);
    ASSERT_FALSE(spec.ok()) << key;
    EXPECT_NE(spec.status().message().find(key), std::string::npos) << spec.status().message();
  }
}

TEST(ConfigKeys, WhatIsLeftOutIsWhatTransformersTakes) {
  const auto without = [](const char* model, std::initializer_list<const char*> keys) {
    Json config = config_of(model);
    for (const char* key : keys) config.erase(key);
    return model::spec_from_config(config).take();
  };
  const model::ModelSpec roberta = without(
      "families/roberta", {"layer_norm_eps", "type_vocab_size", "intermediate_size", "hidden_dropout_prob"});
  EXPECT_EQ(roberta.epsilon, 1e-12f);
  EXPECT_EQ(roberta.token_types, 2);
  EXPECT_EQ(roberta.feed_forward, 3072);
  EXPECT_EQ(roberta.residual_dropout, 0.1f);
  EXPECT_EQ(without("gpt2-tied", {"attn_pdrop"}).attention_dropout, 0.1f);
  EXPECT_EQ(without("families/gptj", {"attn_pdrop"}).attention_dropout, 0.0f);
  EXPECT_EQ(without("families/gpt_neox", {"intermediate_size"}).feed_forward, 24576);
  const model::ModelSpec llama =
      without("families/llama", {"num_key_value_heads", "head_dim", "rms_norm_eps", "intermediate_size",
                                 "max_position_embeddings", "rope_parameters"});
  EXPECT_EQ(llama.attention().key_value_heads, 4);
  EXPECT_EQ(llama.attention().head_size, 4);
  EXPECT_EQ(llama.epsilon, 1e-6f);
  EXPECT_EQ(llama.feed_forward, 11008);
  EXPECT_EQ(llama.context, 2048);
  EXPECT_EQ(llama.rotary_base, 10000);
  EXPECT_EQ(without("families/mistral", {"sliding_window"}).window, 4096);
  EXPECT_EQ(without("families/qwen3", {"head_dim"}).attention().head_size, 128);
}

/// transformers 4 wrote rotary positions under other keys; what it wrote is the same model.
TEST(ConfigKeys, TheOlderKeysOfRotaryPositionsAreTheSameModel) {
  for (const char* const name : {"families/llama-llama3", "families/llama-linear", "families/qwen2"}) {
    const Json config = config_of(name);
    Json older = config, both = config;
    Json rope = older["rope_parameters"];
    older.erase("rope_parameters");
    older["rope_theta"] = rope["rope_theta"];
    rope.erase("rope_theta");
    if (rope["rope_type"] == "default") rope = nullptr;
    older["rope_scaling"] = rope;
    if (rope.is_object() && rope["rope_type"] == "linear") {
      older["rope_scaling"].erase("rope_type");
      older["rope_scaling"]["type"] = "linear";
    }
    const auto newer_spec = model::spec_from_config(config), older_spec = model::spec_from_config(older);
    LOOM_ASSERT_OK(newer_spec);
    LOOM_ASSERT_OK(older_spec);
    EXPECT_EQ(written(*newer_spec), written(*older_spec)) << name;
    EXPECT_TRUE(model::unknown_keys(older, newer_spec->family).empty()) << name;
    // An object that says nothing changes nothing.
    both["rope_scaling"] = Json::object();
    EXPECT_EQ(written(*newer_spec), written(*model::spec_from_config(both))) << name;
  }
}

TEST(ConfigKeys, NumbersAreWrittenAsTheyWereRead) {
  Json config = config_of("families/llama");
  config["rms_norm_eps"] = 1e-6;
  EXPECT_EQ(written(*model::spec_from_config(config))["rms_norm_eps"].dump(), "1e-06");
}

TEST(ConfigKeys, NullIsNotLeftOut) {
  EXPECT_EQ(with("families/mistral", "sliding_window", nullptr)->window, 0);
  EXPECT_TRUE(with("families/mistral", "sliding_window", nullptr)->local.empty());
  EXPECT_EQ(with("families/mistral", "num_key_value_heads", nullptr)->attention().key_value_heads, 4);
  EXPECT_EQ(with("families/qwen2", "num_key_value_heads", nullptr)->attention().key_value_heads, 4);
}

TEST(ConfigKeys, LaterLayersOfAQwen2SeeAWindow) {
  Json config = config_of("families/qwen2-window");
  config.erase("layer_types");
  const auto spec = model::spec_from_config(config);
  LOOM_ASSERT_OK(spec);
  EXPECT_EQ(spec->local, (std::vector<bool>{false, true}));
  EXPECT_EQ(spec->window, 4);
  config["use_sliding_window"] = false;
  EXPECT_TRUE(model::spec_from_config(config)->local.empty());
}

TEST(ConfigKeys, PaddingMovesThePositionsOfARoberta) {
  for (const int padding : {0, 1, 7}) {
    const auto spec = with("families/roberta", "pad_token_id", padding);
    LOOM_ASSERT_OK(spec);
    EXPECT_EQ(spec->padding, padding);
    EXPECT_EQ(spec->first_position, padding + 1);
    EXPECT_EQ(spec->context, 16 - padding - 1);
  }
}

/// 0.58 of 100 elements is 57.99…, of which transformers takes 57.
TEST(ConfigKeys, ThePartOfAHeadThatIsTurnedComesBack) {
  for (int64_t head_size = 2; head_size <= 256; head_size += 2)
    for (int64_t dims = 2; dims <= head_size; dims += 2) {
      Json config = config_of("families/gpt_neox");
      config["hidden_size"] = 2 * head_size;
      config["rope_parameters"]["partial_rotary_factor"] = 1.0;
      model::ModelSpec spec = model::spec_from_config(config).take();
      spec.rotary_dims = dims;
      const Json stored = model::config_of(spec);
      EXPECT_EQ(model::spec_from_config(stored)->rotary_dims, dims) << head_size;
      const auto part = stored["rope_parameters"]["partial_rotary_factor"].get<double>();
      EXPECT_EQ(static_cast<int64_t>(static_cast<double>(head_size) * part), dims);
    }
}

TEST(ConfigKeys, LabelsAreCountedByEitherKey) {
  Json config = config_of("families/bert-classification");
  config["num_labels"] = 7;
  EXPECT_EQ(model::spec_from_config(config)->labels, 3) << "id2label wins";
  config["id2label"] = nullptr;
  EXPECT_EQ(model::spec_from_config(config)->labels, 7);
  config.erase("num_labels");
  EXPECT_EQ(model::spec_from_config(config)->labels, 2);
  config["num_labels"] = 1;
  EXPECT_TRUE(fails_with(model::spec_from_config(config), Code::unsupported, "regression"));
  config["num_labels"] = 2'000'000'000;
  EXPECT_TRUE(fails_with(model::spec_from_config(config), Code::invalid_argument, "num_labels"));
  config["num_labels"] = 1;
  EXPECT_EQ(model::spec_from_config(config, model::Task::classification, 5)->labels, 5);
}

/// Values of the same kind as this one, but others.
std::vector<Json> others(const Json& value) {
  if (value.is_boolean()) return {!value.get<bool>()};
  if (value.is_number_integer()) return {value.get<int64_t>() * 2 + 2, value.get<int64_t>() + 1};
  if (value.is_number_float()) return {value.get<double>() + 0.25};
  if (value.is_string()) return {value == "relu" ? "gelu" : "relu"};
  if (value.is_null()) return {true, 2, 0.25, "relu"};
  return {};  // lists and objects have tests of their own
}

/// Every key of what `transformers` saves, changed by itself: the model is another one, or it is refused, or
/// the key is one that changes nothing in `transformers` either.
TEST(ConfigKeys, AChangeOfAnyKeyIsAnotherModelOrRefusedOrWithoutMeaning) {
  const std::set<std::string> without_meaning = {"bos_token_id",
                                                 "dtype",
                                                 "eos_token_id",
                                                 "reorder_and_upcast_attn",
                                                 "summary_activation",
                                                 "summary_first_dropout",
                                                 "summary_proj_to_labels",
                                                 "summary_type",
                                                 "summary_use_proj",
                                                 "transformers_version",
                                                 "use_cache",
                                                 "pretraining_tp",
                                                 "slow_but_exact"};
  const std::set<std::string> of_windows = {"max_window_layers", "sliding_window", "use_sliding_window"};
  int changed = 0;
  const auto check = [&](const char* name, bool classifies, const std::set<std::string>& besides) {
    const Json config = config_of(name);
    const Json before = written(*model::spec_from_config(config));
    for (const auto& [key, value] : config.items())
      for (const Json& other : others(value)) {
        const auto spec = with(name, key.c_str(), other);
        if (!spec.ok()) {
          EXPECT_NE(spec.status().message(), "") << key;
          EXPECT_FALSE(without_meaning.contains(key)) << key << ": " << spec.status().message();
          continue;
        }
        ++changed;
        const bool same = written(*spec) == before,
                   known = without_meaning.contains(key) || besides.contains(key);
        EXPECT_EQ(same, known) << name << ": " << key << " = " << other.dump()
                               << (classifies ? ", classes" : "");
      }
  };
  for (const auto& [name, family] : kModels) {
    std::set<std::string> besides;
    const bool masked = family == Family::bert || family == Family::roberta;
    if (!masked) besides = {"pad_token_id", "classifier_dropout"};
    if (family == Family::gpt_neox) besides.insert("is_decoder");
    // Its list of layers has none with a window.
    if (family == Family::qwen2 || family == Family::qwen3) besides.merge(std::set<std::string>(of_windows));
    check(name, false, besides);
  }
  check("families/qwen2-window", false, {"pad_token_id", "max_window_layers"});
  for (const char* name : {"families/bert-classification", "families/roberta-classification"})
    check(name, true, {"tie_word_embeddings"});
  EXPECT_GT(changed, 100);
}

/// Published models have them, which were listed as unknown.
TEST(ConfigKeys, WhatOlderVersionsSavedIsKnown) {
  const Json config = {{"n_special", 0}, {"predict_special_tokens", true}, {"_num_labels", 1}};
  EXPECT_EQ(model::unknown_keys(config, Family::gpt2), std::vector<std::string>{});
}

TEST(ConfigKeys, EveryActivationThatIsReadIsNamedWhereAnotherIsRefused) {
  const auto other = with("gpt2-tied", "activation_function", "mish");
  ASSERT_FALSE(other.ok());
  for (const char* name : {"gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu", "relu", "silu", "swish"}) {
    EXPECT_NE(other.status().message().find(name), std::string::npos) << name;
    EXPECT_TRUE(with("gpt2-tied", "activation_function", name).ok()) << name;
  }
}

TEST(ConfigKeys, WhatSavedConfigsHaveIsKnown) {
  for (const auto& [name, family] : kModels) {
    const Json config = config_of(name);
    EXPECT_EQ(model::unknown_keys(config, family), std::vector<std::string>{}) << name;
    const Json own = model::config_of(*model::spec_from_config(config));
    EXPECT_EQ(model::unknown_keys(own, family), std::vector<std::string>{}) << name;
    Json changed = config;
    changed["n_heads"] = 3;
    changed["rope_parameters"]["beta_fast"] = 2;
    std::vector<std::string> wanted = {"n_heads"};
    const bool turns = !model::description_of(family).keys.nested.empty();
    wanted.push_back(turns ? "rope_parameters.beta_fast" : "rope_parameters");
    EXPECT_EQ(model::unknown_keys(changed, family), wanted) << name;
  }
}

}  // namespace
}  // namespace loom::testing
