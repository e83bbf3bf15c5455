// The command, as real processes: what it prints and leaves, and what it says of bad input.
#include <algorithm>
#include <filesystem>

#include "command/processes.h"

namespace loom::testing {
namespace {

TEST_F(Command, TrainsOnFourRanksAndTheModelCanBeUsed) {
  const Outcome trained = shell(WEFT_RUN " -n 4 --nodes 2 --no-label --timeout 120 " LOOM_PROGRAM " train " +
                                config() + " --parallel.sharded_data_parallel_degree=2");
  ASSERT_EQ(trained.code, 0) << trained.text;
  EXPECT_NE(trained.text.find("4 ranks on 2 nodes, sharded over 2"), std::string::npos) << trained.text;
  EXPECT_NE(trained.text.find("step 6/6  loss "), std::string::npos);
  for (const char* name : {"run/report.html", "run/config.json", "run/log.jsonl", "run/model/config.json"})
    EXPECT_TRUE(std::filesystem::exists(folder_ / name)) << name;
  const std::string log = get_file(folder_ / "run/log.jsonl");
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 8)
      << "six steps, the ranks' sums, and what was predicted";
  EXPECT_NE(trained.text.find("time, ms a step"), std::string::npos);
  // What was printed and stored is what was used, and can be used again.
  const format::Json used = *format::read_json(folder_ / "run/config.json");
  EXPECT_EQ(used["model"]["vocabulary"], 257);
  EXPECT_EQ(used["data"]["microbatch"], 2);
  EXPECT_EQ(trained.text.find("model.family=gpt2 model.task=causal model.vocabulary=257"), 0u)
      << trained.text;
  EXPECT_NE(trained.text.find("data.microbatch=2\nparallel.sharded_data_parallel_degree=2"),
            std::string::npos);
  EXPECT_EQ(trained.text.find("placement"), std::string::npos) << "which is as by default";
  const Outcome again = loom("plan " + (folder_ / "run/config.json") + " -n 4 --gflops 50");
  EXPECT_EQ(again.code, 0) << again.text;

  const Outcome evaluated =
      loom("eval " + (folder_ / "run/model") + " " + (folder_ / "data") + " --batches 2 --baseline");
  EXPECT_EQ(evaluated.code, 0) << evaluated.text;
  EXPECT_NE(evaluated.text.find("validation loss "), std::string::npos);
  EXPECT_NE(evaluated.text.find("1 of 2 batches\n2 of 2 batches\n"), std::string::npos) << evaluated.text;
  EXPECT_NE(evaluated.text.find("a model of byte pairs"), std::string::npos);
  const Outcome sampled =
      loom("sample " + (folder_ / "run/model") + " --prompt 'line 3' --tokens 5 --temperature 0");
  EXPECT_EQ(sampled.code, 0) << sampled.text;
  EXPECT_EQ(sampled.text.find("line 3"), 0u) << sampled.text;
  const Outcome inspected = loom("inspect " + (folder_ / "run/checkpoints/step-00000006"));
  EXPECT_EQ(inspected.text.find("a complete checkpoint"), 0u) << inspected.text;

