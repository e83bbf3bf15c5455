// The rule of the loss scale.
#include "train/loss_scale.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/status.h"

namespace loom::train {
namespace {

constexpr int64_t kMany = 1000000;  // overflows that may be waited for

}  // namespace

Status LossScale::check() const {
  const auto within = [](const char* key, double value, double least, double most) -> Status {
    if (value >= least && value <= most) return {};
    return fail(Code::invalid_argument, "loss_scale.{} is {}, must be from {} to {}", key, value, least,
                most);
  };
  constexpr double kLargest = 1e30, kSmallest = 1e-6;
  LOOM_TRY(within("initial", initial, kSmallest, kLargest));
  LOOM_TRY(within("factor", factor, 1.001, 65536));
  LOOM_TRY(within("window", static_cast<double>(window), 1, 1e15));
  LOOM_TRY(within("delayed_shift", static_cast<double>(delayed_shift), 1, kMany));
  LOOM_TRY(within("minimum", minimum, kSmallest, kLargest));
  if (minimum > initial)
    return fail(Code::invalid_argument, "loss_scale.minimum is {}, must be at most loss_scale.initial, {}",
                minimum, initial);
  if (constant != 0) LOOM_TRY(within("static", constant, kSmallest, kLargest));
  return {};
}

LossScaler::LossScaler(const LossScale& settings, bool scales)
    : settings_(settings),
      scales_(scales),
      scale_(!scales                  ? 1
             : settings.constant != 0 ? settings.constant
                                      : settings.initial),
      shifts_left_(settings.delayed_shift) {}

Status LossScaler::update(int64_t step, double loss, bool skipped) {
  if (!scales_) return {};
  const bool dynamic = settings_.constant == 0;
  if (!skipped) {
    in_a_row_ = 0;
    if (++applied_ < settings_.window) return {};
    applied_ = 0;
    shifts_left_ = settings_.delayed_shift;
    if (dynamic) scale_ *= settings_.factor;
    return {};
  }
  ++skipped_;
  ++in_a_row_;
  applied_ = 0;
  if (!dynamic) return in_a_row_ >= kMostInARow ? give_up(step, loss) : Status();
  if (shifts_left_ > 1) {
    --shifts_left_;
    return {};
  }
  if (scale_ <= settings_.minimum) return give_up(step, loss);
  scale_ = std::max(scale_ / settings_.factor, settings_.minimum);
  return {};
}

Status LossScaler::give_up(int64_t step, double loss) const {
  const char* key = settings_.constant == 0 ? "minimum" : "static";
  // What overflows on the way forward has not been scaled.
  const std::string what = std::isfinite(loss)
                               ? "gradients overflow fp16"
                               : fmt::format("activations overflow fp16 (the loss is {})", loss);
  return fail(
      Code::not_finite,
      "step {}: {} with a loss scale of {} (loss_scale.{}), in the last {} steps, all skipped; "
      "parallel.precision \"bf16\", which has the range of fp32, or a smaller optimizer.learning_rate{} "
      "may help",
      step + 1, what, scale_, key, in_a_row_,
      std::isfinite(loss) ? fmt::format(" or loss_scale.{}", key) : "");
}

format::Json LossScaler::to_json() const {
  return {{"scale", scale_},
          {"applied", applied_},
          {"shifts_left", shifts_left_},
          {"skipped", skipped_},
          {"skipped_in_a_row", in_a_row_}};
}

Status LossScaler::restore(const format::Json& json, int64_t steps) {
  const auto read = [&](const char* key, auto least, auto most, auto& into) -> Status {
    using Number = std::remove_reference_t<decltype(into)>;
    const auto found = json.is_object() ? json.find(key) : json.end();
    const bool whole = !std::is_same_v<Number, double>;
    const bool right = found != json.end() && (whole ? found->is_number_integer() : found->is_number());
    const Number value = right ? found->template get<Number>() : Number(0);
    if (!right || !(value >= Number(least)) || !(value <= Number(most)))
      return fail(Code::invalid_data, "loss_scale.{} is {}, must be a number from {} to {}", key,
                  found == json.end() ? "missing" : found->dump(), least, most);
    into = value;
    return {};
  };
  LossScaler from = *this;
  LOOM_TRY(read("scale", 1e-6, std::numeric_limits<double>::max(), from.scale_));
  LOOM_TRY(read("applied", 0, steps, from.applied_));
  LOOM_TRY(read("shifts_left", 1, kMany, from.shifts_left_));
  LOOM_TRY(read("skipped", 0, steps, from.skipped_));
  LOOM_TRY(read("skipped_in_a_row", 0, steps, from.in_a_row_));
  const bool dynamic = scales_ && settings_.constant == 0;
  from.scale_ = dynamic ? std::max(from.scale_, settings_.minimum) : scale_;
  from.shifts_left_ = std::min(from.shifts_left_, settings_.delayed_shift);
  *this = from;
  return {};
}

}  // namespace loom::train
