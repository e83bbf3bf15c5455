// A small job in stages, and all that can be verified of it.
#pragma once

#include <gtest/gtest.h>

#include "program/generate.h"
#include "program/verify.h"
#include "support.h"

namespace loom::testing {

using namespace loom::program;  // tests of pipelines are about it

inline Job pipeline_job(int stages, int microbatches, Schedule schedule = Schedule::one_f_one_b,
                        int parts = 1) {
  Job job;
  job.spec.vocabulary = 50;
  job.spec.context = 16;
  job.spec.width = 64;
  job.spec.layers = 14;
  job.spec.heads = 2;
  job.spec.feed_forward = 256;
  job.batch = 2;
  job.tokens = 16;
  job.world = job.pipeline_degree = stages;
  job.microbatches = microbatches;
  job.schedule = schedule;
  job.virtual_stages = parts;
  return job;
}

inline Status verified(const Job& job) {
  for (const Purpose purpose : {Purpose::step, Purpose::evaluation, Purpose::logits}) {
    const Result<std::vector<Program>> programs = make_programs(job, purpose);
    LOOM_TRY(programs.status());
    for (const Program& program : *programs) LOOM_TRY(verify(job, program, plan_memory(program)));
    LOOM_TRY(verify_pipeline(*programs));
  }
  return {};
}

}  // namespace loom::testing
