// The measuring, and one broadcast.
#include "train/profiling.h"

#include <algorithm>
#include <array>

#include "engine/weft_call.h"

namespace loom::train {

Result<std::vector<engine::UnitProfile>> profile(const Config& config, const model::ModelSpec& spec,
                                                 int ranks, int threads) {
  Config even = config;
  even.parallel.partition = "even";
  even.parallel.memory_limit_mb = 0;
  even.parallel.sharded_data_parallel_degree = 1;
  even.parallel.shard_optimizer_state = false;  // which needs more than one, and no unit's time depends on
  const Result<program::Job> job = job_of(even, spec, ranks);
  LOOM_TRY(job.status());
  return engine::profile_units(*job, threads, {.limit_bytes = config.parallel.memory_limit_mb << 20});
}

Result<SharedProfile> share_profile(const Result<std::vector<engine::UnitProfile>>& own, size_t units,
                                    weftComm_t world) {
  SharedProfile shared;
  int rank = 0;
  if (world != nullptr) LOOM_TRY_WEFT(weftCommUserRank(world, &rank));
  std::array<char, 512> sentence{};  // empty: it was measured
  if (rank == 0 && own.ok()) shared.units = *own;
  if (rank == 0 && !own.ok()) own.status().message().copy(sentence.data(), sentence.size() - 1);
  if (world != nullptr)
    LOOM_TRY_WEFT(
        weftBroadcast(sentence.data(), sentence.data(), sentence.size(), weftChar, 0, world, nullptr));
  shared.failure = sentence.data();
  if (!shared.failure.empty()) return shared;
  shared.units.resize(units);
  static_assert(sizeof(engine::UnitProfile) % sizeof(double) == 0, "it travels as numbers of fp64");
  const size_t numbers = units * (sizeof(engine::UnitProfile) / sizeof(double));
  if (world != nullptr)
    LOOM_TRY_WEFT(
        weftBroadcast(shared.units.data(), shared.units.data(), numbers, weftFloat64, 0, world, nullptr));
  return shared;
}

}  // namespace loom::train
