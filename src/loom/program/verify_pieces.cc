// Symbolic execution of pieces and exchanges: each buffer holds the name of what a piece made, and whether it
// is a rank's own or that of all tensor ranks.
#include "program/verify_pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "model/split_classifier.h"
#include "model/split_masked.h"

namespace loom::program {
namespace {

using model::UnitKind;

/// What a piece made: its role there, the piece, and whose it is.
struct Value {
  Role role = Role::workspace;
  int unit = -1, microbatch = -1, piece = -1;
  bool backward = false;
  bool everywhere = false;  // of all rows, or summed over all ranks
};

class PieceExecution {
 public:
  PieceExecution(const Job& job, const Program& program)
      : job_(job), program_(program), units_(job.held_units()), values_(program.buffers.size()) {}

  ResultProblem run() {
    for (size_t i = 0; i < program_.instructions.size(); ++i)
      if (std::string problem = execute(program_.instructions[i]); !problem.empty())
        return {static_cast<int>(i), std::move(problem)};
    for (const auto& [key, done] : progress_)
      if (const auto [op, unit, microbatch] = key; static_cast<int>(done.size()) != pieces_of(op, unit))
        return {-1, fmt::format("{} of unit {}, microbatch {}, has {} of {} pieces", op_name(op), unit,
                                microbatch, done.size(), pieces_of(op, unit))};
    return {};
  }

 private:
  using I = const Instruction&;

  bool classifies() const { return job_.spec.task == model::Task::classification; }
  UnitKind kind(int unit) const { return units_[static_cast<size_t>(unit)].kind; }

  int pieces_of(Op op, int unit) const {
    if (kind(unit) == UnitKind::block)
      return op == Op::backward ? model::kBlockBackwardPieces : model::kBlockPieces;
    if (kind(unit) == UnitKind::embedding) return model::kEmbeddingPieces;
    if (classifies()) return model::kClassifierPieces;
    const int pairs = model::head_pairs(job_.share(), job_.split_head_rows());
    if (job_.picks_rows()) return model::picked_head_pieces(pairs) - (op == Op::evaluate ? 2 : 0);
    return model::head_pieces(pairs) - (op == Op::evaluate ? 1 : 0);
  }

  Value made(I i, Role role, bool everywhere) const {
    return {role, i.unit, i.microbatch, i.piece, i.op == Op::backward, everywhere};
  }
  void make(I i, Role role, Role where, bool everywhere) {
    if (i.buffer(where) >= 0) values_[static_cast<size_t>(i.buffer(where))] = made(i, role, everywhere);
  }
  /// Whether a buffer has what piece `piece` made of that role, of all ranks.
  std::string need(I i, Role where, Role role, int piece, bool backward) const {
    const BufferId buffer = i.buffer(where);
    const Value value = buffer < 0 ? Value{} : values_[static_cast<size_t>(buffer)];
    if (value.role != role || value.unit != i.unit || value.microbatch != i.microbatch ||
        value.piece != piece || value.backward != backward)
      return fmt::format("does not see what piece {} made", piece);
    if (!value.everywhere)
      return role == Role::sum ? "adds a summand of one tensor rank, not the sum of all"
                               : "works on what one tensor rank made, not on what all did";
    return "";
  }

  std::string execute(I i) {
    switch (i.op) {
      case Op::tensor_gather: return gather(i);
      case Op::tensor_all_reduce:
      case Op::tensor_reduce_scatter: return reduce(i);
      case Op::tensor_gradients: return sum_gradients(i);
      case Op::norm:
      case Op::step: return needs_summed(i);
      default: return is_compute(i.op) ? piece(i) : "";
    }
  }

  std::string piece(I i) {
    if (i.buffer(Role::batch) >= 0 && !job_.prescaled_batch && !batch_gathered_)
      return "reads the sequences that one tensor rank was given, not those of all";
    if (std::string problem = due(i); !problem.empty()) return problem;
    for (const Use& use : i.uses)
      if (use.role == Role::workspace && use.writes) make(i, Role::workspace, Role::workspace, true);
    if (kind(i.unit) == UnitKind::head) return classifies() ? classifier(i) : head(i);
    if (kind(i.unit) == UnitKind::embedding) return embedding(i);
    const bool back = i.op == Op::backward, attends = i.piece == (back ? 5 : 1);
    if (attends && job_.attends_by_length() && i.buffer(Role::batch) < 0)
      return "does not know where texts end";
    return back ? backward(i) : forward(i);
  }

