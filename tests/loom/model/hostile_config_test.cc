// Damaged config.json files of every family: each number by itself replaced by what it cannot be, and every
// value by one of another type. What is taken in spite of it must be a model.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <set>

#include "model/hugging_face.h"
#include "model/units.h"
#include "support.h"

namespace loom::testing::hostile_config_test {
namespace {

using format::Json;

const char* const kModels[] = {"gpt2-tied",
                               "families/gptj",
                               "families/gptj-classification",
                               "families/gpt_neox",
                               "families/gpt_neo",
                               "families/bloom",
                               "families/llama",
                               "families/llama-llama3",
                               "families/mistral",
                               "families/qwen2-window",
                               "families/qwen3-window",
                               "families/bert",
                               "families/bert-classification",
                               "families/roberta",
                               "families/roberta-classification"};

Json config_of(const char* model) { return format::read_config(fixture(model)).take(); }

/// What all that reads a spec relies on.
void expect_sound(const model::ModelSpec& spec, const std::string& damage) {
  EXPECT_TRUE(spec.check().ok()) << damage;
  EXPECT_GT(spec.attention().head_size, 0) << damage;
  const std::vector<model::Unit> units = model::units_of(spec);
  EXPECT_EQ(static_cast<int64_t>(units.size()), spec.layers + 2) << damage;
  EXPECT_GT(model::parameter_count(units), 0) << damage;
}

/// Refused with a sentence, or a model; nothing else.
void read_damaged(const Json& config, const std::string& damage) {
  const Result<model::ModelSpec> spec = model::spec_from_config(config);
  if (spec.ok()) return expect_sound(*spec, damage);
  const Code code = spec.status().code();
  EXPECT_TRUE(code == Code::invalid_data || code == Code::invalid_argument || code == Code::unsupported)
      << damage << ": " << spec.status().message();
  EXPECT_GT(spec.status().message().size(), 10u) << damage;
}

/// Calls `damage` with each value of the config, one after the other, and puts it back afterwards.
void each_value(Json& json, const std::string& at,
                const std::function<void(Json& value, const std::string& at)>& damage) {
  if (json.is_structured())
    for (auto& item : json.items()) each_value(item.value(), at + "/" + item.key(), damage);
  const Json before = json;
  damage(json, at);
  json = before;
}

class HostileConfig : public ::testing::TestWithParam<const char*> {};

TEST_P(HostileConfig, EveryDamagedValueIsRefusedOrHarmless) {
  const Json values[] = {0,
                         -1,
                         1,
                         0.5,
                         int64_t{1} << 60,
                         std::numeric_limits<int64_t>::max(),
                         std::numeric_limits<int64_t>::min(),
                         std::numeric_limits<uint64_t>::max(),
                         std::numeric_limits<int32_t>::max(),
                         1e30,
                         -1e30,
                         1e300,
                         "nan",
                         "",
                         nullptr,
                         true,
                         Json::array(),
                         Json::array({1, "x", nullptr}),
                         Json::object(),
                         Json{{"x", 1}}};
  Json config = config_of(GetParam());
  int read = 0;
  each_value(config, "", [&](Json& value, const std::string& at) {
    for (const Json& damaged : values) {
      value = damaged;
      read_damaged(config, at + " = " + damaged.dump());
      ++read;
    }
  });
  EXPECT_GT(read, 300);
}

TEST_P(HostileConfig, ANumberThatIsNoneIsBrokenJson) {
  Json config = config_of(GetParam());
  config["vocab_size"] = "HERE";
  for (const char* text : {"NaN", "Infinity", "-Infinity", "1e", "0x10", "1_000"}) {
    std::string file = config.dump();
    file.replace(file.find("\"HERE\""), 6, text);
    EXPECT_TRUE(fails_with(format::parse_json(file), Code::invalid_data, "line 1")) << text;
  }
}

TEST_P(HostileConfig, SizesMustBeSizes) {
  const std::set<std::string> sizes = {"vocab_size",
                                       "n_positions",
                                       "n_embd",
                                       "n_layer",
                                       "n_head",
                                       "n_inner",
                                       "max_position_embeddings",
                                       "hidden_size",
                                       "num_hidden_layers",
                                       "num_attention_heads",
                                       "intermediate_size",
                                       "num_layers",
                                       "num_heads",
                                       "type_vocab_size",
                                       "rotary_dim"};
  Json config = config_of(GetParam());
  int refused = 0;
  each_value(config, "", [&](Json& value, const std::string& at) {
    const std::string key = at.empty() ? at : at.substr(1);
    if (!sizes.contains(key) || value.is_null()) return;
    for (const Json& wrong : {Json(0), Json(-1), Json(int64_t{1} << 60), Json(1e30), Json("nan")}) {
      value = wrong;
      const Status status = model::spec_from_config(config).status();
      EXPECT_NE(status.message().find(key), std::string::npos)
          << key << " = " << wrong.dump() << ": " << status.message();
      ++refused;
    }
  });
  EXPECT_GE(refused, 20);
}

INSTANTIATE_TEST_SUITE_P(Each, HostileConfig, ::testing::ValuesIn(kModels), [](const auto& info) {
  std::string name = info.param;
  name = name.substr(name.find('/') + 1);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(HostileConfigs, KindsOfLayersWithoutEnd) {
  Json config = config_of("families/gpt_neo");
  const auto refused = [&](const char* types) {
    config["attention_types"] = Json::parse(types);
    return fails_with(model::spec_from_config(config), Code::invalid_data, "attention_types must be");
  };
  EXPECT_TRUE(refused("[[[], 9000000000000000000]]"));
  EXPECT_TRUE(refused(R"([[["global", "local"], 9000000000000000000]])"));
  EXPECT_TRUE(refused(R"([[["global", "local"], 18446744073709551615]])"));
  EXPECT_TRUE(refused(R"([[["global", "local"], 0]])"));
  EXPECT_TRUE(refused(R"([[["global", "local"], -1]])"));
  EXPECT_TRUE(refused(R"([[["global", "sideways"], 1]])"));
  config["attention_types"] = Json::parse(R"([[["global"], 1], [["local"], 1]])");
  LOOM_ASSERT_OK(model::spec_from_config(config));
}

/// As `transformers` reads them.
TEST(HostileConfigs, OldKeysOfRotationsFillInWhatTheNewOnesLeaveOut) {
  Json config = config_of("families/gpt_neox");
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 500}};
  config["rotary_pct"] = 1.0;
  config["rotary_emb_base"] = 7;
  const Result<model::ModelSpec> spec = model::spec_from_config(config);
  LOOM_ASSERT_OK(spec);
  EXPECT_EQ(spec->rotary_dims, spec->attention().head_size);
  EXPECT_EQ(spec->rotary_base, 500);
}

TEST(HostileConfigs, RotationsThatAreNone) {
  Json config = config_of("families/gpt_neox");
  const auto refused = [&](const char* key, double value, const char* words) {
    Json damaged = config;
    damaged["rope_parameters"][key] = value;
    const Status status = model::spec_from_config(damaged).status();
    EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
    return !status.ok();
  };
  EXPECT_TRUE(refused("partial_rotary_factor", 1e30, "partial_rotary_factor is 1e+30, must be above 0"));
  EXPECT_TRUE(refused("partial_rotary_factor", -0.5, "partial_rotary_factor is -0.5"));
  EXPECT_TRUE(refused("partial_rotary_factor", 0, "partial_rotary_factor is 0"));
  EXPECT_TRUE(refused("partial_rotary_factor", 0.01, "partial_rotary_factor is 0.01, which turns 0 of the"));
  EXPECT_TRUE(refused("rope_theta", 0, "rotary_base is 0, must be positive"));
  EXPECT_TRUE(refused("rope_theta", -10000, "rotary_base is -10000"));
}

}  // namespace
}  // namespace loom::testing::hostile_config_test
