// What a config may say, and what it means.
#include "train/config.h"

#include "model/families.h"
#include "model/hugging_face.h"
#include "model/objectives/objective.h"
#include "model/same_model.h"
#include "program/generate.h"
#include "program/memory.h"
#include "program/verify.h"
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

/// The operating system ends a path there: a run wrote into another folder than it said.
TEST(Config, ATextWithANulIsRefused) {
  EXPECT_TRUE(fails_with(parsed(R"({"run": {"out": "a\u0000b"}})"), Code::invalid_argument,
                         "run.out is \"a\\u0000b\", must be a text without NUL"));
  EXPECT_TRUE(fails_with(parsed("{}", {R"(data.folder="a\u0000b")"}), Code::invalid_argument, "without NUL"));
}

TEST(Config, TheDegreeMayBeAuto) {
  for (const char* given : {"auto", "0"}) {
    const Result<Config> config =
        parsed("{}", {std::string("parallel.sharded_data_parallel_degree=") + given});
    LOOM_ASSERT_OK(config);
    EXPECT_EQ(config->parallel.sharded_data_parallel_degree, 0);
    const format::Json json = train::to_json(*config);
    EXPECT_EQ(json["parallel"]["sharded_data_parallel_degree"], "auto");
    EXPECT_EQ(train::parse_config(json, {})->parallel.sharded_data_parallel_degree, 0);
  }
  EXPECT_EQ(train::to_json(*parsed("{}"))["parallel"]["sharded_data_parallel_degree"], 1);
  EXPECT_TRUE(fails_with(parsed(R"({"parallel": {"sharded_data_parallel_degree": "automatic"}})"),
                         Code::invalid_argument,
                         "degree is \"automatic\", must be a whole number or \"auto\""));
  EXPECT_TRUE(fails_with(parsed(R"({"parallel": {"pipeline_degree": "auto"}})"), Code::invalid_argument,
                         "pipeline_degree is \"auto\", must be a whole number"));
}

TEST(Config, OptimizeGivesTheMemoryWeightThatIsLeftOut) {
  const auto weight = [](const std::vector<std::string>& overrides) {
    return parsed("{}", overrides)->parallel.memory_weight;
  };
  EXPECT_EQ(weight({}), 0.8);
  EXPECT_EQ(weight({"parallel.optimize=memory"}), 0.8);
  EXPECT_EQ(weight({"parallel.optimize=speed"}), 0.2);
  EXPECT_EQ(weight({"parallel.optimize=speed", "parallel.memory_weight=0.8"}), 0.8);
  EXPECT_EQ(weight({"parallel.memory_weight=0.5"}), 0.5);
}

TEST(Config, CheckpointingHasFourStrategies) {
  Config config;
  config.model.layers = 6;
  const model::ModelSpec spec = *train::spec_of(config, 100);
  const auto job = [&](const std::string& value) {
    const Result<Config> told = parsed("{}", {"parallel.activation_checkpointing=" + value});
    EXPECT_TRUE(told.ok()) << told.status().message();
    EXPECT_EQ(train::parse_config(train::to_json(*told), {})->parallel.activation_checkpointing.group,
              told->parallel.activation_checkpointing.group);
    return *train::job_of(*told, spec, 2);
  };
  EXPECT_EQ(job("none").checkpoint_group, 0);
  EXPECT_EQ(job("0").checkpoint_group, 0);
  EXPECT_EQ(job("each").checkpoint_group, 1);
  EXPECT_EQ(job("3").checkpoint_group, 3);
  EXPECT_EQ(job("group_3").checkpoint_group, 3);
  EXPECT_EQ(job("contiguous").checkpoint_group, 6);
  const program::Job every = job("every_2");
  EXPECT_EQ(every.checkpoint_group, 1);
  std::vector<int> recomputed;
  for (int unit = 0; unit < every.units(); ++unit)
    if (every.recomputes(unit)) recomputed.push_back(unit);
  EXPECT_EQ(recomputed, (std::vector<int>{1, 3, 5}));
  EXPECT_EQ(train::to_json(Config())["parallel"]["activation_checkpointing"], "none");
  for (const char* wrong : {"some", "group_0", "every_", "-1", "2.5", "true"})
    EXPECT_TRUE(fails_with(parsed("{}", {std::string("parallel.activation_checkpointing=") + wrong}),
                           Code::invalid_argument, "must be none, each, contiguous, group_K or every_K"))
        << wrong;
}

