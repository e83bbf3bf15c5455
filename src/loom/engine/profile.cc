// Each kind of unit by itself, on buffers of its own.
#include "engine/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <new>
#include <tuple>
#include <type_traits>

#include "base/process_memory.h"
#include "engine/painted.h"
#include "model/batch_layout.h"
#include "model/runner.h"

namespace loom::engine {
namespace {

/// Of the machine's memory, that measuring may take: the rest is for other ranks, and for the system.
constexpr double kOfMachine = 0.75;

int64_t largest_unit(const program::Job& job) {
  int64_t most = 0;
  for (const model::Unit& unit : model::units_of(job.spec)) most = std::max(most, unit.elements);
  return most;
}

double steady_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Of one rank that has whole units.
template <typename T>
model::RecipeSizes whole_sizes(const program::Job& job) {
  model::RecipeSizes sizes =
      model::sizes_for<T>(model::Share::whole(job.spec), job.batch, job.tokens, job.targets);
  sizes.packed = job.packed;
  return sizes;
}

template <typename T>
model::BufferSizes bytes_for(const program::Job& job) {
  const model::RecipeSizes sizes = whole_sizes<T>(job);
  return model::buffer_sizes(job.spec, sizes, model::Recipes(job.spec, sizes));
}

/// Whether parameters are copies of masters, of another type.
template <typename T>
constexpr bool kCopies = !std::is_same_v<T, acc_t<T>>;

/// What a unit has from step to step, as the plan has it for one rank, and what its calls work on.
template <typename T>
struct UnitBuffers {
  using A = acc_t<T>;
  UnitBuffers(const ops::Optimizer& optimizer, int64_t elements, int64_t output_bytes, int64_t saved_bytes,
              int64_t workspace_bytes)
      : master(elements * static_cast<int64_t>(sizeof(A))),
        gradient(master.bytes()),
        copies(kCopies<T> ? elements * static_cast<int64_t>(sizeof(T)) : 0),
        output(output_bytes),
        saved(saved_bytes),
        workspace(workspace_bytes) {
    for (size_t slot = 0; slot < optimizer.slots.size(); ++slot) slots.emplace_back(master.bytes());
  }

  T* parameters() {
    if constexpr (kCopies<T>) return copies.as<T>();
    else return master.as<T>();
  }

  Painted master, gradient, copies, output, saved, workspace;
  std::vector<Painted> slots;
};

template <typename T>
class Profile {
 public:
  using A = acc_t<T>;
  using Buffers = UnitBuffers<T>;
  using Bound = model::Bound<T>;

  Profile(const program::Job& job, int threads, const ProfileSettings& settings)
      : job_(job),
        settings_(settings),
        units_(model::units_of(job.spec)),
        recipes_(job.spec, whole_sizes<T>(job)),
        sizes_(bytes_for<T>(job)),
        workers_(threads),
        runner_(job.spec, model::Share::whole(job.spec)),
        op_(ops::operators<T>()) {
    if (!settings_.clock_us) settings_.clock_us = steady_us;
    end_us_ = settings_.clock_us() + settings_.seconds * 1e6;
    pass_.context = workers_;
    pass_.spec = &job.spec;
    pass_.batch = job.batch;
    pass_.tokens = job.tokens;
    pass_.training = true;
    const size_t rows = static_cast<size_t>(pass_.rows()), width = static_cast<size_t>(job.spec.width);
    x_.resize(rows * width);
    for (T& value : x_) store(value, 0.5f);
    d_ = x_;
    token_.assign(rows, 0);
    target_.assign(rows, -1);
    const int64_t targets = job.head_rows() / job.batch;  // of each sequence the first
    for (int64_t sequence = 0; sequence < job.batch; ++sequence)
      std::fill_n(target_.begin() + sequence * job.tokens, targets, 0);
    losses_.resize(rows);
    const model::BatchLayout layout(job.spec, whole_sizes<T>(job));
    arrays_.resize(static_cast<size_t>(layout.bytes()));
    pass_.arrays = layout.fill(token_.data(), target_.data(), -1, arrays_.data(), arrays_.data());
    pass_.arrays.lengths = nullptr;  // all sequences are as long as they can be
  }

