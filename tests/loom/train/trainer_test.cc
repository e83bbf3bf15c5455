// Whole runs: interrupted and resumed ones have the losses of those that were not.
#include "train/trainer.h"

#include <filesystem>
#include <set>

#include "base/file.h"
#include "train/machine.h"
#include "train/report.h"
#include "train/runs.h"
#include "train/stored_state.h"

namespace loom::testing {
namespace {

class Trained : public Runs {
 protected:
  void SetUp() override {
    make_tokens(config_.data.folder);
    config_.data.microbatch = 1;
    config_.optimizer.learning_rate = 1e-2;
    config_.run.steps = 10;
  }

  /// Losses of the steps that a run of `ranks` makes; `until` ends it there.
  std::map<int64_t, double> run(train::Config config, int ranks, int degree, int64_t until = 1000) {
    config.parallel.sharded_data_parallel_degree = degree;
    const bool whole = until >= config.run.steps;
    if (!whole) config.run.steps = until;
    const Records records = run_on(ranks, config, [&](train::Trainer& trainer) {
      if (whole) LOOM_ASSERT_OK(trainer.save_model());
    });
    std::map<int64_t, double> losses;
    for (const auto& [step, record] : records) {
      losses[step] = record.loss;
      validation_ = record.validation_loss.value_or(validation_);
    }
    return losses;
  }

  /// Losses of two ranks, of which the second asks for the end when it is asked for the `times`-th time, in
  /// step 3, its evaluation or its save.
  std::map<int64_t, double> stopped_after_step_3(int times, size_t notes) {
    std::map<int64_t, double> losses;
    on_ranks(2, 1, [&](weftComm_t world) {
      Result<std::unique_ptr<train::Trainer>> trainer = train::Trainer::create(config_, world);
      LOOM_ASSERT_OK(trainer);
      const bool first = (*trainer)->groups().rank() == 0;
      int asked = 0;
      LOOM_ASSERT_OK((*trainer)->run(
          [&](const train::StepRecord& record) {
            if (first) losses[record.step] = record.loss;
            EXPECT_FALSE(record.validation_loss.has_value());
          },
          [&] { return ++asked >= times && !first; }));
      EXPECT_EQ(asked, times) << "there is no time for more";
      EXPECT_TRUE((*trainer)->stopped());
      EXPECT_EQ((*trainer)->next_step(), 3);
      ASSERT_EQ((*trainer)->notes().size(), notes);
      if (notes > 1) {
        EXPECT_NE((*trainer)->notes()[0].find("the validation after step 3 is left out"), std::string::npos);
      }
      EXPECT_NE((*trainer)->notes().back().find("stopped after step 3 of 10"), std::string::npos);
    });
    EXPECT_TRUE(is_file(config_.run.out + "/checkpoints/step-00000003/manifest.json"));
    return losses;
  }

