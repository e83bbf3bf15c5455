// Report: what a perf tool prints, in nccl-tests' columns, and what it writes as JSON. Only rank 0 has one.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "options.h"

namespace weft::perf {

/// One rank, as the heading lists it.
struct Seat {
  char host[64];
  int pid;
  int node;
};

/// What was measured in one half of a row.
struct Measurement {
  double time_us = 0;
  double algbw = 0, busbw = 0;  // GB/s
  int iterations = 0;
  double cpu_us = 0;              // CPU time of one operation, mean over ranks: every thread, user and system
  double cpu_s_per_gb = 0;        // the same for 1e9 bytes of bus traffic; 0 where nothing travels
  std::optional<uint64_t> wrong;  // elements that differ, over all ranks; none when unchecked
};

struct Row {
  size_t bytes, count;
  weftDataType_t type;
  Operator op;  // none where nothing is reduced
  int root;     // -1 where there is none
  std::string algorithm;
  double predicted_us;  // by the library, for one operation
  std::string backend;  // "" where --backend was left out
};

class Report {
 public:
  Report(std::string title, Options options) : title_(std::move(title)), options_(std::move(options)) {
    for (const std::string& backend : options_.backends) totals_.push_back({backend});
  }

  void heading(const std::vector<Seat>& seats);
  /// A half is missing where the operation has no such form.
  void row(const Row& row, const std::optional<Measurement>& out_of_place,
           const std::optional<Measurement>& in_place);
  /// A line of its own, marked as a comment.
  void note(const std::string& text);
  /// The end of the table; writes the JSON file. `wrong_runs` counts halves of rows with wrong elements.
  /// False when the file cannot be written, which has been said.
  bool footing(const std::string& transports);

  uint64_t wrong_rows() const { return wrong_rows_; }

 private:
  void half(const std::optional<Measurement>& measurement);
  void remember(const Row& row, const std::optional<Measurement>& out, const std::optional<Measurement>& in);
  std::string algorithms_used() const;
  nlohmann::json config() const;

  const std::string title_;
  const Options options_;
  nlohmann::json seats_ = nlohmann::json::array();
  nlohmann::json results_ = nlohmann::json::array();
  struct Stretch {
    std::string algorithm, backend;
    size_t from, to;  // bytes
  };
  std::vector<Stretch> stretches_;  // in the order of the rows
  struct Total {
    std::string backend;
    double busbw = 0;
    int measurements = 0;
    double mean() const { return measurements > 0 ? busbw / measurements : 0; }
  };
  std::string bandwidths() const;
  std::vector<Total> totals_;  // of each backend
  uint64_t wrong_rows_ = 0;
};

}  // namespace weft::perf