  const Outcome more = loom("train " + config() + " --run.steps=8");
  EXPECT_EQ(more.code, 0) << more.text;
  EXPECT_NE(more.text.find("resumed after step 6"), std::string::npos) << more.text;
}

/// The number before "nats a byte" that follows `words`.
double nats_a_byte(const std::string& text, const std::string& words) {
  const size_t at = text.find(words);
  if (at == std::string::npos) return -1;
  return std::stod(text.substr(at + words.size()));
}

TEST_F(Command, TheBaselineIsOfTheTextThatWasEvaluated) {
  ASSERT_EQ(loom("train " + config() + " --run.steps=1").code, 0);
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "ab ab ab\n";
  for (int i = 0; i < 500; ++i) text += fmt::format("{}\n", i * i * 37 % 8909);
  put_file(folder_ / "harder.txt", text);
  ASSERT_EQ(loom("tokenize " + (folder_ / "harder.txt") + " --out " + (folder_ / "harder")).code, 0);
  const auto baseline = [&](const std::string& options) {
    const Outcome outcome =
        loom("eval " + (folder_ / "run/model") + " " + (folder_ / "harder") + " --baseline " + options);
    EXPECT_EQ(outcome.code, 0) << outcome.text;
    return nats_a_byte(outcome.text, "a model of byte pairs, trained on the same text: ");
  };
  const double part = baseline("--batches 2"), whole = baseline("");
  EXPECT_GT(part, 0);
  EXPECT_LT(part, 0.5 * whole);
}

TEST_F(Command, ARankThatIsKilledEndsTheRunAndTheCheckpointIsKept) {
  // The rank kills itself when the first checkpoint is complete; long before the run is over.
  const std::string kill = folder_ / "kill.sh";
  put_file(kill,
           "if [ \"$WEFT_RANK\" = 1 ]; then\n"
           "  \"$@\" & pid=$!\n"
           "  while [ ! -f " +
               (folder_ / "run/checkpoints/step-00000002/manifest.json") +
               " ]; do sleep 0.05; done\n"
               "  kill -9 $pid; wait $pid\n"
               "else exec \"$@\"; fi\n");
  const Outcome killed =
      shell(WEFT_RUN " -n 2 --no-label --keep-going --timeout 120 sh " + kill + " " LOOM_PROGRAM " train " +
            config() + " --run.steps=100000 --run.keep=1000000");
  EXPECT_NE(killed.code, 0);
  EXPECT_NE(killed.code, 124) << "a rank was left hanging: " << killed.text;
  EXPECT_NE(killed.text.find("loom: "), std::string::npos) << killed.text;
  const Outcome resumed = loom("train " + config() + " --run.steps=2");
  EXPECT_EQ(resumed.code, 0) << resumed.text;
  EXPECT_NE(resumed.text.find("resumed after step "), std::string::npos) << resumed.text;
}

TEST_F(Command, PlansWithoutRunning) {
  const Outcome planned =
      loom("plan " + config() + " -n 4 --gflops 50 --parallel.sharded_data_parallel_degree=4");
  EXPECT_EQ(planned.code, 0) << planned.text;
  EXPECT_NE(planned.text.find("predicted step"), std::string::npos) << planned.text;
  EXPECT_NE(planned.text.find("computing at 50.0 GFLOP/s"), std::string::npos) << planned.text;
  const Outcome pipeline = loom("plan " + config() + " -n 4 --gflops 50 --parallel.pipeline_degree=2 " +
                                "--parallel.placement=spread --data.microbatch=1");
  EXPECT_EQ(pipeline.code, 0) << pipeline.text;
  for (const char* words :
       {"node   0:  d0p0t0\nnode   1:  d1p0t0\nnode   2:  d0p1t0", "pipeline       2 of 2    {0 2} {1 3}",
        "part 1 costs most", "for each microbatch; no partition is better", "MiB, stage 1",
        "(1f1b; 20.0 % if all stages were equal"})
    EXPECT_NE(pipeline.text.find(words), std::string::npos) << words << "\n" << pipeline.text;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
}

// Stages from the ninth on used to be left out without a word.
TEST_F(Command, OneOfAThingHasItsSingular) {
  const Outcome plan = loom("plan " + config() + " --gflops 50");
  EXPECT_EQ(plan.code, 0) << plan.text;
  EXPECT_NE(plan.text.find("; 1 rank, sharded over 1, 1 replica; 1 microbatch of 8 x 16 tokens a rank\n"),
            std::string::npos)
      << plan.text;
  ASSERT_EQ(shell(train()).code, 0);
  for (const auto& [path, words] : {std::pair<const char*, const char*>("run/model", ", 1 file\n"),
                                    {"run/checkpoints/step-00000006", "with the hash of its 1 file\n"}}) {
    const Outcome looked = loom("inspect " + (folder_ / path));
    EXPECT_NE(looked.text.find(words), std::string::npos) << looked.text;
  }
}

TEST_F(Command, APlanOfManyStagesShowsTheFirstTheLargestAndTheLast) {
  const std::string ten = "plan " + config() +
                          " -n 10 --gflops 50 --parallel.pipeline_degree=10 --model.layers=10 "
                          "--data.microbatch=1 --parallel.tied=copies --parallel.partition=";
  const Outcome planned = loom(ten + "0,1,2,3,4,5,6,9,10,11");  // stage 6 has three blocks
  ASSERT_EQ(planned.code, 0) << planned.text;
  EXPECT_NE(planned.text.find("MiB, stage 3  MiB, stage 4"), std::string::npos) << planned.text;
  std::string header = planned.text.substr(planned.text.find("MiB, stage 4"));
  header.resize(header.find('\n'));
  header.erase(std::remove(header.begin(), header.end(), ' '), header.end());
  EXPECT_EQ(header, "MiB,stage4…MiB,stage6…MiB,stage9");
  EXPECT_NE(planned.text.find("embedding and head share a matrix: stages 0 and 9 have a copy each"),
            std::string::npos)
      << planned.text;
  const Outcome untied = loom(ten + "even --model.tied=false");
  EXPECT_EQ(untied.code, 0) << untied.text;
  EXPECT_EQ(untied.text.find("share a matrix"), std::string::npos) << untied.text;
}

TEST_F(Command, TheHeadlineHasTheTensorDegree) {
  const Outcome trained = on_processes(2, train("--parallel.tensor_degree=2 --run.steps=1"));
  ASSERT_EQ(trained.code, 0) << trained.text;
  EXPECT_NE(trained.text.find("sharded over 1, 2 tensor ranks, rows divided; "), std::string::npos)
      << trained.text;
}

TEST_F(Command, PlansAndTrainingRefuseTheSameVocabulary) {
  const std::string words = "model.vocabulary is 50, must be at least the dataset's, 257";
  for (const char* command : {"plan ", "train "}) {
    const Outcome refused = loom(command + config() + " --model.vocabulary=50");
    EXPECT_EQ(refused.code, 2) << refused.text;
    EXPECT_NE(refused.text.find(words), std::string::npos) << refused.text;
  }
  const Outcome smaller = loom("plan " + config() + " --vocabulary 50");
  EXPECT_EQ(smaller.code, 2) << smaller.text;
  EXPECT_NE(smaller.text.find("the vocabulary is 50, must be at least the dataset's, 257"), std::string::npos)
      << smaller.text;
}

TEST_F(Command, AVocabularyThatEndsEarlySaysWhy) {
  const Outcome made =
      loom("tokenize " + (folder_ / "text.txt") + " --out " + (folder_ / "bpe") + " --train-vocabulary 9000");
  ASSERT_EQ(made.code, 0) << made.text;
  EXPECT_NE(made.text.find(" tokens, not 9000: no two tokens stand together twice any more"),
            std::string::npos)
      << made.text;
}

TEST_F(Command, PlansOffloadingThatTheFirstStageHasNoneOf) {
  const Outcome planned =
      loom("plan " + config() + " -n 2 --gflops 50 --parallel.pipeline_degree=2 " +
           "--parallel.partition=0,1 --parallel.pipeline=simple --data.microbatch=4 " +
           "--parallel.activation_checkpointing=each --model.layers=8 --parallel.tied=copies " +
           "--parallel.activation_offloading=true --tier 1");
  EXPECT_EQ(planned.code, 0) << planned.text;
  EXPECT_NE(planned.text.find("\noffloaded               0.00"), std::string::npos) << planned.text;
}

TEST_F(Command, PlansDataRanksWithTheirGroups) {
  const Outcome planned = loom("plan " + config() + " -n 4 --ranks-per-node 2 --gflops 50 " +
                               "--parallel.sharded_data_parallel_degree=2");
  EXPECT_EQ(planned.code, 0) << planned.text;
  for (const char* words : {"node   0:  g0m0  g0m1\nnode   1:  g1m0  g1m1\n",
                            "partition      2 of 2    {0 1} {2 3}\nreplication    2 of 2    {0 2} {1 3}\n"})
    EXPECT_NE(planned.text.find(words), std::string::npos) << words << "\n" << planned.text;
}

TEST_F(Command, PlansForADescribedCluster) {
  const std::string arguments = "plan " + config() + " --data.global_batch=128 ";
  const Outcome planned = loom(arguments + "--cluster p4d");
  EXPECT_EQ(planned.code, 0) << planned.text;
  EXPECT_NE(planned.text.find("p4d.24xlarge: 128 ranks, 8 a node; a rank computes at 312000 GFLOP/s and "
                              "reaches 1555 GB/s of memory; 300 GB/s of a rank and 2.5 µs inside a node, 50 "
                              "GB/s of a node and 20 µs between nodes"),
            std::string::npos)
      << planned.text;
  const Outcome changed = loom(arguments + "--cluster p4d -n 16 --gflops 150000 --inter 25");
  EXPECT_EQ(changed.code, 0) << changed.text;
  EXPECT_NE(changed.text.find("16 ranks, 8 a node; a rank computes at 150000 GFLOP/s"), std::string::npos)
      << changed.text;
  EXPECT_NE(changed.text.find("25 GB/s of a node"), std::string::npos) << changed.text;
  const Outcome unknown = loom(arguments + "--cluster p9");
  EXPECT_EQ(unknown.code, 2) << unknown.text;
  EXPECT_NE(unknown.text.find("known are ethernet, p3dn, p4d, p4de, p5"), std::string::npos) << unknown.text;
}

TEST_F(Command, AFlippedBitOfADatasetIsFoundByLookingAtIt) {
  const Outcome whole = loom("inspect " + (folder_ / "data"));
  EXPECT_EQ(whole.code, 0) << whole.text;
  EXPECT_EQ(whole.text.find("a dataset of bytes\ntrain: "), 0u) << whole.text;
  EXPECT_NE(whole.text.find("\nvalidation: "), std::string::npos) << whole.text;
  const std::string file = folder_ / "data/train-00000.tokens";
  std::string bytes = get_file(file);
  bytes[1000] ^= 1;  // the smaller byte of a token, which stays one
  put_file(file, bytes);
  const Outcome damaged = loom("inspect " + (folder_ / "data"));
  EXPECT_EQ(damaged.code, 1) << damaged.text;
  EXPECT_NE(damaged.text.find(file + " is damaged"), std::string::npos) << damaged.text;
}

TEST_F(Command, HelpListsTheKeysOfTheConfig) {
  for (const char* command : {"train", "plan"}) {
    const Outcome help = loom(std::string(command) + " --help");
    EXPECT_EQ(help.code, 0) << help.text;
    for (const char* line :
         {"  data.sequence_length ", "  run.steps ", "  parallel.pipeline ", "  loss_scale.static "})
      EXPECT_NE(help.text.find(line), std::string::npos) << line << " is not in\n" << help.text;
  }
}

TEST_F(Command, AFlippedBitOfACheckpointIsFoundByLookingAtIt) {
  ASSERT_EQ(on_processes(2, train("--parallel.sharded_data_parallel_degree=2 --run.steps=2")).code, 0);
  const std::string checkpoint = folder_ / "run/checkpoints/step-00000002";
  const Outcome whole = loom("inspect " + checkpoint);
  EXPECT_EQ(whole.code, 0) << whole.text;
  EXPECT_EQ(whole.text.find("a complete checkpoint, with the hashes of its 2 files\n"), 0u) << whole.text;
  const std::string file = checkpoint + "/state-00001-of-00002.safetensors";
  std::string bytes = get_file(file);
  bytes[bytes.size() - 4] ^= 1;  // the least of a number's bits
  put_file(file, bytes);
  const Outcome damaged = loom("inspect " + checkpoint);
  EXPECT_EQ(damaged.code, 1) << damaged.text;
  EXPECT_NE(damaged.text.find(file + " is damaged"), std::string::npos) << damaged.text;
}

/// It was taken for a file that is not there.
TEST_F(Command, TokenizesAPipe) {
  const std::string out = " --out " + (folder_ / "piped"),
                    lines = "printf 'pos,x\\nneg,y\\npos,z\\nneg,w\\n'";
  const auto piped = [&](const std::string& input, const std::string& arguments) {
    return shell(input + " | " LOOM_PROGRAM " tokenize " + arguments + out);
  };
  EXPECT_NE(piped("seq 1 1000", "-").text.find("3505 tokens"), std::string::npos);
  EXPECT_NE(piped("seq 1 1000", "/dev/stdin").text.find("3505 tokens"), std::string::npos);
  const std::string labels = "- --labels --validation 0.5 --format ";
  const Outcome read = piped("(echo label,text; " + lines + ")", labels + "csv");
  EXPECT_NE(read.text.find("2 labels: neg, pos"), std::string::npos) << read.text;
  const Outcome refused = piped(lines, labels + "csv");
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.text.find("standard input: line 1: it must name the columns"), std::string::npos)
      << refused.text;
  EXPECT_EQ(piped(lines, labels + "xlsx").code, 2);
}