  const Workers& workers() const { return workers_; }
  std::vector<UnitProfile> run() {
    // Blocks first: there are most of them, and what there is no time for is modelled by their times.
    std::vector<UnitProfile> profiles(units_.size());
    std::map<std::tuple<int64_t, int64_t, bool>, UnitProfile> seen;
    for (size_t unit = 1; unit + 1 < units_.size(); ++unit) {
      const int64_t window = job_.spec.window_of(units_[unit].index - 1);
      const std::tuple kind(units_[unit].elements, window < job_.tokens ? window : 0,
                            job_.recomputes(units_[unit].index));
      auto known = seen.find(kind);
      if (known == seen.end()) {
        known = seen.emplace(kind, block(units_[unit])).first;
        known->second.kind = static_cast<double>(seen.size());
      }
      profiles[unit] = known->second;
    }
    profiles.back() = head();
    profiles.back().kind = static_cast<double>(seen.size() + 1);
    profiles.front() = embedding();
    model_the_rest(profiles);
    return profiles;
  }

 private:
  bool late() const { return settings_.clock_us() >= end_us_; }

  /// Parameters as training begins with them: what they are does not matter much, but zeros would be too
  /// easy. `masters` and `parameters` may be the same.
  void make_parameters(const model::Unit& unit, A* masters, T* parameters) {
    model::initialize(workers_, unit, 1, 0, {masters, static_cast<size_t>(unit.elements)});
    if constexpr (kCopies<T>) op_.convert(workers_, masters, parameters, unit.elements);
    else if (parameters != masters) std::copy_n(masters, unit.elements, parameters);
  }

  /// `again`: whether backward begins with forward. `bound` has what is not the unit's own.
  UnitProfile measure(const model::Unit& unit, const model::Recipe& recipe, bool again, Bound bound) {
    const bool leaves = unit.kind != model::UnitKind::head;  // an output, and something for backward
    const int64_t elements = job_.padded(unit), output = leaves ? sizes_.activation : 0,
                  saved = unit.kind == model::UnitKind::block ? sizes_.saved : 0,
                  workspace = sizes_.workspace_of(unit.kind);
    const auto amount = [](int64_t measured, int64_t planned) {
      return Amount{static_cast<double>(measured), static_cast<double>(planned)};
    };
    UnitProfile profile;
    profile.state.planned = static_cast<double>(elements * job_.state_bytes());
    profile.saved.planned = static_cast<double>(output + saved);
    profile.workspace.planned = static_cast<double>(workspace);
    if (late()) {
      profile.measured = 0;
      return profile;
    }
    Buffers b(*job_.optimizer, elements, output, saved, workspace);
    make_parameters(unit, b.master.template as<A>(), b.parameters());
    bound.parameters = b.parameters();
    bound.gradient = b.gradient.template as<A>();
    bound.gradient_elements = elements;
    bound.saved = b.saved.as();
    bound.workspace = b.workspace.as();
    bound.give(model::Given::output, b.output.template as<T>());
    const auto forward = [&] { runner_.run(pass_, unit, recipe, recipe.forward, bound); };
    const auto backward = [&] { runner_.run(pass_, unit, recipe, recipe.backward, bound); };
    const auto time_us = [&](const auto& work) {
      const double begin = settings_.clock_us();
      work();
      return settings_.clock_us() - begin;
    };
    profile.time_us = time_us(forward);
    profile.saved = amount(b.output.written_bytes() + b.saved.written_bytes(), output + saved);
    profile.time_us += time_us([&] {
      if (again) forward();
      backward();
    });
    // The first does not count, unless there is no time for a second one.
    for (int repeat = 0; repeat < settings_.repeats && !late(); ++repeat) {
      const double us = time_us([&] {
        forward();
        if (again) forward();
        backward();
      });
      profile.time_us = repeat == 0 ? us : std::min(profile.time_us, us);
    }
    profile.workspace = amount(b.workspace.written_bytes(), workspace);
    update(b, elements);
    int64_t written = b.master.written_bytes() + b.gradient.written_bytes() + b.copies.written_bytes();
    for (const Painted& slot : b.slots) written += slot.written_bytes();
    profile.state = amount(written, elements * job_.state_bytes());
    return profile;
  }

