// A whole model divided over ranks that are all here: the steps of every rank in turn, and exchanges by hand.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "model/sequence_parallel.h"
#include "model/split.h"
#include "model/whole_model.h"

namespace loom::testing {

template <typename T>
class SplitModel {
 public:
  using A = acc_t<T>;
  using Rows = std::vector<std::vector<T>>;  // of each rank

  SplitModel(const model::ModelSpec& spec, int degree, bool divides_rows)
      : spec_(spec), degree_(degree), divides_rows_(divides_rows), workers_(std::make_unique<Workers>(1)) {
    whole_ = model::units_of(spec);
    for (int r = 0; r < degree; ++r) {
      shares_.push_back(model::share_of(spec, {degree, r}, divides_rows));
      runners_.push_back(std::make_unique<model::Runner<T>>(spec, shares_.back()));
      units_.push_back(model::units_of(spec, {degree, r}));
      gradients_.emplace_back();
      for (const model::Unit& unit : units_.back()) gradients_.back().emplace_back(unit.elements, A(0));
    }
  }

  model::Pass& pass() { return pass_; }

  /// Every rank takes its share of a whole unit's parameters, as fp32.
  void set_parameters(int unit, const std::vector<float>& whole) {
    parameters_.resize(whole_.size());
    parameters_[unit].clear();
    for (int r = 0; r < degree_; ++r) {
      std::vector<float> held(units_[r][unit].elements);
      const Status status = model::read_share(whole_[unit], {degree_, r}, 0, held,
                                              [&](int64_t begin, std::span<float> into) -> Status {
                                                std::copy_n(whole.begin() + begin, into.size(), into.begin());
                                                return {};
                                              });
      EXPECT_TRUE(status.ok());
      parameters_[unit].emplace_back(held.begin(), held.end());
    }
  }

  /// The gradients of a whole unit, put together from all ranks'. What all ranks have must be equal.
  std::vector<double> gradients(int unit) {
    std::vector<double> whole(whole_[unit].elements, 0.0);
    for (int r = 0; r < degree_; ++r)
      for (const model::Run& run : model::runs_of(whole_[unit], {degree_, r}))
        for (int64_t i = 0; i < run.length; ++i)
          whole[run.whole + i] = static_cast<double>(gradients_[r][unit][run.held + i]);
    return whole;
  }

  /// Mean loss, as WholeModel::step(). With `targets` of each sequence, at most, the head picks their rows.
  double step(const std::vector<int32_t>& token, const std::vector<int32_t>& target, int64_t batch,
              int64_t targets = 0) {
    const int64_t rows = static_cast<int64_t>(token.size());
    pass_.context = *workers_;
    pass_.spec = &spec_;
    pass_.batch = batch;
    pass_.tokens = rows / batch;
    token_ = &token;
    target_ = &target;
    recipes_.clear();
    memory_.clear();
    arrays_.clear();
    for (const model::Share& share : shares_) {
      const model::RecipeSizes sizes = model::sizes_for<T>(share, batch, pass_.tokens, targets);
      recipes_.emplace_back(spec_, sizes);
      const model::BatchLayout layout(spec_, sizes);
      std::byte* const memory = memory_.emplace_back(layout.bytes()).data();
      arrays_.push_back(layout.fill(token.data(), target.data(), -1, memory, memory));
    }
    const Rows none(degree_, std::vector<T>((divides_rows_ ? rows / degree_ : rows) * spec_.width));
    x_.assign(whole_.size(), none);
    d_ = none;
    loss_.assign(degree_, std::vector<double>(rows));
    kept_.clear();
    const int last = static_cast<int>(whole_.size()) - 1;
    for (int u = 0; u < last; ++u) run(u, false);
    run(last, false);
    for (int u = last - 1; u >= 0; --u) run(u, true);
    if (divides_rows_) sum_gradients();
    double mean = 0;
    for (const double one : loss_[0]) mean += one;
    EXPECT_EQ(loss_[0], loss_.back()) << "all ranks have all losses";
    return mean / static_cast<double>(rows);
  }

 private:
  /// Of one rank and unit: what is saved and what is exchanged, from forward to backward.
  struct Kept {
    std::vector<std::byte> saved;
    std::vector<std::vector<std::byte>> arrays;
    std::vector<std::byte*> exchanged;
  };

  const model::Recipe& recipe(int rank, int unit) const {
    const model::Recipes& of_rank = recipes_[rank];
    return unit == 0                                    ? of_rank.embedding
           : unit + 1 < static_cast<int>(whole_.size()) ? of_rank.block
                                                        : of_rank.loss;
  }

