// Tensor parallelism as a pass: the instruction of a unit becomes its pieces (model/split_compute.h), with
// exchanges between them. Where rows are whole, each rank works on all of them between sublayers, and a
// sublayer's summands are all-reduced; where rows are divided, sequence_parallel.h says what is exchanged: as
// many bytes in all, less memory, and norms' work is shared out.
#include <fmt/format.h>

#include <map>

#include "model/split_classifier.h"
#include "model/split_masked.h"
#include "program/generate.h"
#include "program/sequence_parallel.h"

namespace loom::program {
namespace {

using model::UnitKind;

model::SplitSizes split_sizes_of(const Job& job) {
  const model::Share share = job.share();
  return with_type(job.precision, [&]<typename T>(T) {
    return model::split_sizes<T>(job.spec, share, job.batch, job.tokens);
  });
}

model::SplitSizes head_sizes_of(const Job& job) {
  if (!job.picks_rows()) return split_sizes_of(job);
  return with_type(job.precision, [&]<typename T>(T) {
    return model::picked_sizes<T>(job.spec, job.share(), job.head_rows());
  });
}

int64_t pooled_bytes(const Job& job) {
  return with_type(job.precision,
                   [&]<typename T>(T) { return model::classifier_sizes<T>(job.spec, job.batch).pooled; });
}

class Splitter : RowExchanges {
 public:
  Splitter(const Job& job, Program& program)
      : RowExchanges(job, program),
        units_(job.held_units()),
        sizes_(split_sizes_of(job)),
        head_sizes_(head_sizes_of(job)) {}

  void run() {
    const std::vector<Instruction> whole = std::move(program_.instructions);
    program_.instructions.clear();
    if (!job_.prescaled_batch) gather_batch(whole);
    for (const Instruction& instruction : whole) {
      if (instruction.op == Op::norm && job_.divides_rows) sum_gradients(whole);
      if (is_offloading(instruction.op)) follow(instruction);
      if (is_compute(instruction.op)) split(instruction);
      else program_.instructions.push_back(instruction);
    }
  }

 private:
  /// What a block saves is looked for under the name of where it has come back to.
  void follow(const Instruction& move) {
    const bool loads = move.op == Op::load;
    const BufferId from = move.buffer(loads ? Role::stored : Role::resident);
    const auto found = normed_.find(from);
    if (found != normed_.end()) normed_[move.buffer(loads ? Role::resident : Role::stored)] = found->second;
  }

  void split(const Instruction& whole) {
    begin(whole);
    const UnitKind kind = units_[static_cast<size_t>(whole.unit)].kind;
    if (kind == UnitKind::head) job_.spec.task == model::Task::classification ? classifier() : head();
    else if (kind == UnitKind::embedding)
      whole.op == Op::backward ? embedding_backward() : embedding_forward();
    else whole.op == Op::backward ? block_backward() : block_forward();
  }

  /// Sequences that each rank was given a part of; on ranks that need any.
  void gather_batch(const std::vector<Instruction>& whole) {
    for (const Instruction& i : whole)
      if (const BufferId batch = i.buffer(Role::batch); batch >= 0) {
        program_.instructions.push_back({Op::tensor_gather, -1, -1, 0, {change(Role::batch, batch)}, {}});
        return;
      }
  }

  /// A piece, with the parameters that all pieces of its instruction may look at.
  void work(int piece, std::vector<Use> uses) {
    for (const Role role : {Role::parameters, Role::tied_parameters})
      if (of(role) >= 0) uses.push_back(read(role, of(role)));
    emit(whole().op, piece, std::move(uses));
  }

  /// Of a piece that attends: the sequences, where it must know how long each is.
  std::vector<Use> attends(std::vector<Use> uses) const {
    if (of(Role::batch) >= 0) uses.push_back(read(Role::batch, of(Role::batch)));
    return uses;
  }

  using RowExchanges::entering, RowExchanges::leaving;
  BufferId entering(BufferId own) { return entering(own, sizes_); }
  BufferId leaving(BufferId summand) { return leaving(summand, sizes_); }
  BufferId summand() { return fresh("summand", Category::activations, sizes_.rows); }
  BufferId own_rows(const char* what) { return fresh(what, Category::activations, sizes_.own); }

  void embedding_forward() {
    const BufferId made = summand();
    work(0, {read(Role::batch, of(Role::batch)), write(Role::sum, made)});
    const BufferId sum = leaving(made);
    std::vector<Use> uses = {read(Role::sum, sum), write(Role::output, of(Role::output))};
    if (job_.spec.embedding_norm) {  // reads it again in backward
      embedded_[whole().microbatch] = sum;
      uses[0].writes = true;
      uses.push_back(write(Role::workspace, of(Role::workspace)));
    }
    work(1, std::move(uses));
  }

