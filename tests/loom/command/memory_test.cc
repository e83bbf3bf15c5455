// What processes take, by the kernel's account, is what was planned, and less than a whole model where ranks
// share it.
#include <filesystem>
#include <sstream>

#include "command/processes.h"
#include "divide_into_files.h"

namespace loom::testing {
namespace {

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // these have memory of their own

class Memory : public Command {
 protected:
  /// What log.jsonl says of each rank of the last step.
  format::Json ranks(const std::string& out) const {
    std::istringstream lines(get_file(out + "/log.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const Result<format::Json> json = format::parse_json(line);
      if (json.ok() && json->contains("trace")) return (*json)["trace"]["ranks"];
    }
    return format::Json::array();
  }
  double first_loss(const std::string& out) const {
    const std::string log = get_file(out + "/log.jsonl");
    return (*format::parse_json(log.substr(0, log.find('\n'))))["loss"];
  }
};

/// In a step's line, and in the log's: rank 0 tells it, and used to tell its own.
TEST_F(Memory, IsThatOfTheRankThatTookMost) {
  const Outcome trained = on_processes(
      2,
      train(
          "--parallel.pipeline_degree=2 --parallel.partition=0,1 --parallel.tied=copies --data.microbatch=2 "
          "--model.width=256 --model.layers=6 --run.steps=2 --run.evaluation_steps=1 "
          "--run.checkpoint_every=0 --run.checkpoint_optimizer=false"));
  ASSERT_EQ(trained.code, 0) << trained.text;
  const format::Json stages = ranks(folder_ / "run");
  ASSERT_EQ(stages.size(), 2u);
  const double first = stages[0]["process_bytes"], last = stages[1]["process_bytes"];
  EXPECT_GT(last, 2 * first) << "all blocks are the last stage's";
  const std::string log = get_file(folder_ / "run/log.jsonl");
  const double told = (*format::parse_json(log.substr(0, log.find('\n'))))["memory_bytes"];
  EXPECT_GT(told, 2 * first);
}

// Ranks of one node: pretended nodes of one machine would share pages all the same.
TEST_F(Memory, OfTwoRanksIsThePlanned) {
  const Outcome trained =
      on_processes(2, train("--parallel.sharded_data_parallel_degree=2 --model.width=512 --model.layers=9 "
                            "--model.heads=8 --run.steps=3 --run.checkpoint_every=0"));
  ASSERT_EQ(trained.code, 0) << trained.text;
  const std::string log = get_file(folder_ / "run/log.jsonl");
  const size_t last = log.rfind('\n', log.size() - 2) + 1;
  const format::Json line = *format::parse_json(log.substr(last));
  const double planned = line["predicted"]["memory_bytes"], measured = line["measured"]["memory_bytes"];
  EXPECT_GT(planned, 60e6);
  EXPECT_NEAR(measured, planned, 0.05 * planned);
}

TEST_F(Memory, OfEveryStageIsThePlannedWithEveryScheduleWithCheckpointingAndOffloading) {
  struct Way {
    const char *name, *keys;
  };
  const std::string common =
      "--parallel.pipeline_degree=2 --data.microbatch=2 --model.width=768 --model.heads=12 --model.layers=6 "
      "--data.sequence_length=48 --run.steps=1 --run.evaluation_steps=1 --run.checkpoint_optimizer=false ";
  for (const auto& [name, keys] :
       {Way{"1f1b", "--parallel.pipeline=1f1b"},
        Way{"simple", "--parallel.pipeline=simple --parallel.activation_checkpointing=2"},
        Way{"both",
            "--parallel.pipeline=simple --parallel.activation_checkpointing=each "
            "--parallel.activation_offloading=true --parallel.offload_folder=/var/tmp"},
        Way{"interleaved",
            "--parallel.pipeline=interleaved --parallel.activation_offloading=true "
            "--parallel.offload_folder=/var/tmp --parallel.activation_loading_horizon=1"}}) {
    SCOPED_TRACE(name);
    const std::string out = folder_ / name;
    const Outcome trained = on_processes(2, train(common + keys + " --run.out=" + out));
    ASSERT_EQ(trained.code, 0) << trained.text;
    const format::Json stages = ranks(out);
    ASSERT_EQ(stages.size(), 2u);
    for (const format::Json& stage : stages) {
      const double planned = stage["planned_bytes"]["arena"], taken = stage["process_bytes"];
      EXPECT_GT(planned, 300e6) << stage["stage"];
      EXPECT_NEAR(taken, planned, 0.05 * planned) << "stage " << stage["stage"];
    }
    std::filesystem::remove_all(out);
  }
}

TEST_F(Memory, OfTensorRanksAndOfShardsInStagesIsThePlannedWithEveryKindOfCheckpointing) {
  struct Way {
    const char* name;
    int ranks;
    const char* keys;
  };
  const std::string common =
      "--model.width=768 --model.heads=12 --model.layers=4 --data.sequence_length=32 --data.microbatch=2 "
      "--run.steps=1 --run.evaluation_steps=1 --run.checkpoint_optimizer=false ";
  for (const auto& [name, count, keys] :
       {Way{"tensor-each", 2, "--parallel.tensor_degree=2 --parallel.activation_checkpointing=each"},
        Way{"tensor-contiguous", 2,
            "--parallel.tensor_degree=2 --parallel.optimize=speed "
            "--parallel.activation_checkpointing=contiguous"},
        Way{"tensor-offloaded", 2,
            "--parallel.tensor_degree=2 --parallel.activation_offloading=true "
            "--parallel.offload_folder=/var/tmp"},
        Way{"shards-every_2", 4,
            "--parallel.sharded_data_parallel_degree=2 --parallel.pipeline_degree=2 "
            "--parallel.activation_checkpointing=every_2"}}) {
    SCOPED_TRACE(name);
    const std::string out = folder_ / name;
    const Outcome trained = on_processes(count, train(common + keys + " --run.out=" + out));
    ASSERT_EQ(trained.code, 0) << trained.text;
    const format::Json all = ranks(out);
    ASSERT_EQ(all.size(), static_cast<size_t>(count));
    for (const format::Json& rank : all) {
      const double planned = rank["planned_bytes"]["arena"], taken = rank["process_bytes"];
      EXPECT_GT(planned, 180e6) << rank["rank"];
      EXPECT_NEAR(taken, planned, 0.05 * planned) << "rank " << rank["rank"];
    }
    std::filesystem::remove_all(out);
  }
}

/// The loss before the first step is applied says that every rank has its part of the model that was loaded.
TEST_F(Memory, OfARankIsLessThanTheParametersOfTheModelThatEightRanksTrain) {
  const std::string common = "--run.steps=1 --run.evaluation_steps=1 --run.checkpoint_optimizer=false ";
  const std::string sizes = "--model.width=256 --model.layers=32 --optimizer.learning_rate=0 ";
  const std::string first = folder_ / "first", files = folder_ / "files", tuned = folder_ / "tuned";
  const Outcome made = loom("train " + config() + " " + common + sizes + "--run.out=" + first);
  ASSERT_EQ(made.code, 0) << made.text;
  std::filesystem::create_directory(files);
  divide_into_files(first + "/model", files, 32 << 20);
  std::filesystem::copy(first + "/model/config.json", files + "/config.json");
  const auto parameters = static_cast<double>(std::filesystem::file_size(first + "/model/model.safetensors"));
  EXPECT_GT(parameters, 90e6);

  format::Json own = *format::read_json(config());
  own.erase("model");
  LOOM_ASSERT_OK(format::write_json(config(), own));
  const std::string eight =
      "--parallel.sharded_data_parallel_degree=8 --model.from=" + files + " --run.out=" + tuned;
  const Outcome trained = on_processes(8, train(common + eight));
  ASSERT_EQ(trained.code, 0) << trained.text;
  const format::Json all = ranks(tuned);
  ASSERT_EQ(all.size(), 8u);
  for (const format::Json& rank : all) {
    EXPECT_GT(rank["process_bytes"].get<double>(), parameters / 2)
        << "an eighth of masters, moments, gradients";
    EXPECT_LT(rank["process_bytes"].get<double>(), parameters);
  }
  EXPECT_NEAR(first_loss(tuned), first_loss(first), 1e-5 * first_loss(first));
  EXPECT_EQ(std::filesystem::file_size(tuned + "/model/model.safetensors"), parameters);
}

/// Masters, moments and gradients of four ranks in groups of p, by what the processes take: of that is left
/// out what else the plan has, which p changes in its own ways.
TEST_F(Memory, OfARanksStateFallsAsOneOverP) {
  const std::string common =
      "--model.width=256 --model.layers=48 --data.sequence_length=16 --data.global_batch=4 "
      "--data.microbatch=1 "
      "--run.steps=1 --run.evaluation_steps=1 --run.checkpoint_optimizer=false ";
  std::vector<double> whole;  // state of each rank with p = 1
  for (const auto& [p, nodes] : {std::pair{1, 1}, {2, 1}, {4, 1}, {2, 2}}) {
    SCOPED_TRACE(fmt::format("p = {} on {} nodes", p, nodes));
    const std::string out = folder_ / fmt::format("p{}-{}", p, nodes);
    const Outcome trained = on_processes(
        4, train(common + fmt::format("--parallel.sharded_data_parallel_degree={} --run.out={}", p, out)),
        nodes);
    ASSERT_EQ(trained.code, 0) << trained.text;
    const format::Json all = ranks(out);
    ASSERT_EQ(all.size(), 4u);
    for (size_t rank = 0; rank < 4; ++rank) {
      const format::Json& planned = all[rank]["planned_bytes"];
      const double arena = planned["arena"], taken = all[rank]["process_bytes"];
      const double state = planned["parameters"].get<double>() + planned["optimizer"].get<double>() +
                           planned["gradients"].get<double>();
      EXPECT_NEAR(taken, arena, 0.05 * arena) << rank;
      const double measured = taken - (arena - state);
      if (p == 1) {
        whole.push_back(measured);
        EXPECT_GT(measured, 500e6);
      }
      EXPECT_NEAR(measured * p, whole[rank], 0.05 * whole[rank]) << rank;
    }
    std::filesystem::remove_all(out);
  }
}
#endif

}  // namespace
}  // namespace loom::testing
