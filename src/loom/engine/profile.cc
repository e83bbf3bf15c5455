// Each kind of unit by itself, on buffers of its own.
#include "engine/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <new>
#include <tuple>

#include "model/compute.h"

namespace loom::engine {
namespace {

/// What is not written keeps it: no number that a block computes is made of such bytes only.
constexpr std::byte kPaint{0xa5};

/// Bytes of the lines of 64 that are not all paint.
int64_t written_bytes(std::span<const std::byte> buffer) {
  constexpr size_t kLine = 64;
  int64_t bytes = 0;
  for (size_t at = 0; at < buffer.size(); at += kLine) {
    const std::span<const std::byte> line = buffer.subspan(at, std::min(kLine, buffer.size() - at));
    if (std::any_of(line.begin(), line.end(), [](std::byte byte) { return byte != kPaint; }))
      bytes += static_cast<int64_t>(line.size());
  }
  return bytes;
}

int64_t largest_unit(const program::Job& job) {
  int64_t most = 0;
  for (const model::Unit& unit : model::units_of(job.spec)) most = std::max(most, unit.elements);
  return most;
}

template <typename T>
class Profile {
 public:
  using A = acc_t<T>;

  Profile(const program::Job& job, int threads, int repeats)
      : job_(job),
        repeats_(repeats),
        units_(model::units_of(job.spec)),
        sizes_(model::buffer_sizes<T>(job.spec, model::Share::whole(job.spec), job.batch, job.tokens)),
        workers_(threads),
        compute_(job.spec, model::Share::whole(job.spec)) {
    pass_.workers = &workers_;
    pass_.spec = &job.spec;
    pass_.batch = job.batch;
    pass_.tokens = job.tokens;
    pass_.training = true;
    const size_t rows = static_cast<size_t>(pass_.rows()), width = static_cast<size_t>(job.spec.width);
    x_.resize(rows * width);
    for (T& value : x_) store(value, 0.5f);
    y_ = d_ = x_;
    workspace_.resize(static_cast<size_t>(sizes_.workspace));
    token_.assign(rows, 0);
    target_.assign(rows, -1);
    const int64_t targets = job.head_rows() / job.batch;  // of each sequence the first
    for (int64_t sequence = 0; sequence < job.batch; ++sequence)
      std::fill_n(target_.begin() + sequence * job.tokens, targets, 0);
    losses_.resize(rows);
  }

  std::vector<UnitProfile> run() {
    std::vector<UnitProfile> profiles(units_.size());
    const double output = static_cast<double>(sizes_.activation);
    profiles.front() = {0, embedding(), output, output};
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
    profiles.back() = {static_cast<double>(seen.size() + 1), head(), 0, 0};
    return profiles;
  }

 private:
  /// Parameters as training begins with them: what they are does not matter much, but zeros would be too
  /// easy.
  std::vector<T> parameters_of(const model::Unit& unit) const {
    std::vector<float> values(static_cast<size_t>(unit.elements));
    model::initialize(unit, 1, 0, values);
    std::vector<T> parameters(values.size());
    for (size_t i = 0; i < values.size(); ++i) store(parameters[i], values[i]);
    return parameters;
  }

  double best_us(const std::function<void()>& work) const {
    double best = 0;
    for (int repeat = 0; repeat <= repeats_; ++repeat) {
      const auto begin = std::chrono::steady_clock::now();
      work();
      const double us =
          std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
      if (repeat == 1 || (repeat > 1 && us < best)) best = us;
    }
    return best;
  }

  double embedding() {
    const std::vector<T> parameters = parameters_of(units_.front());
    std::vector<A> gradient(parameters.size());
    return best_us([&] {
      compute_.embedding_forward(pass_, parameters.data(), token_.data(), y_.data(), workspace_.data());
      compute_.embedding_backward(pass_, parameters.data(), token_.data(), d_.data(), gradient.data(), false,
                                  workspace_.data());
    });
  }

  UnitProfile block(const model::Unit& unit) {
    const std::vector<T> parameters = parameters_of(unit);
    std::vector<A> gradient(parameters.size());
    std::vector<std::byte> saved(static_cast<size_t>(sizes_.saved), kPaint);
    const auto forward = [&] {
      compute_.block_forward(pass_, unit, parameters.data(), x_.data(), saved.data(), y_.data(),
                             workspace_.data());
    };
    forward();
    const double output = static_cast<double>(sizes_.activation);
    const double written = static_cast<double>(written_bytes(saved));
    const double us = best_us([&] {
      forward();
      if (job_.recomputes(unit.index)) forward();
      compute_.block_backward(pass_, unit, parameters.data(), x_.data(), saved.data(), d_.data(),
                              gradient.data(), workspace_.data());
    });
    return {0, us, output + written, output + static_cast<double>(sizes_.saved)};
  }

  double head() {
    const model::Unit& unit = units_.back();
    const std::vector<T> parameters = parameters_of(unit), embedding = parameters_of(units_.front());
    std::vector<A> gradient(parameters.size()), embedding_gradient(embedding.size());
    return best_us([&] {
      compute_.head_loss(pass_, unit, parameters.data(), embedding.data(), x_.data(), target_.data(), A(1),
                         losses_.data(), d_.data(), gradient.data(), embedding_gradient.data(),
                         workspace_.data());
    });
  }

  const program::Job& job_;
  const int repeats_;
  std::vector<model::Unit> units_;
  model::BufferSizes sizes_;
  Workers workers_;
  model::Compute<T> compute_;
  model::Pass pass_;
  std::vector<T> x_, y_, d_;
  std::vector<std::byte> workspace_;
  std::vector<int32_t> token_, target_;
  std::vector<double> losses_;
};

}  // namespace

Result<std::vector<UnitProfile>> profile_units(const program::Job& job, int threads, int repeats) {
  LOOM_TRY(job.check());
  if (threads < 1 || repeats < 1)
    return fail(Code::invalid_argument, "threads is {} and repeats {}, must be at least 1", threads, repeats);
  try {  // whole units, which a rank of the job may be too small for
    return program::with_type(job.precision,
                              [&]<typename T>(T) { return Profile<T>(job, threads, repeats).run(); });
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
  program::MeasuredUnits measured{times_of(units), {}, {}};
  for (const UnitProfile& unit : units) {
    measured.saved_bytes.push_back(unit.saved_bytes);
    measured.planned_bytes.push_back(unit.planned_bytes);
  }
  return measured;
}

std::string to_string(const program::Job& job, std::span<const UnitProfile> profiles) {
  const std::vector<model::Unit> units = model::units_of(job.spec);
  std::string text =
      fmt::format("{:<24}{:>10}{:>14}{:>14}\n", "units, measured", "ms each", "KiB saved", "KiB planned");
  for (size_t begin = 0, end = 0; begin < profiles.size(); begin = end) {
    for (end = begin + 1; end < profiles.size() && profiles[end].kind == profiles[begin].kind;) ++end;
    const std::string names =
        begin + 1 == end ? units[begin].name() : units[begin].name() + " to " + units[end - 1].name();
    text += fmt::format("{:<24}{:>10.3f}{:>14.1f}{:>14.1f}\n", names, profiles[begin].time_us / 1e3,
                        profiles[begin].saved_bytes / 1024, profiles[begin].planned_bytes / 1024);
  }
  return text;
}

}  // namespace loom::engine
