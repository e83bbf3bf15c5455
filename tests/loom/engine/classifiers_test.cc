// Classifications of sequences in stages and on tensor ranks: every tensor rank does the whole head, on rows
// that the ranks share.
#include <cmath>
#include <filesystem>

#include "engine/families.h"

namespace loom::testing {
namespace {

constexpr int kSteps = 5;
constexpr int64_t kLabels = 3;

program::Job classifier_of(model::Family family, int pipeline, int tensor, int data = 1) {
  program::Job job = small_job(pipeline * tensor * data, 1, 2, kSequences / 2 / data);
  job.spec.layers = 2;
  job.spec = family_spec(family, model::Task::classification, job.spec);
  job.spec.labels = kLabels;
  job.spec.padding = 0;
  job.spec.embedding_dropout = job.spec.residual_dropout = job.spec.attention_dropout = 0.1f;
  if (job.spec.pooler) job.spec.head_dropout = 0.1f;
  model::complete(job.spec);
  job.targets = 1;
  job.pipeline_degree = pipeline;
  job.tensor_degree = tensor;
  return job;
}

/// Texts of several lengths, with the class that their first token says, and padding behind.
void fill_classes(engine::Engine& engine, const engine::Groups& groups, int step) {
  const program::Job& job = engine.job();
  for (int m = 0; m < job.microbatches; ++m) {
    std::fill(engine.tokens(m).begin(), engine.tokens(m).end(), job.spec.padding);
    std::fill(engine.targets(m).begin(), engine.targets(m).end(), -1);
    for (int64_t b = 0; b < job.batch; ++b) {
      const int64_t sample =
          program::microbatch_number(job, groups.group(), groups.member(), m) * job.batch + b;
      const int64_t length = 1 + (sample * 5 + step) % job.tokens;
      for (int64_t t = 0; t < length; ++t)
        engine.tokens(m)[static_cast<size_t>(b * job.tokens + t)] =
            static_cast<int32_t>(1 + (sample * 3 + step + t * 7) % (job.spec.vocabulary - 1));
      engine.targets(m)[static_cast<size_t>(b * job.tokens)] =
          engine.tokens(m)[static_cast<size_t>(b * job.tokens)] % static_cast<int32_t>(kLabels);
    }
  }
  keep_own_sequences(engine, groups);
}

struct Outcome {
  std::vector<double> losses;
  double evaluated = 0;
  std::vector<float> logits;  // of the first microbatch's last sequence
};

/// Trains, looks, and writes the model to `folder`.
Outcome classify(const program::Job& job, const std::string& folder) {
  Outcome outcome;
  outcome.losses.resize(kSteps, -1);
  std::mutex mutex;
  on_ranks(job.world, 1, [&](weftComm_t world) {
    Result<engine::Groups> groups = engine::Groups::create(world, job.layout(), job.strict);
    LOOM_ASSERT_OK(groups);
    Result<std::unique_ptr<engine::Engine>> made = engine::Engine::create(job, *groups, {});
    LOOM_ASSERT_OK(made);
    engine::Engine& engine = **made;
    LOOM_ASSERT_OK(engine.initialize(3));
    for (int step = 0; step < kSteps; ++step) {
      fill_classes(engine, *groups, step);
      const Result<engine::StepResult> result = engine.step(settings_of(step));
      LOOM_ASSERT_OK(result);
      const std::lock_guard lock(mutex);
      double& loss = outcome.losses[static_cast<size_t>(step)];
      if (loss < 0) loss = result->loss;
      EXPECT_EQ(loss, result->loss) << "rank " << groups->rank() << ", step " << step;
    }
    fill_classes(engine, *groups, kSteps);
    const Result<double> evaluated = engine.evaluate();
    LOOM_ASSERT_OK(evaluated);
    const Result<std::vector<float>> logits = engine.logits((job.batch - 1) * job.tokens);
    LOOM_ASSERT_OK(logits);
    LOOM_ASSERT_OK(engine.save_model(folder));
    const std::lock_guard lock(mutex);
    ASSERT_EQ(logits->size(), static_cast<size_t>(kLabels));
    if (groups->group() != 0 || groups->member() != 0) return;  // it has other sequences
    if (outcome.logits.empty()) outcome.logits = *logits, outcome.evaluated = *evaluated;
    EXPECT_EQ(outcome.logits, *logits) << "rank " << groups->rank();
  });
  return outcome;
}

std::vector<float> values_of(const format::SafetensorsReader& file, const std::string& name) {
  const Result<format::TensorView> tensor = file.tensor(name);
  EXPECT_TRUE(tensor.ok()) << name;
  if (!tensor.ok()) return {};
  std::vector<float> values(tensor->elements());
  EXPECT_TRUE(file.read_f32(name, tensor->shape, values).ok()) << name;
  return values;
}

/// The same config, and the same tensors but for the order of additions.
void expect_equal_models(const std::string& one, const std::string& other) {
  const auto a = format::SafetensorsReader::open(one), b = format::SafetensorsReader::open(other);
  LOOM_ASSERT_OK(a);
  LOOM_ASSERT_OK(b);
  ASSERT_EQ(a->names(), b->names());
  EXPECT_EQ(get_file(one + "/config.json"), get_file(other + "/config.json"));
  for (const std::string& name : a->names()) {
    const std::vector<float> x = values_of(*a, name), y = values_of(*b, name);
    ASSERT_EQ(x.size(), y.size()) << name;
    for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], 2e-3) << name << ", element " << i;
  }
}