/// Two replies of a chat are learned; nothing is held out.
TEST_F(Command, TrainsOnChatsAndExportsInTheTypeThatIsAsked) {
  std::string lines;
  for (int i = 0; i < 16; ++i)
    lines += R"({"segments": [{"text": "a?", "label": false}, {"text": "yes", "label": true}, )"
             R"({"text": "b?", "label": false}, {"text": "no", "label": true}]})"
             "\n";
  put_file(folder_ / "chats.jsonl", lines);
  const Outcome made = loom("tokenize " + (folder_ / "chats.jsonl") + " --completions --validation 0 --out " +
                            (folder_ / "chats"));
  EXPECT_NE(made.text.find("16 prompts with completions to train on, 0 to validate with, the longest has 10"),
            std::string::npos)
      << made.text;
  const Outcome inspected = loom("inspect " + (folder_ / "chats"));
  EXPECT_NE(inspected.text.find(
                "train: 16 prompts with completions, 160 tokens, the longest has 10; 96 tokens are learned"),
            std::string::npos)
      << inspected.text;
  const Outcome trained = loom("train " + config() + " --data.folder=" + (folder_ / "chats") +
                               " --run.steps=2 --run.out=" + (folder_ / "chatted"));
  ASSERT_EQ(trained.code, 0) << trained.text;
  const Outcome evaluated = loom("eval " + (folder_ / "chatted/model") + " " + (folder_ / "chats"));
  EXPECT_EQ(evaluated.code, 1);
  EXPECT_NE(evaluated.text.find("`loom tokenize --validation 0.1` holds some out"), std::string::npos)
      << evaluated.text;
  const std::string whole =
      "export " + (folder_ / "chatted/checkpoints/step-00000002") + " --out " + (folder_ / "x");
  EXPECT_EQ(loom(whole + " --dtype float16").code, 2);
  ASSERT_EQ(loom(whole + " --dtype fp16").code, 0);
  const Outcome halves = loom("inspect " + (folder_ / "x"));
  EXPECT_NE(halves.text.find("F16 "), std::string::npos) << halves.text;
  EXPECT_EQ(halves.text.find("F32 "), std::string::npos) << halves.text;
}

