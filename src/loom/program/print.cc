// Programs as text.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "program/program.h"

namespace loom::program {

const char* op_name(Op op) {
  constexpr const char* kNames[kOps] = {"batch",
                                        "gather",
                                        "forward",
                                        "recompute",
                                        "loss",
                                        "evaluate",
                                        "logits",
                                        "backward",
                                        "reduce_scatter",
                                        "accumulate",
                                        "all_reduce",
                                        "tie",
                                        "send",
                                        "receive",
                                        "send_back",
                                        "receive_back",
                                        "tensor_gather",
                                        "tensor_all_reduce",
                                        "tensor_reduce_scatter",
                                        "tensor_gradients",
                                        "squares",
                                        "norm",
                                        "mean_loss",
                                        "step",
                                        "offload",
                                        "load"};
  return kNames[static_cast<int>(op)];
}

const char* category_name(Category category) {
  constexpr const char* kNames[kCategories] = {"parameters", "optimizer",   "gradients", "gathered",
                                               "unreduced",  "activations", "workspace", "batch"};
  return kNames[static_cast<int>(category)];
}

bool is_compute(Op op) {
  return op == Op::forward || op == Op::recompute || op == Op::loss || op == Op::evaluate ||
         op == Op::logits || op == Op::backward;
}

bool is_meeting(Op op) { return op == Op::norm || op == Op::mean_loss; }

bool hides_communication(const Instruction& instruction) {
  return is_compute(instruction.op) && instruction.unit != 0;
}

bool is_transfer(Op op) {
  return op == Op::send || op == Op::receive || op == Op::send_back || op == Op::receive_back;
}

bool is_exchange(Op op) {
  return op == Op::tensor_gather || op == Op::tensor_all_reduce || op == Op::tensor_reduce_scatter ||
         op == Op::tensor_gradients;
}

bool is_communication(Op op) {
  return op == Op::gather || op == Op::reduce_scatter || op == Op::all_reduce || op == Op::tie ||
         is_transfer(op) || is_exchange(op) || is_offloading(op);
}

bool is_called(Op op) { return is_communication(op) && !is_offloading(op); }

bool is_offloading(Op op) { return op == Op::offload || op == Op::load; }

std::string text_of(const Program& program, int index) {
  const Instruction& instruction = program.instructions[index];
  std::string text = fmt::format("instruction {} ({}", index, op_name(instruction.op));
  if (instruction.unit >= 0) text += fmt::format(" of unit {}", instruction.unit);
  if (instruction.microbatch >= 0) text += fmt::format(", microbatch {}", instruction.microbatch);
  if (program.shared && instruction.first >= 0)
    text += fmt::format(", steps {} to {}", instruction.first, instruction.last - 1);
  return text + ")";
}

std::string to_string(const Program& program) {
  std::string text;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    text += fmt::format("{:>5}  lane {}  {:<14}", i, instruction.lane, op_name(instruction.op));
    if (instruction.unit >= 0) text += fmt::format(" unit {}", instruction.unit);
    if (instruction.microbatch >= 0) text += fmt::format(" microbatch {}", instruction.microbatch);
    if (instruction.peer >= 0) text += fmt::format(" stage {}", instruction.peer);
    if (program.shared && instruction.first >= 0)
      text += fmt::format(" steps {} to {}", instruction.first, instruction.last - 1);
    std::vector<std::string> reads, writes;
    for (const Use& use : instruction.uses) {
      if (use.reads) reads.push_back(program.buffers[use.buffer].name);
      if (use.writes) writes.push_back(program.buffers[use.buffer].name);
    }
    text += fmt::format(": {} -> {}", fmt::join(reads, ", "), fmt::join(writes, ", "));
    if (!instruction.after.empty()) text += fmt::format("; after {}", fmt::join(instruction.after, ", "));
    text += '\n';
  }
  return text;
}

}  // namespace loom::program
