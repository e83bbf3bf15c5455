// weft_sim: predicts how long collectives take on clusters that need not exist, by simulating the very plans
// that the library runs.
//
// This file is the command line; sim/ is the rest.
#include <fmt/ranges.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "command_line.h"
#include "model/known_clusters.h"
#include "sim/study.h"

namespace {

void declare(CLI::App& app, weft::sim::Question& q, bool& json, std::string& html) {
  app.add_option("cluster", q.cluster,
                 fmt::format("Description of a cluster: a JSON file, or one of {}",
                             fmt::join(weft::model::known_clusters(), ", ")))
      ->required()
      ->type_name("CLUSTER");
  const auto list = [&](const char* names, std::vector<std::string>& into, const char* form,
                        const char* help) {
    app.add_option(names, into, help)->type_name(form)->delimiter(',')->group("What");
  };
  list("-c,--collective", q.collectives, "NAME,…", "Collectives; allreduce if left out");
  list("-s,--size", q.sizes, "BYTES,…",
       "Sizes as the perf tools print them, or 1M-1G for all doublings; 64M");
  list("-a,--algorithm", q.algorithms, "NAME,…", "Algorithms; else all that fit");
  list("--nodes", q.nodes, "N,…", "Nodes, or 2-512 for all doublings; else as the description says");
  app.add_option("--ranks-per-node", q.ranks_per_node, "Ranks of a node; else as the description says")
      ->group("What");
  app.add_option("--slice", q.slice, "Slices of so many bytes; 512K")->type_name("BYTES")->group("What");
  app.add_option("--stripe", q.stripe, "Shortest stripe of a put over several rails; else as described")
      ->type_name("BYTES")
      ->group("What");
  app.add_option("--element-bytes", q.element_bytes, "Bytes of an element; 4")->group("What");
  app.add_option("--root", q.root, "Root; 0")->group("What");
  app.add_flag("--streak", q.streak,
               "A call's time in a long streak of blocking calls, as perf tools measure; else one call "
               "alone, until "
               "its last rank is done")
      ->group("What");
  app.add_flag("--out-of-place", q.out_of_place,
               "AlltoAll's input and output do not overlap, which is quicker; else they may be the same")
      ->group("What");
  app.add_flag("--in-place", q.in_place,
               "Ranks have their input where their part of the output is: nothing is copied from one to the "
               "other; AlltoAll is planned so anyway")
      ->excludes("--out-of-place")
      ->group("What");
  app.add_flag("--strict", q.strict, "Reductions in strict order")->group("What");
  const auto condition = [&](const char* name, std::vector<std::string>& into, const char* form,
                             const char* help) {
    app.add_option(name, into, help)->type_name(form)->delimiter(',')->group("What is not as it should be");
  };
  condition("--slow-node", q.slow_nodes, "NODE=RATE", "A node at a part of its speed");
  condition("--slow-rail", q.slow_rails, "NODE:RAIL=RATE", "An interface at a part of its speed");
  condition("--fail-rail", q.failed_rails, "NODE:RAIL", "An interface that is down");
  condition("--incast", q.incasts, "NODE=STREAMS", "Others who keep sending to a node");
  app.add_option("--nodes-per-leaf", q.nodes_per_leaf, "Nodes of a leaf switch; 0: one switch for all")
      ->group("What is not as it should be");
  app.add_option("--oversubscription", q.oversubscription, "What a leaf's nodes send over what it can carry")
      ->group("What is not as it should be");
  app.add_flag("--why", q.why, "Say what the time was for; of one call alone")
      ->excludes("--streak")
      ->group("Output");
  app.add_flag("--json", json, "Print JSON")->group("Output");
  app.add_option("--html", html, "Write a page with charts")->type_name("FILE")->group("Output");
}

}  // namespace

int main(int argc, char** argv) {
  weft::sim::Question question;
  bool json = false;
  std::string html;
  CLI::App app{"Predicts how long collectives take on a cluster, by simulating the plans that Weft runs."};
  app.name("weft_sim");
  declare(app, question, json, html);
  if (const std::optional<int> over = weft::tools::parse(app, argc, argv)) return *over;
  const weft::Result<weft::sim::Study> study = weft::sim::answer(question);
  if (!study.ok()) return weft::tools::complain(app, study.status().message());
  if (!html.empty()) {
    std::ofstream file(html, std::ios::binary);
    if (!(file << weft::sim::page_of(*study)).flush())
      return weft::tools::complain(app, fmt::format("--html {}: {}", html, std::strerror(errno)));
  }
  const std::string text =
      json ? weft::sim::json_of(*study).dump(2) + "\n" : weft::sim::text_of(question, *study);
  std::fputs(text.c_str(), stdout);
  return 0;
}