  void embedding_backward() {
    const BufferId d = of(Role::derivative);
    Use gradient{};
    for (const Use& use : whole().uses)
      if (use.role == Role::gradient) gradient = use;
    std::vector<Use> uses = {change(Role::derivative, d), gradient};
    if (job_.spec.embedding_norm) {
      uses.push_back(read(Role::sum, embedded_.at(whole().microbatch)));
      uses.push_back(write(Role::workspace, of(Role::workspace)));
    }
    work(0, std::move(uses));
    const BufferId incoming = entering(d);
    work(1, {read(Role::batch, of(Role::batch)), read(Role::incoming, incoming),
             change(Role::gradient, gradient.buffer)});
  }

  void block_forward() {
    const BufferId saved = of(Role::saved), first = own_rows("normed"), second = own_rows("normed");
    normed_[saved] = {first, second};
    work(0, {read(Role::input, of(Role::input)), write(Role::saved, saved), write(Role::normed, first)});
    BufferId made = summand();
    const BufferId attention_reads = entering(first);
    work(1,
         attends({read(Role::normed, attention_reads), change(Role::saved, saved), write(Role::sum, made)}));
    BufferId sum = leaving(made);
    work(2, {read(Role::input, of(Role::input)), read(Role::sum, sum), change(Role::saved, saved),
             write(Role::normed, second)});
    made = summand();
    const BufferId feed_forward_reads = entering(second);
    work(3, {read(Role::normed, feed_forward_reads), change(Role::saved, saved), write(Role::sum, made)});
    sum = leaving(made);
    work(4, {read(Role::sum, sum), read(Role::saved, saved), write(Role::output, of(Role::output))});
  }

  /// What leaves a sublayer backward: the derivative with respect to what it read. The sum over the ranks is
  /// not waited for before somebody reads it.
  BufferId sublayer_backward(int piece, BufferId incoming) {
    const BufferId made = summand();
    std::vector<Use> uses = {read(Role::incoming, incoming), read(Role::saved, of(Role::saved)),
                             write(Role::sum, made), write(Role::workspace, of(Role::workspace))};
    work(piece, piece == 5 ? attends(std::move(uses)) : std::move(uses));
    return leaving(made);
  }
  /// Gradients of a sublayer's matrices, from what it read or from what came back to it, or from both; -1:
  /// not from that. Of what it read only with what sublayer_backward() left in the workspace.
  void gradients_of_sublayer(int piece, BufferId normed, BufferId incoming) {
    std::vector<Use> uses = {read(Role::saved, of(Role::saved)), change(Role::gradient, of(Role::gradient))};
    if (normed >= 0) {
      uses.push_back(read(Role::normed, normed));
      uses.push_back(read(Role::workspace, of(Role::workspace)));
    }
    if (incoming >= 0) uses.push_back(read(Role::incoming, incoming));
    work(piece, std::move(uses));
  }

  void block_backward() {
    const auto [first, second] = normed_.at(of(Role::saved));
    const BufferId d = of(Role::derivative), saved = of(Role::saved), gradient = of(Role::gradient);
    const BufferId own = own_rows("incoming"), own_of_attention = own_rows("incoming");
    work(0, {read(Role::saved, saved), change(Role::derivative, d), write(Role::gradient, gradient),
             write(Role::incoming, own)});
    const BufferId incoming = entering(own);
    // Divided rows were not kept gathered; they travel until a gradient needs them.
    BufferId normed = entering(second);
    BufferId sum = sublayer_backward(1, incoming);
    gradients_of_sublayer(2, normed, -1);
    // The other gradient is computed while the rows of piece 3 are gathered, or where they are not, while the
    // sum that it reads is made.
    if (!job_.divides_rows) gradients_of_sublayer(4, -1, incoming);
    work(3, {read(Role::input, of(Role::input)), change(Role::saved, saved), read(Role::sum, sum),
             change(Role::derivative, d), change(Role::gradient, gradient),
             write(Role::incoming, own_of_attention)});
    const BufferId incoming_of_attention = entering(own_of_attention);
    normed = entering(first);
    if (job_.divides_rows) gradients_of_sublayer(4, -1, incoming);
    sum = sublayer_backward(5, incoming_of_attention);
    gradients_of_sublayer(6, normed, incoming_of_attention);
    work(7, {read(Role::input, of(Role::input)), read(Role::saved, saved), change(Role::sum, sum),
             change(Role::derivative, d), change(Role::gradient, gradient)});
  }

