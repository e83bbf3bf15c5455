// The library as a program sees it: through include/loom alone.
#include <loom/loom.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "engine/ranks.h"
#include "support.h"
#include "text/dataset.h"
#include "train/threads.h"

namespace loom::testing {
namespace {

class Api : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 500; ++i) text += fmt::format("{} and {}\n", i % 9, i % 9 + 1);
    put_file(folder_ / "text.txt", text);
    const Result<DatasetSummary> made = make_dataset({folder_ / "text.txt"}, folder_ / "data");
    LOOM_ASSERT_OK(made);
    EXPECT_EQ(made->train_bytes + made->validation_bytes, text.size());
    EXPECT_EQ(made->tokenizer, "bytes");
  }

  Result<Config> config(std::vector<std::string> keys = {}) const {
    keys.insert(keys.begin(), {"data.folder=" + (folder_ / "data"), "run.out=" + (folder_ / "out")});
    return Config::parse(R"({"model": {"width": 32, "layers": 2},
                             "data": {"sequence_length": 16, "global_batch": 8},
                             "parallel": {"threads": 1},
                             "optimizer": {"learning_rate": 1e-2, "warmup_steps": 3},
                             "run": {"steps": 40, "evaluation_steps": 2}})",
                         keys);
  }

  TemporaryFolder folder_;
};

TEST_F(Api, TrainsAndTheModelEvaluatesAndSamples) {
  double first = 0, last = 0, held_out = 0;
  {
    const Result<Config> told = config();
    LOOM_ASSERT_OK(told);
    Result<Training> run = Training::create(*told);
    LOOM_ASSERT_OK(run);
    EXPECT_EQ(run->ranks(), 1);
    EXPECT_EQ(run->steps(), 40);
    EXPECT_GT(run->parameters(), 20000);
    EXPECT_GT(run->memory_bytes(), 16 * run->parameters());
    const Result<StepRecord> step = run->step();
    LOOM_ASSERT_OK(step);
    first = step->loss;
    EXPECT_EQ(run->next_step(), 1);
    LOOM_ASSERT_OK(run->run([&](const StepRecord& record) {
      last = record.loss;
      if (record.validation_loss) held_out = *record.validation_loss;
    }));
    LOOM_ASSERT_OK(run->save_model());
  }
  EXPECT_LT(last, 0.7 * first);
  Result<Model> model = Model::open(folder_ / "out/model", 1);
  LOOM_ASSERT_OK(model);
  EXPECT_EQ(model->context(), 16);
  EXPECT_EQ(model->vocabulary(), 257);
  const Result<Evaluation> evaluation = model->evaluate(folder_ / "data", {0, 8, 2});
  LOOM_ASSERT_OK(evaluation);
  EXPECT_NEAR(evaluation->loss, held_out, 1e-5 * held_out);

  const Result<std::string> text = model->sample("3 and", {4, 0, 0, 1});
  LOOM_ASSERT_OK(text);
  EXPECT_EQ(text->find("3 and"), 0u);
  EXPECT_EQ(text->size(), 9u);
  const Result<std::vector<int32_t>> tokens = model->encode("3 and");
  LOOM_ASSERT_OK(tokens);
  const Result<std::vector<float>> logits = model->logits(*tokens);
  LOOM_ASSERT_OK(logits);
  const auto likeliest = std::max_element(logits->begin(), logits->end()) - logits->begin();
  EXPECT_EQ(static_cast<char>(likeliest), (*text)[5]);
}

TEST_F(Api, SavesACheckpointAgainAndTellsWhatIsNotAsAsked) {
  const Result<Config> told = config({"run.steps=3"});
  LOOM_ASSERT_OK(told);
  const std::string manifest = folder_ / "out/checkpoints/step-00000003/manifest.json";
  {
    Result<Training> run = Training::create(*told);
    LOOM_ASSERT_OK(run);
    EXPECT_TRUE(run->notes().empty());
    LOOM_ASSERT_OK(run->run());
    EXPECT_FALSE(run->stopped());
    const auto written = std::filesystem::last_write_time(manifest);
    LOOM_ASSERT_OK(run->save_checkpoint());  // it has, when the run was over
    EXPECT_EQ(std::filesystem::last_write_time(manifest), written);
  }
  Result<Training> over = Training::create(*told);
  LOOM_ASSERT_OK(over);
  ASSERT_EQ(over->notes().size(), 1u);
  EXPECT_NE(over->notes()[0].find("nothing to do"), std::string::npos);
  LOOM_ASSERT_OK(over->save_checkpoint());
  EXPECT_TRUE(fails_with(Training::create(*told), Code::invalid_argument, "is being written by process"));
}