  void update(Buffers& b, int64_t elements) {
    ops::AdamW settings;
    settings.learning_rate = 1e-3f;
    ops::Slots<A> slots;
    for (size_t i = 0; i < b.slots.size(); ++i) slots.at[i] = b.slots[i].template as<A>();
    op_.update(workers_, settings, b.gradient.template as<A>(), b.master.template as<A>(), slots,
               b.parameters(), elements);
  }

  /// What units are given besides what is their own.
  Bound given() {
    Bound bound;
    bound.give(model::Given::input, x_.data());
    bound.give(model::Given::derivative, d_.data());
    bound.give(model::Given::tokens, token_.data());
    bound.give(model::Given::targets, target_.data());
    bound.give(model::Given::losses, losses_.data());
    bound.give(model::Given::loss, &loss_);
    return bound;
  }

  UnitProfile embedding() { return measure(units_.front(), recipes_.embedding, false, given()); }

  UnitProfile block(const model::Unit& unit) {
    return measure(unit, recipes_.block, job_.recomputes(unit.index), given());
  }

  /// Forward and backward of the head are one pass; the embedding that it borrows is not its state.
  UnitProfile head() {
    const int64_t borrowed = units_.back().borrows >= 0 && !late() ? units_.front().elements : 0;
    Painted embedding(borrowed * static_cast<int64_t>(sizeof(T))),
        gradient(borrowed * static_cast<int64_t>(sizeof(A)));
    Bound bound = given();
    if (borrowed > 0) {
      make_parameters(units_.front(), gradient.as<A>(), embedding.as<T>());
      bound.tied_parameters = embedding.as<T>();
      bound.tied_gradient = gradient.as<A>();
    }
    return measure(units_.back(), recipes_.loss, false, bound);
  }

  /// The cost model's times, in proportion to what was measured, and memory as planned.
  void model_the_rest(std::vector<UnitProfile>& profiles) const {
    double measured = 0, modelled = 0;
    const auto model_us = [&](size_t unit) {
      return program::modelled_us(job_, program::Machine(), static_cast<int>(unit));
    };
    for (size_t unit = 0; unit < profiles.size(); ++unit)
      if (profiles[unit].measured != 0) measured += profiles[unit].time_us, modelled += model_us(unit);
    const double scale = modelled > 0 ? measured / modelled : 1;
    for (size_t unit = 0; unit < profiles.size(); ++unit) {
      UnitProfile& profile = profiles[unit];
      if (profile.measured != 0) continue;
      profile.time_us = scale * model_us(unit);
      for (Amount* amount : {&profile.state, &profile.saved, &profile.workspace})
        amount->measured = amount->planned;
    }
  }