  /// Of a masked model the rows with targets are put together first, and what follows is of them alone.
  void head() {
    const bool learns = whole().op == Op::loss, picks = job_.picks_rows();
    const int64_t rows = job_.split_head_rows(), most = model::head_rows(job_.share(), rows);
    const int pairs = model::head_pairs(job_.share(), rows), first = picks ? 1 : 0;
    const BufferId saved = fresh("saved", Category::activations, head_sizes_.head_saved);
    const BufferId x = picks ? picked(saved) : of(Role::input);
    const BufferId own = fresh("normed", Category::activations, head_sizes_.own);
    const BufferId made = learns ? fresh("summand", Category::activations, head_sizes_.rows) : -1;
    work(first, {read(Role::input, x), picks ? change(Role::saved, saved) : write(Role::saved, saved),
                 write(Role::normed, own)});
    const BufferId normed = entering(own, head_sizes_);
    for (int pair = 0; pair < pairs; ++pair) {
      const int64_t bytes = std::min(most, rows - pair * most) * head_sizes_.numbers;
      const BufferId numbers = fresh("numbers", Category::workspace, bytes);
      const BufferId all = fresh("all numbers", Category::workspace, bytes * job_.tensor_degree);
      const BufferId logits = fresh("logits", Category::workspace, head_sizes_.logits);
      const Use targets = picks ? change(Role::saved, saved) : read(Role::batch, of(Role::batch));
      const Use reads = read(Role::normed, normed);
      work(first + 1 + 2 * pair,
           {reads, targets, write(Role::logits, logits), write(Role::numbers, numbers)});
      emit(Op::tensor_gather, -1, {read(Role::input, numbers), write(Role::output, all)});
      std::vector<Use> uses = {reads, targets, read(Role::all_numbers, all), change(Role::logits, logits),
                               write(Role::losses, of(Role::losses))};
      if (learns) {
        uses.push_back({Role::sum, made, pair > 0, true});
        uses.push_back({Role::gradient, of(Role::gradient), pair > 0, true});
        if (of(Role::tied_gradient) >= 0)
          uses.push_back({Role::tied_gradient, of(Role::tied_gradient), pair > 0, true});
      }
      work(first + 2 + 2 * pair, std::move(uses));
    }
    if (!learns) return;
    const BufferId sum = leaving(made, head_sizes_), d = of(Role::derivative);
    const BufferId back = picks ? fresh("incoming", Category::activations, head_sizes_.own) : d;
    work(first + 1 + 2 * pairs, {read(Role::input, x), read(Role::saved, saved), read(Role::sum, sum),
                                 write(picks ? Role::incoming : Role::derivative, back),
                                 change(Role::gradient, of(Role::gradient))});
    if (picks)
      work(first + 2 + 2 * pairs, {read(Role::saved, saved), write(Role::derivative, d),
                                   read(Role::incoming, entering(back, head_sizes_))});
  }

  /// The rows that a head is to see, as its pieces on rows need them.
  BufferId picked(BufferId saved) {
    const BufferId rows = fresh("picked", Category::activations, head_sizes_.rows);
    work(0, {read(Role::input, of(Role::input)), read(Role::batch, of(Role::batch)),
             write(Role::saved, saved), write(Role::sum, rows)});
    return job_.divides_rows ? leaving(rows, head_sizes_) : rows;
  }

  /// Every rank does all of it, on the row of each sequence.
  void classifier() {
    const BufferId pooled = fresh("pooled", Category::activations, pooled_bytes(job_));
    const Use batch = read(Role::batch, of(Role::batch));
    work(0, {read(Role::input, of(Role::input)), batch, write(Role::sum, pooled)});
    if (job_.divides_rows) emit(Op::tensor_all_reduce, -1, {change(Role::output, pooled)});
    std::vector<Use> uses = {read(Role::sum, pooled), batch, write(Role::losses, of(Role::losses)),
                             write(Role::workspace, of(Role::workspace))};
    if (whole().op == Op::loss) {
      uses.push_back(write(Role::derivative, of(Role::derivative)));
      uses.push_back(write(Role::gradient, of(Role::gradient)));
    }
    work(1, std::move(uses));
  }

  std::vector<model::Unit> units_;
  const model::SplitSizes sizes_, head_sizes_;
  std::map<int, BufferId> embedded_;  // of each microbatch: what an embedding's norm reads
  std::map<BufferId, std::pair<BufferId, BufferId>> normed_;  // of a block's forward, by what it saves
};

}  // namespace

int64_t split_head_bytes(const Job& job) {
  if (job.spec.task == model::Task::classification) return pooled_bytes(job);
  const model::SplitSizes sizes = head_sizes_of(job);
  const int64_t gathered = job.divides_rows ? sizes.rows : 0;
  return sizes.head_saved + sizes.own + gathered + sizes.rows + sizes.logits;
}

void split_units(const Job& job, Program& program) {
  if (job.tensor_degree > 1) Splitter(job, program).run();
}

}  // namespace loom::program