TEST(Config, ATiedModelThatStaysTogetherHasNoStages) {
  Config config;
  config.data.global_batch = 8;
  config.data.microbatch = 1;
  config.parallel.tied = "together";
  config.model.tied = false;
  const model::ModelSpec untied = *train::spec_of(config, 200);
  config.model.tied = true;
  const model::ModelSpec tied = *train::spec_of(config, 200);
  LOOM_ASSERT_OK(train::job_of(config, tied, 2));
  config.parallel.pipeline_degree = 2;
  for (const char* partition : {"auto", "tree", "even", "0,3"}) {
    config.parallel.partition = partition;
    EXPECT_TRUE(fails_with(train::job_of(config, tied, 2), Code::invalid_argument,
                           "the embedding and the head, which share a matrix, must be in one part"))
        << partition;
    LOOM_ASSERT_OK(train::job_of(config, untied, 2));
  }
  config.parallel.tied = "copies";
  LOOM_ASSERT_OK(train::job_of(config, tied, 2));
  EXPECT_TRUE(fails_with(parsed("{}", {"parallel.tied=apart"}), Code::invalid_argument,
                         "parallel.tied is \"apart\", must be auto, copies, together"));
}

TEST(Config, APartitionByHandOfATiedModelAsksForCopiesOrAnUntiedOne) {
  Config config;
  config.data.global_batch = 8;
  config.data.microbatch = 1;
  config.model.tied = false;
  const model::ModelSpec untied = *train::spec_of(config, 200);
  config.model.tied = true;
  const model::ModelSpec tied = *train::spec_of(config, 200);  // 6 units
  ASSERT_EQ(config.parallel.tied, "auto");
  for (const char* partition : {"auto", "tree", "even"}) {
    config.parallel.pipeline_degree = 2;
    config.parallel.partition = partition;
    LOOM_ASSERT_OK(train::job_of(config, tied, 2));
  }
  config.parallel.partition = "0,3";
  const auto refused = [&](const char* words) {
    return fails_with(train::job_of(config, tied, 2), Code::invalid_argument, words);
  };
  EXPECT_TRUE(refused(
      "parallel.partition \"0,3\" separates unit 0, the embedding, from unit 5, the head, which share "
      "a matrix: parallel.tied=copies puts a copy on the first and on the last stage, "
      "model.tied=false gives each a matrix of its own"));
  config.model.from = "gpt2";  // whose matrix is tied
  EXPECT_TRUE(refused("last stage; the model of model.from cannot be untied"));
  config.model.from.clear();
  LOOM_ASSERT_OK(train::job_of(config, untied, 2));
  config.parallel.tied = "copies";
  EXPECT_EQ(train::job_of(config, tied, 2)->first_units, (std::vector<int>{0, 3}));
  config.parallel.tied = "auto";
  config.parallel.pipeline_degree = 1;
  LOOM_ASSERT_OK(train::job_of(config, tied, 2));
}

TEST(Config, RefusesWithTheNearestRightKey) {
  EXPECT_TRUE(fails_with(parsed(R"({"optimizer": {"learning_rat": 1}})"), Code::invalid_argument,
                         "there is no key optimizer.learning_rat; did you mean optimizer.learning_rate?"));
  EXPECT_TRUE(fails_with(parsed("{}", {"run.step=3"}), Code::invalid_argument, "did you mean run.steps?"));
  EXPECT_TRUE(
      fails_with(parsed("{}", {"run.steps"}), Code::invalid_argument, "\"run.steps\" is no override"));
  EXPECT_TRUE(fails_with(parsed(R"({"run": 3})"), Code::invalid_data, "\"run\" must be a section"));
}

TEST(Config, OverridesThatAreNoTextAreRefused) {
  for (const char* override : {"run.steps=\xff", "run.out=\xff", "run.out=a\xe2\x82"})
    EXPECT_TRUE(fails_with(parsed("{}", {override}), Code::invalid_argument, "which is no UTF-8 there"));
  EXPECT_TRUE(parsed("{}", {"run.out=Weißes Tuch"}).ok());
}

