// Exchanges of tensor ranks behind the gradients of matrices: what overlaps in the list, in the simulator,
// and what the verifier says when a piece of backward has the wrong operand.
#include <algorithm>
#include <functional>

#include "program/generate.h"
#include "program/memory.h"
#include "program/simulate.h"
#include "program/step_instructions.h"
#include "program/verify.h"
#include "support.h"

namespace loom::testing {
namespace {

using namespace program;

Job tensor_job(bool divides_rows) {
  Job job;
  job.spec.vocabulary = 64;
  job.spec.context = job.tokens = 8;
  job.spec.width = 16;
  job.spec.layers = 3;
  job.spec.heads = 4;
  job.spec.feed_forward = 64;
  job.batch = 2;
  job.world = job.tensor_degree = 2;
  job.divides_rows = divides_rows;
  return job;
}

/// Compute instructions between an exchange's issue and the first instruction that comes after it.
int computed_meanwhile(const Program& program, int exchange) {
  int computed = 0;
  for (size_t i = static_cast<size_t>(exchange) + 1; i < program.instructions.size(); ++i) {
    const Instruction& next = program.instructions[i];
    if (std::find(next.after.begin(), next.after.end(), exchange) != next.after.end()) return computed;
    computed += is_compute(next.op);
  }
  return computed;
}

/// How many exchanges of a block's backward have so many compute instructions to run behind.
std::vector<int> overlaps(const Program& program, int unit) {
  std::vector<int> counts;
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    const Instruction& exchange = program.instructions[static_cast<size_t>(i)];
    if (!is_exchange(exchange.op) || exchange.unit != unit || exchange.op == Op::tensor_gradients) continue;
    const bool of_backward = std::any_of(
        program.instructions.begin(), program.instructions.begin() + i,
        [&](const Instruction& before) { return before.op == Op::backward && before.unit == unit; });
    if (of_backward) counts.push_back(computed_meanwhile(program, i));
  }
  return counts;
}

TEST(TensorOverlap, BackwardComputesWhileItsSumsAndRowsTravel) {
  // Whole rows: the sum of feed-forward behind its gradients, that of attention behind its own.
  EXPECT_EQ(overlaps(*make_program(tensor_job(false)), 2), (std::vector<int>{1, 1}));
  // Divided rows: what enters feed-forward is needed at once; what forward multiplied, one instruction later;
  // the sum behind the gradient of the way up; what enters attention behind that of the way down, and what
  // forward multiplied there behind one more; the last sum behind the gradients of attention.
  EXPECT_EQ(overlaps(*make_program(tensor_job(true)), 2), (std::vector<int>{0, 1, 1, 1, 2, 1}));
}

TEST(TensorOverlap, TheSimulatorWaitsOnlyWhereNothingIsLeftToCompute) {
  for (const bool divides_rows : {false, true}) {
    const Job job = tensor_job(divides_rows);
    Machine machine;
    machine.ranks_per_node = 2;
    machine.intra_latency_us = 1;  // and nothing else: of a gather or scatter; an AllReduce takes two
    machine.intra_bandwidth = 1e30;
    machine.memory_bandwidth = 1e30;
    machine.flops = 1e3;  // so that computing is far longer than an exchange
    const double layers = static_cast<double>(job.spec.layers), units = layers + 2;
    // Forward, the embedding and the head, whose ranks exchange numbers once, wait for all of theirs.
    const double wanted =
        divides_rows ? 4 * layers + 1 + 3 + layers + 1 + 2 * units : 2 * (2 * layers + 2) + 1;
    EXPECT_NEAR(simulate(job, *make_program(job), machine).exposed_us, wanted, 1e-3) << divides_rows;
  }
}

Status broken(bool divides_rows, const std::function<void(Program&)>& change) {
  const Job job = tensor_job(divides_rows);
  Program program = *make_program(job);
  change(program);
  connect(job.in_flight, program);
  return verify(job, program, plan_memory(program));
}

using model::Kernel;

Instruction& with(bool divides_rows, Program& program, Kernel kernel, int nth = 0) {
  return program.instructions[find_step(tensor_job(divides_rows), program, Op::backward, 2, kernel, nth)];
}

TEST(TensorOverlap, AGradientFromTheOtherSublayersOperandIsFound) {
  EXPECT_TRUE(broken(false, [](Program&) {}).ok());
  // Attention's gradients, from the rows that were gathered for feed-forward.
  EXPECT_TRUE(
      fails_with(broken(true,
                        [](Program& program) {
                          const BufferId other = with(true, program, Kernel::gather, 1).buffer(Role::output),
                                         own = with(true, program, Kernel::gather, 3).buffer(Role::output);
                          for (Use& use : with(true, program, Kernel::linear_weight, 2).uses)
                            if (use.buffer == own) use.buffer = other;
                        }),
                 Code::internal_error, "does not see \"gathered rows\""));
}

TEST(TensorOverlap, AWorkspaceThatSomebodyElseHasUsedIsFound) {
  EXPECT_TRUE(fails_with(broken(false,
                                [](Program& program) {
                                  // A block's gradient of the way up comes behind the next block's pass.
                                  auto& list = program.instructions;
                                  const size_t at = find_step(tensor_job(false), program, Op::backward, 2,
                                                              Kernel::linear_weight);
                                  const Instruction late = list[at];
                                  const size_t behind = find_step(tensor_job(false), program, Op::backward, 1,
                                                                  Kernel::linear_weight);
                                  list.insert(list.begin() + static_cast<ptrdiff_t>(behind) + 1, late);
                                  list.erase(list.begin() + static_cast<ptrdiff_t>(at));
                                }),
                         Code::internal_error, "comes when step"));
}

TEST(TensorOverlap, NoStepComesTwice) {
  EXPECT_TRUE(fails_with(
      broken(true,
             [](Program& program) {
               auto& list = program.instructions;
               const size_t at = find_step(tensor_job(true), program, Op::backward, 2, Kernel::linear_weight);
               list.insert(list.begin() + static_cast<ptrdiff_t>(at), Instruction(list[at]));
             }),
      Code::internal_error, "comes when step"));
}

}  // namespace
}  // namespace loom::testing