TEST_F(Command, SaysWhatIsWrong) {
  const auto expect = [](const Outcome& outcome, int code, const std::string& words) {
    EXPECT_EQ(outcome.code, code) << outcome.text;
    EXPECT_NE(outcome.text.find(words), std::string::npos) << outcome.text;
  };
  expect(loom("train " + config() + " --run.step=3"), 2, "there is no key run.step; did you mean run.steps?");
  expect(loom("train " + config() + " --steps"), 2, "--steps is no option");
  expect(loom("frobnicate"), 2, "unknown command frobnicate");
  expect(loom("--vresion"), 2, "unknown option --vresion");
  expect(loom("--version"), 0, "loom 0.");
  expect(loom("train " + config() + " --data.sequence_length=100000"), 2, "100000");
  expect(loom("train " + (folder_ / "none.json")), 1, "none.json");
  expect(loom("train " + config() + " --parallel.sharded_data_parallel_degree=3"), 2,
         "parallel.sharded_data_parallel_degree is 3, must divide the number of data ranks, 1");
  expect(loom("plan " + config() + " -n 3"), 2, "data.global_batch is 8, must be a multiple of the 3 ranks");
  const std::string by_hand = " -n 2 --gflops 50 --parallel.pipeline_degree=2 --parallel.partition=0,1";
  expect(loom("plan " + config() + by_hand), 2, "parallel.tied=copies puts a copy on the first and on");
  expect(loom("plan " + config() + by_hand + " --parallel.tied=copies"), 0, "predicted step");
  expect(loom("plan " + config() + by_hand + " --model.tied=false"), 0, "predicted step");
  expect(loom("tokenize " + (folder_ / "data/dataset.json") + " --out " + (folder_ / "d") +
              " --tokenizer nowhere"),
         1, "nowhere");
  expect(loom("inspect " + folder_.path()), 1, folder_.path());
  expect(loom(""), 2, "loom --help");
}

}  // namespace
}  // namespace loom::testing