// The sentence about a wrong value writes it down, which takes stack for each level.
TEST(Config, AnOverrideThatIsNestedDeeplyIsRefusedNotACrash) {
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  EXPECT_TRUE(
      fails_with(parsed("{}", {"run.steps=" + deep}), Code::invalid_argument, "must be a whole number"));
  EXPECT_FALSE(parsed("{}", {"parallel.partition=" + deep}).ok());
}

TEST(Config, RefusesWrongValuesByTheirKey) {
  EXPECT_TRUE(fails_with(parsed(R"({"run": {"steps": "many"}})"), Code::invalid_argument,
                         "run.steps is \"many\", must be a whole number"));
  EXPECT_TRUE(fails_with(parsed(R"({"run": {"steps": 0}})"), Code::invalid_argument,
                         "run.steps is 0, must be from 1"));
  EXPECT_TRUE(fails_with(parsed(R"({"parallel": {"precision": "fp8"}})"), Code::invalid_argument,
                         "parallel.precision is \"fp8\", must be fp32, bf16, fp16"));
  EXPECT_TRUE(
      fails_with(parsed(R"({"optimizer": {"schedule": "sine"}})"), Code::invalid_argument, "must be cosine"));
}

TEST(Config, NumbersThatASignedOneCannotHoldAreRefused) {
  for (const char* override : {"run.seed=9223372036854775808", "run.steps=18446744073709551615",
                               "parallel.sharded_data_parallel_degree=18446744073709551615"})
    EXPECT_TRUE(fails_with(parsed("{}", {override}), Code::invalid_argument, "must be a whole number"))
        << override;
  EXPECT_EQ(parsed("{}", {"run.seed=9223372036854775807"})->run.seed, INT64_MAX);
  EXPECT_EQ(parsed("{}", {"run.seed=-1"})->run.seed, -1);
}

TEST(Config, TheLastRateIsATenthOfTheFirstWhereItIsLeftOut) {
  const auto last = [](const std::vector<std::string>& overrides) {
    return parsed("{}", overrides)->optimizer.final_rate;
  };
  EXPECT_DOUBLE_EQ(last({}), 6e-5);
  EXPECT_DOUBLE_EQ(last({"optimizer.learning_rate=2e-5"}), 2e-6);
  EXPECT_EQ(last({"optimizer.learning_rate=0"}), 0);
  EXPECT_EQ(last({"optimizer.learning_rate=2e-5", "optimizer.final_rate=1e-5"}), 1e-5);
}

TEST(Config, OptimizersThatCannotWorkAreRefused) {
  const auto refused = [](const char* override, const char* words) {
    EXPECT_TRUE(fails_with(parsed("{}", {override}), Code::invalid_argument, words)) << override;
  };
  refused("optimizer.final_rate=-1", "optimizer.final_rate is -1, must be from 0 to 0.0006");
  refused("optimizer.final_rate=1e-3", "optimizer.final_rate is 0.001, must be from 0 to 0.0006");
  refused("optimizer.warmup_steps=-1", "optimizer.warmup_steps is -1, must be from 0 to");
  refused("optimizer.weight_decay=-0.1", "optimizer.weight_decay is -0.1, must be from 0 to");
  refused("optimizer.clip_norm=-1", "optimizer.clip_norm is -1, must be from 0 to");
  refused("run.evaluate_every=-1", "run.evaluate_every is -1, must be from 0 to");
  refused("run.checkpoint_every=-1", "run.checkpoint_every is -1, must be from 0 to");
  refused("parallel.live_parameters=-1", "parallel.live_parameters is -1, must be from 0 to");
  // A constant rate has no last one; checkpoints of earlier versions have it all the same.
  EXPECT_TRUE(parsed("{}", {"optimizer.schedule=constant", "optimizer.learning_rate=1e-5",
                            "optimizer.final_rate=6e-5"})
                  .ok());
}