TEST_F(Api, StopsWhenItIsAskedTo) {
  Result<Training> run = Training::create(*config());
  LOOM_ASSERT_OK(run);
  LOOM_ASSERT_OK(run->run({}, [&] { return run->next_step() == 4; }));
  EXPECT_TRUE(run->stopped());
  EXPECT_EQ(run->next_step(), 5);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "out/checkpoints/step-00000005/manifest.json"));
  LOOM_ASSERT_OK(run->run());
  EXPECT_FALSE(run->stopped());
  EXPECT_EQ(run->next_step(), 40);
}

TEST_F(Api, TwoRanksTrainAsOne) {
  const auto losses = [&](int ranks) {
    std::vector<double> losses;
    on_ranks(ranks, 1, [&](weftComm_t world) {
      const Result<Config> told =
          config({fmt::format("parallel.sharded_data_parallel_degree={}", ranks), "run.resume=false"});
      LOOM_ASSERT_OK(told);
      Result<Training> run = Training::create(*told, world);
      LOOM_ASSERT_OK(run);
      for (int step = 0; step < 5; ++step) {
        const Result<StepRecord> record = run->step();
        LOOM_ASSERT_OK(record);
        if (run->rank() == 0) losses.push_back(record->loss);
      }
    });
    return losses;
  };
  const std::vector<double> one = losses(1), two = losses(2);
  ASSERT_EQ(one.size(), two.size());
  for (size_t step = 0; step < one.size(); ++step) EXPECT_NEAR(one[step], two[step], 1e-5 * one[step]);
}

TEST_F(Api, SamplesOnlyTokensThatTheTokenizerHas) {
  Result<Training> run = Training::create(*config({"run.steps=1", "model.vocabulary=600"}));
  LOOM_ASSERT_OK(run);
  LOOM_ASSERT_OK(run->save_model());
  Result<Model> model = Model::open(folder_ / "out/model", 1);
  LOOM_ASSERT_OK(model);
  // So hot that all tokens are as likely: more than half are not the tokenizer's.
  for (const uint64_t seed : {1, 2, 3, 4, 5}) LOOM_ASSERT_OK(model->sample("a", {12, 1000, 0, seed}));
}

/// A line feed is no token of word pieces: a text begins with the token that ends the one before.
TEST_F(Api, SamplesWithoutAPromptWhateverTheTokenizerHas) {
  const auto sampled = [&](const std::string& tokenizer) -> Result<std::string> {
    DatasetOptions options;
    options.tokenizer = tokenizer;
    LOOM_TRY(make_dataset({folder_ / "text.txt"}, folder_ / "pieces", options).status());
    const Result<Config> told =
        config({"run.steps=1", "run.resume=false", "data.folder=" + (folder_ / "pieces")});
    LOOM_TRY(told.status());
    std::filesystem::remove_all(folder_ / "out");
    Result<Training> run = Training::create(*told);
    LOOM_TRY(run.status());
    LOOM_TRY(run->save_model());
    Result<Model> model = Model::open(folder_ / "out/model", 1);
    LOOM_TRY(model.status());
    return model->sample("", {3, 1, 0, 1});
  };
  LOOM_ASSERT_OK(sampled("bytes"));
  LOOM_ASSERT_OK(sampled(fixture("wordpiece.json")));
  put_file(folder_ / "vocab.txt", "[UNK]\na\nn\n##n\n##d\n1\n2\n");
  EXPECT_TRUE(fails_with(sampled(folder_ / "vocab.txt"), Code::invalid_argument,
                         "the prompt has no tokens, must have one"));
}

