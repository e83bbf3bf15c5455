#include "sim/study.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "base/settings.h"
#include "model/known_clusters.h"
#include "model/pins.h"
#include "model/tuner.h"

namespace weft::sim {
namespace {

using model::Cluster;
using plan::Request;

template <typename T>
Result<T> parse_number(std::string_view option, std::string_view text, const char* form) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return value;
  return fail(Code::invalid_argument, "{}: \"{}\" is no number; it is written {}", option, text, form);
}

/// "3=0.5" into (3, 0.5).
Status parse_pair(const char* option, const std::string& text, char between, const char* form, int& first,
                  auto& second) {
  const size_t at = text.find(between);
  if (at == std::string::npos) {
    return fail(Code::invalid_argument, "{} is \"{}\", must be written {}", option, text, form);
  }
  const Result<int> left = parse_number<int>(option, std::string_view(text).substr(0, at), form);
  if (!left.ok()) return left.status();
  const auto right =
      parse_number<std::decay_t<decltype(second)>>(option, std::string_view(text).substr(at + 1), form);
  if (!right.ok()) return right.status();
  first = *left;
  second = *right;
  return {};
}

/// "2", "2,8" or "2-512", which doubles.
template <typename T, typename Parse>
Result<std::vector<T>> parse_list(const char* option, const std::vector<std::string>& texts, Parse parse) {
  std::vector<T> all;
  for (const std::string& text : texts) {
    const size_t dash = text.find('-');
    const Result<T> first = parse(text.substr(0, dash));
    if (!first.ok()) return first.status().in(option);
    if (dash == std::string::npos) {
      all.push_back(*first);
      continue;
    }
    const Result<T> last = parse(text.substr(dash + 1));
    if (!last.ok()) return last.status().in(option);
    if (*first < T{1} || *last < *first) {
      return fail(Code::invalid_argument, "{} is \"{}\", must begin with at least 1 and not end before",
                  option, text);
    }
    T value = *first;
    all.push_back(value);
    while (value <= *last / 2) all.push_back(value *= 2);  // compared so, it cannot run past what T holds
  }
  return all;
}

Result<Cluster> load(const std::string& name) {
  const Result<std::string> path = model::find_description(name);
  return path.ok() ? model::read_cluster(*path) : path.status();
}

Status apply_conditions(const Question& question, Cluster& cluster) {
  model::Conditions& conditions = cluster.conditions;
  for (const std::string& text : question.slow_nodes) {
    auto& slow = conditions.slow_nodes.emplace_back();
    WEFT_TRY(parse_pair("--slow-node", text, '=', "NODE=RATE, as in 3=0.5", slow.node, slow.rate));
  }
  for (const std::string& text : question.slow_rails) {
    auto& slow = conditions.slow_rails.emplace_back();
    constexpr char kForm[] = "NODE:RAIL=RATE, as in 0:1=0.5";
    const size_t at = text.find('=');
    if (at == std::string::npos) {
      return fail(Code::invalid_argument, "--slow-rail is \"{}\", must be written {}", text, kForm);
    }
    WEFT_TRY(parse_pair("--slow-rail", text.substr(0, at), ':', kForm, slow.node, slow.rail));
    const Result<double> rate =
        parse_number<double>("--slow-rail", std::string_view(text).substr(at + 1), kForm);
    if (!rate.ok()) return rate.status();
    slow.rate = *rate;
  }
  for (const std::string& text : question.failed_rails) {
    auto& failed = conditions.slow_rails.emplace_back();
    failed.rate = 0;
    WEFT_TRY(parse_pair("--fail-rail", text, ':', "NODE:RAIL, as in 0:1", failed.node, failed.rail));
  }
  for (const std::string& text : question.incasts) {
    auto& incast = conditions.incasts.emplace_back();
    WEFT_TRY(parse_pair("--incast", text, '=', "NODE=STREAMS, as in 0=4", incast.node, incast.streams));
  }
  if (question.nodes_per_leaf >= 0) conditions.fabric.nodes_per_leaf = question.nodes_per_leaf;
  if (question.oversubscription != 0) conditions.fabric.oversubscription = question.oversubscription;
  return {};
}

Result<Request> request_of(const Question& question, const std::string& collective, uint64_t size,
                           int ranks) {
  const Result<plan::Collective> parsed = model::parse_collective(collective);
  if (!parsed.ok()) return parsed.status();
  if (question.root < 0 || question.root >= ranks) {
    return fail(Code::invalid_argument, "--root is {}, must be in [0, {})", question.root, ranks);
  }
  Request request{.collective = *parsed,
                  .count = 1,
                  .element_bytes = 1,
                  .root = question.root,
                  .strict = question.strict,
                  .disjoint = question.out_of_place && *parsed == plan::Collective::all_to_all};
  const uint64_t parts = model::message_bytes(request, ranks);
  request.element_bytes = static_cast<uint32_t>(question.element_bytes);
  request.count = size / parts / request.element_bytes;
  if (request.count == 0) {
    return fail(Code::invalid_argument, "--size: {} of {} bytes is less than an element for each of {} ranks",
                plan::name_of(*parsed), size, ranks);
  }
  return request;
}

Result<std::vector<const plan::Algorithm*>> algorithms_for(const Question& question,
                                                           plan::Collective collective) {
  std::vector<const plan::Algorithm*> chosen;
  std::vector<std::string_view> known;
  for (const plan::Algorithm& algorithm : plan::algorithms()) {
    if (algorithm.collective != collective) continue;
    known.push_back(algorithm.name);
    if (question.algorithms.empty()) chosen.push_back(&algorithm);
  }
  for (const std::string& name : question.algorithms) {
    const plan::Algorithm* const algorithm = plan::find_algorithm(collective, name);
    if (algorithm != nullptr) chosen.push_back(algorithm);
  }
  if (chosen.empty()) {
    return fail(Code::invalid_argument, "--algorithm: {} has no {}; it has {}", plan::name_of(collective),
                fmt::join(question.algorithms, ", "), fmt::join(known, ", "));
  }
  return chosen;
}

/// All algorithms on one cluster for one request.
Status add_cell(const Question& question, Study& study, const Request& request) {
  const auto algorithms = algorithms_for(question, request.collective);
  if (!algorithms.ok()) return algorithms.status();
  const bool exchanges = request.collective == plan::Collective::all_to_all;
  const size_t first = study.rows.size();
  for (const plan::Algorithm* algorithm : *algorithms) {
    Row row;
    row.request = request;
    row.algorithm = algorithm;
    row.nodes = study.cluster.nodes;
    row.ranks = study.cluster.nodes * study.cluster.ranks_per_node;
    const model::ForecastOptions options{.streak = question.streak,
                                         .in_place = question.in_place && !exchanges,
                                         .critical_path = question.why};
    Result<model::Forecast> found =
        model::forecast(*algorithm, request, study.cluster, study.limits, options);
    row.unfit = found.status();
    if (found.ok()) row.forecast = found.take();
    if (row.unfit.ok() && !study.cluster.conditions.healthy()) {
      Cluster healthy = study.cluster;
      healthy.conditions = {};
      healthy.conditions.fabric = study.cluster.conditions.fabric;
      const auto usual = model::forecast(*algorithm, request, healthy, study.limits,
                                         {.streak = options.streak, .in_place = options.in_place});
      if (usual.ok()) row.healthy_us = usual->us;
    }
    study.rows.push_back(std::move(row));
  }
  std::stable_sort(study.rows.begin() + static_cast<ptrdiff_t>(first), study.rows.end(),
                   [](const Row& a, const Row& b) {
                     if (a.unfit.ok() != b.unfit.ok()) return a.unfit.ok();
                     return a.unfit.ok() && a.forecast.us < b.forecast.us;
                   });
  return {};
}

/// Every algorithm that was named must serve somewhere, or the answer would be to another question.
Status check_named(const Question& question, const Study& study) {
  for (const std::string& name : question.algorithms) {
    const auto is_named = [&](const Row& row) { return row.algorithm->name == name; };
    const auto serves = [&](const Row& row) { return is_named(row) && row.unfit.ok(); };
    if (std::any_of(study.rows.begin(), study.rows.end(), serves)) continue;
    const auto found = std::find_if(study.rows.begin(), study.rows.end(), is_named);
    const bool known = found != study.rows.end();
    const Row& row = known ? *found : study.rows.front();
    std::vector<std::string_view> others;
    const topology::Layout layout = topology::Layout::blocks(row.nodes, row.ranks / row.nodes);
    for (const plan::Algorithm& other : plan::algorithms()) {
      if (other.collective == row.request.collective && other.fits(row.request, layout, study.limits).ok())
        others.push_back(other.name);
    }
    return fail(Code::invalid_argument, "--algorithm: {}; {} would do",
                known ? row.unfit.message()
                      : fmt::format("{} has no {}", plan::name_of(row.request.collective), name),
                fmt::join(others, ", "));
  }
  return {};
}

}  // namespace

