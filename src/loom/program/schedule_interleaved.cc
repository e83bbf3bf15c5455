// 1F1B over several parts a rank. Passes come in blocks of P·v: P microbatches through the rank's first part,
// the same P through its second, and so on; backward passes go through the parts the other way.
#include <algorithm>

#include "program/schedule.h"

namespace loom::program {

std::vector<Pass> interleaved_schedule(const Job& job, int stage) {
  const int stages = job.pipeline_degree, parts = job.virtual_stages;
  const int count = job.microbatches * parts;
  const auto pass = [&](bool forward, int number) {
    const int in_block = number % (stages * parts);
    const int level = forward ? in_block / stages : parts - 1 - in_block / stages;
    const int microbatch = number / (stages * parts) * stages + number % stages;
    return Pass{forward, level * stages + stage, microbatch};
  };
  // The first backward pass can begin when P microbatches are through all levels but the last, and the first
  // one has come back through the stages behind this one. That takes two passes for each of those stages,
  // one there and one back.
  const int warmup = std::min(count, (stages - stage - 1) * 2 + (parts - 1) * stages);
  std::vector<Pass> passes;
  for (int k = 0; k < warmup; ++k) passes.push_back(pass(true, k));
  for (int k = 0; k < count; ++k) {
    if (warmup + k < count) passes.push_back(pass(true, warmup + k));
    passes.push_back(pass(false, k));
  }
  return passes;
}

}  // namespace loom::program