class Classifiers : public ::testing::TestWithParam<model::Family> {};

TEST_P(Classifiers, TensorRanksHaveTheLossesAndTheModelOfOneRank) {
  const TemporaryFolder folder;
  const auto into = [&](const std::string& name) {
    std::filesystem::create_directory(folder / name);
    return folder / name;
  };
  const Outcome one = classify(classifier_of(GetParam(), 1, 1), into("one"));
  EXPECT_NEAR(one.losses.front(), std::log(3.0), 0.3);
  struct Case {
    int pipeline, tensor, data;
    bool divides_rows, prescaled = true;
  };
  for (const auto& [pipeline, tensor, data, divides_rows, prescaled] :
       {Case{1, 2, 1, false},
        {1, 2, 1, true},
        {1, 4, 1, true},
        {2, 2, 1, true},
        {1, 2, 2, true},
        // Between the ends no unit has tokens.
        {3, 2, 1, false, false},
        {3, 2, 1, true, false}}) {
    SCOPED_TRACE(fmt::format("{} stages, {} tensor ranks, {} data ranks{}{}", pipeline, tensor, data,
                             divides_rows ? ", rows divided" : "", prescaled ? "" : ", batch exchanged"));
    program::Job job = classifier_of(GetParam(), pipeline, tensor, data);
    job.degree = data;
    job.divides_rows = divides_rows;
    job.prescaled_batch = prescaled;
    job.checkpoint_group = divides_rows ? 1 : 0;
    const std::string name = fmt::format("{}{}{}{}", pipeline, tensor, data, divides_rows);
    const Outcome got = classify(job, into(name));
    for (size_t step = 0; step < got.losses.size(); ++step)
      EXPECT_NEAR(got.losses[step], one.losses[step], 1e-5 * one.losses[step]) << "step " << step;
    EXPECT_NEAR(got.evaluated, one.evaluated, 1e-5 * one.evaluated);
    // Where data ranks divide the batch, the first microbatch ends with another sequence.
    for (size_t label = 0; data == 1 && label < got.logits.size(); ++label)
      EXPECT_NEAR(got.logits[label], one.logits[label], 1e-3);
    expect_equal_models(folder / "one", folder / name);
  }
}

TEST_P(Classifiers, StagesAloneHaveTheBitsOfOneRank) {
  const TemporaryFolder folder;
  const auto outcome_of = [&](int stages, int data, int group, bool offload) {
    program::Job job = classifier_of(GetParam(), stages, 1, data);
    job.strict = true;
    job.microbatches = kSequences / data;
    job.batch = 1;
    job.degree = data;
    job.checkpoint_group = group;
    job.offload = offload;
    const std::string into = folder / fmt::format("{}-{}-{}-{}", stages, data, group, offload);
    std::filesystem::create_directory(into);
    Outcome outcome = classify(job, into);
    EXPECT_EQ(get_file(into + "/model.safetensors"), get_file(folder / "1-1-0-false/model.safetensors"));
    return outcome;
  };
  const Outcome one = outcome_of(1, 1, 0, false);
  struct Case {
    int stages, data, group;
    bool offload;
  };
  for (const auto& [stages, data, group, offload] :
       {Case{2, 1, 0, false}, {4, 1, 0, false}, {2, 2, 1, false}, {1, 1, 1, true}, {2, 1, 1, true}}) {
    SCOPED_TRACE(fmt::format("{} stages, {} data ranks", stages, data));
    const Outcome got = outcome_of(stages, data, group, offload);
    EXPECT_EQ(got.losses, one.losses);
    EXPECT_EQ(got.evaluated, one.evaluated);
    // Where data ranks divide the batch, the first microbatch has another sequence.
    if (data == 1) {
      EXPECT_EQ(got.logits, one.logits);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Training, Classifiers,
                         ::testing::Values(model::Family::bert, model::Family::roberta, model::Family::gptj),
                         [](const auto& info) { return std::string(model::family_name(info.param)); });

TEST(Classifiers, AnyLayoutReadsTheStateOfTensorRanks) {
  const TemporaryFolder folder;
  const program::Job saved = classifier_of(model::Family::bert, 1, 2),
                     resumed = classifier_of(model::Family::bert, 1, 1);
  std::vector<format::FlatLayout> layouts;
  const auto read = [&](engine::Engine& engine, const engine::Groups&) -> Status {
    LOOM_TRY(engine.initialize(4));  // other values
    engine::StateReaders readers(1);
    for (const format::FlatLayout& layout : layouts)
      readers[0].push_back(std::make_unique<format::FlatReader>(folder.path(), layout));
    LOOM_TRY(engine.load_state(readers));
    std::filesystem::create_directory(folder / "model");
    return engine.save_model(folder / "model");
  };
  train(saved, 0, 0, {}, [&](engine::Engine& engine, const engine::Groups& groups) -> Status {
    LOOM_TRY(engine.save_state(folder.path()));
    if (groups.rank() != 0) return {};
    for (int tensor = 0; tensor < 2; ++tensor) layouts.push_back(*engine.state_layout(0, tensor));
    return {};
  });
  train(resumed, 0, 0, read);
  const auto initial = [&](engine::Engine& engine, const engine::Groups&) -> Status {
    std::filesystem::create_directory(folder / "initial");
    return engine.save_model(folder / "initial");
  };
  train(resumed, 0, 0, {}, initial);
  EXPECT_EQ(get_file(folder / "model/model.safetensors"), get_file(folder / "initial/model.safetensors"));
}

}  // namespace
}  // namespace loom::testing
