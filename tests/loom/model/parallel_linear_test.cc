// Linear layers divided by columns and by rows: what the ranks make together is the whole layer's, in fp64.
#include <algorithm>

#include "model/runner.h"
#include "model/split.h"
#include "model/whole_model.h"
#include "ops/arrays.h"

namespace loom::testing {
namespace {

using model::Part;

constexpr int64_t kRows = 5;
constexpr double kClose = 1e-12;

/// One layer with its bias, as a unit of its own.
struct Layer {
  int64_t in, out;
  model::Unit unit;
  Doubles parameters, x, dy;

  Layer(Part weight, int64_t inner, int64_t outer) : in(inner), out(outer) {
    add(weight, {static_cast<uint64_t>(in), static_cast<uint64_t>(out)});
    add(model::bias_of(weight), {static_cast<uint64_t>(out)});
    parameters = random_values(unit.elements, 1);
    x = random_values(kRows * in, 2);
    dy = random_values(kRows * out, 3);
  }

  const double* weight() const { return parameters.data() + unit.parameters[0].offset; }
  const double* bias() const { return parameters.data() + unit.parameters[1].offset; }

  Doubles y() const {
    Doubles y(kRows * out);
    for (int64_t m = 0; m < kRows; ++m)
      for (int64_t n = 0; n < out; ++n) {
        y[m * out + n] = bias()[n];
        for (int64_t k = 0; k < in; ++k) y[m * out + n] += x[m * in + k] * weight()[k * out + n];
      }
    return y;
  }
  Doubles dx() const {
    Doubles dx(kRows * in);
    for (int64_t m = 0; m < kRows; ++m)
      for (int64_t k = 0; k < in; ++k)
        for (int64_t n = 0; n < out; ++n) dx[m * in + k] += dy[m * out + n] * weight()[k * out + n];
    return dx;
  }
  Doubles gradient() const {
    Doubles gradient(unit.elements);
    for (int64_t m = 0; m < kRows; ++m)
      for (int64_t n = 0; n < out; ++n) {
        gradient[unit.parameters[1].offset + n] += dy[m * out + n];
        for (int64_t k = 0; k < in; ++k)
          gradient[unit.parameters[0].offset + k * out + n] += x[m * in + k] * dy[m * out + n];
      }
    return gradient;
  }

 private:
  void add(Part part, std::vector<uint64_t> shape) {
    model::Parameter parameter;
    parameter.part = part;
    parameter.shape = std::move(shape);
    parameter.offset = unit.elements;
    unit.elements +=
        (parameter.elements() + model::Unit::kAlign - 1) / model::Unit::kAlign * model::Unit::kAlign;
    unit.parameters.push_back(std::move(parameter));
  }
};

/// What one rank has of a layer.
struct Held {
  model::Unit unit;
  std::vector<model::Run> runs;
  Doubles parameters, gradient;

  Held(const Layer& layer, model::TensorRank tensor)
      : unit(model::held_by(tensor, layer.unit)),
        runs(model::runs_of(layer.unit, tensor)),
        parameters(unit.elements),
        gradient(unit.elements) {
    for (const model::Run& run : runs)
      std::copy_n(layer.parameters.begin() + run.whole, run.length, parameters.begin() + run.held);
  }

  /// Numbers among the whole parameter's of those elements that are here, in their order here.
  std::vector<int64_t> elements_of(const model::Parameter& whole) const {
    std::vector<int64_t> elements;
    for (const model::Run& run : runs)
      for (int64_t i = run.whole; i < run.whole + run.length; ++i)
        if (i >= whole.offset && i < whole.offset + whole.elements()) elements.push_back(i - whole.offset);
    return elements;
  }
};

/// The steps of a layer on one rank, each alone. A layer of summands has no bias of its own.
struct Linear {
  Part part;
  int64_t in, out;
  bool summand;