  double validation_ = 0;
};

TEST_F(Trained, LearnsSavesAndValidates) {
  config_.run.steps = 60;
  config_.parallel.strict = false;
  config_.data.microbatch = 0;
  const auto losses = run(config_, 1, 1);
  EXPECT_LT(losses.at(59), 0.6 * losses.at(0));
  EXPECT_LT(validation_, 0.6 * losses.at(0));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "out/model/model.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "out/checkpoints/step-00000060/manifest.json"));
}

TEST_F(Trained, ResumedRunsHaveTheSameLossesOnAnyLayout) {
  config_.optimizer.schedule = "constant";  // the cosine depends on where a run ends
  const auto wanted = run(config_, 1, 1);
  for (const auto& [ranks, degree] : {std::pair{1, 1}, {2, 2}, {4, 2}}) {
    config_.run.out = folder_ / fmt::format("out-{}-{}", ranks, degree);
    config_.run.checkpoint_every = 2;
    const auto first = run(config_, 2, 2, 6);
    EXPECT_EQ(first.size(), 6u);
    const auto rest = run(config_, ranks, degree);
    EXPECT_EQ(rest.size(), 4u);
    for (const auto& [step, loss] : first) EXPECT_EQ(loss, wanted.at(step)) << step;
    for (const auto& [step, loss] : rest) EXPECT_EQ(loss, wanted.at(step)) << step << " on " << ranks;
  }
}

TEST_F(Trained, CheckpointsOfPipelinesResumeOnAnyLayoutAndBack) {
  config_.optimizer.schedule = "constant";
  config_.run.checkpoint_every = 3;
  config_.model.layers = 3;
  const auto wanted = run(config_, 1, 1);
  struct Layout {
    int ranks, degree, stages;
    const char* pipeline;
  };
  // One rank, then a pipeline, then another one with sharding, then shards alone; all from one folder.
  config_.run.out = folder_ / "out-pipelines";
  int64_t until = 3;
  for (const Layout& layout :
       {Layout{1, 1, 1, "1f1b"}, {4, 1, 4, "1f1b"}, {4, 2, 2, "simple"}, {2, 2, 1, "1f1b"}}) {
    config_.parallel.pipeline_degree = layout.stages;
    config_.parallel.pipeline = layout.pipeline;
    const auto losses = run(config_, layout.ranks, layout.degree, until);
    EXPECT_EQ(losses.size(), until < 10 ? 3u : 1u);
    for (const auto& [step, loss] : losses)
      EXPECT_EQ(loss, wanted.at(step))
          << step << " on " << layout.ranks << " ranks, " << layout.stages << " stages";
    until = std::min<int64_t>(until + 3, 10);
  }
}

TEST_F(Trained, APipelineSavesTheModelOfOneRank) {
  run(config_, 1, 1);
  const std::string wanted = get_file(folder_ / "out/model/model.safetensors");
  config_.run.out = folder_ / "out-pipeline";
  config_.parallel.pipeline_degree = 2;
  config_.parallel.profile = true;  // whatever cut comes of it, the bits are the same
  run(config_, 4, 2);
  EXPECT_GT(wanted.size(), 1000u);
  EXPECT_EQ(get_file(folder_ / "out-pipeline/model/model.safetensors"), wanted);
}

TEST_F(Trained, CheckpointsOfAnyDegreesResumeOnAnyOther) {
  config_.optimizer.schedule = "constant";
  config_.parallel.strict = false;
  config_.data.microbatch = 0;
  config_.run.steps = 6;
  const auto wanted = run(config_, 1, 1);
  struct Division {
    int ranks, tensor, shard;
    const char* optimize;
    bool prescaled;
    int stages = 1;
  };
  const Division one{1, 1, 1, "speed", true}, two{2, 2, 1, "memory", false}, four{4, 4, 1, "speed", true},
      both{4, 2, 2, "memory", false}, all{8, 2, 2, "memory", false, 2};
  int number = 0;
  for (const auto& [before, after] :
       {std::pair{one, two}, {two, one}, {four, both}, {both, all}, {all, four}}) {
    config_.run.out = folder_ / fmt::format("out-{}", ++number);
    const auto part = [&](const Division& division, int64_t until) {
      train::Config config = config_;
      config.parallel.tensor_degree = division.tensor;
      config.parallel.pipeline_degree = division.stages;
      config.parallel.optimize = division.optimize;
      config.parallel.prescaled_batch = division.prescaled;
      return run(config, division.ranks, division.shard, until);
    };
    auto losses = part(before, 3);
    losses.merge(part(after, 1000));
    ASSERT_EQ(losses.size(), 6u);
    for (const auto& [step, loss] : losses) EXPECT_NEAR(loss, wanted.at(step), 1e-5 * loss) << step;
    // The model that was saved is the one that one rank made.
    train::Config tuned = config_;
    tuned.model = {};
    tuned.model.from = config_.run.out + "/model";
    tuned.run.out = folder_ / fmt::format("tuned-{}", number);
    tuned.run.steps = 1;
    train::Config same = tuned;
    same.model.from = folder_ / "out/model";
    same.run.out = folder_ / fmt::format("same-{}", number);
    const double loss = run(same, 1, 1).at(0);
    EXPECT_NEAR(run(tuned, 1, 1).at(0), loss, 1e-4 * loss);
  }
}

TEST_F(Trained, ACheckpointOfAnyLayoutBecomesAWholeModel) {
  config_.parallel.pipeline_degree = 2;
  config_.parallel.tensor_degree = 2;
  config_.run.checkpoint_every = config_.run.save_model_every = 4;
  config_.run.keep = 3;
  run(config_, 4, 1);
  const std::string out = config_.run.out;
  for (const auto& [step, model] :
       {std::pair{4, "/models/step-00000004"}, {8, "/models/step-00000008"}, {10, "/model"}}) {
    const std::string exported = folder_ / fmt::format("exported-{}", step);
    const auto made = train::export_model(fmt::format("{}/checkpoints/step-{:08}", out, step), exported);
    LOOM_ASSERT_OK(made);
    EXPECT_EQ(made->step, step);
    EXPECT_TRUE(made->tokenizer);
    for (const char* name : {"/config.json", "/model.safetensors", "/loom-tokenizer.json"})
      EXPECT_EQ(get_file(exported + name), get_file(out + model + name)) << name << " of step " << step;
  }
  EXPECT_FALSE(std::filesystem::exists(out + "/models/step-00000010")) << "that is run.out/model";
  for (const std::string& folder : {config_.data.folder, out + "/model"}) std::filesystem::remove_all(folder);
  const auto without = train::export_model(out + "/checkpoints/step-00000010", folder_ / "without");
  LOOM_ASSERT_OK(without);
  EXPECT_FALSE(without->tokenizer);
  // An earlier export's tokenizer stays if it is the run's, and goes otherwise.
  const auto again = train::export_model(out + "/checkpoints/step-00000010", folder_ / "exported-4");
  LOOM_ASSERT_OK(again);
  EXPECT_TRUE(again->tokenizer);
  put_file(folder_ / "without/vocab.txt", "[UNK]\n[PAD]\n");
  LOOM_ASSERT_OK(train::export_model(out + "/checkpoints/step-00000010", folder_ / "without"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "without/vocab.txt"));
  EXPECT_TRUE(fails_with(train::export_model(out, folder_ / "none"), Code::not_found,
                         "its newest checkpoint is " + out + "/checkpoints/step-00000010"));
}

/// One bit of an exponent made a model whose loss was 7e35, where inspecting and resuming refused it.
TEST_F(Trained, ADamagedCheckpointBecomesNoModel) {
  config_.run.steps = 1;
  run(config_, 1, 1);
  const std::string checkpoint = folder_ / "out/checkpoints/step-00000001",
                    state = checkpoint + "/state-00000-of-00001.safetensors";
  std::string bytes = get_file(state);
  bytes.back() ^= 0x40;
  put_file(state, bytes);
  EXPECT_TRUE(fails_with(train::export_model(checkpoint, folder_ / "exported"), Code::invalid_data,
                         "does not have the hash that its manifest says"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "exported"));
}

TEST_F(Trained, WithoutTheOptimizersStateParametersGoOnAndMomentsBeginAgain) {
  config_.optimizer.schedule = "constant";
  const auto whole = run(config_, 1, 1);
  config_.run.out = folder_ / "parameters";
  config_.run.checkpoint_optimizer = false;
  run(config_, 2, 2, 4);
  const auto rest = run(config_, 1, 1);
  EXPECT_EQ(rest.begin()->first, 4);
  EXPECT_EQ(rest.at(4), whole.at(4));
  EXPECT_NE(rest.at(5), whole.at(5));
  const auto bytes = [&](const char* run) {
    return std::filesystem::file_size(folder_ / fmt::format("{}/checkpoints/step-00000010/"
                                                            "state-00000-of-00001.safetensors",
                                                            run));
  };
  EXPECT_LT(bytes("parameters") * 2, bytes("out"));
}

TEST_F(Trained, ARunBeginsWithANamedCheckpointAndGoesOnWithItsOwn) {
  config_.optimizer.schedule = "constant";
  config_.run.checkpoint_every = 3;
  config_.run.keep = 4;
  const auto whole = run(config_, 2, 2);
  train::Config other = config_;
  other.run.out = folder_ / "other";
  other.run.resume_from = config_.run.out + "/checkpoints/step-00000003";
  auto losses = run(other, 1, 1, 5);
  EXPECT_EQ(losses.begin()->first, 3);
  losses.merge(run(other, 1, 1));
  ASSERT_EQ(losses.size(), 7u);
  for (const auto& [step, loss] : losses) EXPECT_EQ(loss, whole.at(step)) << step;
  other.run.out = folder_ / "third";
  other.run.resume_from = folder_ / "nowhere";
  EXPECT_TRUE(fails_with(train::Trainer::create(other, nullptr), Code::not_found,
                         "run.resume_from: there is no \"" + (folder_ / "nowhere")));
}

TEST_F(Trained, ADamagedCheckpointIsPassedOver) {
  config_.optimizer.schedule = "constant";
  config_.run.checkpoint_every = 3;
  run(config_, 1, 1, 6);
  std::filesystem::remove(folder_ / "out/checkpoints/step-00000006/manifest.json");
  const auto rest = run(config_, 1, 1);
  EXPECT_EQ(rest.begin()->first, 3);
}

TEST_F(Trained, AnotherModelsCheckpointIsRefused) {
  run(config_, 1, 1, 3);
  config_.model.width = 64;
  EXPECT_TRUE(fails_with(train::Trainer::create(config_, nullptr), Code::invalid_data, "another model"));
  config_.data.folder = folder_ / "nowhere";
  EXPECT_TRUE(fails_with(train::Trainer::create(config_, nullptr), Code::not_found, "nowhere"));
}

TEST_F(Trained, FineTuningBeginsWithTheModel) {
  config_.run.steps = 30;
  const auto losses = run(config_, 1, 1);
  train::Config tuned = config_;
  tuned.model = {};
  tuned.model.from = folder_ / "out/model";
  tuned.run.out = folder_ / "tuned";
  tuned.run.steps = 1;
  EXPECT_LT(run(tuned, 2, 2).at(0), losses.at(5));
}

TEST_F(Trained, ARankThatIsAskedToStopStopsAllAfterTheSameStep) {
  config_.optimizer.schedule = "constant";
  config_.run.evaluate_every = 3;
  const auto whole = run(config_, 2, 2);
  config_.parallel.sharded_data_parallel_degree = 2;
  config_.run.out = folder_ / "stopped";
  std::map<int64_t, double> losses = stopped_after_step_3(3, 2);
  losses.merge(run(config_, 2, 2));
  EXPECT_EQ(losses, whole);
}

/// A launcher kills ranks a few seconds after it has asked them to stop.
TEST_F(Trained, ARankThatIsAskedToStopDuringAnEvaluationOrASaveStopsAll) {
  config_.parallel.sharded_data_parallel_degree = 2;
  config_.data.global_batch = 2;
  config_.run.evaluation_steps = 1000;
  struct When {
    const char* name;
    int64_t evaluate_every, save_model_every;
    int asked;  // when the answer is yes: in steps, then in an evaluation's batches or after a save
    size_t notes;
  };
  for (const When& when : {When{"evaluation", 3, 0, 5, 2}, When{"save", 0, 3, 4, 1}}) {
    SCOPED_TRACE(when.name);
    config_.run.out = folder_ / when.name;
    config_.run.evaluate_every = when.evaluate_every, config_.run.save_model_every = when.save_model_every;
    (void)stopped_after_step_3(when.asked, when.notes);
  }
}

TEST_F(Trained, WeightsThatAreNotFiniteAreNoBeginning) {
  config_.run.steps = 1;
  run(config_, 1, 1);
  config_.model = {};
  config_.model.from = folder_ / "out/model";
  config_.run.out = folder_ / "tuned";
  const std::string file = config_.model.from + "/model.safetensors";
  std::string bytes = get_file(file);
  std::fill(bytes.end() - 4, bytes.end(), '\xff');
  put_file(file, bytes);
  EXPECT_TRUE(fails_with(train::Trainer::create(config_, nullptr), Code::not_finite, config_.model.from));
}

TEST_F(Trained, LinesHaveEveryField) {
  config_.run.steps = 200;
  const Result<std::unique_ptr<train::Trainer>> trainer = train::Trainer::create(config_, nullptr);
  LOOM_ASSERT_OK(trainer);
  train::StepRecord record;
  record.step = 11;
  record.loss = 3.25;
  record.gradient_norm = 1.25;
  record.learning_rate = 3e-4;
  record.seconds = 20.5;
  record.exposed = 0.125;
  record.tokens_per_second = 4567;
  record.flops = 6e10;
  record.memory_bytes = (77 << 20) + 5;
  record.seconds_left = 3854.4;
  EXPECT_EQ(train::log_line(record, **trainer, 8e10),
            "step 12/200  loss 3.2500  norm 1.25  lr 3.00e-04  20500 ms  4567 tok/s  0.0600 TFLOP/s (75 %)  "
            "mem 77 MiB  waiting 12.5 %  ETA 1:04:14");
  record.memory_bytes = 0;
  EXPECT_NE(train::log_line(record, **trainer, 8e10).find("  mem unknown  "), std::string::npos);
  record.seconds = 0.5;
  record.seconds_left = 94;
  record.validation_loss = 2.5;
  record.validation_accuracy = 0.875;
  record.loss_scale = 1024;
  record.skipped = true;
  record.skipped_steps = 2;
  const std::string line = train::log_line(record, **trainer, 8e10);
  EXPECT_NE(line.find("  500 ms  "), std::string::npos) << line;
  EXPECT_NE(line.find("  ETA 1:34  scale 1024 overflows  skipped 2  validation loss 2.5000  validation "
                      "accuracy 0.8750"),
            std::string::npos)
      << line;
  record.step = 199;
  record.seconds_left = 0;
  EXPECT_NE(train::log_line(record, **trainer, 8e10).find("ETA 0:00"), std::string::npos);
  const format::Json json = *format::parse_json(train::json_line(record));
  EXPECT_EQ(json["validation_accuracy"], 0.875);
  EXPECT_EQ(train::record_of_line(json.dump())->validation_accuracy, 0.875);
}

TEST_F(Trained, ReportsHaveChartsAndLines) {
  train::Config config = config_;
  config.run.steps = 3;
  Result<std::unique_ptr<train::Trainer>> trainer = train::Trainer::create(config, nullptr);
  LOOM_ASSERT_OK(trainer);
  std::vector<train::StepRecord> records;
  LOOM_ASSERT_OK((*trainer)->run([&](const train::StepRecord& record) { records.push_back(record); }));
  program::Machine machine;
  const train::Comparison comparison = train::compare(**trainer, machine);
  const std::string page = train::html_report(records, **trainer, comparison);
  EXPECT_NE(page.find("[3.0,"), std::string::npos) << "a point of a chart";
  const std::string line = train::log_line(records[1], **trainer, 1e9);
  EXPECT_EQ(line.find("step 2/3  loss "), 0u);
  const format::Json json = *format::parse_json(train::json_line(records[2]));
  EXPECT_EQ(json["step"], 3);
  EXPECT_GT(records[2].memory_bytes, 0);
  EXPECT_EQ(json["memory_bytes"], records[2].memory_bytes);
  EXPECT_TRUE(json.contains("validation_loss"));

  EXPECT_NE(page.find("<td>backward</td>"), std::string::npos);
  const std::string text = train::to_text(comparison);
  EXPECT_NE(text.find("backward"), std::string::npos) << text;
  EXPECT_NE(text.find("activations"), std::string::npos) << text;
  const format::Json sides = *format::parse_json(train::json_line(comparison));
  EXPECT_EQ(sides["measured"]["steps"], 3);
  EXPECT_EQ(sides["predicted"]["memory_bytes"], (*trainer)->engine().memory().bytes);
}

TEST_F(Trained, APartOfAStepIsNotCountedTwice) {
  config_.run.steps = 4;
  Result<std::unique_ptr<train::Trainer>> trainer = train::Trainer::create(config_, nullptr);
  LOOM_ASSERT_OK(trainer);
  LOOM_ASSERT_OK((*trainer)->run([](const train::StepRecord&) {}));
  const train::Comparison comparison = train::compare(**trainer, program::Machine());
  for (const train::Breakdown& side : {comparison.predicted, comparison.measured}) {
    double sum = 0;
    for (const auto& [name, us] : side.parts()) sum += us;
    EXPECT_GT(side.step_us, 0);
    std::set<std::string> names;
    for (const auto& [name, us] : side.parts()) EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_TRUE(names.contains("optimizer") && !names.contains("step")) << "a step's part is no step";
    EXPECT_NEAR(sum, side.step_us, 1e-6 * side.step_us);
  }
}

TEST_F(Trained, WaitingCountsAsWhatIsWaitedForInForecastAndMeasurement) {
  config_.run.steps = 3;
  config_.parallel.strict = false;
  config_.parallel.tensor_degree = 2;
  config_.parallel.prescaled_batch = true;
  for (const char* optimize : {"memory", "speed"}) {
    config_.parallel.optimize = optimize;
    config_.run.out = folder_ / optimize;
    on_ranks(2, 1, [&](weftComm_t world) {
      Result<std::unique_ptr<train::Trainer>> trainer = train::Trainer::create(config_, world);
      LOOM_ASSERT_OK(trainer);
      LOOM_ASSERT_OK((*trainer)->run([](const train::StepRecord&) {}));
      const train::Comparison comparison = train::compare(**trainer, program::Machine());
      for (const train::Breakdown& side : {comparison.predicted, comparison.measured}) {
        double sum = 0;
        for (const auto& [name, us] : side.parts()) sum += us;
        EXPECT_NEAR(sum, side.step_us, 1e-6 * side.step_us);
        EXPECT_GT(side.waiting_us, 0);
        const bool divides_rows = optimize == std::string("memory");
        for (const program::Op op : {program::Op::tensor_gather, program::Op::tensor_all_reduce,
                                     program::Op::tensor_reduce_scatter}) {
          const bool used = op == program::Op::tensor_gather ||  // of the head's numbers
                            (op == program::Op::tensor_reduce_scatter) == divides_rows;
          EXPECT_EQ(side.us[static_cast<size_t>(op)] > 0, used) << program::op_name(op) << ", " << optimize;
        }
      }
    });
  }
}

TEST_F(Trained, MachinesAreMeasured) {
  on_ranks(2, 2, [&](weftComm_t world) {
    program::Job job = small_job(2, 2, 1, 4);
    const Result<engine::Groups> groups = engine::Groups::create(world, {.data = 2, .shard = 2}, false);
    LOOM_ASSERT_OK(groups);
    const Result<program::Machine> machine = train::measure_machine(job, *groups, 1);
    LOOM_ASSERT_OK(machine);
    const program::Machine unmeasured;
    EXPECT_EQ(machine->ranks_per_node, 1);
    EXPECT_GT(machine->flops, 1e8);
    EXPECT_GT(machine->memory_bandwidth, 1e8);
    EXPECT_GT(machine->inter_bandwidth, 1e6);
    EXPECT_NE(machine->inter_bandwidth, unmeasured.inter_bandwidth);
    EXPECT_EQ(machine->intra_bandwidth, unmeasured.intra_bandwidth) << "nobody uses it";
  });
}

/// Every run measured its machine anew.
TEST_F(Trained, RatesOfAMachineAreMeasuredOnceAndKept) {
  train::RateCache cache{folder_ / "cache/loom"};
  const program::Job job = small_job(1, 1, 1, 1);
  const auto measured = [&](const program::Job& of) {
    const Result<engine::Groups> groups = engine::Groups::create(nullptr, {}, false);
    EXPECT_TRUE(groups.ok());
    Result<program::Machine> machine = train::measure_machine(of, *groups, 1, "", &cache);
    EXPECT_TRUE(machine.ok() && cache.kept.ok());
    return machine.take();
  };
  const program::Machine first = measured(job);
  for (int kind = 0; kind < program::kKernelKinds; ++kind) {
    const auto of = static_cast<program::KernelKind>(kind);
    if (of == program::KernelKind::batched || of == program::KernelKind::scores) continue;
    EXPECT_GT(first.device.rates[static_cast<size_t>(kind)], 1e7) << kind;
  }
  EXPECT_EQ(first.device.rates, measured(job).device.rates) << "as kept";
  EXPECT_EQ(first.flops, measured(job).flops);
  cache.remeasure = true;
  EXPECT_NE(first.device.rates, measured(job).device.rates);
  cache.remeasure = false;
  program::Job other = job;
  other.precision = program::Precision::bf16;
  EXPECT_NE(first.device.rates, measured(other).device.rates) << "of another precision";
  const Result<std::vector<std::string>> files = list_folder(cache.folder);
  LOOM_ASSERT_OK(files);
  ASSERT_EQ(files->size(), 2u);
  for (const std::string& file : *files) put_file(join_path(cache.folder, file), "{\"facts\": ");
  const program::Machine again = measured(job);
  EXPECT_GT(again.flops, 1e7) << "damaged files are measured again";
  EXPECT_EQ(again.device.rates, measured(job).device.rates);
}

TEST_F(Trained, TheTierIsMeasured) {
  const Result<double> bandwidth = train::measured_tier_bandwidth("/var/tmp", 16 << 20);
  LOOM_ASSERT_OK(bandwidth);
  EXPECT_GT(*bandwidth, 1e5);
  EXPECT_TRUE(
      fails_with(train::measured_tier_bandwidth(folder_ / "nowhere", 16 << 20), Code::not_found, "nowhere"));
  config_.parallel.activation_offloading = true;
  config_.parallel.offload_folder = "/var/tmp";
  Result<std::unique_ptr<train::Trainer>> trainer =
      train::Trainer::create(config_, nullptr, train::Measuring::machine);
  LOOM_ASSERT_OK(trainer);
  EXPECT_NE((*trainer)->machine()->tier_bandwidth, program::Machine().tier_bandwidth);
}

// Sanitizers have memory of their own beside what a program asks for.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_F(Trained, MeasuredMemoryIsThePlanned) {
  config_.model.width = 512;
  config_.model.heads = 8;
  config_.data.global_batch = 64;
  config_.data.microbatch = 64;
  config_.parallel.strict = false;
  config_.run.resume = false;
  std::vector<double> planned;
  for (const bool offloading : {false, true}) {
    config_.parallel.activation_offloading = offloading;
    config_.parallel.activation_loading_horizon = 1;
    config_.model.layers = 4;
    Result<std::unique_ptr<train::Trainer>> trainer = train::Trainer::create(config_, nullptr);
    LOOM_ASSERT_OK(trainer);
    for (int step = 0; step < 2; ++step) LOOM_ASSERT_OK((*trainer)->step());
    planned.push_back(static_cast<double>((*trainer)->engine().memory().bytes));
    EXPECT_GT(planned.back(), 150e6);
    EXPECT_NEAR(static_cast<double>((*trainer)->measured_bytes()), planned.back(), 0.05 * planned.back());
  }
  EXPECT_LT(planned[1], planned[0]);
}
#endif

}  // namespace
}  // namespace loom::testing
