// A whole model divided over ranks that are all here: the steps of every rank in turn, and exchanges by hand.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "model/sequence_parallel.h"
#include "model/setting.h"
#include "model/split.h"
#include "model/whole_model.h"

namespace loom::testing {

template <typename T>
class SplitModel {
 public:
  using A = acc_t<T>;

  SplitModel(const model::ModelSpec& spec, int degree, bool divides_rows,
             std::shared_ptr<Setting<T>> place = std::make_shared<CpuSetting<T>>())
      : spec_(spec), degree_(degree), divides_rows_(divides_rows), place_(std::move(place)) {
    whole_ = model::units_of(spec);
    for (int r = 0; r < degree; ++r) {
      shares_.push_back(model::share_of(spec, {degree, r}, divides_rows));
      runners_.push_back(
          std::make_unique<model::Runner<T>>(spec, shares_.back(), place_->table(), place_->fused()));
      units_.push_back(model::units_of(spec, {degree, r}));
      gradients_.emplace_back();
      for (const model::Unit& unit : units_.back())
        gradients_.back().push_back(place_->put(std::vector<A>(unit.elements, A(0))));
    }
  }

  model::Pass& pass() { return pass_; }
  const std::vector<model::Unit>& units() const { return whole_; }

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
      std::vector<T> values(held.size());
      for (size_t i = 0; i < held.size(); ++i) store(values[i], static_cast<A>(held[i]));
      parameters_[unit].push_back(place_->put(values));
    }
  }

  /// The gradients of a whole unit, put together from all ranks'. What all ranks have must be equal.
  std::vector<double> gradients(int unit) {
    std::vector<double> whole(whole_[unit].elements, 0.0);
    for (int r = 0; r < degree_; ++r) {
      const std::vector<A> held = gradient_of(r, unit);
      for (const model::Run& run : model::runs_of(whole_[unit], {degree_, r}))
        for (int64_t i = 0; i < run.length; ++i)
          whole[run.whole + i] = static_cast<double>(held[run.held + i]);
    }
    return whole;
  }

  /// Mean loss, as WholeModel::step(). With `targets` of each sequence, at most, the head picks their rows.
  double step(const std::vector<int32_t>& token, const std::vector<int32_t>& target, int64_t batch,
              int64_t targets = 0) {
    begin(token, target, batch, targets);
    const int last = static_cast<int>(whole_.size()) - 1;
    for (int u = 0; u < last; ++u) run(u, false);
    run(last, false);
    for (int u = last - 1; u >= 0; --u) run(u, true);
    if (divides_rows_ || spec_.head_norms) sum_gradients();
    return mean_loss();
  }

  /// Mean loss of the last step's batch, by the head's path without gradients, and how many sequences of a
  /// classification are right.
  std::pair<double, double> evaluate() {
    right_ = place_->put(std::vector<double>(1, 0.0));
    run_head(model::HeadPass::evaluation, -1);
    return {mean_loss(), place_->get(right_, 1)[0]};
  }

  /// Logits of a row of the last step's batch that the first rank has.
  std::vector<A> logits(int64_t row) {
    const int64_t columns =
        spec_.task == model::Task::classification ? spec_.labels : shares_[0].vocabulary.count;
    logits_ = place_->put(std::vector<A>(static_cast<size_t>(columns)));
    run_head(model::HeadPass::logits, row);
    return place_->get(logits_, columns);
  }

 private:
  /// Of one rank and unit: what is saved and what is exchanged, from forward to backward.
  struct Kept {
    std::byte* saved;
    std::vector<std::byte*> exchanged;
  };

  void begin(const std::vector<int32_t>& token, const std::vector<int32_t>& target, int64_t batch,
             int64_t targets) {
    const int64_t rows = static_cast<int64_t>(token.size());
    pass_.context = place_->context();
    pass_.spec = &spec_;
    pass_.batch = batch;
    pass_.tokens = rows / batch;
    tokens_ = token;
    targets_ = target;
    token_ = place_->put(token);
    target_ = place_->put(target);
    recipes_.clear();
    layouts_.clear();
    for (const model::Share& share : shares_) {
      model::RecipeSizes sizes = model::sizes_for<T>(share, batch, pass_.tokens, targets);
      sizes.table.of_gpu = place_->fused() != nullptr;
      recipes_.emplace_back(spec_, sizes);
      layouts_.emplace_back(spec_, sizes, place_->is_fixed());
    }
    derive(-1);
    const auto of_each_rank = [&] {
      std::vector<T*> arrays(degree_);
      for (T*& array : arrays)
        array = place_->put(std::vector<T>((divides_rows_ ? rows / degree_ : rows) * spec_.width));
      return arrays;
    };
    x_.clear();
    for (size_t u = 0; u < whole_.size(); ++u) x_.push_back(of_each_rank());
    d_ = of_each_rank();
    loss_.clear();
    for (int r = 0; r < degree_; ++r) loss_.push_back(place_->put(std::vector<double>(rows)));
    loss_sum_ = place_->put(std::vector<double>(degree_));
    kept_.clear();
    head_ = model::HeadPass::loss;
  }

  /// What the host knows of the batch goes where the steps run.
  void derive(int64_t only_row) {
    arrays_.clear();
    for (const model::BatchLayout& layout : layouts_) {
      std::vector<std::byte> here(static_cast<size_t>(layout.bytes()));
      std::byte* const there = place_->take(layout.bytes());
      arrays_.push_back(layout.fill(tokens_.data(), targets_.data(), only_row, here.data(), there));
      place_->write(there, here.data(), layout.bytes());
    }
  }

  void run_head(model::HeadPass pass, int64_t only_row) {
    const int last = static_cast<int>(whole_.size()) - 1;
    derive(only_row);
    head_ = pass;
    kept_.erase(last);
    run(last, false);
  }

  double mean_loss() {
    const int64_t rows = pass_.rows();
    const std::vector<double> losses = place_->get(loss_[0], rows);
    EXPECT_EQ(losses, place_->get(loss_.back(), rows)) << "all ranks have all losses";
    double mean = 0;
    for (const double one : losses) mean += one;
    EXPECT_EQ(std::vector<double>(degree_, mean), place_->get(loss_sum_, degree_)) << "summed by rows";
    return mean / static_cast<double>(rows);
  }

  const model::Recipe& recipe(int rank, int unit) const {
    const model::Recipes& of_rank = recipes_[rank];
    return unit == 0                                    ? of_rank.embedding
           : unit + 1 < static_cast<int>(whole_.size()) ? of_rank.block
                                                        : of_rank.head(head_);
  }

  void run(int unit, bool back) {
    const model::Recipe& first = recipe(0, unit);
    std::vector<Kept>& kept = kept_[unit];
    if (kept.empty()) {
      kept.resize(degree_);
      for (Kept& of_rank : kept) {
        of_rank.saved = place_->take(first.saved_bytes);
        for (const model::Array& array : first.arrays) of_rank.exchanged.push_back(place_->take(array.bytes));
      }
    }
    std::vector<model::Bound<T>> bound;
    for (int r = 0; r < degree_; ++r)
      bound.push_back(bound_of(unit, r, place_->take(first.workspace_bytes), kept[r]));
    const std::vector<model::Step>& steps = back ? first.backward : first.forward;
    for (size_t i = 0, end = 0; i < steps.size(); i = end) {
      for (end = i; end < steps.size() && !model::is_exchange(steps[end].kernel);) ++end;
      for (int r = 0; r < degree_ && end > i; ++r) {
        const model::Recipe& own = recipe(r, unit);
        pass_.arrays = arrays_[r];
        runners_[r]->run(pass_, units_[r][unit], own,
                         {(back ? own.backward : own.forward).data() + i, end - i}, bound[r]);
      }
      if (end < steps.size()) exchange(steps[end++], first, bound);
    }
  }

  model::Bound<T> bound_of(int unit, int r, std::byte* workspace, const Kept& kept) {
    model::Bound<T> bound;
    bound.parameters = parameters_[unit][r];
    bound.gradient = gradients_[r][unit];
    if (unit + 1 == static_cast<int>(whole_.size()) && spec_.tied) {
      bound.tied_parameters = parameters_[0][r];
      bound.tied_gradient = gradients_[r][0];
    }
    bound.adds = unit == 0 && spec_.tied;
    bound.saved = kept.saved;
    bound.workspace = workspace;
    bound.exchanged = kept.exchanged.data();
    bound.scale = A(1.0 / static_cast<double>(pass_.rows()));
    bound.give(model::Given::tokens, token_);
    bound.give(model::Given::targets, target_);
    bound.give(model::Given::losses, loss_[r]);
    bound.give(model::Given::loss, loss_sum_ + r);
    bound.give(model::Given::right, right_);
    bound.give(model::Given::logits, logits_);
    if (unit > 0) bound.give(model::Given::input, x_[unit - 1][r]);
    bound.give(model::Given::output, x_[unit][r]);
    bound.give(model::Given::derivative, d_[r]);
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
    const int64_t all_bytes = recipe.arrays[gathers ? to : from].bytes;
    const int64_t part_bytes = step.kernel == model::Kernel::all_reduce ? 0 : all_bytes / degree_;
    if (gathers) {  // rows or numbers: bytes, whatever they are
      std::vector<std::byte> whole(static_cast<size_t>(all_bytes));
      for (int r = 0; r < degree_; ++r)
        place_->read(whole.data() + r * part_bytes, at(recipe, from, bound[r]), part_bytes);
      for (int r = 0; r < degree_; ++r) place_->write(at(recipe, to, bound[r]), whole.data(), all_bytes);
      return;
    }
    const int64_t all = all_bytes / static_cast<int64_t>(sizeof(T)),
                  part = part_bytes / static_cast<int64_t>(sizeof(T));
    std::vector<A> sums(all, A(0));
    for (int r = 0; r < degree_; ++r) {
      const std::vector<T> own = place_->get(at(recipe, from, bound[r]), all);
      for (int64_t i = 0; i < all; ++i) sums[i] += load(own[i]);
    }
    std::vector<T> whole(all);
    for (int64_t i = 0; i < all; ++i) store(whole[i], sums[i]);
    for (int r = 0; r < degree_; ++r) {
      const bool scatters = step.kernel == model::Kernel::reduce_scatter;
      place_->write(at(recipe, to, bound[r]), whole.data() + (scatters ? r * part : 0),
                    scatters ? part_bytes : all_bytes);
    }
  }

  std::vector<A> gradient_of(int rank, int unit) {
    return place_->get(gradients_[rank][unit], units_[rank][unit].elements);
  }

  void sum_gradients() {
    for (size_t u = 0; u < whole_.size(); ++u) {
      std::vector<std::vector<A>> of_ranks;
      for (int r = 0; r < degree_; ++r) of_ranks.push_back(gradient_of(r, static_cast<int>(u)));
      for (const model::Parameter& parameter : units_[0][u].parameters) {
        if (!model::is_summed(parameter, divides_rows_)) continue;
        for (int64_t i = parameter.offset; i < parameter.offset + parameter.elements(); ++i) {
          A sum = 0;
          for (const std::vector<A>& of_rank : of_ranks) sum += of_rank[i];
          for (std::vector<A>& of_rank : of_ranks) of_rank[i] = sum;
        }
      }
      for (int r = 0; r < degree_; ++r)
        place_->write(gradients_[r][u], of_ranks[r].data(),
                      static_cast<int64_t>(of_ranks[r].size() * sizeof(A)));
    }
  }

  model::ModelSpec spec_;
  int degree_;
  bool divides_rows_;
  std::shared_ptr<Setting<T>> place_;
  model::Pass pass_;
  std::vector<int32_t> tokens_, targets_;
  int32_t *token_ = nullptr, *target_ = nullptr;   // the same, where the steps run
  double *right_ = nullptr, *loss_sum_ = nullptr;  // the latter of each rank
  A* logits_ = nullptr;
  model::HeadPass head_ = model::HeadPass::loss;
  std::vector<model::Unit> whole_;
  std::vector<model::Share> shares_;
  std::vector<std::vector<model::Unit>> units_;  // of each rank
  std::vector<std::unique_ptr<model::Runner<T>>> runners_;
  std::vector<model::Recipes> recipes_;      // of each rank
  std::vector<model::BatchLayout> layouts_;  // of each rank
  std::vector<model::BatchArrays> arrays_;   // of each rank
  std::vector<std::vector<T*>> x_;           // of each unit and rank: its output
  std::vector<T*> d_;
  std::vector<double*> loss_;                // of each rank
  std::map<int, std::vector<Kept>> kept_;    // of each unit, by rank
  std::vector<std::vector<T*>> parameters_;  // of each unit and rank
  std::vector<std::vector<A*>> gradients_;   // of each rank and unit
};

}  // namespace loom::testing