TEST(Config, RefusesLossScalesThatCannotWork) {
  const auto refused = [](const char* override, const char* words) {
    EXPECT_TRUE(fails_with(parsed("{}", {override}), Code::invalid_argument, words)) << override;
  };
  refused("loss_scale.initial=0", "loss_scale.initial is 0, must be from 1e-06 to 1e+30");
  refused("loss_scale.factor=1", "loss_scale.factor is 1, must be from 1.001 to 65536");
  refused("loss_scale.window=0", "loss_scale.window is 0, must be from 1 to");
  refused("loss_scale.delayed_shift=0", "loss_scale.delayed_shift is 0, must be from 1 to");
  refused("loss_scale.minimum=8589934592",
          "loss_scale.minimum is 8589934592, must be at most loss_scale.initial, 4294967296");
  refused("loss_scale.static=-1", "loss_scale.static is -1, must be from 1e-06 to 1e+30");
  refused("loss_scale.windows=5", "there is no key loss_scale.windows; did you mean loss_scale.window?");
  const Result<Config> config = parsed(R"({"loss_scale": {"static": 1024}})");
  LOOM_ASSERT_OK(config);
  EXPECT_EQ(config->loss_scale.constant, 1024);
}

/// A model is stored as its config.json: what that has no key for would be another model's when it is read.
TEST(Config, TheModelThatIsAskedForIsTheOneThatIsStored) {
  int stored = 0, refused = 0;
  for (const char* family : {"gpt2", "gptj", "gpt_neox", "gpt_neo", "bloom", "llama", "mistral", "qwen2",
                             "qwen3", "bert", "roberta"})
    for (const char* task : {"causal", "masked", "classification"})
      for (const char* key :
           {"activation=relu", "feed_forward=96", "dropout=0.25", "tied=false", "heads=2"}) {
        SCOPED_TRACE(fmt::format("{} {} {}", family, task, key));
        const auto config = parsed("{}", {fmt::format("model.family={}", family),
                                          fmt::format("model.task={}", task), fmt::format("model.{}", key)});
        LOOM_ASSERT_OK(config);
        if (!model::choices_of(*model::family_from(family), *model::task_from(task)).ok()) continue;
        const Result<model::ModelSpec> asked = train::spec_of(*config, 100, 3);
        if (!asked.ok()) {
          EXPECT_STREQ(family, "bloom");
          EXPECT_TRUE(fails_with(asked, Code::invalid_argument, "the config.json of a bloom model"));
          ++refused;
          continue;
        }
        const Result<model::ModelSpec> again = model::spec_from_config(model::config_of(*asked));
        LOOM_ASSERT_OK(again);
        EXPECT_EQ(model::difference(*again, *asked), "");
        EXPECT_EQ(again->embedding_dropout, asked->embedding_dropout);
        EXPECT_EQ(again->residual_dropout, asked->residual_dropout);
        EXPECT_EQ(again->attention_dropout, asked->attention_dropout);
        EXPECT_EQ(again->head_dropout, asked->head_dropout);
        ++stored;
      }
  EXPECT_EQ(refused, 2) << "BLOOM's activation and feed_forward";
  EXPECT_EQ(stored, 18 * 5 - 2);
}

