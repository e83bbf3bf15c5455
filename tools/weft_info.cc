// weft_info: says what Weft sees and what it would do: topology, providers, settings, algorithms, and with
// --explain the plan that would be used for a request, and why.
//
// This file is the command line; info/ is the rest.
#include <fmt/ranges.h>

#include "base/json_text.h"
#include "base/settings.h"
#include "command_line.h"
#include "info/explain.h"
#include "info/section.h"
#include "model/known_clusters.h"
#include "model/pins.h"

namespace {

struct Options {
  bool topology = false, providers = false, settings = false, algorithms = false, tuning = false,
       cuda = false, nccl = false, json = false;
  std::vector<std::string> explain;  // collective, size
  weft::info::Question question;

  bool any_section() const {
    return topology || providers || settings || algorithms || tuning || cuda || nccl || !explain.empty();
  }
};

void declare(CLI::App& app, Options& options) {
  app.add_flag("--topology", options.topology, "CPUs, memory, caches, interfaces and GPUs of this host");
  app.add_flag("--providers", options.providers, "What libfabric offers here");
  app.add_flag("--settings", options.settings, "Environment settings: meaning and current value");
  app.add_flag("--algorithms", options.algorithms, "Every algorithm in a sentence");
  app.add_flag("--tuning", options.tuning, "What was measured of this host, and where it is kept");
  app.add_flag("--cuda", options.cuda, "What the CUDA driver and its devices offer, and what they lack");
  app.add_flag("--nccl", options.nccl,
               "Which NCCL is here, and who does the work of programs that call NCCL");
  app.add_flag("--json", options.json, "Print JSON");
  app.add_option("--explain", options.explain,
                 "The plan for a collective and a size as the perf tools print it: allreduce 4M")
      ->type_name("COLLECTIVE SIZE")
      ->expected(2);
  const auto explains = [&](CLI::Option* option) { option->needs("--explain")->group("With --explain"); };
  auto& question = options.question;
  explains(app.add_option("-n,--ranks", question.ranks, "Ranks")->capture_default_str());
  explains(app.add_option("--nodes", question.nodes, "Nodes, with ranks in blocks as even as possible")
               ->capture_default_str());
  explains(
      app.add_flag("--one-machine", question.one_machine,
                   "The nodes are pretended, all on this machine, as weft_run --nodes has them; else each "
                   "is a machine of its own"));
  explains(
      app.add_option("--root", question.root, "Root, or the peer of send and recv")->capture_default_str());
  explains(app.add_option("--element-bytes", question.element_bytes, "Bytes of an element")
               ->capture_default_str());
  explains(app.add_flag("--strict", question.strict, "Reductions in strict order"));
  explains(
      app.add_option("--machine", question.machine_file,
                     fmt::format("Description of a machine or a cluster: a JSON file, or one of {}; else "
                                 "nodes like this host",
                                 fmt::join(weft::model::known_clusters(), ", ")))
          ->type_name("MACHINE")
          ->excludes("--one-machine"));
  explains(app.add_flag("--steps", question.steps, "List the plan's steps"));
  explains(app.add_option("--rank", question.rank, "Whose steps")->capture_default_str());
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{
      "Says what Weft sees on this host and what it would do. Without options: everything but --explain."};
  app.name("weft_info");
  declare(app, options);
  if (const std::optional<int> over = weft::tools::parse(app, argc, argv)) return *over;

  const bool all = !options.any_section();
  std::vector<weft::info::Section> sections;
  if (all) sections.push_back(weft::info::version_section());
  if (all || options.topology) sections.push_back(weft::info::topology_section());
  if (all || options.providers) sections.push_back(weft::info::providers_section());
  if (all || options.settings) sections.push_back(weft::info::settings_section());
  if (all || options.algorithms) sections.push_back(weft::info::algorithms_section());
  if (all || options.tuning) sections.push_back(weft::info::tuning_section());
  if (all || options.cuda) sections.push_back(weft::info::cuda_section());
  if (all || options.nccl) sections.push_back(weft::info::nccl_section());
  if (!options.explain.empty()) {
    options.question.collective = options.explain[0];
    options.question.size = options.explain[1];
    options.question.cuda = options.cuda;
    weft::Result<weft::info::Section> section = weft::info::explain(options.question);
    if (!section.ok()) return weft::tools::complain(app, section.status().message());
    sections.push_back(section.take());
  }

  if (options.json) {
    nlohmann::ordered_json json = nlohmann::ordered_json::object();
    for (const auto& section : sections) json[section.name] = section.json;
    fmt::print("{}\n", weft::json_text(json, 2));
  } else {
    for (size_t i = 0; i < sections.size(); ++i) {
      const bool headed = sections.size() > 1 && sections[i].name != "version";
      fmt::print("{}{}{}", i > 0 ? "\n" : "", headed ? fmt::format("== {} ==\n", sections[i].name) : "",
                 sections[i].text);
    }
  }
  // A wrong setting does not keep this tool from showing the right ones, but it is said.
  if (!weft::settings_status().ok()) return weft::tools::complain(app, weft::settings_status().message());
  const auto pins = weft::model::parse_pins(weft::settings().algo);
  if (!pins.ok()) return weft::tools::complain(app, pins.status().message());
  return 0;
}