Result<Study> answer(const Question& question) {
  WEFT_TRY(settings_status());
  Study study;
  Result<Cluster> cluster = load(question.cluster);
  if (!cluster.ok()) return cluster.status();
  study.cluster = cluster.take();
  study.streak = question.streak;
  study.place = question.in_place ? "in place" : question.out_of_place ? "out of place" : "";
  study.limits = model::limits_for(study.cluster.machine);
  if (question.ranks_per_node != 0) study.cluster.ranks_per_node = question.ranks_per_node;
  if (question.element_bytes < 1 || question.element_bytes > 8) {
    return fail(Code::invalid_argument, "--element-bytes is {}, must be in [1, 8]", question.element_bytes);
  }
  for (const auto& [text, into] : {std::pair{&question.slice, &study.limits.slice_bytes},
                                   {&question.stripe, &study.cluster.machine.stripe_bytes}}) {
    if (text->empty()) continue;
    const Result<uint64_t> bytes = model::parse_bytes(*text);
    if (!bytes.ok()) return bytes.status().in(text == &question.slice ? "--slice" : "--stripe");
    *into = std::max<uint64_t>(*bytes, 1);
  }
  WEFT_TRY(apply_conditions(question, study.cluster));
  const auto parse_node = [](const std::string& text) {
    return parse_number<int>("--nodes", text, "8, 2,8 or 2-512");
  };
  Result<std::vector<int>> nodes = parse_list<int>("--nodes", question.nodes, parse_node);
  if (!nodes.ok()) return nodes.status();
  if (nodes->empty()) nodes->push_back(study.cluster.nodes);
  const Result<std::vector<uint64_t>> sizes =
      parse_list<uint64_t>("--size", question.sizes, model::parse_bytes);
  if (!sizes.ok()) return sizes.status();
  for (const int count : *nodes) {  // all, before the first is simulated
    study.cluster.nodes = count;
    WEFT_TRY(model::check_cluster(study.cluster));
  }
  for (const int count : *nodes) {
    study.cluster.nodes = count;
    for (const std::string& collective : question.collectives) {
      for (const uint64_t size : *sizes) {
        const auto request = request_of(question, collective, size, count * study.cluster.ranks_per_node);
        // In a sweep, a small size that a large cluster cannot share out is left out.
        if (!request.ok() && sizes->size() * nodes->size() > 1 &&
            request.status().message().starts_with("--size")) {
          continue;
        }
        if (!request.ok()) return request.status();
        WEFT_TRY(add_cell(question, study, *request));
      }
    }
  }
  if (!study.rows.empty()) WEFT_TRY(check_named(question, study));
  return study;
}

double bus_bandwidth(const Row& row) {
  using enum plan::Collective;
  const double n = row.ranks;
  double factor = 1;
  if (row.request.collective == all_reduce) factor = 2 * (n - 1) / n;
  else if (row.request.collective == all_gather || row.request.collective == reduce_scatter ||
           row.request.collective == all_to_all) {
    factor = (n - 1) / n;
  }
  const auto bytes = static_cast<double>(model::message_bytes(row.request, row.ranks));
  return row.forecast.us > 0 ? bytes * factor / row.forecast.us / 1000 : 0;
}

}  // namespace weft::sim
