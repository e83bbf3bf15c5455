// A block, in the three ways to put attention and feed-forward together:
//
//   serial, pre-norm    m = x + attention(norm1(x));   y = m + feed_forward(norm2(m))
//   serial, post-norm   m = norm1(x + attention(x));   y = norm2(m + feed_forward(m))
//   parallel            y = x + attention(norm1(x)) + feed_forward(norm2(x)), where norm2 may be norm1
//
// Each sublayer is a column-parallel linear layer, what is done to its columns (heads, or the activation, or
// the activation of half of them times the other half), and a row-parallel one. Tensor rank t has the columns
// W_t of the first, W[C, N], and computes
//
//   forward  y_t[M, N/T] = x · W_t + b_t     backward  dx_t[M, C] = dy_t · W_tᵀ, a summand of dx
//
// It has the rows W_t of the second, W[K, C], and computes
//
//   forward  y_t[M, C] = x_t · W_t, a summand of y     backward  dx_t[M, K/T] = dy · W_tᵀ
//
// So all rows enter a sublayer, a summand of all rows leaves it, and ranks exchange nothing between. Backward
// does the same the other way round (Shoeybi et al., "Megatron-LM", 2019). Gradients of matrices are complete
// on their rank. The second layer's bias is added once, to the sum, as the residual is. No step waits for
// gradients of matrices, so ranks compute them while the sums travel.
#include <utility>

#include "model/recipe_builder.h"

namespace loom::model {
namespace {

class Block : RecipeBuilder {
 public:
  Block(const ModelSpec& spec, const RecipeSizes& sizes)
      : RecipeBuilder(spec, sizes),
        x_(given(Given::input, "x", divides())),
        y_(given(Given::output, "y", divides())),
        d_(given(Given::derivative, "d", divides())) {}

  Recipe make() {
    forward();
    turn();
    post() ? post_backward() : parallel() ? parallel_backward() : serial_backward();
    clear_gaps();
    return take();
  }

 private:
  bool post() const { return spec_.norms == NormPlacement::post; }
  bool parallel() const { return spec_.residual != Residual::serial; }
  bool one_norm() const { return spec_.residual == Residual::parallel_one_norm; }
  int64_t across() const { return share_.attention.width(); }
  int64_t qkv_columns() const { return share_.attention.qkv_width(); }
  int64_t hidden() const { return share_.feed_forward; }
  int64_t up_columns() const { return spec_.up_columns(hidden()); }
  int64_t row_elements() const { return rows() * width(); }
  int64_t own_elements() const { return own() * width(); }

  int entering(int part) { return enter(part, "gathered rows", row_elements()); }
  int leaving(int summand) { return leave(summand, "sum", own_elements()); }
  int summand() { return values("summand", row_elements()); }

  void residual(Site site, Part bias, int from, int product, int to) {
    Step& made = on(Kernel::residual, {from, product}, {to}, own(), width());
    made.part = bias;
    made.site = site;
    made.probability = spec_.residual_dropout;
    made.per_sample = sizes_.tokens;
    made.own = true;
  }
  int through_dropout(Site site) {
    return through(site, spec_.residual_dropout, d_, own(), sizes_.tokens, "masked");
  }
  Step& heads(Kernel kernel, std::initializer_list<int> reads, std::initializer_list<int> writes) {
    Step& made = on(kernel, reads, writes, rows(), across());
    made.out = share_.attention.key_width();
    return made;
  }
  void add(int a, int b, int sum) { on(Kernel::add, {a, b}, {sum}, own(), width()); }