/// Sorting what has no order is undefined.
TEST_F(Api, WeightsThatAreNoNumbersAreSaid) {
  const auto spoilt = [&](const char* name) {
    const std::string folder = folder_ / std::filesystem::path(name).filename().string();
    std::filesystem::copy(fixture(name), folder);
    std::string bytes = get_file(folder + "/model.safetensors");
    uint64_t header = 0;
    std::memcpy(&header, bytes.data(), sizeof header);
    std::fill(bytes.begin() + 8 + static_cast<std::ptrdiff_t>(header), bytes.end(), '\xff');
    put_file(folder + "/model.safetensors", bytes);
    put_file(folder + "/vocab.txt", "[UNK]\n[PAD]\n[CLS]\n[SEP]\na\n");
    return Model::open(folder, 1);
  };
  Result<Model> causal = spoilt("gpt2-tied"), classifier = spoilt("families/bert-classification");
  LOOM_ASSERT_OK(causal);
  LOOM_ASSERT_OK(classifier);
  for (const double temperature : {0.0, 1.0})
    EXPECT_TRUE(fails_with(causal->sample("a", {2, temperature, 0, 1}), Code::not_finite, "logit"));
  EXPECT_TRUE(fails_with(classifier->classify("a"), Code::not_finite, "logit"));
}

/// "-nan" used to be a loss, and the command a success.
TEST_F(Api, WeightsThatAreNoNumbersHaveNoLoss) {
  const auto spoil = [](const std::string& folder) {
    std::string bytes = get_file(folder + "/model.safetensors");
    uint64_t header = 0;
    std::memcpy(&header, bytes.data(), sizeof header);
    std::fill(bytes.begin() + 8 + static_cast<std::ptrdiff_t>(header), bytes.end(), '\xff');
    put_file(folder + "/model.safetensors", bytes);
  };
  Result<Training> run = Training::create(*config({"run.steps=1"}));
  LOOM_ASSERT_OK(run);
  LOOM_ASSERT_OK(run->save_model());
  spoil(folder_ / "out/model");
  Result<Model> causal = Model::open(folder_ / "out/model", 1);
  LOOM_ASSERT_OK(causal);
  EXPECT_TRUE(fails_with(causal->evaluate(folder_ / "data"), Code::not_finite, "the loss of batch 1 is"));

  const std::string folder = folder_ / "classifier";
  std::filesystem::copy(fixture("families/bert-classification"), folder);
  put_file(folder + "/vocab.txt", "[UNK]\n[CLS]\n[SEP]\n[PAD]\n[MASK]\nb\n");
  put_file(folder_ / "texts.tsv", "0\tb\n1\tb b\n2\tb b b\n0\tb\n1\tb b\n2\tb b b\n");
  DatasetOptions options;
  options.tokenizer = folder;
  options.labels = true;
  options.validation_fraction = 0.5;
  LOOM_ASSERT_OK(make_dataset({folder_ / "texts.tsv"}, folder_ / "texts", options));
  spoil(folder);
  Result<Model> classifier = Model::open(folder, 1);
  LOOM_ASSERT_OK(classifier);
  EXPECT_TRUE(fails_with(classifier->evaluate(folder_ / "texts"), Code::not_finite, "logit"));
}

TEST_F(Api, ADatasetReplacesNoTextAndNoTokenizerOfAModel) {
  std::filesystem::copy_file(folder_ / "text.txt", folder_ / "vocab.txt");
  EXPECT_TRUE(fails_with(make_dataset({folder_ / "text.txt", folder_ / "vocab.txt"}, folder_.path()),
                         Code::invalid_argument, "vocab.txt would be replaced by the dataset's tokenizer"));
  LOOM_ASSERT_OK(make_dataset({folder_ / "vocab.txt"}, folder_ / "elsewhere"));
  std::filesystem::copy(fixture("families/bert-classification"), folder_ / "model");
  EXPECT_TRUE(fails_with(make_dataset({folder_ / "text.txt"}, folder_ / "model"), Code::invalid_argument,
                         "is a model, whose tokenizer"));
  EXPECT_TRUE(is_file(folder_ / "vocab.txt"));
}

