// The whole way of a step is checked: parameters come from a checkpoint, the loss is an evaluation's, and the
// gradient is the first moment that AdamW leaves in a checkpoint where beta1 is 0. So there is one source for
// CPUs and GPUs, and nothing beside the engine's interface.
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>

#include "engine/engine.h"
#include "engine/rank_state.h"
#include "loom/probe.h"
#include "model/families.h"
#include "model/families/family.h"
#include "model/objectives/objective.h"

namespace loom::probe {
namespace {

using Values = std::vector<std::vector<float>>;  // of each unit

class Folder {
 public:
  static Result<Folder> make() {
    std::string path = (std::filesystem::temp_directory_path() / "loom_probe.XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) return fail_errno(errno, path);
    return Folder(path);
  }
  Folder(Folder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  explicit Folder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

program::Job job_of(const GradientOptions& o, model::Family family, model::Task task) {
  program::Job job;
  job.spec = *model::choices_of(family, task);
  job.spec.vocabulary = 53;
  job.spec.context = job.tokens = o.tokens;
  job.spec.width = o.width;
  job.spec.layers = o.layers;
  job.spec.heads = 2;
  job.spec.window = o.tokens / 2;
  if (job.spec.gated) job.spec.key_value_heads = 1;
  if (task == model::Task::classification) job.spec.labels = 3;
  if (task != model::Task::causal) job.spec.padding = 1;
  model::complete(job.spec);
  job.batch = o.batch;
  job.targets = task == model::Task::classification ? 1 : task == model::Task::masked ? o.tokens / 2 : 0;
  return job;
}

/// A model at a checkpoint, whose parameters can be set.
class Model {
 public:
  Model(engine::Engine& engine, const program::Job& job, std::string folder)
      : engine_(engine), parts_(engine::state_parts(job)), folder_(std::move(folder)) {}

  /// What the checkpoint has of every unit, as saved now: part 0 are parameters, part 1 first moments.
  Result<Values> get(size_t part) {
    LOOM_TRY(engine_.save_state(folder_, true));
    const Result<format::FlatLayout> layout = engine_.state_layout(0, 0, true);
    LOOM_TRY(layout.status());
    const format::FlatReader reader(folder_, *layout);
    Values values;
    for (const model::Unit& unit : engine_.units()) {
      values.emplace_back(static_cast<size_t>(unit.elements));
      LOOM_TRY(reader.read(engine::state_part_name(unit, parts_[part]), 0, values.back()));
    }
    return values;
  }
  Status set(const Values& parameters) {
    const Result<format::FlatLayout> layout = engine_.state_layout(0, 0, false);
    LOOM_TRY(layout.status());
    Result<format::FlatWriter> writer = format::FlatWriter::create(folder_, *layout, 0);
    LOOM_TRY(writer.status());
    for (const model::Unit& unit : engine_.units())
      LOOM_TRY(writer->write(engine::state_part_name(unit, parts_.front()),
                             parameters[static_cast<size_t>(unit.index)]));
    LOOM_TRY(writer->finish());
    engine::StateReaders readers(1);
    readers[0].push_back(std::make_unique<format::FlatReader>(folder_, *layout));
    return engine_.load_state(readers);
  }
  Result<double> loss_at(const Values& parameters) {
    LOOM_TRY(set(parameters));
    return engine_.evaluate();
  }
  /// Of the loss at the parameters that are set, which stay as they are.
  Result<Values> gradient(double& loss) {
    engine::StepSettings settings;
    settings.optimizer.learning_rate = 0;
    settings.optimizer.beta1 = 0;
    const Result<engine::StepResult> step = engine_.step(settings);
    LOOM_TRY(step.status());
    loss = step->loss;
    return get(1);
  }

 private:
  engine::Engine& engine_;
  std::vector<std::string_view> parts_;
  std::string folder_;
};

/// Weights large enough for attention and logits to tell tokens apart, and norms and biases that are not all
/// alike. Gaps between parameters stay zeros.
void spread(std::span<const model::Unit> units, Values& values, std::mt19937& random) {
  std::normal_distribution<float> normal;
  for (const model::Unit& unit : units)
    for (const model::Parameter& parameter : unit.parameters)
      for (int64_t i = parameter.offset; i < parameter.offset + parameter.elements(); ++i) {
        float& value = values[static_cast<size_t>(unit.index)][static_cast<size_t>(i)];
        value = parameter.init == model::Init::normal ? value * 8 : value + 0.1f * normal(random);
      }
}

/// Each token follows from the one before; sequences of different lengths where padding is known.
void fill(engine::Engine& engine) {
  const program::Job& job = engine.job();
  const std::span<int32_t> tokens = engine.tokens(0), targets = engine.targets(0);
  for (int64_t b = 0; b < job.batch; ++b)
    for (int64_t t = 0; t < job.tokens; ++t) {
      const auto at = static_cast<size_t>(b * job.tokens + t);
      const bool padding = job.spec.padding >= 0 && t >= job.tokens - b % 3;
      tokens[at] = padding ? job.spec.padding : static_cast<int32_t>(2 + (t * t + b * 7) % 50);
      targets[at] = static_cast<int32_t>(2 + ((t + 1) * (t + 1) + b * 7) % 50);
      if (job.spec.task == model::Task::masked && (t % 2 == 1 || padding)) targets[at] = -1;
      if (job.spec.task == model::Task::classification)
        targets[at] = t == 0 ? static_cast<int32_t>(b % 3) : -1;
    }
}

/// A parameter of one of the units.
struct Place {
  size_t unit, offset, elements;
  std::string name;

  std::span<const float> of(const Values& values) const {
    return std::span(values[unit]).subspan(offset, elements);
  }
  std::span<float> of(Values& values) const { return std::span(values[unit]).subspan(offset, elements); }
};

/// All parameters, or `most` of them.
std::vector<Place> places_of(std::span<const model::Unit> units, int most) {
  std::vector<Place> all;
  for (const model::Unit& unit : units)
    for (const model::Parameter& parameter : unit.parameters)
      all.push_back({static_cast<size_t>(unit.index), static_cast<size_t>(parameter.offset),
                     static_cast<size_t>(parameter.elements()), parameter.name});
  if (most == 0 || static_cast<size_t>(most) >= all.size()) return all;
  std::vector<Place> some;
  for (size_t i = 0; i < static_cast<size_t>(most); ++i)
    some.push_back(all[i * all.size() / static_cast<size_t>(most)]);
  return some;
}

double product(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * b[i];
  return sum;
}

/// (loss at `at` + width · direction - loss at `at` - width · direction) / (2 · width).
Result<double> difference(Model& model, const Values& at, const Place& place,
                          std::span<const float> direction, float width) {
  double losses[2];
  for (const int side : {0, 1}) {
    Values moved = at;
    const std::span<float> values = place.of(moved);
    for (size_t i = 0; i < values.size(); ++i) values[i] += (side == 1 ? width : -width) * direction[i];
    const Result<double> loss = model.loss_at(moved);
    LOOM_TRY(loss.status());
    losses[side] = *loss;
  }
  return (losses[1] - losses[0]) / (2 * double{width});
}

struct Worst {
  double error = 0;
  std::string parameter;
};

/// The slope of the loss along a random direction of length 1 of each parameter: by the gradient, and by
/// differences of two widths, whose error of the second order is taken out (Richardson, 1911). An error is a
/// part of the slope, but of no smaller one than the gradient's length lets expect.
Result<Worst> compare(Model& model, const std::vector<Place>& places, const Values& at,
                      const Values& gradient, std::mt19937& random) {
  constexpr float kWidth = 0.1f;
  constexpr double kLeast = 1e-3;  // of the longest gradient: what is less is rounding
  std::normal_distribution<float> normal;
  const auto length = [&](const Place& place) {
    return std::sqrt(product(place.of(gradient), place.of(gradient)));
  };
  double longest = 0;
  for (const Place& place : places) longest = std::max(longest, length(place));
  Worst worst;
  for (const Place& place : places) {
    std::vector<float> direction(place.elements);
    for (float& value : direction) value = normal(random);
    const auto longer = static_cast<float>(std::sqrt(product(direction, direction)));
    for (float& value : direction) value /= longer;
    const Result<double> wide = difference(model, at, place, direction, kWidth),
                         narrow = difference(model, at, place, direction, kWidth / 2);
    LOOM_TRY(wide.status());
    LOOM_TRY(narrow.status());
    const double wanted = (4 * *narrow - *wide) / 3, got = product(place.of(gradient), direction);
    const double expected =
        std::max(length(place), kLeast * longest) / std::sqrt(static_cast<double>(place.elements));
    const double error = std::abs(got - wanted) / std::max({std::abs(wanted), std::abs(got), expected});
    if (error >= worst.error) worst = {error, place.name};
  }
  return worst;
}

Status check(const GradientOptions& o, model::Family family, model::Task task, bool& wrong) {
  const program::Job job = job_of(o, family, task);
  LOOM_TRY(job.check());
  const Result<engine::Groups> groups = engine::Groups::create(nullptr, {}, false, o.gpu);
  LOOM_TRY(groups.status());
  const Result<std::unique_ptr<engine::Engine>> made = engine::Engine::create(job, *groups, {.gpu = o.gpu});
  LOOM_TRY(made.status());
  engine::Engine& engine = **made;
  const Result<Folder> folder = Folder::make();
  LOOM_TRY(folder.status());
  Model model(engine, job, folder->path());
  std::mt19937 random(1);
  LOOM_TRY(engine.initialize(3));
  fill(engine);
  Result<Values> at = model.get(0);
  LOOM_TRY(at.status());
  spread(engine.units(), *at, random);
  const Result<double> evaluated = model.loss_at(*at);
  LOOM_TRY(evaluated.status());
  double loss = 0;
  const Result<Values> gradient = model.gradient(loss);
  LOOM_TRY(gradient.status());
  const Result<Worst> worst = compare(model, places_of(engine.units(), o.parameters), *at, *gradient, random);
  LOOM_TRY(worst.status());
  const bool right = worst->error <= o.tolerance && std::abs(loss - *evaluated) <= 1e-5 * loss;
  wrong = wrong || !right;
  fmt::print(R"({{"family": "{}", "task": "{}", "device": "{}", "loss": {:.6f}, "evaluated": {:.6f}, )"
             R"("worst relative error": {:.2e}, "of": "{}", "right": {}}})"
             "\n",
             model::family_name(family), model::objective_of(task).name, o.gpu < 0 ? "CPUs" : "GPU", loss,
             *evaluated, worst->error, worst->parameter, right);
  std::fflush(stdout);
  return {};
}

}  // namespace

Status check_gradients(const GradientOptions& options) {
  for (const std::string& name : options.families) LOOM_TRY(model::family_from(name).status());
  bool wrong = false;
  for (const model::FamilyDescription* const described : model::descriptions()) {
    const model::Family family = described->family;
    if (!options.families.empty() && std::ranges::count(options.families, described->name) == 0) continue;
    for (const model::Objective* const objective : model::objectives())
      if (model::choices_of(family, objective->task).ok())
        LOOM_TRY(check(options, family, objective->task, wrong)
                     .in(fmt::format("{}, {}", described->name, objective->name)));
  }
  return wrong ? fail(Code::invalid_data, "a gradient is further from the differences than {}",
                      options.tolerance)
               : Status();
}

}  // namespace loom::probe
