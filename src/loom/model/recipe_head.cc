// The head: the rows that it computes, the layers before the logits, logits, and the loss with its gradient.
//
// The objective says which rows a head computes: all, those with targets, or one of each sequence. These are
// R rows, which are put together first unless they are all. Before the logits stand the last norm of pre-norm
// families, and the dense layer with activation and norm (transform), or with tanh (pooler).
//
// Logits exist for a few rows at a time. The matrix W[V, C] may be the embedding's. Tensor rank t has the
// tokens [t · V/T, (t + 1) · V/T) of it and of its bias; the last rank may have fewer. So it has those
// columns of the logits, which are never gathered. The ranks gather three numbers of each row: its maximum,
// the sum of exponentials, and the target's logit where the target is there. From these each rank computes
// the loss and its columns' derivatives. Then the ranks add up their summands of dx (Shoeybi et al.,
// "Megatron-LM", 2019).
//
// A head of classes has no vocabulary to divide, and few rows: every rank computes all of them.
#include "base/round.h"
#include "model/objectives/objective.h"
#include "model/recipe_builder.h"

namespace loom::model {
namespace {

class Head : RecipeBuilder {
 public:
  Head(const ModelSpec& spec, const RecipeSizes& sizes, HeadPass pass)
      : RecipeBuilder(spec, sizes),
        pass_(pass),
        objective_(spec.objective()),
        splits_(is_split() && !objective_.predicts_classes),
        x_(given(Given::input, "x", divides())),
        targets_(given(Given::targets, "targets")),
        losses_(given(Given::losses, "losses")) {
    rows_ = picked_rows(spec, sizes, pass);
    picks_ = rows_ > 0;
    if (!picks_) rows_ = rows();
    own_ = splits_ ? own_rows(share_, rows_) : rows_;
  }

  Recipe make() {
    const int input = picks_ ? pick() : x_;
    // Clears what lies between and behind parameters, and all gradients where no row is picked.
    if (pass_ == HeadPass::loss) counted(step(Kernel::clear, {}, {}));
    const int features = layers(input);
    const int all = splits_ ? enter(features, "gathered rows", rows_ * width()) : features;
    const int d = logits(all);
    if (pass_ == HeadPass::logits) return take();
    on(Kernel::sum_losses, {losses_}, {given(Given::loss, "loss")}, rows(), 1);
    if (pass_ == HeadPass::loss) backward(input, splits_ ? leave(d, "sum", own_ * width()) : d);
    return take();
  }

 private:
  bool pre() const { return spec_.norms == NormPlacement::pre; }
  bool dense() const { return spec_.pooler || spec_.head_transform; }
  ops::Activation activation() const {
    return spec_.pooler ? ops::Activation::tanh : spec_.head_activation.value_or(spec_.activation);
  }
  /// A layer's rows: where one rank picks them, as many as there are.
  Step& counted(Step& step) const {
    step.counted = picks_ && !is_split();
    return step;
  }

  int pick() {
    const int picked = values("picked", rows_ * width());
    Step& made = counted(on(Kernel::pick, {x_, given(Given::picked, "rows")}, {picked}, rows_, width()));
    if (pass_ != HeadPass::logits) made.writes[1] = losses_;
    if (!divides()) return picked;
    if (!splits_) return exchange(Kernel::all_reduce, picked, picked);
    return leave(picked, "sum", own_ * width());
  }

  Step& drop(Site site, int from, int to) {
    Step& made = counted(on(Kernel::dropout, {from}, {to}, own_, width()));
    made.site = site;
    made.probability = spec_.head_dropout;
    made.per_sample = 1;
    made.own = splits_;
    return made;
  }

  int layers(int x) {
    if (pre()) {
      final_ = norm(Part::final_norm_weight, x, "normed", own_);
      counted(steps().back());
      x = final_.y;
    }
    if (!dense()) return x;
    if (spec_.dropout_before_pooler && spec_.head_dropout > 0) {
      const int dropped = values("dropped", own_ * width());
      drop(Site::projection, x, dropped);
      x = dropped;
    }
    dense_reads_ = x;
    hidden_ = values("hidden", own_ * width());
    activated_ = values("activated", own_ * width());
    counted(product(Kernel::linear, Part::dense_weight, {x}, {hidden_}, own_, width(), width()));
    counted(on(Kernel::activation, {hidden_}, {activated_}, own_, width())).activation = activation();
    if (spec_.head_transform) {
      transform_ = norm(Part::transform_norm_weight, activated_, "features", own_);
      counted(steps().back());
      return transform_.y;
    }
    if (spec_.head_dropout == 0) return activated_;
    const int features = values("features", own_ * width());
    drop(Site::feed_forward, activated_, features);
    return features;
  }