/// It was left untied without a word.
TEST(Config, ANewModelIsTiedWhereThatIsAskedFor) {
  for (const char* family : {"gpt_neox", "llama", "mistral", "qwen2", "qwen3", "gpt2"})
    for (const bool tied : {true, false}) {
      const auto config =
          parsed("{}", {fmt::format("model.family={}", family), fmt::format("model.tied={}", tied)});
      LOOM_ASSERT_OK(config);
      const auto spec = train::spec_of(*config, 100);
      LOOM_ASSERT_OK(spec);
      EXPECT_EQ(spec->tied, tied) << family;
    }
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

TEST(Config, PipelinesAreDividedAsAsked) {
  Config config;
  config.model.layers = 6;
  config.data.global_batch = 8;
  config.data.microbatch = 1;
  config.parallel.pipeline_degree = 2;
  const model::ModelSpec spec = *train::spec_of(config, 6000);
  config.parallel.memory_weight = 0;
  const program::Job job = *train::job_of(config, spec, 4);
  EXPECT_EQ(job.data_degree(), 2);
  EXPECT_EQ(job.microbatches, 4);
  ASSERT_EQ(job.first_units.size(), 2u);
  EXPECT_GT(job.first_units[1], 4);  // the head computes as much as some blocks
  // Measured times win: here the embedding takes longest.
  program::MeasuredUnits measured(8, {.us = 1});
  measured[0].us = 9;
  EXPECT_EQ(train::job_of(config, spec, 4, measured)->first_units, (std::vector<int>{0, 1}));
  config.parallel.partition = "0,3";
  config.parallel.tied = "copies";
  EXPECT_EQ(train::job_of(config, spec, 4)->first_units, (std::vector<int>{0, 3}));
  config.parallel.partition = "tree";
  EXPECT_EQ(train::job_of(config, spec, 4)->first_units.size(), 2u);
  config.parallel.partition = "even";
  EXPECT_TRUE(train::job_of(config, spec, 4)->first_units.empty());
  config.parallel.pipeline = "interleaved";
  EXPECT_EQ(train::job_of(config, spec, 4)->virtual_stages, 2);
}

/// Stages that hold the token embedding, by the steps that the optimizer makes there, and those that tie.
std::pair<std::vector<int>, std::vector<int>> holders_of_embedding(const program::Job& job) {
  std::vector<int> holders, tied;
  const Result<std::vector<program::Program>> programs = program::make_programs(job);
  EXPECT_TRUE(programs.ok()) << programs.status().message();
  if (!programs.ok()) return {};
  for (const program::Program& program : *programs) {
    EXPECT_TRUE(program::verify(job, program, program::plan_memory(program)).ok());
    for (const program::Instruction& i : program.instructions) {
      if (i.op == program::Op::step && i.unit == 0) holders.push_back(program.stage);
      if (i.op == program::Op::tie) tied.push_back(program.stage);
    }
  }
  EXPECT_TRUE(program::verify_pipeline(*programs).ok());
  return {holders, tied};
}

TEST(Config, EveryPartitionLeavesATiedMatrixAtBothEndsOnly) {
  Config config;
  config.data.global_batch = 6;
  config.data.microbatch = 1;
  config.parallel.pipeline_degree = 3;
  config.parallel.tied = "copies";
  const model::ModelSpec spec = *train::spec_of(config, 200);  // 6 units
  const std::vector<int> ends = {0, 2};
  for (int second = 1; second <= 4; ++second)
    for (int third = second + 1; third <= 5; ++third) {
      config.parallel.partition = fmt::format("0,{},{}", second, third);
      const auto job = train::job_of(config, spec, 3);
      LOOM_ASSERT_OK(job);
      const auto [holders, tied] = holders_of_embedding(*job);
      EXPECT_EQ(holders, ends) << config.parallel.partition;
      EXPECT_EQ(tied, ends) << config.parallel.partition << ": added once a step";
    }
  config.parallel.pipeline = "interleaved";
  config.parallel.partition = "0,1,2,3,4,5";
  const auto job = train::job_of(config, spec, 3);
  LOOM_ASSERT_OK(job);
  EXPECT_EQ(holders_of_embedding(*job), std::pair(ends, ends));
}

TEST(Config, ATextMayLookLikeSomethingElse) {
  const Result<Config> config =
      parsed("{}", {"run.out=2024", "data.folder=true", "model.from=null", "run.resume_from=\"7\""});
  LOOM_ASSERT_OK(config);
  EXPECT_EQ(config->run.out, "2024");
  EXPECT_EQ(config->data.folder, "true");
  EXPECT_EQ(config->model.from, "null");
  EXPECT_EQ(config->run.resume_from, "7") << "as JSON has texts";
  EXPECT_TRUE(fails_with(parsed(R"({"run": {"out": 2024}})"), Code::invalid_argument,
                         "run.out is 2024, must be a text"));
}

TEST(Config, APartitionIsAListToo) {
  EXPECT_EQ(parsed(R"({"parallel": {"partition": [0, 2, 5]}})")->parallel.partition, "0,2,5");
  const std::vector<std::string> override = {"parallel.partition=[0,3]"};
  EXPECT_EQ(train::parse_config(format::Json::object(), override)->parallel.partition, "0,3");
  EXPECT_TRUE(fails_with(parsed(R"({"parallel": {"partition": [0, -2]}})"), Code::invalid_argument,
                         "parallel.partition is [0,-2], must be a text"));
  EXPECT_TRUE(fails_with(parsed(R"({"parallel": {"pipeline": [0, 2]}})"), Code::invalid_argument,
                         "parallel.pipeline is \"0,2\", must be simple"));
}

TEST(Config, PartitionsThatAreNoneAreRefusedWithTheReason) {
  Config config;
  config.data.global_batch = 8;
  config.data.microbatch = 1;
  config.parallel.pipeline_degree = 3;
  const model::ModelSpec spec = *train::spec_of(config, 200);  // 6 units
  const auto refused = [&](const char* partition, const char* words) {
    config.parallel.partition = partition;
    return fails_with(train::job_of(config, spec, 3), Code::invalid_argument, words);
  };
  EXPECT_TRUE(refused("0,3", "the partition has 2 parts, must have 3: the first unit of each"));
  EXPECT_TRUE(
      refused("1,3,5", "begins with unit 1, which leaves out those before it: must begin with unit 0"));
  EXPECT_TRUE(refused("0,4,2", "it begins with unit 4 and the next one with 2; first units must ascend"));
  EXPECT_TRUE(refused("0,3,3", "part 1 of the partition has no units"));
  EXPECT_TRUE(refused("0,3,6", "part 2 of the partition has no units"));
  EXPECT_TRUE(refused("0,3,9", "must ascend and be below 6"));
}

TEST(Config, PipelinesThatCannotBeAreRefused) {
  Config config;
  config.data.global_batch = 8;
  config.data.microbatch = 1;
  const model::ModelSpec spec = *train::spec_of(config, 200);
  const auto refused = [&](const char* words) {
    return fails_with(train::job_of(config, spec, 4), Code::invalid_argument, words);
  };
  config.parallel.pipeline_degree = 3;
  EXPECT_TRUE(refused("parallel.pipeline_degree · tensor_degree is 3 · 1, must divide the 4 ranks"));
  config.parallel.pipeline_degree = 4;
  config.parallel.partition = "0,3";
  EXPECT_TRUE(refused("the partition has 2 parts, must have 4"));
  config.parallel.partition = "0,3,3,4";
  EXPECT_TRUE(refused("part 1 of the partition has no units"));
  config.parallel.partition = "0,,3,4";
  EXPECT_TRUE(refused("must be first units such as 0,5,9"));
  config.parallel.partition = "auto";
  config.parallel.placement = "DPX";
  EXPECT_TRUE(refused("placement is \"DPX\""));
  config.parallel.placement = "cluster";
  config.parallel.pipeline = "interleaved";
  EXPECT_TRUE(refused("4 stages times 2 virtual ones of a model of 6 units"));
  config.parallel.pipeline = "1f1b";
  config.parallel.memory_limit_mb = 1;
  EXPECT_TRUE(fails_with(train::job_of(config, spec, 4), Code::out_of_memory, "and partition 0,"));
  EXPECT_TRUE(fails_with(parsed(R"({"parallel": {"partition": "some"}})"), Code::invalid_argument,
                         "parallel.partition is \"some\", must be auto, tree, even"));
}

TEST(Config, AVocabularyThatIsTooSmallIsRefused) {
  Config config;
  config.model.vocabulary = 50;
  EXPECT_TRUE(fails_with(train::spec_of(config, 100), Code::invalid_argument,
                         "model.vocabulary is 50, must be at least the dataset's, 100"));
  config.model.from = fixture("gpt2-tied");
  EXPECT_TRUE(fails_with(train::spec_of(config, 256), Code::invalid_argument, "has 61 tokens"));
}

/// Its files would say that positions begin elsewhere: whoever read it would compute another model, or none.
TEST(Config, ARobertaIsNotTunedWithAnotherPadding) {
  Config config;
  config.model.from = fixture("families/roberta-classification");
  config.data.sequence_length = 8;
  const auto spec = train::spec_of(config, 29, 3, 3);
  LOOM_ASSERT_OK(spec);
  EXPECT_EQ(spec->padding, 3);
  for (const int32_t padding : {0, 28})
    EXPECT_TRUE(fails_with(train::spec_of(config, 29, 3, padding), Code::invalid_argument,
                           "with token 3, from which a roberta counts its positions"));
  EXPECT_TRUE(fails_with(train::spec_of(config, 29, 3, 28), Code::invalid_argument,
                         "where the tokenizer has a padding token"));
  config.model.from = fixture("families/gptj-classification");
  EXPECT_EQ(train::spec_of(config, 29, 3, 28)->padding, 28);
}

TEST(Config, WhatIsLeftOpenIsFilledInAndGivesTheSameRunAgain) {
  Config config;
  config.data.global_batch = 12;
  config.parallel.pipeline_degree = 2;
  config.parallel.sharded_data_parallel_degree = 0;
  const model::ModelSpec spec = *train::spec_of(config, 300);
  const program::Job job = *train::job_of(config, spec, 4);
  const Config filled = train::resolved(config, spec, job, 3);
  EXPECT_EQ(filled.model.family, "gpt2");
  EXPECT_EQ(filled.model.task, "causal");
  EXPECT_EQ(filled.model.vocabulary, 300);
  EXPECT_EQ(filled.model.context, 128);
  EXPECT_EQ(filled.model.width, 256);
  EXPECT_EQ(filled.model.feed_forward, 1024);
  EXPECT_EQ(filled.model.activation, "gelu_new");
  EXPECT_EQ(filled.model.dropout, 0.0);
  EXPECT_EQ(filled.model.tied, true);
  EXPECT_EQ(filled.data.microbatch, 6);
  EXPECT_EQ(filled.parallel.sharded_data_parallel_degree, 1);
  EXPECT_EQ(filled.parallel.threads, 3);
  EXPECT_EQ(filled.parallel.partition, fmt::format("0,{}", job.first_units[1]));
  EXPECT_EQ(filled.parallel.tied, "copies");

  const Result<Config> again = train::parse_config(train::to_json(filled), {});
  LOOM_ASSERT_OK(again);
  const model::ModelSpec same = *train::spec_of(*again, 300);
  EXPECT_EQ(same.feed_forward, spec.feed_forward);
  const Result<program::Job> made = train::job_of(*again, same, 4);
  LOOM_ASSERT_OK(made);
  EXPECT_EQ(made->first_units, job.first_units);
  EXPECT_EQ(train::to_json(train::resolved(*again, same, *made, 3)), train::to_json(filled));
}

TEST(Config, AModelToBeginWithIsFilledInAndWhatContradictsItIsRefused) {
  Config config;
  config.model.from = fixture("gpt2-tied");
  config.data.sequence_length = 8;
  const Result<model::ModelSpec> spec = train::spec_of(config, 61);
  LOOM_ASSERT_OK(spec);
  const program::Job job = *train::job_of(config, *spec, 1);
  const Config filled = train::resolved(config, *spec, job, 1);
  EXPECT_EQ(filled.model.vocabulary, 61);
  EXPECT_EQ(filled.model.width, spec->width);
  EXPECT_EQ(filled.model.tied, true);
  const Result<Config> again = train::parse_config(train::to_json(filled), {});
  LOOM_ASSERT_OK(again);
  LOOM_ASSERT_OK(train::spec_of(*again, 61));

  const auto refused = [&](const char* key_and_value, const std::string& words) {
    train::Config other =
        *train::parse_config(train::to_json(config), std::vector<std::string>{key_and_value});
    return fails_with(train::spec_of(other, 61), Code::invalid_argument, words);
  };
  EXPECT_TRUE(refused("model.width=999", fmt::format("model.width is 999, but the model in {} (model.from) "
                                                     "has {}: leave model.width out",
                                                     config.model.from, spec->width)));
  EXPECT_TRUE(refused("model.layers=99", "model.layers is 99"));
  EXPECT_TRUE(refused("model.vocabulary=62", "model.vocabulary is 62"));
  EXPECT_TRUE(refused("model.family=gptj", "model.family is gptj"));
  EXPECT_TRUE(refused("model.activation=relu", "model.activation is relu"));
  EXPECT_TRUE(refused("model.tied=false", "model.tied is false"));
  config.model.dropout = 0.25;  // no part of what a model stores: whoever tunes it may choose
  EXPECT_EQ(train::spec_of(config, 61)->residual_dropout, 0.25f);
}

}  // namespace
}  // namespace loom::testing
