// A whole model divided over ranks that are all here: pieces of every rank in turn, and exchanges by hand.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "model/split.h"
#include "model/split_masked.h"
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
      compute_.push_back(std::make_unique<model::SplitCompute<T>>(spec, shares_.back()));
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
    targets_ = targets;
    rows_ = static_cast<int64_t>(token.size());
    own_ = divides_rows_ ? rows_ / degree_ : rows_;
    pass_.workers = workers_.get();
    pass_.spec = &spec_;
    pass_.batch = batch;
    pass_.tokens = rows_ / batch;
    token_ = &token;
    target_ = &target;
    const int last = static_cast<int>(whole_.size()) - 1;
    std::vector<Rows> x;
    std::vector<Block> blocks(whole_.size());
    x.push_back(embedding());
    for (int u = 1; u < last; ++u) x.push_back(block_forward(u, x.back(), blocks[u]));
    Rows d;
    const double loss = head(last, x.back(), d);
    for (int u = last - 1; u > 0; --u) block_backward(u, x[u - 1], blocks[u], d);
    embedding_backward(d);
    if (divides_rows_) sum_gradients();
    return loss;
  }

 private:
  struct Block {
    std::vector<std::vector<std::byte>> saved;
    Rows normed1, normed2;
  };

  Rows own() const { return Rows(degree_, std::vector<T>(own_ * spec_.width)); }
  Rows all() const { return Rows(degree_, std::vector<T>(rows_ * spec_.width)); }

  Rows gathered(const Rows& rows) const {
    if (!divides_rows_) return rows;
    std::vector<T> joined;
    for (const std::vector<T>& part : rows) joined.insert(joined.end(), part.begin(), part.end());
    return Rows(degree_, joined);
  }
  Rows summed(const Rows& rows) const {
    std::vector<T> sum(rows[0].size(), T(0));
    for (const std::vector<T>& part : rows)
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    Rows result;
    for (int r = 0; r < degree_; ++r) {
      const size_t first = divides_rows_ ? r * own_ * spec_.width : 0;
      result.emplace_back(sum.begin() + first, sum.begin() + first + own_ * spec_.width);
    }
    return result;
  }

  model::PieceArrays<T> arrays(int unit, int r) {
    model::PieceArrays<T> a;
    a.parameters = parameters_[unit][r].data();
    a.gradient = gradients_[r][unit].data();
    a.token = token_->data();
    a.target = target_->data();
    if (unit + 1 == static_cast<int>(whole_.size()) && spec_.tied) {
      a.tied_parameters = parameters_[0][r].data();
      a.tied_gradient = gradients_[r][0].data();
    }
    a.add_gradient = unit == 0 && spec_.tied;
    return a;
  }

  std::byte* workspace() {
    workspace_.resize(model::split_sizes<T>(spec_, shares_[0], pass_.batch, pass_.tokens).workspace);
    return workspace_.data();
  }

  Rows embedding() {
    Rows sum = all(), y = own();
    for (int r = 0; r < degree_; ++r) {
      model::PieceArrays<T> a = arrays(0, r);
      a.sum = sum[r].data();
      compute_[r]->embedding().forward(pass_, 0, a);
    }
    sum = summed(sum);
    for (int r = 0; r < degree_; ++r) {
      model::PieceArrays<T> a = arrays(0, r);
      a.sum = sum[r].data();
      a.y = y[r].data();
      a.workspace = workspace();
      compute_[r]->embedding().forward(pass_, 1, a);
    }
    embedded_ = sum;
    return y;
  }

  void embedding_backward(Rows& d) {
    for (int r = 0; r < degree_; ++r) {
      model::PieceArrays<T> a = arrays(0, r);
      a.d = d[r].data();
      a.sum = embedded_[r].data();
      a.workspace = workspace();
      compute_[r]->embedding().backward(pass_, 0, a);
    }
    Rows incoming = gathered(d);
    for (int r = 0; r < degree_; ++r) {
      model::PieceArrays<T> a = arrays(0, r);
      a.incoming = incoming[r].data();
      compute_[r]->embedding().backward(pass_, 1, a);
    }
  }

  Rows block_forward(int u, const Rows& x, Block& block) {
    const model::SplitSizes sizes = model::split_sizes<T>(spec_, shares_[0], pass_.batch, pass_.tokens);
    block.saved.assign(degree_, std::vector<std::byte>(sizes.block_saved));
    block.normed1 = own();
    block.normed2 = own();
    Rows sum, y = own(), normed;
    for (int piece = 0; piece < model::kBlockPieces; ++piece) {
      if (piece % 2 == 1) sum = all(), normed = gathered(piece == 1 ? block.normed1 : block.normed2);
      for (int r = 0; r < degree_; ++r) {
        model::PieceArrays<T> a = arrays(u, r);
        a.x = x[r].data();
        a.y = y[r].data();
        a.saved = block.saved[r].data();
        a.normed = piece % 2 == 1 ? normed[r].data()
                                  : (piece == 0 ? block.normed1[r].data() : block.normed2[r].data());
        if (piece > 0) a.sum = sum[r].data();
        compute_[r]->block_forward(pass_, units_[r][u], piece, a);
      }
      if (piece % 2 == 1) sum = summed(sum);
    }
    return y;
  }

  /// No piece is given what it is not to read.
  void block_backward(int u, const Rows& x, Block& block, Rows& d) {
    const model::SplitSizes sizes = model::split_sizes<T>(spec_, shares_[0], pass_.batch, pass_.tokens);
    std::vector<std::vector<std::byte>> workspace(degree_, std::vector<std::byte>(sizes.workspace));
    const auto run = [&](int piece, Rows* normed, Rows* incoming, Rows* sum) {
      for (int r = 0; r < degree_; ++r) {
        model::PieceArrays<T> a = arrays(u, r);
        a.x = x[r].data();
        a.d = d[r].data();
        a.saved = block.saved[r].data();
        a.workspace = workspace[r].data();
        if (normed != nullptr) a.normed = (*normed)[r].data();
        if (incoming != nullptr) a.incoming = (*incoming)[r].data();
        if (sum != nullptr) a.sum = (*sum)[r].data();
        compute_[r]->block_backward(pass_, units_[r][u], piece, a);
      }
    };
    Rows incoming = own(), of_attention = own(), sum = all();
    run(0, nullptr, &incoming, nullptr);
    incoming = gathered(incoming);
    run(1, nullptr, &incoming, &sum);
    sum = summed(sum);
    Rows normed = gathered(block.normed2);
    run(2, &normed, nullptr, nullptr);
    if (!divides_rows_) run(4, nullptr, &incoming, nullptr);
    run(3, nullptr, &of_attention, &sum);
    if (divides_rows_) run(4, nullptr, &incoming, nullptr);
    of_attention = gathered(of_attention);
    sum = all();
    run(5, nullptr, &of_attention, &sum);
    sum = summed(sum);
    normed = gathered(block.normed1);
    run(6, &normed, &of_attention, nullptr);
    run(7, nullptr, nullptr, &sum);
  }

  /// A head's pieces on rows_ rows, which begin with piece `first`. `compute` does one of a rank; `d` has the
  /// derivative of x afterwards.
  template <typename F>
  void head_pieces(const Rows& x, Rows& d, std::vector<std::vector<std::byte>>& saved, int u, int first,
                   std::vector<double>& loss, const F& compute) {
    const model::SplitSizes sizes = model::split_sizes<T>(spec_, shares_[0], rows_, 1);
    const int64_t most = model::head_rows(shares_[0], rows_);
    const int pairs = model::head_pairs(shares_[0], rows_);
    std::vector<std::vector<A>> logits(degree_, std::vector<A>(sizes.logits / sizeof(A)));
    std::vector<A> numbers;
    Rows normed = own(), sum = all();
    for (int piece = 0; piece < model::head_pieces(pairs); ++piece) {
      const int64_t n = std::min(most, rows_ - std::max(0, piece - 1) / 2 * most);
      if (piece == 1) normed = gathered(normed);
      if (piece % 2 == 1) numbers.assign(std::max<int64_t>(0, degree_ * n * 3), A(0));
      if (piece + 1 == model::head_pieces(pairs)) sum = summed(sum);
      for (int r = 0; r < degree_; ++r) {
        model::PieceArrays<T> a = arrays(u, r);
        a.x = x[r].data();
        (first > 0 ? a.incoming : a.d) = d[r].data();
        a.saved = saved[r].data();
        a.normed = normed[r].data();
        a.logits = logits[r].data();
        a.numbers = numbers.data() + r * n * 3;
        a.all_numbers = numbers.data();
        a.sum = sum[r].data();
        a.loss = loss.data();
        compute(r, first + piece, a);
      }
    }
  }

  double head(int u, const Rows& x, Rows& d) {
    const A scale(1.0 / static_cast<double>(rows_));
    std::vector<double> loss(rows_);
    d = own();
    if (targets_ > 0) {
      picked_head(u, x, d, scale, loss);
    } else {
      const model::SplitSizes sizes = model::split_sizes<T>(spec_, shares_[0], pass_.batch, pass_.tokens);
      std::vector<std::vector<std::byte>> saved(degree_, std::vector<std::byte>(sizes.head_saved));
      head_pieces(x, d, saved, u, 0, loss, [&](int r, int piece, const model::PieceArrays<T>& a) {
        compute_[r]->head().step(pass_, units_[r][u], piece, scale, a);
      });
    }
    double mean = 0;
    for (const double one : loss) mean += one;
    return mean / static_cast<double>(rows_);
  }

  /// Of the rows that have targets, which are put together first.
  void picked_head(int u, const Rows& x, Rows& d, A scale, std::vector<double>& loss) {
    const int64_t targets = pass_.batch * targets_, rows = rows_;
    const model::SplitSizes sizes = model::picked_sizes<T>(spec_, shares_[0], targets);
    std::vector<std::vector<std::byte>> saved(degree_, std::vector<std::byte>(sizes.head_saved));
    rows_ = model::picked_rows(shares_[0], targets);
    own_ = divides_rows_ ? rows_ / degree_ : rows_;
    const auto compute = [&](int r, int piece, const model::PieceArrays<T>& a) {
      model::SplitMasked<T>(spec_, shares_[r], *compute_[r], targets_)
          .head(pass_, units_[r][u], piece, scale, a);
    };
    Rows picked = all(), incoming = own();
    const auto outer = [&](int piece, Rows& sum) {
      for (int r = 0; r < degree_; ++r) {
        model::PieceArrays<T> a = arrays(u, r);
        a.x = x[r].data();
        a.d = d[r].data();
        a.saved = saved[r].data();
        a.sum = a.incoming = sum[r].data();
        compute(r, piece, a);
      }
    };
    outer(0, picked);
    if (divides_rows_) picked = summed(picked);  // else every rank has all of them
    head_pieces(picked, incoming, saved, u, 1, loss, compute);
    incoming = gathered(incoming);
    outer(model::picked_head_pieces(model::head_pairs(shares_[0], rows_)) - 1, incoming);
    rows_ = rows;
    own_ = divides_rows_ ? rows_ / degree_ : rows_;
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
  int64_t rows_ = 0, own_ = 0, targets_ = 0;
  Rows embedded_;  // what an embedding's norm reads
  std::vector<std::byte> workspace_;
  const std::vector<int32_t>*token_ = nullptr, *target_ = nullptr;
  std::vector<model::Unit> whole_;
  std::vector<model::Share> shares_;
  std::vector<std::vector<model::Unit>> units_;  // of each rank
  std::vector<std::unique_ptr<model::SplitCompute<T>>> compute_;
  std::vector<std::vector<std::vector<T>>> parameters_;  // of each unit and rank
  std::vector<std::vector<std::vector<A>>> gradients_;   // of each rank and unit
};

}  // namespace loom::testing