  void run(int unit, bool back) {
    const model::Recipe& first = recipe(0, unit);
    std::vector<std::vector<std::byte>> workspace(degree_, std::vector<std::byte>(first.workspace_bytes));
    std::vector<Kept>& kept = kept_[unit];
    if (kept.empty()) {
      kept.resize(degree_);
      for (Kept& of_rank : kept) {
        of_rank.saved.resize(first.saved_bytes);
        for (const model::Array& array : first.arrays) of_rank.arrays.emplace_back(array.bytes);
        for (std::vector<std::byte>& array : of_rank.arrays) of_rank.exchanged.push_back(array.data());
      }
    }
    std::vector<model::Bound<T>> bound;
    for (int r = 0; r < degree_; ++r) bound.push_back(bound_of(unit, r, workspace[r], kept[r]));
    const std::vector<model::Step>& steps = back ? first.backward : first.forward;
    for (size_t i = 0; i < steps.size(); ++i) {
      if (model::is_exchange(steps[i].kernel)) {
        exchange(steps[i], first, bound);
        continue;
      }
      for (int r = 0; r < degree_; ++r) {
        const model::Recipe& own = recipe(r, unit);
        pass_.arrays = arrays_[r];
        runners_[r]->run(pass_, units_[r][unit], own, {(back ? own.backward : own.forward).data() + i, 1},
                         bound[r]);
      }
    }
  }

  model::Bound<T> bound_of(int unit, int r, std::vector<std::byte>& workspace, Kept& kept) {
    model::Bound<T> bound;
    bound.parameters = parameters_[unit][r].data();
    bound.gradient = gradients_[r][unit].data();
    if (unit + 1 == static_cast<int>(whole_.size()) && spec_.tied) {
      bound.tied_parameters = parameters_[0][r].data();
      bound.tied_gradient = gradients_[r][0].data();
    }
    bound.adds = unit == 0 && spec_.tied;
    bound.saved = kept.saved.data();
    bound.workspace = workspace.data();
    bound.exchanged = kept.exchanged.data();
    bound.scale = A(1.0 / static_cast<double>(token_->size()));
    bound.give(model::Given::tokens, token_->data());
    bound.give(model::Given::targets, target_->data());
    bound.give(model::Given::losses, loss_[r].data());
    if (unit > 0) bound.give(model::Given::input, x_[unit - 1][r].data());
    bound.give(model::Given::output, x_[unit][r].data());
    bound.give(model::Given::derivative, d_[r].data());
    return bound;
  }

  T* at(const model::Recipe& recipe, int number, const model::Bound<T>& bound) const {
    const model::Array& array = recipe.arrays[number];
    return reinterpret_cast<T*>(array.place == model::Place::given
                                    ? bound.given[static_cast<size_t>(array.given)]
                                    : bound.exchanged[number]);
  }

  void exchange(const model::Step& step, const model::Recipe& recipe, std::vector<model::Bound<T>>& bound) {
    const int from = step.reads[0], to = step.writes[0];
    const bool gathers = step.kernel == model::Kernel::gather;
    // Of what is scattered, the parts are the bytes of what it becomes.
    const int64_t all = static_cast<int64_t>(recipe.arrays[gathers ? to : from].bytes / sizeof(T));
    const int64_t part = step.kernel == model::Kernel::all_reduce ? 0 : all / degree_;
    std::vector<T> whole(all, T(0));
    for (int r = 0; r < degree_; ++r) {
      const T* own = at(recipe, from, bound[r]);
      if (gathers) std::copy_n(own, part, whole.begin() + r * part);
      for (int64_t i = 0; !gathers && i < all; ++i) whole[i] += own[i];
    }
    for (int r = 0; r < degree_; ++r) {
      const bool scatters = step.kernel == model::Kernel::reduce_scatter;
      std::copy_n(whole.begin() + (scatters ? r * part : 0), scatters ? part : all, at(recipe, to, bound[r]));
    }
  }

  void sum_gradients() {
    for (size_t u = 0; u < whole_.size(); ++u)
      for (const model::Parameter& parameter : units_[0][u].parameters) {
        if (!model::is_of_rows(parameter)) continue;
        for (int64_t i = parameter.offset; i < parameter.offset + parameter.elements(); ++i) {
          A sum = 0;
          for (int r = 0; r < degree_; ++r) sum += gradients_[r][u][i];
          for (int r = 0; r < degree_; ++r) gradients_[r][u][i] = sum;
        }
      }
  }

  model::ModelSpec spec_;
  int degree_;
  bool divides_rows_;
  std::unique_ptr<Workers> workers_;
  model::Pass pass_;
  const std::vector<int32_t>*token_ = nullptr, *target_ = nullptr;
  std::vector<model::Unit> whole_;
  std::vector<model::Share> shares_;
  std::vector<std::vector<model::Unit>> units_;  // of each rank
  std::vector<std::unique_ptr<model::Runner<T>>> runners_;
  std::vector<model::Recipes> recipes_;  // of each rank
  std::vector<std::vector<std::byte>> memory_;
  std::vector<model::BatchArrays> arrays_;  // of each rank, in memory_
  std::vector<Rows> x_;                     // of each unit: its output
  Rows d_;
  std::vector<std::vector<double>> loss_;                // of each rank
  std::map<int, std::vector<Kept>> kept_;                // of each unit, by rank
  std::vector<std::vector<std::vector<T>>> parameters_;  // of each unit and rank
  std::vector<std::vector<std::vector<A>>> gradients_;   // of each rank and unit
};

}  // namespace loom::testing
