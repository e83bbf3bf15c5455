#include "report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

namespace weft::perf {
namespace {

/// As many of two decimals as fit into `width`.
std::string decimals(double value, size_t width) {
  std::string text;
  for (const int digits : {2, 1, 0}) {
    text = fmt::format("{:.{}f}", value, digits);
    if (text.size() <= width - 1) break;
  }
  return text.size() <= width ? text : fmt::format("{:.{}e}", value, 1);
}

std::string human(size_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB"};
  size_t unit = 0;
  while (unit < 3 && bytes >= 1024 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{} {}", bytes, units[unit]);
}

nlohmann::json to_json(const std::optional<Measurement>& measurement) {
  if (!measurement) return nullptr;
  const auto wrong = measurement->wrong ? nlohmann::json(*measurement->wrong) : nlohmann::json("N/A");
  return {{"time", measurement->time_us},
          {"alg_bw", measurement->algbw},
          {"bus_bw", measurement->busbw},
          {"iterations", measurement->iterations},
          {"cpu_us", measurement->cpu_us},
          {"cpu_s_per_gb", measurement->cpu_s_per_gb},
          {"nwrong", wrong}};
}

}  // namespace

void Report::heading(const std::vector<Seat>& seats) {
  const Options& o = options_;
  const bool factor = o.step_factor > 1;
  std::printf("# Collective test starting: %s, Weft %d.%d.%d\n", title_.c_str(), WEFT_MAJOR, WEFT_MINOR,
              WEFT_PATCH);
  std::printf(
      "# nThread 1 nGpus 1 minBytes %zu maxBytes %zu step: %zu(%s) warmup iters: %d iters: %d agg iters: %d "
      "validation: %d graph: %d\n#\n",
      o.min_bytes, o.max_bytes, factor ? o.step_factor : o.step_bytes, factor ? "factor" : "bytes", o.warmup,
      o.iterations, o.aggregated, o.checks, o.graphs);
  std::printf("# Using ranks, on %s, %s\n", o.cuda ? "GPU memory" : "host memory",
              o.blocking && !o.cuda ? "blocking calls" : "a stream");
  for (size_t rank = 0; rank < seats.size(); ++rank) {
    const Seat& seat = seats[rank];
    std::printf("#  Rank %2zu Group  0 Pid %6d on %10s node %2d\n", rank, seat.pid, seat.host, seat.node);
    seats_.push_back({{"rank", rank}, {"pid", seat.pid}, {"hostname", seat.host}, {"node", seat.node}});
  }
  const char* const time = o.cpu_time ? "cputime" : "time";
  std::printf(
      "#\n# %10s  %12s  %8s  %6s  %6s           out-of-place                       in-place          \n", "",
      "", "", "", "");
  std::printf("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s\n", "size", "count",
              "type", "redop", "root", time, "algbw", "busbw", "#wrong", time, "algbw", "busbw", "#wrong");
  std::printf("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s\n", "(B)", "(elements)",
              "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "");
  std::fflush(stdout);
}

void Report::row(const Row& row, const std::optional<Measurement>& out,
                 const std::optional<Measurement>& in) {
  std::printf("%12zu  %12zu  %8s  %6s  %6d", row.bytes, row.count, name_of(row.type), name_of(row.op),
              row.root);
  half(out);
  half(in);
  if (totals_.size() > 1) std::printf("  %s", row.backend.c_str());
  std::printf("\n");
  std::fflush(stdout);
  remember(row, out, in);
}

void Report::half(const std::optional<Measurement>& measurement) {
  if (!measurement) {
    std::printf("  %7s  %6s  %6s  %6s", "N/A", "N/A", "N/A", "N/A");
    return;
  }
  std::printf("  %7s  %6s  %6s", decimals(measurement->time_us, 7).c_str(),
              decimals(measurement->algbw, 6).c_str(), decimals(measurement->busbw, 6).c_str());
  if (measurement->wrong) {
    std::printf("  %6g", static_cast<double>(*measurement->wrong));
  } else {
    std::printf("  %6s", "N/A");
  }
}

void Report::remember(const Row& row, const std::optional<Measurement>& out,
                      const std::optional<Measurement>& in) {
  Total& total =
      *std::find_if(totals_.begin(), totals_.end(), [&](const Total& t) { return t.backend == row.backend; });
  for (const auto* measurement : {&out, &in}) {
    if (!*measurement) continue;
    total.busbw += (*measurement)->busbw;
    ++total.measurements;
    wrong_rows_ += (*measurement)->wrong.value_or(0) > 0;
  }
  if (!row.algorithm.empty()) {
    const auto last = std::find_if(stretches_.rbegin(), stretches_.rend(),
                                   [&](const Stretch& stretch) { return stretch.backend == row.backend; });
    const bool goes_on =
        last != stretches_.rend() && last->algorithm == row.algorithm && last->to <= row.bytes;
    if (goes_on) last->to = row.bytes;
    else stretches_.push_back({row.algorithm, row.backend, row.bytes, row.bytes});
  }
  results_.push_back(
      {{"size", row.bytes},
       {"count", row.count},
       {"type", name_of(row.type)},
       {"redop", name_of(row.op)},
       {"root", row.root},
       {"algorithm", row.algorithm},
       {"backend", row.backend.empty() ? nlohmann::json(nullptr) : nlohmann::json(row.backend)},
       {"predicted_us", row.predicted_us},
       {"out_of_place", to_json(out)},
       {"in_place", to_json(in)}});
}

void Report::note(const std::string& text) {
  std::printf("# %s\n", text.c_str());
  std::fflush(stdout);
}

/// "one_hop (8 B to 16 KiB), ring (64 KiB to 32 MiB)"; for several types or operators, each stretch of rows
/// once.
std::string Report::algorithms_used() const {
  std::string text;
  for (const Stretch& stretch : stretches_) {
    const std::string sizes =
        stretch.from == stretch.to ? human(stretch.from) : human(stretch.from) + " to " + human(stretch.to);
    const std::string item = fmt::format("{} ({})", stretch.algorithm, sizes);
    if (text.find(item) == std::string::npos) text += (text.empty() ? "" : ", ") + item;
  }
  return text;
}

nlohmann::json Report::config() const {
  const Options& o = options_;
  return {{"minimum_bytes", o.min_bytes},
          {"maximum_bytes", o.max_bytes},
          {"step_factor", o.step_factor > 1 ? nlohmann::json(o.step_factor) : nullptr},
          {"step_bytes", o.step_factor > 1 ? nullptr : nlohmann::json(o.step_bytes)},
          {"warmup_iterations", o.warmup},
          {"iterations", o.iterations},
          {"aggregated_iterations", o.aggregated},
          {"graph_launches", o.graphs},
          {"validation", o.checks},
          {"blocking_collectives", o.blocking},
          {"backend", o.measures("") ? nlohmann::json(nullptr)
                                     : nlohmann::json(fmt::format("{}", fmt::join(o.backends, ",")))},
          {"registered", o.registered},
          {"average", o.average}};
}

/// "17.3", or of several backends "17.3 (weft), 12.1 (nccl)".
std::string Report::bandwidths() const {
  if (totals_.size() == 1) return fmt::format("{:g} ", totals_.front().mean());
  std::string text;
  for (const Total& total : totals_)
    text += fmt::format("{}{:g} ({})", text.empty() ? "" : ", ", total.mean(), total.backend);
  return text;
}

bool Report::footing(const std::string& transports) {
  if (!transports.empty()) note("Transports           : " + transports);
  if (!stretches_.empty()) note("Algorithms           : " + algorithms_used());
  std::printf("# Out of bounds values : %llu %s\n", static_cast<unsigned long long>(wrong_rows_),
              wrong_rows_ > 0 ? "FAILED" : "OK");
  std::printf("# Avg bus bandwidth    : %s\n#\n", bandwidths().c_str());
  std::fflush(stdout);
  if (options_.json.empty()) return true;

  nlohmann::json busbw = nlohmann::json::object();
  for (const Total& total : totals_) busbw[totals_.size() == 1 ? "bandwidth" : total.backend] = total.mean();
  const nlohmann::json document = {
      {"version", 1},
      {"weft_version", fmt::format("{}.{}.{}", WEFT_MAJOR, WEFT_MINOR, WEFT_PATCH)},
      {"collective", title_},
      {"config", config()},
      {"ranks", seats_},
      {"transports", transports},
      {"results", results_},
      {"out_of_bounds", {{"count", wrong_rows_}, {"okay", wrong_rows_ == 0}}},
      {"average_bus_bandwidth", busbw},
  };
  std::ofstream file(options_.json);
  file << document.dump(2) << '\n';
  file.close();
  if (!file)
    std::fprintf(stderr, "--json: cannot write %s: %s\n", options_.json.c_str(), std::strerror(errno));
  return static_cast<bool>(file);
}

}  // namespace weft::perf