  /// Pieces come one after the other; only those of a block's backward may come as soon as what they read is
  /// there, once each.
  std::string due(I i) {
    std::set<int>& done = progress_[{i.op, i.unit, i.microbatch}];
    const int before = static_cast<int>(done.size());
    if (i.piece >= pieces_of(i.op, i.unit))
      return fmt::format("there are {} pieces", pieces_of(i.op, i.unit));
    if (!done.insert(i.piece).second) return "comes twice";
    const bool in_any_order = kind(i.unit) == UnitKind::block && i.op == Op::backward && before > 0;
    return in_any_order || i.piece == before ? "" : fmt::format("comes when piece {} is due", before);
  }

  /// Rows that every rank computes need no gathering.
  bool whole() const { return !job_.divides_rows; }

  std::string embedding(I i) {
    const bool backward = i.op == Op::backward;
    if (i.piece == 0) {
      if (backward) make(i, Role::incoming, Role::derivative, whole());
      else make(i, Role::sum, Role::sum, false);
      return "";
    }
    return backward ? need(i, Role::incoming, Role::incoming, 0, true)
                    : need(i, Role::sum, Role::sum, 0, false);
  }

  std::string forward(I i) {
    std::string problem;
    if (i.piece % 2 == 1) {
      problem = need(i, Role::normed, Role::normed, i.piece - 1, false);
      make(i, Role::sum, Role::sum, false);
      return problem;
    }
    if (i.piece > 0) problem = need(i, Role::sum, Role::sum, i.piece - 1, false);
    make(i, Role::normed, Role::normed, whole());
    return problem;
  }

  /// What a piece of a block's backward reads: `normed` is made by a piece of forward, the rest by one of
  /// backward; -1: nothing.
  struct Reads {
    int normed, incoming, sum, workspace;
  };

  std::string backward(I i) {
    static constexpr Reads kReads[model::kBlockBackwardPieces] = {
        {-1, -1, -1, -1}, {-1, 0, -1, -1}, {2, -1, -1, 1}, {-1, -1, 1, -1},
        {-1, 0, -1, -1},  {-1, 3, -1, -1}, {0, 3, -1, 5},  {-1, -1, 5, -1}};
    const Reads& reads = kReads[i.piece];
    std::string problem;
    const auto wants = [&](Role role, int piece, bool of_backward) {
      if (piece >= 0 && problem.empty()) problem = need(i, role, role, piece, of_backward);
    };
    wants(Role::normed, reads.normed, false);
    wants(Role::incoming, reads.incoming, true);
    wants(Role::sum, reads.sum, true);
    wants(Role::workspace, reads.workspace, true);
    if (i.piece == 1 || i.piece == 5) make(i, Role::sum, Role::sum, false);
    if (i.piece == 0 || i.piece == 3) make(i, Role::incoming, Role::incoming, whole());
    return problem;
  }

  /// Where rows are picked, that is a piece before the head's own, and giving them back one behind.
  std::string head(I i) {
    const bool picks = job_.picks_rows();
    if (picks && i.piece == 0) {
      make(i, Role::sum, Role::sum, whole());
      return "";
    }
    const int first = picks ? 1 : 0, last = pieces_of(Op::loss, i.unit) - 1;
    if (i.piece == first) {
      make(i, Role::normed, Role::normed, whole());
      return picks ? need(i, Role::input, Role::sum, 0, false) : "";
    }
    if (picks && i.piece == last) return need(i, Role::incoming, Role::incoming, i.piece - 1, false);
    if (i.op == Op::loss && i.piece == last - first) {
      make(i, Role::incoming, Role::incoming, whole());
      return need(i, Role::sum, Role::sum, i.piece - 1, false);
    }
    std::string problem = need(i, Role::normed, Role::normed, first, false);
    if ((i.piece - first) % 2 == 1) {
      make(i, Role::logits, Role::logits, true);
      make(i, Role::numbers, Role::numbers, false);
      return problem;
    }
    if (problem.empty()) problem = need(i, Role::logits, Role::logits, i.piece - 1, false);
    if (problem.empty()) problem = need(i, Role::all_numbers, Role::numbers, i.piece - 1, false);
    make(i, Role::sum, Role::sum, false);
    return problem;
  }

