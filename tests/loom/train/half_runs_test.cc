// Whole runs in fp16: they learn as fp32 does, skip what overflows, remember their loss scale, and say when
// none will do.
#include <cmath>

#include "train/report.h"
#include "train/runs.h"

namespace loom::testing {
namespace {

class HalfRuns : public Runs {
 protected:
  HalfRuns() {
    config_.data.microbatch = 2;
    config_.parallel.precision = "fp16";
    config_.optimizer.learning_rate = 5e-3;
    config_.optimizer.schedule = "constant";
    config_.optimizer.warmup_steps = 8;
    config_.run.steps = 24;
    make_tokens(config_.data.folder, "bytes", 300);
  }

  /// What rank 0 is told of the steps that a run makes.
  static Records run(train::Config config, int ranks, int degree) {
    config.parallel.sharded_data_parallel_degree = degree;
    return run_on(ranks, config);
  }
};

TEST_F(HalfRuns, SkipsUntilTheScaleFitsAndTheScheduleWaits) {
  config_.loss_scale.window = 5;
  const Records records = run(config_, 1, 1);
  ASSERT_EQ(records.size(), 24u);
  EXPECT_TRUE(records.at(0).skipped) << "2^32 is too much for any loss here";
  EXPECT_EQ(records.at(0).loss_scale, 4294967296.0);
  EXPECT_EQ(records.at(1).loss_scale, 2147483648.0);
  int64_t skipped = 0;
  bool grew = false;
  for (const auto& [step, record] : records) {
    EXPECT_FLOAT_EQ(record.learning_rate, train::learning_rate(config_, step - skipped)) << step;
    skipped += record.skipped ? 1 : 0;
    EXPECT_EQ(record.skipped_steps, skipped);
    EXPECT_NE(std::isfinite(record.gradient_norm), record.skipped);
    grew = grew || (step > 0 && record.loss_scale > records.at(step - 1).loss_scale);
  }
  EXPECT_TRUE(grew);
  EXPECT_FALSE(records.at(23).skipped && records.at(22).skipped);
  EXPECT_LT(records.at(23).loss, records.at(0).loss);
}

TEST_F(HalfRuns, ResumedOnesHaveTheSameBitsAndTheSameScale) {
  config_.loss_scale.window = 4;
  config_.loss_scale.delayed_shift = 2;
  config_.run.checkpoint_every = 1;
  config_.run.keep = 100;
  const Records wanted = run(config_, 1, 1);
  // Stopped while it skips, in a window, and after the scale has grown; resumed by one rank and by two.
  int64_t growth = 1;
  while (growth < 23 && !(wanted.at(growth).loss_scale > wanted.at(growth - 1).loss_scale)) ++growth;
  ASSERT_LT(growth, 22);
  for (const int64_t stop : {int64_t{3}, growth - 2, growth}) {
    config_.run.out = folder_ / fmt::format("out-{}", stop);
    train::Config first = config_;
    first.run.steps = stop;
    Records got = run(first, 2, 2);
    got.merge(run(config_, stop == growth ? 1 : 2, 1));
    ASSERT_EQ(got.size(), wanted.size());
    for (const auto& [step, record] : wanted) {
      EXPECT_EQ(got.at(step).loss, record.loss) << step << ", stopped at " << stop;
      EXPECT_EQ(got.at(step).loss_scale, record.loss_scale) << step << ", stopped at " << stop;
      EXPECT_EQ(got.at(step).skipped_steps, record.skipped_steps) << step << ", stopped at " << stop;
      EXPECT_EQ(got.at(step).learning_rate, record.learning_rate) << step << ", stopped at " << stop;
    }
  }
}

TEST_F(HalfRuns, ACheckpointsDamagedScaleIsRefused) {
  config_.run.steps = 2;
  run(config_, 1, 1);
  const std::string path = folder_ / "out/checkpoints/step-00000002/manifest.json";
  format::Json manifest = *format::read_json(path);
  EXPECT_EQ(manifest["loss_scale"]["skipped"], 2);
  EXPECT_EQ(manifest["config"]["parallel"]["precision"], "fp16");
  manifest["loss_scale"]["scale"] = "much";
  LOOM_ASSERT_OK(format::write_json(path, manifest));
  EXPECT_TRUE(fails_with(train::Trainer::create(config_, nullptr), Code::invalid_data,
                         "loss_scale.scale is \"much\""));
}

TEST_F(HalfRuns, EndlessOverflowEndsOnAllRanksWithWhatWouldWork) {
  config_.loss_scale.minimum = std::ldexp(1.0, 30);
  config_.parallel.sharded_data_parallel_degree = 2;
  on_ranks(2, 1, [&](weftComm_t world) {
    Result<std::unique_ptr<train::Trainer>> trainer = train::Trainer::create(config_, world);
    LOOM_ASSERT_OK(trainer);
    int steps = 0;
    const Status ended = (*trainer)->run([&](const train::StepRecord&) { ++steps; });
    EXPECT_EQ(steps, 2);
    EXPECT_TRUE(
        fails_with(ended, Code::not_finite,
                   "step 3: gradients overflow fp16 with a loss scale of 1073741824 "
                   "(loss_scale.minimum), in the last 3 steps, all skipped; parallel.precision \"bf16\""));
  });
}

TEST_F(HalfRuns, AStaticScaleIsKept) {
  config_.loss_scale.constant = 512;
  config_.loss_scale.window = 2;
  config_.run.steps = 6;
  for (const auto& [step, record] : run(config_, 1, 1)) {
    EXPECT_EQ(record.loss_scale, 512) << step;
    EXPECT_FALSE(record.skipped);
  }
}

/// Every kind of head, and of block, on one rank, in shards, in stages and in tensor ranks.
TEST_F(HalfRuns, LossesAreNearThoseOfFp32) {
  make_tokens(folder_ / "pieces", fixture("wordpiece.json"), 300);
  make_examples(folder_ / "examples", fixture("wordpiece.json"));
  struct Case {
    const char* family;
    bool examples;
    int ranks, degree, stages, tensor;
  };
  for (const Case& c :
       {Case{"gpt2", false, 2, 2, 1, 1}, Case{"gptj", false, 2, 1, 2, 1}, Case{"gpt_neox", false, 2, 1, 1, 2},
        Case{"gpt_neo", false, 1, 1, 1, 1}, Case{"bloom", false, 2, 1, 1, 1},
        Case{"llama", false, 2, 2, 1, 1}, Case{"bert", false, 2, 1, 1, 2}, Case{"roberta", false, 2, 2, 1, 1},
        Case{"bert", true, 2, 2, 1, 1}, Case{"gptj", true, 1, 1, 1, 1}, Case{"bert", true, 2, 1, 1, 2}}) {
    const std::string family = c.family;
    const bool masked = !c.examples && (family == "bert" || family == "roberta");
    train::Config config = config_;
    config.model.family = family;
    config.data.folder = folder_ / (c.examples ? "examples" : masked ? "pieces" : "data");
    config.parallel.pipeline_degree = c.stages;
    config.parallel.tensor_degree = c.tensor;
    config.loss_scale.initial = 16;  // BLOOM's norm behind the embedding makes derivatives large
    config.run.steps = 12;
    const auto losses = [&](const char* precision) {
      config.parallel.precision = precision;
      config.run.out = folder_ / fmt::format("{}-{}-{}-{}", c.family, c.examples, c.tensor, precision);
      return run(config, c.ranks, c.degree);
    };
    const Records half = losses("fp16"), whole = losses("fp32");
    ASSERT_EQ(half.size(), 12u) << c.family;
    for (const auto& [step, record] : half) {
      EXPECT_FALSE(record.skipped) << c.family << ", step " << step;
      EXPECT_NEAR(record.loss, whole.at(step).loss, 1e-2 * whole.at(step).loss)
          << c.family << ", step " << step;
    }
    EXPECT_EQ(whole.at(0).loss_scale, 0);
  }
}

TEST_F(HalfRuns, LinesSayTheScale) {
  config_.run.steps = 2;
  Result<std::unique_ptr<train::Trainer>> trainer = train::Trainer::create(config_, nullptr);
  LOOM_ASSERT_OK(trainer);
  std::vector<train::StepRecord> records;
  LOOM_ASSERT_OK((*trainer)->run([&](const train::StepRecord& record) { records.push_back(record); }));
  ASSERT_EQ(records.size(), 2u);
  EXPECT_NE(train::log_line(records[1], **trainer, 1e9).find("  scale 2147483648 overflows  skipped 2"),
            std::string::npos)
      << train::log_line(records[1], **trainer, 1e9);
  const format::Json json = *format::parse_json(train::json_line(records[1]));
  EXPECT_EQ(json["loss_scale"], 2147483648.0);
  EXPECT_EQ(json["skipped"], true);
  EXPECT_EQ(json["skipped_steps"], 2);
  EXPECT_TRUE(json["gradient_norm"].is_null()) << "JSON has no infinity";
  train::StepRecord whole = records[1];
  whole.loss_scale = 0;
  EXPECT_FALSE(format::parse_json(train::json_line(whole))->contains("loss_scale"));
}

// Sanitizers have memory of their own beside what a program asks for.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_F(HalfRuns, MeasuredMemoryIsThePlanned) {
  config_.model.width = 512;
  config_.model.heads = 8;
  config_.model.layers = 4;
  config_.data.global_batch = 64;
  config_.data.microbatch = 64;
  config_.parallel.strict = false;
  Result<std::unique_ptr<train::Trainer>> trainer = train::Trainer::create(config_, nullptr);
  LOOM_ASSERT_OK(trainer);
  for (int step = 0; step < 2; ++step) LOOM_ASSERT_OK((*trainer)->step());
  // Panels of products are converted in the workers' scratch, which no plan knows; it is counted apart.
  const double arena = static_cast<double>((*trainer)->engine().memory().bytes),
               planned = static_cast<double>((*trainer)->engine().memory_bytes());
  EXPECT_GT(arena, 100e6);
  EXPECT_NEAR(static_cast<double>((*trainer)->measured_bytes()), planned, 0.05 * planned);
}
#endif

}  // namespace
}  // namespace loom::testing
