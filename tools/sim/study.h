// weft_sim's work: what is asked on the command line becomes clusters, requests and limits; the answers are
// rows.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/forecast.h"

namespace weft::sim {

/// The command line, as it was written.
struct Question {
  std::string cluster;  // a file, or the name of a description that comes with Weft
  std::vector<std::string> collectives{"allreduce"};
  std::vector<std::string> sizes{
      "64M"};                           // as the perf tools print them; "1M-1G" doubles from one to the other
  std::vector<std::string> algorithms;  // empty: all that fit
  std::vector<std::string> nodes;       // empty: the description's; "2-512" doubles
  int ranks_per_node = 0;               // 0: the description's
  int element_bytes = 4;
  int root = 0;
  bool strict = false;
  std::string slice;                      // "": the library's usual one
  std::string stripe;                     // "": the description's
  std::vector<std::string> slow_nodes;    // "3=0.5"
  std::vector<std::string> slow_rails;    // "0:1=0.5"
  std::vector<std::string> failed_rails;  // "0:1"
  std::vector<std::string> incasts;       // "0=4"
  double oversubscription = 0;            // with nodes_per_leaf; 0: the description's
  int nodes_per_leaf = -1;
  bool out_of_place = false, in_place = false;
  bool streak = false;  // back-to-back calls, not one alone
  bool why = false;     // critical paths
};

/// One algorithm on one cluster.
struct Row {
  plan::Request request;
  int nodes = 0, ranks = 0;
  const plan::Algorithm* algorithm = nullptr;
  Status unfit;  // why there is no forecast
  model::Forecast forecast;
  double healthy_us = 0;  // without slow nodes, failed rails and incast, if there are any
};

struct Study {
  bool streak = false;     // times are of back-to-back calls
  std::string place;       // "in place", "out of place", or "" where it was not said
  model::Cluster cluster;  // as asked for; nodes of the last row
  plan::Limits limits;
  std::vector<Row>
      rows;  // by nodes, collective, size; of one such cell the fastest first, then what does not fit
};

/// Errors (invalid_argument) name the option, or the key of the description, and what would be right.
Result<Study> answer(const Question& question);

/// Bus bandwidth as the perf tools count it, in GB/s.
double bus_bandwidth(const Row& row);

std::string text_of(const Question& question, const Study& study);
nlohmann::ordered_json json_of(const Study& study);
/// A page with charts of the times: over sizes where there are several, else over nodes.
std::string page_of(const Study& study);

}  // namespace weft::sim