  /// The derivative with respect to `x`, of all rows: a summand where the vocabulary is divided.
  int logits(int x) {
    const bool learns = pass_ == HeadPass::loss;
    const int64_t most = std::min(rows_, sizes_.table.head_rows * (splits_ ? share_.degree : 1));
    const int64_t columns = splits_ ? share_.vocabulary.count : spec_.outputs();
    const int64_t widest = splits_ ? largest_.vocabulary.count : spec_.outputs();
    const int made = sizes_.table.of_gpu ? values("logits", most * ops::padded_logits(widest))
                                         : sums("logits", most * widest);
    const int target = picks_ ? given(Given::picked_targets, "picked targets") : targets_;
    const int d = learns ? values("summand", rows_ * width()) : -1;
    const bool counts = objective_.metric == Metric::accuracy && pass_ == HeadPass::evaluation;
    const int right = counts ? given(Given::right, "right") : -1;
    if (counts) on(Kernel::clear, {}, {right}, 1, 1);
    for (int64_t first = 0; first < rows_; first += most) {
      const int64_t n = pass_ == HeadPass::logits ? 1 : std::min(most, rows_ - first);
      const auto some = [&](Kernel kernel, std::initializer_list<int> reads,
                            std::initializer_list<int> writes) {
        Step& step = counted(on(kernel, reads, writes, n, width()));
        step.out = columns;
        step.first = first;
        step.of_rows = rows_;
        step.part = Part::head_weight;
        step.adds = learns;
      };
      some(Kernel::logits, {x}, {made});
      if (pass_ == HeadPass::logits) {
        on(Kernel::read_logits, {made}, {given(Given::logits, "one row's logits")}, 1, columns);
        return -1;
      }
      if (counts) some(Kernel::count_right, {made, target}, {right});
      if (splits_) {
        const int numbers = sums("numbers", n * 3), all = sums("all numbers", n * 3 * share_.degree);
        some(Kernel::split_begin, {made, target}, {made, numbers});
        exchange(Kernel::gather, numbers, all);
        some(Kernel::split_finish, {made, target, all}, {made, losses_});
      } else {
        some(Kernel::cross_entropy, {made, target}, {made, losses_});
      }
      if (learns) some(Kernel::logits_gradient, {made, x}, {d});
    }
    return d;
  }

  /// From d, which is destroyed, back through the layers and to the rows that were read.
  void backward(int input, int d) {
    const int into = picks_ ? values("dpicked", own_ * width()) : given(Given::derivative, "d", divides());
    if (dense()) {
      if (spec_.pooler && spec_.head_dropout > 0) drop(Site::feed_forward, d, d);
      if (!spec_.pooler)
        counted(norm_gradient(Part::transform_norm_weight, activated_, transform_, d, d, false, own_));
      counted(on(Kernel::activation_gradient, {hidden_, d}, {d}, own_, width())).activation = activation();
      counted(
          product(Kernel::linear_weight, Part::dense_weight, {dense_reads_, d}, {}, own_, width(), width()));
      const int next = pre() ? values("dnormed", own_ * width()) : into;
      counted(product(Kernel::linear_input, Part::dense_weight, {d}, {next}, own_, width(), width()));
      if (spec_.dropout_before_pooler && spec_.head_dropout > 0) drop(Site::projection, next, next);
      d = next;
    }
    if (pre()) counted(norm_gradient(Part::final_norm_weight, input, final_, d, into, false, own_));
    else if (d != into) counted(on(Kernel::copy, {d}, {into}, own_, width()));
    if (!picks_) return;
    const int all = splits_ ? enter(into, "gathered rows", rows_ * width()) : into;
    const int derivative = given(Given::derivative, "d", divides());
    on(Kernel::give_back, {all, given(Given::back, "back")}, {derivative}, own(), width()).of_rows = rows_;
  }

  const HeadPass pass_;
  const Objective& objective_;
  const bool splits_;  // whether the ranks divide the vocabulary
  const int x_, targets_, losses_;
  bool picks_ = false;
  int64_t rows_ = 0, own_ = 0;  // R, and those of them that this rank's layers see
  int dense_reads_ = -1, hidden_ = -1, activated_ = -1;
  Normed final_{}, transform_{};
};

}  // namespace

int64_t picked_rows(const ModelSpec& spec, const RecipeSizes& sizes, HeadPass pass) {
  const Objective& objective = spec.objective();
  const bool is_split = sizes.share.degree > 1;
  const bool picks = pass == HeadPass::logits || objective.rows == HeadRows::one_of_sequence ||
                     (objective.rows == HeadRows::with_targets && (!is_split || sizes.targets > 0));
  if (!picks) return 0;
  const int64_t rows =
      pass == HeadPass::logits ? 1 : sizes.batch * objective.rows_of_sequence(sizes.tokens, sizes.targets);
  // Every rank has as many places, so some may stay empty.
  const int64_t grain = !objective.predicts_classes && sizes.share.divides_rows ? sizes.share.degree : 1;
  return round_up(rows, grain);
}

Recipe head_recipe(const ModelSpec& spec, const RecipeSizes& sizes, HeadPass pass) {
  return Head(spec, sizes, pass).make();
}

Recipes::Recipes(const ModelSpec& spec, const RecipeSizes& sizes)
    : embedding(embedding_recipe(spec, sizes)),
      block(block_recipe(spec, sizes)),
      loss(head_recipe(spec, sizes, HeadPass::loss)),
      evaluation(head_recipe(spec, sizes, HeadPass::evaluation)),
      logits(head_recipe(spec, sizes, HeadPass::logits)) {}

BufferSizes buffer_sizes(const ModelSpec& spec, const RecipeSizes& sizes, const Recipes& recipes) {
  BufferSizes bytes;
  const int64_t own = own_rows(sizes.share, sizes.rows());
  bytes.activation = round_up(own * spec.width * sizes.element_bytes, 64);
  bytes.saved = recipes.block.saved_bytes;
  bytes.kept = recipes.block.kept_bytes;
  bytes.embedding_workspace = recipes.embedding.workspace_bytes;
  bytes.block_workspace = recipes.block.workspace_bytes;
  bytes.head_workspace = std::max(
      {recipes.loss.workspace_bytes, recipes.evaluation.workspace_bytes, recipes.logits.workspace_bytes});
  bytes.workspace = std::max({bytes.embedding_workspace, bytes.block_workspace, bytes.head_workspace});
  return bytes;
}

}  // namespace loom::model