  void forward() {
    int attention_reads = x_;
    if (!post()) attention_reads = (norm1_ = norm(Part::norm1_weight, x_, "normed", own())).y;
    read1_ = attention_reads;
    const int product = attention(entering(attention_reads));
    int feed_forward_reads = read1_;
    if (post()) {
      sum1_ = values("sum", own_elements());
      residual(Site::projection, Part::projection_bias, x_, product, sum1_);
      norm1_ = norm(Part::norm1_weight, sum1_, "middle", own());
      feed_forward_reads = middle_ = norm1_.y;
    } else {
      middle_ = parallel() ? y_ : values("middle", own_elements());
      residual(Site::projection, Part::projection_bias, x_, product, middle_);
      if (!one_norm())
        feed_forward_reads =
            (norm2_ = norm(Part::norm2_weight, parallel() ? x_ : middle_, "normed", own())).y;
    }
    read2_ = feed_forward_reads;
    const int more = feed_forward(entering(feed_forward_reads));
    if (!post()) return residual(Site::feed_forward, Part::down_bias, middle_, more, y_);
    sum2_ = values("sum", own_elements());
    residual(Site::feed_forward, Part::down_bias, middle_, more, sum2_);
    norm2_ = norm_into(y_, Part::norm2_weight, sum2_, own());
  }

  int attention(int x) {
    const AttentionGeometry& most = largest_.attention;
    qkv_ = values("qkv", rows() * most.qkv_width());
    heads_ = values("heads", rows() * most.width());
    log_sums_ = sums("log-sums", rows() * most.query_heads);
    product(Kernel::linear, Part::qkv_weight, {x}, {qkv_}, rows(), width(), qkv_columns());
    if (spec_.head_norms) {
      projected_ = std::exchange(qkv_, values("normed qkv", rows() * most.qkv_width()));
      deviations_ = sums("deviations of heads", rows() * (most.query_heads + most.key_value_heads));
      heads(Kernel::head_norm, {projected_}, {qkv_, deviations_});
    }
    if (spec_.rotary()) heads(Kernel::rotary, {qkv_}, {qkv_});
    heads(Kernel::attention, {qkv_}, {heads_, log_sums_});
    const int made = summand();
    product(Kernel::linear, Part::projection_weight, {heads_}, {made}, rows(), across(), width()).adds = true;
    return leaving(made);
  }

  int feed_forward(int x) {
    hidden_ = values("hidden", rows() * spec_.up_columns(largest_.feed_forward));
    activated_ = values("activated", rows() * largest_.feed_forward);
    product(Kernel::linear, Part::up_weight, {x}, {hidden_}, rows(), width(), up_columns());
    on(spec_.gated ? Kernel::gated : Kernel::activation, {hidden_}, {activated_}, rows(), hidden())
        .activation = spec_.activation;
    const int made = summand();
    product(Kernel::linear, Part::down_weight, {activated_}, {made}, rows(), hidden(), width()).adds = true;
    return leaving(made);
  }

  /// The sublayers backward: the derivative with respect to what each read, from that of its output.
  int attention_backward(int incoming, int read) {
    const AttentionGeometry& most = largest_.attention;
    const int dheads = values("dheads", rows() * most.width()),
              dqkv = values("dqkv", rows() * most.qkv_width());
    product(Kernel::linear_input, Part::projection_weight, {incoming}, {dheads}, rows(), across(), width());
    heads(Kernel::attention_gradient, {qkv_, heads_, log_sums_, dheads}, {dqkv});
    if (spec_.rotary()) heads(Kernel::rotary, {dqkv}, {dqkv}).adds = true;
    if (spec_.head_norms) heads(Kernel::head_norm_gradient, {projected_, deviations_, dqkv}, {dqkv});
    const int made = summand();
    product(Kernel::linear_input, Part::qkv_weight, {dqkv}, {made}, rows(), width(), qkv_columns());
    const int sum = leaving(made);
    product(Kernel::linear_weight, Part::qkv_weight, {read, dqkv}, {}, rows(), width(), qkv_columns());
    product(Kernel::linear_weight, Part::projection_weight, {heads_, incoming}, {}, rows(), across(),
            width());
    return sum;
  }
  int feed_forward_backward(int incoming, int read) {
    const int dactivated = values("dactivated", rows() * largest_.feed_forward);
    const int dhidden =
        spec_.gated ? values("dhidden", rows() * spec_.up_columns(largest_.feed_forward)) : dactivated;
    product(Kernel::linear_input, Part::down_weight, {incoming}, {dactivated}, rows(), hidden(), width());
    on(spec_.gated ? Kernel::gated_gradient : Kernel::activation_gradient, {hidden_, dactivated}, {dhidden},
       rows(), hidden())
        .activation = spec_.activation;
    const int made = summand();
    product(Kernel::linear_input, Part::up_weight, {dhidden}, {made}, rows(), width(), up_columns());
    const int sum = leaving(made);
    product(Kernel::linear_weight, Part::up_weight, {read, dhidden}, {}, rows(), width(), up_columns());
    return sum;
  }
  /// Stands where something else travels: the rows of what enters attention, or else the sum before it.
  void down_gradient(int incoming) {
    product(Kernel::linear_weight, Part::down_weight, {activated_, incoming}, {}, rows(), hidden(), width());
  }
  /// What enters attention backward, with what it read; down_gradient() meanwhile.
  struct Entered {
    int incoming, read;
  };
  Entered enter_attention(int of_feed_forward) {
    const int own = through_dropout(Site::projection);
    const Entered entered{entering(own), entering(read1_)};
    if (divides()) down_gradient(of_feed_forward);
    return entered;
  }

