// A whole training run as a program: text to tokens, a plan, a small GPT, what it writes. One process or
// many:
//
//   ./train text.txt out                            one rank
//   weft_run -n 4 --no-label ./train text.txt out   four, two by two sharing one copy of the model's state
#include <loom/loom.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

namespace {

template <typename T>
T must(loom::Result<T> result) {
  if (result.ok()) return result.take();
  std::fprintf(stderr, "%s\n", result.status().message().c_str());
  std::exit(1);
}

void must(const loom::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  std::exit(1);
}

void must(weftResult_t result) {
  if (result == weftSuccess) return;
  std::fprintf(stderr, "%s\n", weftGetLastError(nullptr));
  std::exit(1);
}

loom::Config config_of(const std::string& out, int ranks) {
  const char* const text = R"({
    "model": {"width": 32, "layers": 2, "heads": 4},
    "data": {"sequence_length": 32, "global_batch": 8},
    "optimizer": {"learning_rate": 1e-2, "warmup_steps": 4},
    "run": {"steps": 30, "evaluation_steps": 2}})";
  return must(loom::Config::parse(
      text, {"data.folder=" + out + "/data", "run.out=" + out + "/run",
             "parallel.sharded_data_parallel_degree=" + std::to_string(ranks % 2 == 0 ? 2 : 1)}));
}

/// Prints every tenth loss, and keeps those of the first and the last step.
class Losses : public loom::Observer {
 public:
  void step(const loom::Training& run, const loom::StepRecord& step) override {
    if (step.step == 0) first = step.loss;
    last = step.loss;
    if (run.rank() == 0 && step.step % 10 == 0)
      std::printf("step %2d  loss %.3f\n", static_cast<int>(step.step), step.loss);
  }
  double first = 0, last = 0;
};

/// Trains, and leaves what `loom train` would leave.
Losses train(const loom::Config& config, weftComm_t world) {
  Losses losses;
  const std::unique_ptr<loom::Observer> files = loom::run_files();
  loom::Training run = must(loom::Training::create(config, world));
  must(run.observe(losses));
  must(run.observe(*files));
  must(run.complete());
  return losses;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: %s TEXT OUT\n", argv[0]), 2;
  const std::string out = argv[2];
  weftComm_t world;
  int rank, ranks;
  must(weftCommInitEnv(&world));
  must(weftCommUserRank(world, &rank));
  must(weftCommCount(world, &ranks));

  // One rank makes the dataset; the others wait for it.
  if (rank == 0) must(loom::make_dataset({argv[1]}, out + "/data"));
  int here = 1, all = 0;
  must(weftAllReduce(&here, &all, 1, weftInt32, weftSum, world, nullptr));

  const loom::Config config = config_of(out, ranks);
  if (rank == 0) {
    loom::Cluster cluster;
    cluster.ranks = cluster.ranks_per_node = ranks;
    const loom::Plan plan = must(loom::plan(config, cluster));
    std::printf("%lld parameters; a rank needs %.1f MiB\n", static_cast<long long>(plan.parameters),
                static_cast<double>(plan.arena_bytes()) / (1 << 20));
  }
  const Losses losses = train(config, world);
  if (rank == 0) {
    loom::Model model = must(loom::Model::open(out + "/run/model"));
    const loom::Evaluation held_out = must(model.evaluate(out + "/data", {0, 4, 2}));
    std::printf("loss %.3f, then %.3f; held out %.3f\n", losses.first, losses.last, held_out.loss);
    std::printf("%s\n", must(model.sample("A", {20, 0, 0, 1})).c_str());
  }
  must(weftCommDestroy(world));
  return losses.last < losses.first ? 0 : 1;
}
