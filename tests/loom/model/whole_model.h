// A whole model run unit by unit, with a buffer for everything: what the engine's results are compared with.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "model/batch_layout.h"
#include "model/runner.h"

namespace loom::testing {

template <typename T>
class WholeModel {
 public:
  using A = acc_t<T>;

  explicit WholeModel(const model::ModelSpec& spec)
      : spec_(spec),
        units_(model::units_of(spec)),
        runner_(spec, model::Share::whole(spec)),
        workers_(std::make_unique<Workers>(1)) {
    for (const model::Unit& unit : units_) {
      parameters_.emplace_back(unit.elements);
      gradients_.emplace_back(unit.elements, A(123));  // whatever is there must not matter
    }
  }

  const std::vector<model::Unit>& units() const { return units_; }
  std::vector<T>& parameters(int unit) { return parameters_[unit]; }
  const std::vector<A>& gradients(int unit) const { return gradients_[unit]; }
  model::Pass& pass() { return pass_; }

  /// Mean loss over all tokens; the gradients of it stay in gradients(), the input of the head in hidden().
  double step(const std::vector<int32_t>& token, const std::vector<int32_t>& target, int64_t batch) {
    const int64_t rows = static_cast<int64_t>(token.size());
    pass_.context = *workers_;
    pass_.spec = &spec_;
    pass_.batch = batch;
    pass_.tokens = rows / batch;
    const model::RecipeSizes sizes = model::sizes_for<T>(model::Share::whole(spec_), batch, pass_.tokens);
    layout_.emplace(spec_, sizes);
    arrays_.resize(layout_->bytes());
    token_ = token;
    pass_.arrays = derived(target, -1);
    recipes_.emplace(spec_, sizes);
    workspace_.resize(model::buffer_sizes(spec_, sizes, *recipes_).workspace);
    const size_t last = units_.size() - 1;
    std::vector<std::vector<T>> x(units_.size(), std::vector<T>(rows * spec_.width));
    std::vector<std::vector<std::byte>> saved(units_.size(),
                                              std::vector<std::byte>(recipes_->block.saved_bytes));
    std::vector<double> loss(rows);
    double loss_sum = 0;
    std::vector<T> d(rows * spec_.width);
    const auto run = [&](size_t u, const model::Recipe& recipe, bool back) {
      model::Bound<T> bound = bound_of(u);
      bound.saved = saved[u].data();
      bound.give(model::Given::tokens, token.data());
      bound.give(model::Given::targets, target.data());
      bound.give(model::Given::losses, loss.data());
      bound.give(model::Given::loss, &loss_sum);
      if (u > 0) bound.give(model::Given::input, x[u - 1].data());
      bound.give(model::Given::output, x[u].data());
      bound.give(model::Given::derivative, d.data());
      bound.scale = A(1.0 / static_cast<double>(rows));
      bound.adds = spec_.tied;
      runner_.run(pass_, units_[u], recipe, back ? recipe.backward : recipe.forward, bound);
    };
    run(0, recipes_->embedding, false);
    for (size_t u = 1; u < last; ++u) run(u, recipes_->block, false);
    hidden_ = x[last - 1];
    run(last, recipes_->loss, false);
    for (size_t u = last - 1; u > 0; --u) run(u, recipes_->block, true);
    run(0, recipes_->embedding, true);
    return loss_sum / static_cast<double>(rows);
  }

  /// Mean loss of the last step's batch, by the path without gradients.
  double evaluate(const std::vector<int32_t>& target) {
    std::vector<double> loss(target.size());
    double right = 0, sum = 0;
    model::Bound<T> bound = bound_of(units_.size() - 1);
    bound.give(model::Given::input, hidden_.data());
    bound.give(model::Given::targets, target.data());
    bound.give(model::Given::losses, loss.data());
    bound.give(model::Given::loss, &sum);
    bound.give(model::Given::right, &right);
    pass_.arrays = derived(target, -1);
    runner_.run(pass_, units_.back(), recipes_->evaluation, recipes_->evaluation.forward, bound);
    return sum / static_cast<double>(loss.size());
  }

  /// Logits of a row of the last step.
  std::vector<A> logits(int64_t row) {
    std::vector<A> values(spec_.outputs());
    model::Bound<T> bound = bound_of(units_.size() - 1);
    bound.give(model::Given::input, hidden_.data());
    bound.give(model::Given::logits, values.data());
    model::Pass one = pass_;
    one.arrays = derived({}, row);
    runner_.run(one, units_.back(), recipes_->logits, recipes_->logits.forward, bound);
    return values;
  }

 private:
  model::BatchArrays derived(const std::vector<int32_t>& target, int64_t only_row) {
    return layout_->fill(token_.data(), target.data(), only_row, arrays_.data(), arrays_.data());
  }

  model::Bound<T> bound_of(size_t unit) {
    model::Bound<T> bound;
    bound.parameters = parameters_[unit].data();
    bound.gradient = gradients_[unit].data();
    bound.workspace = workspace_.data();
    if (unit + 1 < units_.size() || !spec_.tied) return bound;
    bound.tied_parameters = parameters_[0].data();
    bound.tied_gradient = gradients_[0].data();
    return bound;
  }

  model::ModelSpec spec_;
  std::vector<model::Unit> units_;
  model::Runner<T> runner_;
  std::optional<model::Recipes> recipes_;  // of the last step
  std::unique_ptr<Workers> workers_;
  model::Pass pass_;
  std::vector<std::vector<T>> parameters_;
  std::vector<std::vector<A>> gradients_;
  std::vector<T> hidden_;
  std::vector<int32_t> token_;  // of the last step
  std::optional<model::BatchLayout> layout_;
  std::vector<std::byte> arrays_, workspace_;
};

inline model::ModelSpec small_spec() {
  model::ModelSpec spec;
  spec.vocabulary = 13;
  spec.context = 6;
  spec.width = 8;
  spec.layers = 2;
  spec.heads = 2;
  spec.feed_forward = 20;
  return spec;
}

}  // namespace loom::testing