  /// The first half of each backward: what leaves feed-forward, and what entered it.
  struct Half {
    int sum, incoming;
  };
  Half feed_forward_half() {
    const int own = through_dropout(Site::feed_forward);
    const int incoming = entering(own), read = entering(read2_);
    const int sum = feed_forward_backward(incoming, read);
    if (!divides()) down_gradient(incoming);
    return {sum, incoming};
  }
  int attention_half(int of_feed_forward) {
    const Entered entered = enter_attention(of_feed_forward);
    return attention_backward(entered.incoming, entered.read);
  }

  void serial_backward() {
    const Half half = feed_forward_half();
    norm_gradient(Part::norm2_weight, middle_, norm2_, half.sum, d_, true, own());
    const int sum = attention_half(half.incoming);
    norm_gradient(Part::norm1_weight, x_, norm1_, sum, d_, true, own());
  }
  void post_backward() {
    norm_gradient(Part::norm2_weight, sum2_, norm2_, d_, d_, false, own());
    const Half half = feed_forward_half();
    add(d_, half.sum, d_);
    norm_gradient(Part::norm1_weight, sum1_, norm1_, d_, d_, false, own());
    add(d_, attention_half(half.incoming), d_);
  }
  /// Both halves read d before either adds to it.
  void parallel_backward() {
    const Half half = feed_forward_half();
    const int sum = attention_half(half.incoming);
    if (one_norm()) add(sum, half.sum, sum);
    else norm_gradient(Part::norm2_weight, x_, norm2_, half.sum, d_, true, own());
    norm_gradient(Part::norm1_weight, x_, norm1_, sum, d_, true, own());
  }

  /// Zeros between parameters and behind them. The step stands behind one that writes gradients and whose
  /// successor is never fused with it, so that it is part of the same instruction.
  void clear_gaps() {
    const auto first = std::ranges::find(steps(), Kernel::linear_weight, &Step::kernel);
    Step clear;
    clear.kernel = Kernel::clear;
    clear.rows = clear.of_rows = 1;
    steps().insert(first + 1, clear);
  }

  const int x_, y_, d_;
  Normed norm1_{}, norm2_{};
  int read1_ = -1, read2_ = -1;  // what attention and feed-forward read, of own rows
  int middle_ = -1, sum1_ = -1, sum2_ = -1;
  int projected_ = -1, deviations_ = -1;  // of heads that are normed: q, k and v before
  int qkv_ = -1, heads_ = -1, log_sums_ = -1, hidden_ = -1, activated_ = -1;
};

}  // namespace

Recipe block_recipe(const ModelSpec& spec, const RecipeSizes& sizes) { return Block(spec, sizes).make(); }

}  // namespace loom::model