  /// The rows that it reads are added up, where a rank has some of them.
  std::string classifier(I i) {
    if (i.piece > 0) return need(i, Role::sum, Role::sum, 0, false);
    make(i, Role::sum, Role::sum, whole());
    return "";
  }

  std::string gather(I i) {
    if (i.buffer(Role::batch) >= 0) {
      if (job_.prescaled_batch || batch_gathered_) return "gathers sequences that every tensor rank has";
      batch_gathered_ = true;
      return "";
    }
    const Value value = values_[static_cast<size_t>(i.buffer(Role::input))];
    if (value.unit < 0 || value.everywhere) return "gathers what is not a tensor rank's own";
    values_[static_cast<size_t>(i.buffer(Role::output))] = value;
    values_[static_cast<size_t>(i.buffer(Role::output))].everywhere = true;
    return "";
  }

  std::string reduce(I i) {
    const bool scatters = i.op == Op::tensor_reduce_scatter;
    const bool pooled = classifies() && kind(i.unit) == UnitKind::head;  // not a row for each token
    if (scatters != (job_.divides_rows && !pooled))
      return fmt::format("leaves {} rows, but the job {}", scatters ? "own" : "all",
                         scatters ? "does not divide them" : "divides them");
    Value value = values_[static_cast<size_t>(i.buffer(scatters ? Role::input : Role::output))];
    if (value.role != Role::sum) return "reduces what is no summand";
    if (value.everywhere) return "reduces what is a sum already";
    value.everywhere = true;
    values_[static_cast<size_t>(i.buffer(Role::output))] = value;
    return "";
  }

  std::string sum_gradients(I i) {
    if (whole()) return "sums gradients that are whole already";
    if (++summed_[i.buffer(Role::shard)] > 1) return "sums a gradient over the tensor ranks twice";
    return "";
  }

  std::string needs_summed(I i) {
    for (const Use& use : i.uses)
      if (use.role == Role::shard && !whole() && !summed_.contains(use.buffer))
        return fmt::format("{} was not summed over the tensor ranks",
                           program_.buffers[static_cast<size_t>(use.buffer)].name);
    return "";
  }

  const Job& job_;
  const Program& program_;
  std::vector<model::Unit> units_;
  std::vector<Value> values_;
  std::map<std::tuple<Op, int, int>, std::set<int>> progress_;  // pieces of an instruction that have come
  std::map<BufferId, int> summed_;                              // gradients
  bool batch_gathered_ = false;
};

/// Adds what `more` uses and `into` does not.
void join_uses(std::vector<Use>& into, const std::vector<Use>& more) {
  for (const Use& use : more) {
    const auto found =
        std::find_if(into.begin(), into.end(), [&](const Use& other) { return other.role == use.role; });
    if (found == into.end()) into.push_back(use);
    else found->writes |= use.writes;
  }
}

}  // namespace

ResultProblem check_pieces(const Job& job, const Program& program) {
  if (job.tensor_degree == 1) return {};
  return PieceExecution(job, program).run();
}

Folded fold_pieces(const Program& program) {
  Folded folded;
  folded.program = program;
  folded.program.instructions.clear();
  std::vector<Use> uses;
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    Instruction instruction = program.instructions[static_cast<size_t>(i)];
    if (instruction.op == Op::tensor_gather || instruction.op == Op::tensor_all_reduce ||
        instruction.op == Op::tensor_reduce_scatter || instruction.op == Op::tensor_gradients)
      continue;
    if (instruction.piece >= 0) {
      if (instruction.piece == 0) uses.clear();
      join_uses(uses, instruction.uses);
      const auto next = std::find_if(program.instructions.begin() + i + 1, program.instructions.end(),
                                     [](const Instruction& other) { return is_compute(other.op); });
      if (next != program.instructions.end() && next->piece > 0) continue;
      instruction.uses = uses;
    }
    folded.program.instructions.push_back(std::move(instruction));
    folded.instruction.push_back(i);
  }
  return folded;
}

}  // namespace loom::program
