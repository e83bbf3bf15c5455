// What a config may say, and what it means.
#include "train/config.h"

#include "program/generate.h"
#include "program/memory.h"
#include "support.h"

namespace loom::testing {
namespace {

using train::Config;

Result<Config> parsed(const std::string& json, const std::vector<std::string>& overrides = {}) {
  return train::parse_config(*format::parse_json(json), overrides);
}

TEST(Config, DefaultsAreKeptAndOverridesWin) {
  const Result<Config> config =
      parsed(R"({"optimizer": {"learning_rate": 1, "schedule": "linear"}, "run": {"out": "a"}})",
             {"run.out=b", "parallel.strict=true", "optimizer.beta1=0.5", "run.steps=7"});
  LOOM_ASSERT_OK(config);
  EXPECT_EQ(config->optimizer.learning_rate, 1);
  EXPECT_EQ(config->run.out, "b");
  EXPECT_TRUE(config->parallel.strict);
  EXPECT_EQ(config->optimizer.beta1, 0.5);
  EXPECT_EQ(config->run.steps, 7);
  EXPECT_EQ(config->optimizer.beta2, Config().optimizer.beta2);
}

TEST(Config, IsWrittenWithEveryKeyAndReadBack) {
  Config config;
  config.model.layers = 9;
  config.optimizer.epsilon = 1e-5;
  const format::Json json = train::to_json(config);
  const Result<Config> again = train::parse_config(json, {});
  LOOM_ASSERT_OK(again);
  EXPECT_EQ(train::to_json(*again), json);
  EXPECT_EQ(again->model.layers, 9);
}

TEST(Config, RefusesWithTheNearestRightKey) {
  EXPECT_TRUE(fails_with(parsed(R"({"optimizer": {"learning_rat": 1}})"), Code::invalid_argument,
                         "there is no key optimizer.learning_rat; did you mean optimizer.learning_rate?"));
  EXPECT_TRUE(fails_with(parsed("{}", {"run.step=3"}), Code::invalid_argument, "did you mean run.steps?"));
  EXPECT_TRUE(
      fails_with(parsed("{}", {"run.steps"}), Code::invalid_argument, "\"run.steps\" is no override"));
  EXPECT_TRUE(fails_with(parsed(R"({"run": 3})"), Code::invalid_data, "\"run\" must be a section"));
}

TEST(Config, RefusesWrongValuesByTheirKey) {
  EXPECT_TRUE(fails_with(parsed(R"({"run": {"steps": "many"}})"), Code::invalid_argument,
                         "run.steps is \"many\", must be a whole number"));
  EXPECT_TRUE(fails_with(parsed(R"({"run": {"steps": 0}})"), Code::invalid_argument,
                         "run.steps is 0, must be from 1"));
  EXPECT_TRUE(fails_with(parsed(R"({"parallel": {"precision": "fp8"}})"), Code::invalid_argument,
                         "parallel.precision is \"fp8\", must be fp32, bf16"));
  EXPECT_TRUE(
      fails_with(parsed(R"({"optimizer": {"schedule": "sine"}})"), Code::invalid_argument, "must be cosine"));
}

TEST(Config, TheLearningRateWarmsUpAndFalls) {
  Config config;
  config.optimizer = {.learning_rate = 1, .final_rate = 0.1, .warmup_steps = 4};
  config.run.steps = 105;
  EXPECT_DOUBLE_EQ(train::learning_rate(config, 0), 0.25);
  EXPECT_DOUBLE_EQ(train::learning_rate(config, 3), 1);
  EXPECT_DOUBLE_EQ(train::learning_rate(config, 4), 1);
  EXPECT_DOUBLE_EQ(train::learning_rate(config, 54), 0.55);
  EXPECT_DOUBLE_EQ(train::learning_rate(config, 104), 0.1);
  config.optimizer.schedule = "linear";
  EXPECT_DOUBLE_EQ(train::learning_rate(config, 29), 0.775);
  config.optimizer.schedule = "constant";
  EXPECT_DOUBLE_EQ(train::learning_rate(config, 104), 1);
}

TEST(Config, BatchesMustDivide) {
  Config config;
  config.data.global_batch = 12;
  const model::ModelSpec spec = *train::spec_of(config, 100);
  EXPECT_EQ(train::job_of(config, spec, 4)->batch, 3);
  EXPECT_TRUE(fails_with(train::job_of(config, spec, 5), Code::invalid_argument,
                         "data.global_batch is 12, must be a multiple of the 5 ranks"));
  config.data.microbatch = 2;
  EXPECT_EQ(train::job_of(config, spec, 2)->microbatches, 3);
  EXPECT_TRUE(fails_with(train::job_of(config, spec, 4), Code::invalid_argument,
                         "data.microbatch is 2, must divide a rank's share, 3 sequences"));
}

TEST(Config, TheSmallestDegreeThatFitsIsTaken) {
  Config config;
  config.data.global_batch = 8;
  config.data.sequence_length = 16;
  const model::ModelSpec spec = *train::spec_of(config, 20000);
  std::vector<int64_t> mib;
  for (const int degree : {1, 2, 4, 8}) {
    config.parallel.sharded_data_parallel_degree = degree;
    mib.push_back(
        (program::plan_memory(*program::make_program(*train::job_of(config, spec, 8))).bytes >> 20) + 1);
  }
  config.parallel.sharded_data_parallel_degree = 0;
  config.parallel.memory_limit_mb = mib[1];
  EXPECT_EQ(train::job_of(config, spec, 8)->degree, 2);
  config.parallel.memory_limit_mb = mib[1] - 1;
  EXPECT_EQ(train::job_of(config, spec, 8)->degree, 4);
  config.parallel.memory_limit_mb = mib[3] / 2;
  EXPECT_TRUE(
      fails_with(train::job_of(config, spec, 8), Code::out_of_memory, "with sharded_data_parallel_degree 8"));
}

TEST(Config, AVocabularyThatIsTooSmallIsRefused) {
  Config config;
  config.model.vocabulary = 50;
  EXPECT_TRUE(fails_with(train::spec_of(config, 100), Code::invalid_argument,
                         "model.vocabulary is 50, must be at least the dataset's, 100"));
  config.model.from = fixture("gpt2-tied");
  EXPECT_TRUE(fails_with(train::spec_of(config, 256), Code::invalid_argument, "has 61 tokens"));
}

}  // namespace
}  // namespace loom::testing
