// loom: trains models, and what goes with it.
//
// This file is the command line; loom/ is the rest.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <functional>

#include "command_line.h"
#include "loom/commands.h"
#include "train/config_docs.h"

namespace {

using namespace loom::command;  // this file is their table

/// What CLI11 does not know: "--section.key=value", without the dashes. Anything else is a mistake.
std::string take_overrides(const std::vector<std::string>& extras, std::vector<std::string>& overrides) {
  for (const std::string& extra : extras) {
    if (!extra.starts_with("--") || extra.find('.') == std::string::npos ||
        extra.find('=') == std::string::npos)
      return fmt::format("{} is no option; values of the config are --section.key=value", extra);
    overrides.push_back(extra.substr(2));
  }
  return "";
}

struct Everything {
  TrainOptions train;
  PlanOptions plan;
  ReportOptions report;
  EvaluateOptions evaluate;
  SampleOptions sample;
  TokenizeOptions tokenize;
  ExportOptions export_model;
  std::string inspect;
};

CLI::App* declare_plan(CLI::App& app, PlanOptions& o) {
  CLI::App* sub = app.add_subcommand("plan", "Predict memory and time of a step, before anything runs");
  sub->allow_extras();
  sub->footer(loom::train::config_help);
  sub->add_option("config", o.config, "Config, JSON")->required();
  sub->add_option(
      "--cluster", o.cluster,
      "Cluster: a file as weft_sim reads it, or a name such as p4d; the options below override it");
  sub->add_option("-n,--ranks", o.ranks, "Ranks; the cluster's, or 1")->check(CLI::Range(1, 1 << 20));
  sub->add_option("--ranks-per-node", o.ranks_per_node, "Ranks of a node; the cluster's, or 1")
      ->check(CLI::Range(1, 1 << 20));
  sub->add_option("--vocabulary", o.vocabulary, "Vocabulary, where neither config nor dataset says");
  sub->add_option("--gflops", o.gflops, "GFLOP/s of a rank; the cluster's, or measured here");
  sub->add_option("--memory", o.memory_gbytes, "GB/s of a rank's memory; the cluster's, or 10");
  sub->add_option("--intra", o.intra_gbytes, "GB/s of a rank inside its node; the cluster's, or 10");
  sub->add_option("--inter", o.inter_gbytes, "GB/s of a node to others; the cluster's, or 1");
  sub->add_option("--intra-latency", o.intra_latency_us,
                  "Microseconds of a hop inside a node; the cluster's, or 2");
  sub->add_option("--inter-latency", o.inter_latency_us,
                  "Microseconds of a hop between nodes; the cluster's, or 20");
  sub->add_option(
      "--tier", o.tier_gbytes,
      "GB/s of a rank to the file of offloaded activations and back; the cluster's, or measured here");
  sub->add_option("--nodes", o.nodes, "Nodes, in place of --ranks")
      ->check(CLI::Range(1, 1 << 20))
      ->excludes("--ranks");
  sub->add_option("--engine", o.engine, "Engine that trains: weft, or one that the cluster describes");
  sub->add_option("--baseline", o.baseline, "Another engine of the cluster, to compare with");
  sub->add_option("--attention", o.attention, "flash, or standard: scores in memory");
  sub->add_option("--sweep", o.sweep,
                  "nodes=16:512: numbers of nodes, doubling, each with its share of the batch");
  sub->add_option("--html", o.html, "Write a page with charts of the sweep")->needs("--sweep");
  sub->add_flag("--fit", o.fit, "Search degrees, checkpointing and offloading that fit the device's memory");
  sub->add_flag("--what-if", o.what_if, "What a slow node, a failed interface or another placement costs");
  sub->add_flag("--json", o.json, "Print JSON");
  sub->add_flag("--instructions", o.instructions, "Print the program");
  return sub;
}

void declare(CLI::App& app, Everything& e) {
  CLI::App* train =
      app.add_subcommand("train", "Train a model; any key of the config may be given as --section.key=value");
  train->allow_extras();
  train->footer(loom::train::config_help);
  train->add_option("config", e.train.config, "Config, JSON")->required();
  declare_plan(app, e.plan);
  CLI::App* report = app.add_subcommand("report", "Compare runs on a page with charts");
  report->add_option("runs", e.report.runs, "Folders of runs: run.out of each")->required();
  report->add_option("-o,--out", e.report.out, "The page")->capture_default_str();
  CLI::App* evaluate =
      app.add_subcommand("eval", "Loss or accuracy of a model on the validation split of a dataset");
  evaluate->add_option("model", e.evaluate.model, "Folder of the model")->required();
  evaluate->add_option("data", e.evaluate.data, "Folder of the dataset")->required();
  evaluate->add_option(
      "--sequence-length", e.evaluate.sequence_length,
      "Tokens of a sequence; the model's context, of completions at most 512, or the longest text");
  evaluate->add_option("--batch", e.evaluate.batch, "Sequences at a time")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  evaluate->add_option("--batches", e.evaluate.batches, "Batches; all");
  evaluate->add_flag("--baseline", e.evaluate.baseline, "Also what a model of byte pairs reaches");
  CLI::App* sample = app.add_subcommand("sample", "Let a model continue a text, or say of which class it is");
  sample->add_option("model", e.sample.model, "Folder of the model")->required();
  sample->add_option("--prompt", e.sample.prompt, "How the text begins");
  sample->add_option("--tokens", e.sample.tokens, "Tokens to add")->capture_default_str();
  sample->add_option("--temperature", e.sample.temperature, "0 takes the likeliest token")
      ->capture_default_str();
  sample->add_option("--top-k", e.sample.top_k, "Draw among so many; all");
  sample->add_option("--seed", e.sample.seed, "Seed")->capture_default_str();
  CLI::App* tokenize = app.add_subcommand("tokenize", "Turn text files into a dataset");
  tokenize->add_option("files", e.tokenize.files, "Text files, UTF-8; - is standard input")->required();
  tokenize->add_option("-o,--out", e.tokenize.out, "Folder of the dataset")->required();
  tokenize->add_option("--tokenizer", e.tokenize.tokenizer, "bytes, tokenizer.json, vocab.txt, or a folder")
      ->capture_default_str();
  tokenize->add_option("--train-vocabulary", e.tokenize.train_vocabulary,
                       "Train a byte-level BPE of so many tokens instead");
  tokenize->add_flag(
      "--labels", e.tokenize.labels,
      "The files are lines of label, tab and text, or .csv or .jsonl with \"text\" and \"label\"");
  tokenize->add_flag("--completions", e.tokenize.completions,
                     "The files are .jsonl, .csv or .tsv with \"prompt\" and \"completion\", or .jsonl with "
                     "\"segments\"");
  tokenize
      ->add_option("--format", e.tokenize.format,
                   "jsonl, csv or tsv, of files with labels or completions; as their names say")
      ->check(CLI::IsMember({"jsonl", "csv", "tsv"}));
  tokenize
      ->add_option("--validation", e.tokenize.validation,
                   "Part that is held out: of every file of text; of all texts with labels, or prompts")
      ->capture_default_str();
  CLI::App* whole =
      app.add_subcommand("export", "Make a whole model, in Hugging Face's form, of a checkpoint");
  whole->add_option("checkpoint", e.export_model.checkpoint, "Folder of the checkpoint")->required();
  whole->add_option("-o,--out", e.export_model.out, "Folder of the model")->required();
  whole
      ->add_option("--dtype", e.export_model.dtype,
                   "What parameters are stored in: fp32, bf16, fp16, or auto, as the run saves models")
      ->check(CLI::IsMember({"auto", "fp32", "bf16", "fp16"}))
      ->capture_default_str();
  app.add_subcommand("inspect",
                     "Say what a checkpoint, a model, a dataset or a safetensors file holds; a checkpoint "
                     "and a dataset are read whole")
      ->add_option("path", e.inspect, "Folder or file")
      ->required();
}

loom::Status run(const std::string& command, Everything& e) {
  if (command == "plan") return plan(e.plan);
  if (command == "report") return report(e.report);
  if (command == "eval") return evaluate(e.evaluate);
  if (command == "sample") return sample(e.sample);
  if (command == "tokenize") return tokenize(e.tokenize);
  if (command == "export") return export_model(e.export_model);
  return inspect(e.inspect);
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on the size of files is told as a failed write, not by death
  Everything everything;
  CLI::App app{"Trains transformer language models, on one process or many, with collectives by Weft."};
  app.name("loom");
  app.require_subcommand(1);
  declare(app, everything);
  if (const auto ended =
          weft::tools::parse(app, argc, argv, "loom --help lists commands, loom COMMAND --help options"))
    return *ended;
  for (auto [name, overrides] :
       {std::pair{"train", &everything.train.overrides}, {"plan", &everything.plan.overrides}})
    if (const std::string problem = take_overrides(app.get_subcommand(name)->remaining(), *overrides);
        !problem.empty())
      return weft::tools::complain(app, problem);
  const std::string command = app.get_subcommands().front()->get_name();
  int code = 0;
  loom::Status status;
  if (command == "train") {
    const loom::Result<int> ended = train(everything.train);
    status = ended.status();
    if (ended.ok()) code = *ended;
  } else {
    status = run(command, everything);
  }
  if (status.ok()) return code;
  return weft::tools::complain(app, status.message(),
                               status.code() == loom::Code::invalid_argument ? weft::tools::kWrongUsage : 1);
}