/// The braces and keys of a .jsonl would be trained on in silence.
TEST_F(Api, SaysThatFieldsWithoutLabelsAreTakenAsText) {
  for (const char* name : {"text.jsonl", "text.csv"}) {
    std::filesystem::copy_file(folder_ / "text.txt", folder_ / name);
    const Result<DatasetSummary> made =
        make_dataset({folder_ / "text.txt", folder_ / name}, folder_ / "fields");
    LOOM_ASSERT_OK(made);
    EXPECT_TRUE(made->note.starts_with((folder_ / name) + " is taken as it stands")) << made->note;
  }
  const Result<DatasetSummary> plain = make_dataset({folder_ / "text.txt"}, folder_ / "fields");
  LOOM_ASSERT_OK(plain);
  EXPECT_EQ(plain->note, "");
}

TEST_F(Api, EvaluatesEveryWindowOnce) {
  Result<Training> run = Training::create(*config({"run.steps=1"}));
  LOOM_ASSERT_OK(run);
  LOOM_ASSERT_OK(run->save_model());
  Result<Model> model = Model::open(folder_ / "out/model", 1);
  LOOM_ASSERT_OK(model);
  const auto evaluated = [&](int64_t batch) {
    const Result<Evaluation> evaluation = model->evaluate(folder_ / "data", {13, batch, 0});
    EXPECT_TRUE(evaluation.ok()) << evaluation.status().message();
    return evaluation.ok() ? *evaluation : Evaluation();
  };
  const Evaluation one = evaluated(1);
  const int64_t windows = one.batches;
  ASSERT_GT(windows, 3);
  for (const int64_t batch : {windows - 1, windows, windows + 1, 2 * windows}) {
    const Evaluation some = evaluated(batch);
    EXPECT_NEAR(some.loss, one.loss, 1e-6 * one.loss) << batch << " of " << windows;
    EXPECT_EQ(some.batches, (windows + batch - 1) / batch);
  }
}

/// The end of the validation text has other words than its beginning, and so fewer bytes a token.
TEST_F(Api, LossesAByteOfAPartAreOfItsOwnBytes) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "all words are alike\n";
  for (int i = 0; i < 300; ++i) text += fmt::format("{}\n", i * i * 37 % 8909);
  put_file(folder_ / "text.txt", text);
  LOOM_ASSERT_OK(make_dataset({folder_ / "text.txt"}, folder_ / "data", {"bytes", 300, 0.1, 0}));
  {
    Result<Training> run = Training::create(*config({"run.steps=1"}));
    LOOM_ASSERT_OK(run);
    LOOM_ASSERT_OK(run->save_model());
  }
  Result<Model> model = Model::open(folder_ / "out/model", 1);
  LOOM_ASSERT_OK(model);
  const Result<Evaluation> part = model->evaluate(folder_ / "data", {16, 2, 3}),
                           whole = model->evaluate(folder_ / "data", {16, 2, 0});
  LOOM_ASSERT_OK(part);
  LOOM_ASSERT_OK(whole);
  const auto data = text::TokenDataset::open(folder_ / "data", text::Split::validation);
  LOOM_ASSERT_OK(data);
  std::vector<text::Token> tokens(3 * 2 * 16 + 1);
  LOOM_ASSERT_OK((*data)->read(0, tokens));
  const Result<std::string> decoded = model->decode(tokens);
  LOOM_ASSERT_OK(decoded);
  EXPECT_NEAR(part->loss_per_byte, part->loss * 97 / static_cast<double>(decoded->size()), 1e-12);
  const double a_token_of_all =
      static_cast<double>((*data)->text_bytes()) / static_cast<double>((*data)->tokens());
  EXPECT_NEAR(whole->loss_per_byte, whole->loss / a_token_of_all, 1e-12);
  EXPECT_GT(static_cast<double>(decoded->size()) / 97, 1.5 * a_token_of_all);
}

TEST_F(Api, AModelThatIsNotCausalHasNoLogitsOfWhatComesNext) {
  Result<Model> model = Model::open(fixture("families/bert"), 1);
  LOOM_ASSERT_OK(model);
  const int32_t tokens[] = {1, 2};
  EXPECT_TRUE(fails_with(model->logits(tokens), Code::unsupported, "does not continue texts"));
}

