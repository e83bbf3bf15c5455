// The embedding: tokens, positions and types added up, and normalized by some families.
//
// Tensor rank t has the tokens [t · V/T, (t + 1) · V/T) of the matrix E[V, C]; the last rank may have fewer.
// Each row of the sum is on one rank and zeros elsewhere, so the ranks add up their summands. Backward, each
// rank adds all rows of d to its own tokens. Positions, types and the norm are on every rank.
#include "model/recipe_builder.h"

namespace loom::model {
namespace {

class Embedding : RecipeBuilder {
 public:
  Embedding(const ModelSpec& spec, const RecipeSizes& sizes)
      : RecipeBuilder(spec, sizes),
        token_(given(Given::tokens, "tokens")),
        y_(given(Given::output, "y", divides())),
        d_(given(Given::derivative, "d", divides())) {}

  Recipe make() {
    forward();
    turn();
    backward();
    return take();
  }

 private:
  int64_t elements() const { return own() * width(); }

  /// One rank adds up all tables in one step; several ranks exchange the tokens' rows first.
  void add_up(int into) {
    if (!is_split()) {
      on(Kernel::embed, {token_}, {into}, rows(), width());
      return;
    }
    const int made = spec_.embedding_norm && !divides() ? into : values("summand", rows() * width());
    on(Kernel::split_embed, {token_}, {made}, rows(), width());
    const int sum = divides() && spec_.embedding_norm ? exchange(Kernel::reduce_scatter, made, into)
                                                      : leave(made, "sum", elements());
    on(Kernel::places, {sum, token_}, {into}, own(), width()).own = true;
  }
  void normalize(int sum, int y) {
    normed_ = {y, sums("means", own()), sums("deviations", own())};
    on(Kernel::norm, {sum}, {y, normed_.mean, normed_.deviation}, own(), width()).part =
        Part::embedding_norm_weight;
  }
  void drop(int array) {
    if (spec_.embedding_dropout == 0) return;
    Step& made = on(Kernel::dropout, {array}, {array}, own(), width());
    made.probability = spec_.embedding_dropout;
    made.per_sample = sizes_.tokens;
    made.own = true;
  }

  void forward() {
    sum_ = spec_.embedding_norm ? values("sum", elements()) : y_;
    add_up(sum_);
    if (spec_.embedding_norm) normalize(sum_, y_);
    drop(y_);
  }

  void backward() {
    drop(d_);
    on(Kernel::clear, {}, {}, 1, width());
    if (spec_.embedding_norm) {
      if (!is_split()) add_up(sum_ = values("sum", elements()));  // made again rather than kept
      normalize(sum_, values("normed", elements()));
      norm_gradient(Part::embedding_norm_weight, sum_, normed_, d_, d_, false, own());
    }
    if (!is_split()) {
      on(Kernel::embed_gradient, {token_, d_}, {}, rows(), width());
      return;
    }
    const int all = enter(d_, "gathered rows", rows() * width());
    on(Kernel::places_gradient, {d_, token_}, {}, own(), width()).own = true;
    on(Kernel::split_embed_gradient, {token_, all}, {}, rows(), width());
  }

  const int token_, y_, d_;
  int sum_ = -1;
  Normed normed_{};
};

}  // namespace

Recipe embedding_recipe(const ModelSpec& spec, const RecipeSizes& sizes) {
  return Embedding(spec, sizes).make();
}

}  // namespace loom::model