  const program::Job& job_;
  ProfileSettings settings_;
  double end_us_ = 0;
  std::vector<model::Unit> units_;
  const model::Recipes recipes_;
  model::BufferSizes sizes_;
  Workers workers_;
  model::Runner<T> runner_;
  const ops::Operators<T>& op_;
  model::Pass pass_;
  std::vector<T> x_, d_;
  std::vector<int32_t> token_, target_;
  std::vector<double> losses_;
  double loss_ = 0;
  std::vector<std::byte> arrays_;
};

Status check_memory(const program::Job& job, int64_t limit_bytes) {
  const int64_t needed = bytes_to_profile(job), machine = machine_bytes();
  const auto allowed = static_cast<int64_t>(kOfMachine * static_cast<double>(machine));
  const bool limited = limit_bytes > 0 && limit_bytes < allowed;
  if (needed <= (limited ? limit_bytes : allowed)) return {};
  const std::string why =
      limited ? fmt::format("parallel.memory_limit_mb is {}", limit_bytes >> 20)
              : fmt::format("of this machine's {} MiB three quarters may be used for it", machine >> 20);
  return fail(Code::out_of_memory,
              "there is not enough memory to measure the model's units one at a time, the largest of {} "
              "parameters: it takes {} MiB, and {}",
              largest_unit(job), (needed >> 20) + 1, why);
}

}  // namespace

int64_t bytes_to_profile(const program::Job& job) {
  return program::with_type(job.precision, [&]<typename T>(T) {
    const model::BufferSizes sizes = bytes_for<T>(job);
    const std::vector<model::Unit> units = model::units_of(job.spec);
    int64_t most = 0;
    for (const model::Unit& unit : units) {
      const int64_t borrowed = unit.borrows >= 0 ? units.front().elements : 0;
      int64_t bytes = job.padded(unit) * job.state_bytes() + sizes.workspace_of(unit.kind) +
                      borrowed * static_cast<int64_t>(sizeof(T) + sizeof(acc_t<T>));
      if (unit.kind == model::UnitKind::block) bytes += sizes.saved;
      most = std::max(most, bytes);
    }
    return most + 3 * sizes.activation;  // what enters, what leaves, and a derivative
  });
}

Result<std::vector<UnitProfile>> profile_units(const program::Job& job, int threads,
                                               const ProfileSettings& settings) {
  LOOM_TRY(job.check());
  if (threads < 1 || settings.repeats < 1)
    return fail(Code::invalid_argument, "threads is {} and repeats {}, must be at least 1", threads,
                settings.repeats);
  LOOM_TRY(check_memory(job, settings.limit_bytes));
  try {  // whole units, which a rank of the job may be too small for
    return program::with_type(job.precision, [&]<typename T>(T) -> Result<std::vector<UnitProfile>> {
      Profile<T> profile(job, threads, settings);
      LOOM_TRY(profile.workers().started());
      return profile.run();
    });
  } catch (const std::bad_alloc&) {
    return fail(Code::out_of_memory,
                "there is not enough memory to measure the model's units one at a time, the largest of {} "
                "parameters",
                largest_unit(job));
  }
}

std::vector<double> times_of(std::span<const UnitProfile> units) {
  std::vector<double> times;
  for (const UnitProfile& unit : units) times.push_back(unit.time_us);
  return times;
}

program::MeasuredUnits measures_of(std::span<const UnitProfile> units) {
  program::MeasuredUnits measured;
  for (const UnitProfile& unit : units)
    measured.push_back({unit.time_us, unit.state.part(), unit.saved.part(), unit.workspace.part()});
  return measured;
}

std::string left_out(std::span<const UnitProfile> units) {
  const auto count =
      std::count_if(units.begin(), units.end(), [](const UnitProfile& unit) { return unit.measured == 0; });
  if (count == 0) return {};
  return fmt::format("measuring took too long: the costs of {} of {} units are modelled, from those measured",
                     count, units.size());
}

std::string to_string(const program::Job& job, std::span<const UnitProfile> profiles) {
  const std::vector<model::Unit> units = model::units_of(job.spec);
  std::string text =
      fmt::format("{:<24}{:>10}{:>12}{:>10}{:>12}{:>10}{:>12}{:>10}\n", "units, measured", "ms each",
                  "KiB state", "planned", "KiB saved", "planned", "workspace", "planned");
  for (size_t begin = 0, end = 0; begin < profiles.size(); begin = end) {
    for (end = begin + 1; end < profiles.size() && profiles[end].kind == profiles[begin].kind;) ++end;
    const UnitProfile& p = profiles[begin];
    const std::string names =
        begin + 1 == end ? units[begin].name() : units[begin].name() + " to " + units[end - 1].name();
    text += fmt::format("{:<24}{:>10.3f}", names, p.time_us / 1e3);
    if (p.measured == 0) {
      text += "  modelled: there was no time to measure it\n";
      continue;
    }
    for (const Amount& amount : {p.state, p.saved, p.workspace})
      text += fmt::format("{:>12.1f}{:>10.1f}", amount.measured / 1024, amount.planned / 1024);
    text += "\n";
  }
  return text;
}

}  // namespace loom::engine
