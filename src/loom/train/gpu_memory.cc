#include "train/gpu_memory.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/round.h"

namespace loom::train {
namespace {

int64_t mib(int64_t bytes) { return bytes >> 20; }

/// A change of the config, and what it is called.
struct Change {
  enum class Kind { microbatch, recompute, both, ranks } kind;
  std::string words;
  Config config;
  int ranks = 1;
};

/// What needs less, the smallest changes first.
std::vector<Change> changes(const Config& config, const program::Job& job) {
  using Kind = Change::Kind;
  std::vector<Change> all;
  // The config that is to be changed.
  const auto add = [&](Change::Kind kind, std::string_view words, int ranks) -> Config& {
    Change& change = all.emplace_back();
    change.kind = kind;
    change.words = words;
    change.config = config;
    change.ranks = ranks;
    return change.config;
  };
  const int64_t batch = job.batch / (job.prescaled_batch ? 1 : job.tensor_degree);
  for (int64_t less = batch / 2; less >= 1; less /= 2)
    if (batch % less == 0)
      add(Kind::microbatch, fmt::format("data.microbatch={}", less), job.world).data.microbatch = less;
  if (config.parallel.activation_checkpointing.group == 0) {
    const std::string recompute = "parallel.activation_checkpointing=each";
    add(Kind::recompute, recompute, job.world).parallel.activation_checkpointing = {1, 1};
    if (batch > 1) {
      Config& smallest = add(Kind::both, "data.microbatch=1 with " + recompute, job.world);
      smallest.parallel.activation_checkpointing = {1, 1};
      smallest.data.microbatch = 1;
    }
  }
  for (const int times : {1, 2, 4, 8, 16, 32, 64}) {
    const int data = job.data_degree() * times;
    if (times == 1 && data == job.degree) continue;
    std::string words = fmt::format("parallel.sharded_data_parallel_degree={}", data);
    if (times > 1)
      words = fmt::format("{} ranks, each with as many sequences, and {}", job.world * times, words);
    Config& wider = add(Kind::ranks, words, job.world * times);
    wider.parallel.sharded_data_parallel_degree = data;
    wider.data.global_batch *= times;
  }
  return all;
}

/// The smallest change of each kind that fits, in words; "" if nothing does.
std::string what_fits(const Config& config, const model::ModelSpec& spec, const program::Job& job,
                      int64_t memory_bytes) {
  std::vector<std::string> fitting;
  std::optional<Change::Kind> last;
  for (const Change& change : changes(config, job)) {
    // Two changes are for where one is not enough.
    if (last == change.kind || (last && change.kind == Change::Kind::both)) continue;
    const Result<program::Job> made = job_of(change.config, spec, change.ranks, {}, kGpuTable);
    if (!made.ok()) continue;
    const Result<int64_t> bytes = arena_bytes(*made);
    if (!bytes.ok() || *bytes > memory_bytes) continue;
    fitting.push_back(fmt::format("{} ({} MiB)", change.words, mib(*bytes)));
    last = change.kind;
  }
  return fmt::format("{}", fmt::join(fitting, ", or "));
}

}  // namespace

Result<program::Job> with_more_head_rows(const program::Job& job, int64_t memory_bytes) {
  if (job.strict) return job;
  constexpr int64_t kPartOfMemory = 8;
  const int64_t row_bytes =
      job.element_bytes() * ops::padded_logits(ceil_div(job.spec.outputs(), job.tensor_degree));
  program::Job more = job;
  // T tensor ranks take T times as many rows at a time.
  int64_t& rows = more.table.head_rows;
  for (rows = ceil_div(job.head_rows(), job.tensor_degree); rows > job.table.head_rows;
       rows = ceil_div(rows, 2)) {
    if (rows * job.tensor_degree * row_bytes > memory_bytes / kPartOfMemory) continue;
    const Result<int64_t> bytes = arena_bytes(more);
    LOOM_TRY(bytes.status());
    if (*bytes <= memory_bytes) return more;
  }
  return job;
}

Result<program::Job> job_on_gpus(const Config& config, const model::ModelSpec& spec, int ranks,
                                 const program::MeasuredUnits& measured, int64_t memory_bytes) {
  Config bounded = config;
  int64_t& limit = bounded.parallel.memory_limit_mb;
  const bool by_gpu = limit == 0 || limit > mib(memory_bytes);
  // 0 would be no limit.
  if (by_gpu) limit = std::max<int64_t>(1, mib(memory_bytes));
  Result<program::Job> job = job_of(bounded, spec, ranks, measured, kGpuTable);
  if (job.ok()) return with_more_head_rows(*job, limit << 20);
  if (!by_gpu || job.status().code() != Code::out_of_memory) return job;
  bounded.parallel.memory_limit_mb = 0;
  const bool open = bounded.parallel.sharded_data_parallel_degree == 0;
  const Result<program::Job> unbounded = job_of(bounded, spec, ranks, measured, kGpuTable);
  LOOM_TRY(unbounded.status());
  const Result<int64_t> bytes = arena_bytes(*unbounded);
  LOOM_TRY(bytes.status());
  if (open) bounded.parallel.sharded_data_parallel_degree = unbounded->data_degree();
  const std::string fits = what_fits(bounded, spec, *unbounded, memory_bytes);
  return fail(Code::out_of_memory,
              "a rank's arena needs {} MiB of GPU memory, and {} MiB are free for it: {}", mib(*bytes) + 1,
              mib(memory_bytes),
              fits.empty() ? "nothing that was tried with this model fits, up to 64 times as many ranks"
                           : fits + " would fit");
}

}  // namespace loom::train
