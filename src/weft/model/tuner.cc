#include "model/tuner.h"

#include <algorithm>
#include <set>

#include "base/fork.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/settings.h"

namespace weft::model {
namespace {

using plan::Algorithm;
using plan::Limits;
using plan::Request;

/// Another slice must save this share of the time that the fastest takes with the usual one to be worth
/// leaving it: predictions are not that exact.
constexpr double kWorthwhile = 0.97;
/// An algorithm that is used for single calls stays in a streak unless the best one there takes at most this
/// part of its time. Streaks are predicted less exactly, above all where ranks take turns.
constexpr double kWorthChanging = 0.82;
/// How many algorithms are given other slices, if they are not slower than the fastest by more than a factor.
/// It is a wide one: a pipeline over n nodes with few slices can be n times as slow as one with many.
constexpr size_t kContenders = 3;
constexpr double kContender = 4;

void warn_once(const std::string& text) {
  static ForkSafeMutex mutex;
  static std::set<std::string> said;
  const MutexLock lock(mutex);
  if (said.insert(text).second) log::warn("{}", text);
}

/// The first rule that pins a candidate which could be used; rules that pin one which cannot are reported.
const Pin* find_pin(const Pins& pins, const Request& request, uint64_t bytes,
                    const std::vector<Candidate>& candidates) {
  for (const Pin& pin : pins.rules) {
    if (pin.ban || !pin.applies(request.collective, bytes)) continue;
    const auto pinned = std::find_if(candidates.begin(), candidates.end(),
                                     [&](const Candidate& c) { return c.algorithm->name == pin.algorithm; });
    if (pinned == candidates.end())
      continue;  // a pin for every collective, of which this one has no such algorithm
    if (pinned->unfit.ok()) return &pin;
    warn_once(fmt::format("WEFT_ALGO: \"{}\" does not fit {}: {}; using the next best", pin.text,
                          plan::name_of(request.collective), pinned->unfit.message()));
  }
  return nullptr;
}

const Pin* find_ban(const Pins& pins, const Request& request, uint64_t bytes, std::string_view algorithm) {
  for (const Pin& pin : pins.rules) {
    if (pin.ban && pin.algorithm == algorithm && pin.applies(request.collective, bytes)) return &pin;
  }
  return nullptr;
}

bool faster(const Candidate& a, const Candidate& b) {
  if (a.unfit.ok() != b.unfit.ok()) return a.unfit.ok();
  return a.unfit.ok() && a.predicted.us < b.predicted.us;
}

/// The calls for which candidates are predicted: how many, of which request, where.
struct Situation {
  const Machine& machine;
  const Request& request;
  const topology::Layout& layout;
  int streak;
  Estimates& known;
};

Result<Estimate> estimated(const Candidate& candidate, const Situation& of, Calls calls) {
  const Algorithm& algorithm = *candidate.algorithm;
  const uint64_t slice = candidate.limits.slice_bytes;
  if (const Estimate* known = of.known.find(algorithm, slice, calls)) return *known;
  Result<Estimate> estimate =
      model::estimate(algorithm, of.request, of.layout, of.machine, candidate.limits, calls);
  if (estimate.ok()) of.known.add(algorithm, slice, calls, *estimate);
  return estimate;
}

Status predict(Candidate& candidate, const Situation& of) {
  const bool rooted = plan::has_root(of.request.collective);
  const Result<Estimate> first = estimated(candidate, of, rooted ? Calls::alone : Calls::streak);
  if (!first.ok()) return first.status();
  candidate.predicted = *first;
  candidate.alone_us = first->us;
  if (!rooted || of.streak <= 1) return {};
  const Result<Estimate> next = estimated(candidate, of, Calls::streak);
  if (!next.ok()) return next.status();
  candidate.predicted.us = (first->us + (of.streak - 1) * next->us) / of.streak;
  return {};
}

/// Longer and shorter slices for what is in front: a message of a single slice has nothing to gain from
/// either.
Status try_slices(std::vector<Candidate>& candidates, size_t contenders, const Situation& of,
                  const Limits& base) {
  std::vector<Candidate> more;
  const double slowest = candidates.front().predicted.us * kContender;
  for (size_t i = 0; i < std::min(contenders, candidates.size()); ++i) {
    if (!candidates[i].unfit.ok() || candidates[i].predicted.us > slowest) break;
    for (const uint64_t slice : {base.slice_bytes / 16, base.slice_bytes / 4, base.slice_bytes * 4,
                                 base.slice_bytes * 16, base.slice_bytes * 64}) {
      // Where each slice takes CPU time, few long ones are better.
      if (slice > base.slice_bytes * 4 && of.machine.engine_step_us <= 0) continue;
      if (slice < (16 << 10) || message_bytes(of.request, of.layout.ranks()) < slice) continue;
      Candidate other{.algorithm = candidates[i].algorithm, .limits = base, .unfit = {}, .predicted = {}};
      other.limits.slice_bytes = slice;
      if (!other.algorithm->fits(of.request, of.layout, other.limits).ok()) continue;
      WEFT_TRY(predict(other, of));
      if (other.predicted.us < candidates.front().predicted.us * kWorthwhile) more.push_back(other);
    }
  }
  candidates.insert(candidates.end(), more.begin(), more.end());
  std::stable_sort(candidates.begin(), candidates.end(), faster);
  return {};
}

std::string reason(const std::vector<Candidate>& candidates, const Candidate& chosen, const Pin* pin) {
  if (pin != nullptr) {
    return fmt::format("pinned by WEFT_ALGO (\"{}\"), predicted {:.2f} µs", pin->text, chosen.predicted.us);
  }
  const auto next = std::find_if(candidates.begin(), candidates.end(), [&](const Candidate& c) {
    return c.unfit.ok() && c.algorithm != chosen.algorithm;
  });
  if (next == candidates.end())
    return fmt::format("the only one that may be used, predicted {:.2f} µs", chosen.predicted.us);
  return fmt::format("predicted {:.2f} µs; the next best, {}, {:.2f} µs", chosen.predicted.us,
                     next->algorithm->name, next->predicted.us);
}

}  // namespace

Limits limits_on(const Machine& machine, Limits limits) {
  limits.nic_bound = is_nic_bound(machine);
  if (settings().eager_inter_bytes == 0) limits.eager_incast_bytes = eager_incast_bytes(machine);
  return limits;
}

Limits limits_for(const Machine& machine) {
  const Settings& asked = settings();
  Limits limits;
  limits.eager_intra_bytes = transport::shm_eager_bytes(static_cast<size_t>(asked.eager_intra_bytes));
  limits.eager_inter_bytes =
      transport::net_eager_bytes(machine.net, static_cast<size_t>(asked.eager_inter_bytes));
  return limits_on(machine, limits);
}

std::string eager_text(const Limits& limits, const Machine& machine) {
  const bool less = limits.eager_incast_bytes < limits.eager_inter_bytes;
  return fmt::format(
      "eager up to {} inside a node, {} between nodes ({}){}", bytes_text(limits.eager_intra_bytes),
      bytes_text(limits.eager_inter_bytes), transport::name_of(machine.net),
      less ? fmt::format(", {} to several at once", bytes_text(limits.eager_incast_bytes)) : "");
}

uint64_t message_bytes(const Request& request, int ranks) {
  using enum plan::Collective;
  switch (request.collective) {
    case all_gather:
    case reduce_scatter:
    case all_to_all:
    case gather:
    case scatter: return request.bytes() * ranks;
    default: return request.bytes();
  }
}

std::string to_string(const Request& request, int ranks) {
  return fmt::format("{} of {} ({} × {} byte{}{}{})", plan::name_of(request.collective),
                     bytes_text(message_bytes(request, ranks)), request.count, request.element_bytes,
                     request.element_bytes == 1 ? "" : "s",
                     plan::has_root(request.collective) ? fmt::format(", root {}", request.root) : "",
                     request.strict ? ", strict order" : "");
}

Result<Choice> choose(const Machine& machine, const Request& request, const topology::Layout& layout,
                      const Limits& base, const Pins& pins, int streak, Estimates* known) {
  Estimates own;
  const Situation situation{machine, request, layout, streak, known != nullptr ? *known : own};
  const uint64_t bytes = message_bytes(request, layout.ranks());
  Limits usual = limits_on(machine, base);
  if (pins.slice_bytes != 0) usual.slice_bytes = pins.slice_bytes;
  std::vector<Candidate> candidates;
  bool banned_one = false;
  for (const Algorithm& algorithm : plan::algorithms()) {
    if (algorithm.collective != request.collective) continue;
    Candidate candidate{.algorithm = &algorithm,
                        .limits = usual,
                        .unfit = algorithm.fits(request, layout, usual),
                        .predicted = {}};
    if (const Pin* ban = find_ban(pins, request, bytes, algorithm.name); ban && candidate.unfit.ok()) {
      candidate.unfit = fail(Code::invalid_setting, "banned by WEFT_ALGO (\"{}\")", ban->text);
      banned_one = true;
    }
    candidates.push_back(candidate);
  }
  const Pin* const pin = find_pin(pins, request, bytes, candidates);
  for (Candidate& candidate : candidates) {
    if (candidate.unfit.ok()) WEFT_TRY(predict(candidate, situation));
  }
  std::stable_sort(candidates.begin(), candidates.end(), [&](const Candidate& a, const Candidate& b) {
    const bool a_pinned = pin && a.algorithm->name == pin->algorithm,
               b_pinned = pin && b.algorithm->name == pin->algorithm;
    return a_pinned != b_pinned ? a_pinned : faster(a, b);
  });
  if (candidates.empty() || !candidates.front().unfit.ok()) {
    return fail(banned_one ? Code::invalid_setting : Code::internal_error, "no algorithm {} {} on {}",
                banned_one ? "is left by WEFT_ALGO for" : "fits", to_string(request, layout.ranks()),
                layout.to_string());
  }
  const Algorithm* const pinned = pin ? candidates.front().algorithm : nullptr;
  if (pins.slice_bytes == 0 && !plan::is_transfer(request.collective)) {
    WEFT_TRY(try_slices(candidates, pinned ? 1 : kContenders, situation, usual));
  } else std::stable_sort(candidates.begin(), candidates.end(), faster);
  const auto may_be_used = [&](const Candidate& candidate) {
    return candidate.unfit.ok() && (pinned == nullptr || candidate.algorithm == pinned);
  };
  const Candidate& fastest = *std::find_if(candidates.begin(), candidates.end(), may_be_used);
  const Candidate& single =
      *std::min_element(candidates.begin(), candidates.end(), [&](const Candidate& a, const Candidate& b) {
        return may_be_used(a) != may_be_used(b) ? may_be_used(a) : a.alone_us < b.alone_us;
      });
  const bool changes = streak > 1 && fastest.predicted.us <= kWorthChanging * single.predicted.us;
  const Candidate& chosen = streak <= 1 || changes ? fastest : single;
  Choice choice{chosen.algorithm, chosen.limits, chosen.predicted.us, reason(candidates, chosen, pin), {}};
  choice.candidates = std::move(candidates);
  return choice;
}

}  // namespace weft::model