TEST_F(Api, TextsToTrainAVocabularyOnMayBeLarge) {
  put_file(folder_ / "large.txt", "a");
  std::filesystem::resize_file(folder_ / "large.txt", (uint64_t{1} << 30) + 1);
  // Byte 1 is refused, the size is not.
  EXPECT_TRUE(fails_with(make_dataset({folder_ / "large.txt"}, folder_ / "d", {"bytes", 300, 0.1, 0}),
                         Code::invalid_data, "byte 1 is 0x00"));
}

TEST_F(Api, PlansWithoutRunning) {
  const Result<Config> told = config({"parallel.sharded_data_parallel_degree=4"});
  LOOM_ASSERT_OK(told);
  Cluster cluster;
  cluster.ranks = 8;
  cluster.ranks_per_node = 4;
  cluster.flops = 1e10;
  const Result<Plan> made = plan(*told, cluster);
  LOOM_ASSERT_OK(made);
  EXPECT_EQ(made->degree, 4);
  double bytes = 0, us = 0;
  ASSERT_EQ(made->stages.size(), 1u);
  const PlannedStage& stage = made->stages[0];
  for (const Share& share : stage.memory) bytes += share.amount;
  for (const Share& share : stage.times) us += share.amount;
  EXPECT_EQ(bytes, static_cast<double>(stage.peak_bytes));
  EXPECT_GE(stage.arena_bytes, stage.peak_bytes);
  EXPECT_EQ(made->arena_bytes(), stage.arena_bytes);
  EXPECT_NEAR(us, made->step_us, 1e-6 * made->step_us);
  EXPECT_NE(made->program.find("reduce_scatter unit 1"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
}

/// A plan used to reckon with one thread, where training takes all that a rank has.
TEST_F(Api, PlansWithTheThreadsThatTrainingTakes) {
  for (const auto& [key, ranks, per_node] :
       {std::tuple("parallel.threads=0", 1, 1), {"parallel.threads=0", 4, 2}, {"parallel.threads=2", 4, 2}}) {
    const Result<Config> told = config({key});
    LOOM_ASSERT_OK(told);
    Cluster cluster;
    cluster.ranks = ranks;
    cluster.ranks_per_node = per_node;
    const Result<Plan> made = plan(*told, cluster);
    LOOM_ASSERT_OK(made);
    EXPECT_EQ(made->threads, train::threads_of(told->values(), {per_node, per_node, per_node})) << key;
    cluster.flops = 1e10;
    EXPECT_EQ(plan(*told, cluster)->threads, 0) << "nothing was measured";
  }
}

/// RoBERTa's table of positions begins behind the padding token.
TEST_F(Api, PlansWithTheDatasetsPadding) {
  put_file(folder_ / "vocab.txt", "[UNK]\na\nn\n##n\n##d\n[CLS]\n[SEP]\n[MASK]\n[PAD]\n");
  DatasetOptions options;
  options.tokenizer = folder_ / "vocab.txt";
  LOOM_ASSERT_OK(make_dataset({folder_ / "text.txt"}, folder_ / "pieces", options));
  const Result<Config> told = config({"data.folder=" + (folder_ / "pieces"), "model.family=roberta"});
  LOOM_ASSERT_OK(told);
  const Result<Training> run = Training::create(*told);
  LOOM_ASSERT_OK(run);
  Cluster cluster;
  cluster.flops = 1e10;
  const Result<Plan> made = plan(*told, cluster);
  LOOM_ASSERT_OK(made);
  EXPECT_EQ(made->parameters, run->parameters());
}

TEST_F(Api, ClustersAreReadFromDescriptions) {
  const std::string path = folder_ / "cluster.json";
  put_file(path, R"({"name": "two", "nodes": {"value": 2, "source": "here"}, "ranks_per_node": 4,
                     "compute": {"gflops": {"value": 50, "source": "guessed"}},
                     "machine": {"intra": {"alpha_us": 1, "overhead_us": 0.5, "bytes_per_us": 20000},
                                 "memory": {"source": "guessed", "copy_large": 6000},
                                 "nic_bytes_per_us": 3000, "rails": 2, "crossing": 0.5}})");
  const Result<Cluster> cluster = read_cluster(path);
  LOOM_ASSERT_OK(cluster);
  EXPECT_EQ(cluster->name, "two");
  EXPECT_EQ(cluster->ranks, 8);
  EXPECT_EQ(cluster->ranks_per_node, 4);
  EXPECT_EQ(cluster->flops, 50e9);
  EXPECT_EQ(cluster->memory_bandwidth, 12e9);
  EXPECT_EQ(cluster->intra_bandwidth, 20e9);
  EXPECT_EQ(cluster->inter_bandwidth, 3e9);
  EXPECT_EQ(cluster->intra_latency_us, 2);
  EXPECT_EQ(cluster->inter_latency_us, Cluster().inter_latency_us) << "the file says nothing";
  LOOM_ASSERT_OK(plan(*config(), *cluster));

  const auto refused = [&](const char* text, const char* words) {
    put_file(path, text);
    return fails_with(read_cluster(path), Code::invalid_argument, words);
  };
  EXPECT_TRUE(refused(R"({"ranks_per_node": 4})", "nodes is missing, must be a number"));
  EXPECT_TRUE(
      refused(R"({"nodes": 2, "machine": {"rails": "two"}})", "machine.rails is \"two\", must be a number"));
  EXPECT_TRUE(refused(R"({"nodes": 2, "machine": {"rails": 2000}})",
                      "machine.rails is 2000, must be a number from 1 to 256"));
  EXPECT_TRUE(
      refused(R"({"nodes": 2, "machine": {"rails": 2.5}})", "machine.rails is 2.5, must be a whole number"));
  EXPECT_TRUE(refused(R"({"nodes": 2, "machine": {"intra": 3}})", "machine.intra is 3, must be an object"));
  EXPECT_TRUE(refused(R"({"nodes": 2, "compute": {"gflops": {"value": -1, "source": ""}}})",
                      "compute.gflops is -1, must be a number"));
  EXPECT_TRUE(refused(R"({"nodes": 2.7})", "nodes is 2.7, must be a whole number"));
  EXPECT_TRUE(refused(R"({"nodes": 2, "ranks_per_node": {"value": 1.5}})",
                      "ranks_per_node is 1.5, must be a whole number"));
  EXPECT_TRUE(refused(R"({"nodes": 1048576, "ranks_per_node": 4096})",
                      "1048576 nodes of 4096 ranks have 4294967296 ranks, must have 1048576 at most"));
  EXPECT_TRUE(fails_with(read_cluster(folder_ / "none.json"), Code::not_found, "none.json"));
}

// Keys that a plan does not need were read past, and with them those that were misspelt.
TEST_F(Api, ADescriptionsUnknownKeysAreRefusedByName) {
  const std::string path = folder_ / "cluster.json";
  const auto refused = [&](const std::string& text, const std::string& words) {
    put_file(path, text);
    return fails_with(read_cluster(path), Code::invalid_argument, words) &&
           fails_with(read_cluster(path), Code::invalid_argument, path);
  };
  const auto in_machine = [](const std::string& text) {
    return R"({"nodes": 2, "machine": {)" + text + "}}";
  };
  EXPECT_TRUE(refused(R"({"node": 2})", "there is no key \"node\"; did you mean nodes?"));
  EXPECT_TRUE(refused(R"({"nodes": 2, "compute": {"gflop": 50}})",
                      "there is no key \"compute.gflop\"; did you mean compute.gflops?"));
  EXPECT_TRUE(refused(in_machine(R"("inter": {"alfa_us": 3})"),
                      "there is no key \"machine.inter.alfa_us\"; did you mean machine.inter.alpha_us?"));
  EXPECT_TRUE(refused(in_machine(R"("copy_large": 3)"), "there is no key \"machine.copy_large\""));
  EXPECT_TRUE(refused(in_machine(R"("rails": {"value": 2, "sauce": "here"})"),
                      "there is no key \"machine.rails.sauce\"; beside a value there is only its source"));
  EXPECT_TRUE(refused(R"({"nodes": 2, "slow_nodes": [{"node": 1, "rat": 0.5}]})",
                      "there is no key \"slow_nodes[].rat\"; did you mean slow_nodes[].rate?"));
  EXPECT_TRUE(
      refused(R"({"nodes": 2, "slow_nodes": {"node": 1}})", "slow_nodes is {\"node\":1}, must be a list"));
  EXPECT_TRUE(refused(R"({"nodes": 2, "name": 7})", "name is 7, must be a text"));
  EXPECT_TRUE(refused(in_machine(R"("engines": "two")"), "machine.engines is \"two\", must be a number"));
  EXPECT_TRUE(
      refused(in_machine(R"("inter": {"by_cpu": 1})"), "machine.inter.by_cpu is 1, must be true or false"));
  EXPECT_TRUE(refused("[2]", "this is [2], must be an object"));
  put_file(path, R"({"nodes": 2, "nodes": 4})");
  EXPECT_TRUE(
      fails_with(read_cluster(path), Code::invalid_data, "has the key \"nodes\" twice in one object"));
  put_file(path, "\xef\xbb\xbf{\"nodes\": 2}");
  LOOM_ASSERT_OK(read_cluster(path));
}

/// The shipped descriptions state every key of a machine: a key that only weft_sim knows shows here.
TEST_F(Api, TheShippedDescriptionsAreTaken) {
  int read = 0;
  for (const auto& entry : std::filesystem::directory_iterator(LOOM_FIXTURES "/../../../clusters")) {
    LOOM_ASSERT_OK(read_cluster(entry.path()));
    ++read;
  }
  EXPECT_GE(read, 5);
}

TEST_F(Api, ConfigsAreValues) {
  const Result<Config> told = config();
  LOOM_ASSERT_OK(told);
  const Result<Config> again = Config::parse(told->to_json());
  LOOM_ASSERT_OK(again);
  EXPECT_EQ(again->to_json(), told->to_json());
  put_file(folder_ / "config.json", told->to_json());
  const Result<Config> read = Config::read(folder_ / "config.json", {"run.steps=7"});
  LOOM_ASSERT_OK(read);
  EXPECT_NE(read->to_json().find("\"steps\": 7"), std::string::npos);
}

TEST_F(Api, SaysWhatIsWrong) {
  EXPECT_TRUE(fails_with(config({"run.step=1"}), Code::invalid_argument, "did you mean run.steps?"));
  EXPECT_TRUE(fails_with(Config::read(folder_ / "none.json"), Code::not_found, "none.json"));
  EXPECT_TRUE(fails_with(Config::parse("{"), Code::invalid_data, ""));
  EXPECT_TRUE(fails_with(Model::open(folder_.path()), Code::not_found, "config.json"));
  EXPECT_TRUE(fails_with(Training::create(*config({"data.folder=nowhere"})), Code::not_found, "nowhere"));
  EXPECT_TRUE(fails_with(make_dataset({folder_ / "none.txt"}, folder_ / "d"), Code::not_found, "none.txt"));
  EXPECT_TRUE(fails_with(make_dataset({folder_ / "text.txt"}, folder_ / "d", {"bytes", -1, 0.1, 0}),
                         Code::invalid_argument, "train_vocabulary is -1"));
  Cluster cluster;
  cluster.inter_bandwidth = 0;
  EXPECT_TRUE(
      fails_with(plan(*config(), cluster), Code::invalid_argument, "inter_bandwidth is 0, must be above 0"));
  cluster = {};
  cluster.ranks = 3;
  EXPECT_TRUE(fails_with(plan(*config(), cluster), Code::invalid_argument, "a multiple of the 3 ranks"));

  Result<Training> run = Training::create(*config({"run.steps=1"}));
  LOOM_ASSERT_OK(run);
  LOOM_ASSERT_OK(run->save_model());
  Result<Model> model = Model::open(folder_ / "out/model", 1);
  LOOM_ASSERT_OK(model);
  EXPECT_TRUE(fails_with(model->logits({}), Code::invalid_argument, "no tokens"));
  const int32_t wrong[] = {1, 300};
  EXPECT_TRUE(
      fails_with(model->logits(wrong), Code::invalid_argument, "token 1 is 300, must be from 0 to 256"));
  EXPECT_TRUE(fails_with(model->sample("a", {1, std::nan(""), 0, 1}), Code::invalid_argument, "temperature"));
  EXPECT_TRUE(fails_with(model->evaluate(folder_ / "data", {0, 0, 0}), Code::invalid_argument,
                         "the batch is 0, must be at least 1"));
}

}  // namespace
}  // namespace loom::testing
