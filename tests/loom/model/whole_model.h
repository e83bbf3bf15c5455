// A whole model run unit by unit, with a buffer for everything: what the engine's results are compared with.
#pragma once

#include <memory>
#include <vector>

#include "model/compute.h"
#include "model/regions.h"

namespace loom::testing {

template <typename T>
class WholeModel {
 public:
  using A = acc_t<T>;

  explicit WholeModel(const model::ModelSpec& spec)
      : spec_(spec),
        units_(model::units_of(spec)),
        compute_(spec, model::Share::whole(spec)),
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
    pass_.workers = workers_.get();
    pass_.spec = &spec_;
    pass_.batch = batch;
    pass_.tokens = rows / batch;
    if (spec_.padding >= 0) {
      lengths_.resize(batch);
      model::find_lengths(spec_, token.data(), batch, pass_.tokens, lengths_.data());
      pass_.lengths = lengths_.data();
    }
    const model::BufferSizes sizes =
        model::buffer_sizes<T>(spec_, model::Share::whole(spec_), batch, pass_.tokens);
    workspace_.resize(sizes.workspace);
    const int last = static_cast<int>(units_.size()) - 1;
    std::vector<std::vector<T>> x(units_.size(), std::vector<T>(rows * spec_.width));
    std::vector<std::vector<std::byte>> saved(units_.size(), std::vector<std::byte>(sizes.saved));
    compute_.embedding_forward(pass_, parameters_[0].data(), token.data(), x[0].data(), workspace_.data());
    for (int u = 1; u < last; ++u)
      compute_.block_forward(pass_, units_[u], parameters_[u].data(), x[u - 1].data(), saved[u].data(),
                             x[u].data(), workspace_.data());
    hidden_ = x[last - 1];
    std::vector<double> loss(rows);
    std::vector<T> d(rows * spec_.width);
    compute_.head_loss(pass_, units_[last], parameters_[last].data(), parameters_[0].data(), hidden_.data(),
                       target.data(), A(1.0 / static_cast<double>(rows)), loss.data(), d.data(),
                       gradients_[last].data(), gradients_[0].data(), workspace_.data());
    for (int u = last - 1; u > 0; --u)
      compute_.block_backward(pass_, units_[u], parameters_[u].data(), x[u - 1].data(), saved[u].data(),
                              d.data(), gradients_[u].data(), workspace_.data());
    compute_.embedding_backward(pass_, parameters_[0].data(), token.data(), d.data(), gradients_[0].data(),
                                spec_.tied, workspace_.data());
    double sum = 0;
    for (const double value : loss) sum += value;
    return sum / static_cast<double>(rows);
  }

  /// Mean loss of the last step's batch, by the path without gradients.
  double evaluate(const std::vector<int32_t>& target) {
    std::vector<double> loss(target.size());
    const int last = static_cast<int>(units_.size()) - 1;
    compute_.head_evaluate(pass_, units_[last], parameters_[last].data(), parameters_[0].data(),
                           hidden_.data(), target.data(), loss.data(), workspace_.data());
    double sum = 0;
    for (const double value : loss) sum += value;
    return sum / static_cast<double>(loss.size());
  }

  /// Logits of a row of the last step.
  std::vector<A> logits(int64_t row) {
    std::vector<A> values(spec_.outputs());
    const int last = static_cast<int>(units_.size()) - 1;
    compute_.head_logits(pass_, units_[last], parameters_[last].data(), parameters_[0].data(), hidden_.data(),
                         row, values.data(), workspace_.data());
    return values;
  }

 private:
  model::ModelSpec spec_;
  std::vector<model::Unit> units_;
  model::Compute<T> compute_;
  std::unique_ptr<Workers> workers_;
  model::Pass pass_;
  std::vector<std::vector<T>> parameters_;
  std::vector<std::vector<A>> gradients_;
  std::vector<T> hidden_;
  std::vector<int32_t> lengths_;
  std::vector<std::byte> workspace_;
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