  /// Of the kernel's first array and its second, which is its result but where gradients are.
  void run(model::Kernel kernel, Held& held, const Doubles& first, const Doubles& second) const {
    model::Recipe recipe;
    recipe.arrays = {{"first", model::Place::given, model::Given::input},
                     {"second", model::Place::given, model::Given::output}};
    model::Step step;
    step.kernel = kernel;
    step.part = part;
    step.rows = kRows;
    step.in = in;
    step.out = out;
    step.adds = summand;
    step.reads = {0, 1, -1, -1, -1};
    step.writes[0] = 1;
    model::Bound<double> bound;
    bound.parameters = held.parameters.data();
    bound.gradient = held.gradient.data();
    bound.give(model::Given::input, first.data());
    bound.give(model::Given::output, second.data());
    Workers workers(1);
    model::Pass pass;
    pass.context = workers;
    const model::ModelSpec spec = small_spec();
    model::Runner<double>(spec, model::Share::whole(spec)).run(pass, held.unit, recipe, {&step, 1}, bound);
  }
};

/// Columns of a matrix with `width` of them.
Doubles columns_of(const Doubles& matrix, int64_t width, const std::vector<int64_t>& columns) {
  Doubles some;
  for (int64_t row = 0; row < kRows; ++row)
    for (const int64_t column : columns) some.push_back(matrix[row * width + column]);
  return some;
}
void place_columns(const Doubles& some, const std::vector<int64_t>& columns, int64_t width, Doubles& matrix) {
  for (int64_t row = 0; row < kRows; ++row)
    for (size_t c = 0; c < columns.size(); ++c)
      matrix[row * width + columns[c]] =
          some[row * static_cast<int64_t>(columns.size()) + static_cast<int64_t>(c)];
}

void add_to(Doubles& sum, const Doubles& more) {
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
}

void put_back(const Held& held, Doubles& whole) {
  for (const model::Run& run : held.runs)
    std::copy_n(held.gradient.begin() + run.held, run.length, whole.begin() + run.whole);
}

/// Queries, keys and values of 12 columns each, and a hidden layer of 10, which 3 and 4 do not divide.
TEST(ParallelLinear, ColumnsOfAllRanksAreTheWholeLayer) {
  for (const auto& [part, out] : {std::pair{Part::qkv_weight, 36}, {Part::up_weight, 10}})
    for (const int degree : {1, 2, 3, 4}) {
      const Layer layer(part, 7, out);
      Doubles y(kRows * out, NAN), dx(kRows * layer.in), gradient(layer.unit.elements);
      for (int rank = 0; rank < degree; ++rank) {
        Held held(layer, {degree, rank});
        const std::vector<int64_t> columns = held.elements_of(layer.unit.parameters[1]);
        const auto count = static_cast<int64_t>(columns.size());
        ASSERT_EQ(held.unit.find(part)->columns(), count);
        const Linear linear{part, layer.in, count, false};
        Doubles own_y(kRows * count), own_dx(kRows * layer.in);
        const Doubles own_dy = columns_of(layer.dy, out, columns);
        linear.run(model::Kernel::linear, held, layer.x, own_y);
        linear.run(model::Kernel::linear_input, held, own_dy, own_dx);
        linear.run(model::Kernel::linear_weight, held, layer.x, own_dy);
        place_columns(own_y, columns, out, y);
        add_to(dx, own_dx);
        put_back(held, gradient);
      }
      EXPECT_LT(error_of(y, layer.y()), kClose) << out << " columns, " << degree << " ranks";
      EXPECT_LT(error_of(dx, layer.dx()), kClose) << out << " columns, " << degree << " ranks";
      EXPECT_LT(error_of(gradient, layer.gradient()), kClose) << out << " columns, " << degree << " ranks";
    }
}

TEST(ParallelLinear, SummandsOfAllRanksAndOneBiasAreTheWholeLayer) {
  for (const auto& [part, in] : {std::pair{Part::projection_weight, 12}, {Part::down_weight, 10}})
    for (const int degree : {1, 2, 3, 4}) {
      const Layer layer(part, in, 7);
      Doubles sum(kRows * layer.out), dx(kRows * in, NAN), gradient(layer.unit.elements);
      for (int64_t m = 0; m < kRows; ++m) std::copy_n(layer.bias(), layer.out, sum.begin() + m * layer.out);
      for (int rank = 0; rank < degree; ++rank) {
        Held held(layer, {degree, rank});
        std::vector<int64_t> inner;  // rows of the matrix, and columns of x
        for (const int64_t element : held.elements_of(layer.unit.parameters[0]))
          if (element % layer.out == 0) inner.push_back(element / layer.out);
        const auto count = static_cast<int64_t>(inner.size());
        ASSERT_EQ(held.unit.find(part)->shape[0], inner.size());
        const Linear linear{part, count, layer.out, true};
        const Doubles own_x = columns_of(layer.x, in, inner);
        Doubles summand(kRows * layer.out), own_dx(kRows * count);
        linear.run(model::Kernel::linear, held, own_x, summand);
        linear.run(model::Kernel::linear_input, held, layer.dy, own_dx);
        linear.run(model::Kernel::linear_weight, held, own_x, layer.dy);
        add_to(sum, summand);
        place_columns(own_dx, inner, in, dx);
        const Doubles before = gradient;
        put_back(held, gradient);
        for (int64_t n = layer.unit.parameters[1].offset;
             rank > 0 && n < layer.unit.parameters[1].offset + layer.out; ++n)
          EXPECT_EQ(gradient[n], before[n]) << "the bias's gradient is another on rank " << rank;
      }
      EXPECT_LT(error_of(sum, layer.y()), kClose) << in << " rows, " << degree << " ranks";
      EXPECT_LT(error_of(dx, layer.dx()), kClose) << in << " rows, " << degree << " ranks";
      EXPECT_LT(error_of(gradient, layer.gradient()), kClose) << in << " rows, " << degree << " ranks";
    }
}

}  // namespace
}  // namespace loom::testing
