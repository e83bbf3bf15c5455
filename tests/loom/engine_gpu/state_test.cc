// A rank's state on a GPU: what begins there, and what comes there from files and goes back.
#include <filesystem>

#include "engine_gpu/on_fake_gpus.h"
#include "support.h"

namespace loom::testing {
namespace {

class GpuState : public OnFakeGpus {
 protected:
  static EngineAction save_to(const std::string& folder) {
    return [folder](engine::Engine& engine, const engine::Groups&) -> Status {
      LOOM_TRY(engine.check_state());
      return engine.save_state(folder);
    };
  }
  static EngineAction load_from(const std::string& folder) {
    return [folder](engine::Engine& engine, const engine::Groups&) -> Status {
      engine::StateReaders readers(1);
      const Result<format::FlatLayout> layout = engine.state_layout(0, 0);
      LOOM_TRY(layout.status());
      readers[0].push_back(std::make_unique<format::FlatReader>(folder, *layout));
      return engine.load_state(readers);
    };
  }
};

TEST_F(GpuState, BeginsAsOnCpus) {
  const program::Job job = tiny_job(2, 2);
  const TemporaryFolder cpu, gpu;
  train(job, 0, 0, {}, save_to(cpu.path()));
  train(job, 0, 0, {}, save_to(gpu.path()), 1, shared_gpu);
  int files = 0;
  for (const auto& file : std::filesystem::directory_iterator(cpu.path())) {
    const std::string name = file.path().filename();
    EXPECT_EQ(get_file(gpu.path() + "/" + name), get_file(file.path())) << name;
    ++files;
  }
  EXPECT_EQ(files, 2);
}

TEST_F(GpuState, GoesFromAGpuToCpusAndBack) {
  program::Job job = tiny_job(1, 1, 2);
  for (const program::Precision precision : {program::Precision::fp32, program::Precision::bf16}) {
    job.precision = precision;
    const std::vector<double> wanted = train(job, 0, 4);
    for (const bool from_gpu : {true, false}) {
      SCOPED_TRACE(from_gpu ? "from a GPU" : "from CPUs");
      const GpuOf first = from_gpu ? GpuOf(shared_gpu) : GpuOf(),
                  then = from_gpu ? GpuOf() : GpuOf(shared_gpu);
      const TemporaryFolder folder;
      train(job, 0, 2, {}, save_to(folder.path()), 1, first);
      const std::vector<double> got = train(job, 2, 4, load_from(folder.path()), {}, 1, then);
      const double tolerance = precision == program::Precision::fp32 ? 1e-5 : 5e-3;
      for (size_t step = 0; step < 2; ++step) EXPECT_NEAR(got[step], wanted[step + 2], tolerance * got[step]);
    }
  }
}

TEST_F(GpuState, AModelIsWrittenAndReadAgain) {
  program::Job job = tiny_job(2, 2);
  job.strict = true;  // or two engines may choose other products, with other bits
  const TemporaryFolder folder;
  std::vector<double> evaluated(2, -1);
  const auto evaluate = [&](size_t which) {
    return [&, which](engine::Engine& engine, const engine::Groups& groups) -> Status {
      if (which == 0) LOOM_TRY(engine.save_model(folder.path()));
      fill_batch(engine, groups, 7);
      const Result<double> loss = engine.evaluate();
      LOOM_TRY(loss.status());
      if (groups.rank() == 0) evaluated[which] = *loss;
      return {};
    };
  };
  train(job, 0, 2, {}, evaluate(0), 1, own_gpu);
  train(
      job, 0, 0,
      [&](engine::Engine& engine, const engine::Groups&) -> Status {
        const auto file = format::SafetensorsReader::open(folder.path());
        LOOM_TRY(file.status());
        return engine.load_model(*file);
      },
      evaluate(1), 1, own_gpu);
  EXPECT_GT(evaluated[0], 0);
  EXPECT_EQ(evaluated[1], evaluated[0]);
}

}  // namespace
}  // namespace loom::testing
