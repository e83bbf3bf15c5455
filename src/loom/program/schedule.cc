// What all schedules share.
#include "program/schedule.h"

#include <algorithm>

namespace loom::program {

std::vector<Pass> schedule_of(const Job& job, int stage) {
  if (job.pipeline_degree > 1) {
    if (job.schedule == Schedule::simple) return simple_schedule(job, stage);
    if (job.schedule == Schedule::interleaved) return interleaved_schedule(job, stage);
  }
  return one_f_one_b_schedule(job, stage);
}

int most_active(const Job& job) {
  int most = 0;
  for (int stage = 0; stage < job.pipeline_degree; ++stage) {
    std::vector<int> passes(job.microbatches);  // forward passes less backward ones
    int active = 0;
    for (const Pass& pass : schedule_of(job, stage)) {
      int& open = passes[pass.microbatch];
      const bool was = open > 0;
      open += pass.forward ? 1 : -1;
      active += (open > 0) - was;
      most = std::max(most, active);
    }
  }
  return most;
}

double ideal_bubble(const Job& job) {
  const double idle = job.pipeline_degree - 1;
  return idle / (job.virtual_stages * job.microbatches + idle);
}

const char* schedule_name(Schedule schedule) {
  constexpr const char* kNames[] = {"simple", "1f1b", "interleaved"};
  return kNames[static_cast<int>(schedule)];
}

}  // namespace loom::program
