// loom_probe: what is to be known of a device before a job's speed can be judged, and whether it computes
// gradients right. perf/gpu/quarter_hour.sh runs it. No GPU has run it so far.
//
//   loom_probe ceilings --layers 12 --width 768 --heads 12 --batch 64 --tokens 1024
//   loom_probe gradients --gpu 0
#include "loom/probe.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

namespace {

using namespace loom;

CLI::App* add_ceilings(CLI::App& app, probe::CeilingOptions& o) {
  CLI::App* const command = app.add_subcommand("ceilings", "times what a GPU's step is made of, each alone");
  command->add_option("--layers", o.layers, "blocks (12)")->check(CLI::PositiveNumber);
  command->add_option("--width", o.width, "of the model (768)")->check(CLI::PositiveNumber);
  command->add_option("--heads", o.heads, "(12)")->check(CLI::PositiveNumber);
  command->add_option("--vocabulary", o.vocabulary, "(50257)")->check(CLI::PositiveNumber);
  command->add_option("--batch", o.batch, "sequences of a microbatch (64)")->check(CLI::PositiveNumber);
  command->add_option("--tokens", o.tokens, "of a sequence (1024)")->check(CLI::PositiveNumber);
  command->add_option("--cube", o.cube, "rows and columns of the square product (8192)")
      ->check(CLI::PositiveNumber);
  command->add_option("--copy", o.copy_bytes, "bytes of the copy (1073741824)")->check(CLI::PositiveNumber);
  command->add_option("--repeats", o.repeats, "(20)")->check(CLI::PositiveNumber);
  command->add_option("--precision", o.precision, "fp32, bf16 or fp16 (bf16)")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  command->add_option("--gpu", o.gpu, "number of the GPU (0)")->check(CLI::Range(0, 1023));
  return command;
}

CLI::App* add_gradients(CLI::App& app, probe::GradientOptions& o) {
  CLI::App* const command =
      app.add_subcommand("gradients", "compares gradients of small models with differences of the loss");
  command->add_option("--families", o.families, "with commas between (all)")->delimiter(',');
  command->add_option("--width", o.width, "of the models, a multiple of 2 heads (32)")
      ->check(CLI::PositiveNumber);
  command->add_option("--layers", o.layers, "blocks (2)")->check(CLI::PositiveNumber);
  command->add_option("--tokens", o.tokens, "of a sequence (8)")->check(CLI::Range(4, 4096));
  command->add_option("--batch", o.batch, "sequences (4)")->check(CLI::PositiveNumber);
  command->add_option("--parameters", o.parameters, "of each model, that are compared; 0: all (0)")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--tolerance", o.tolerance, "largest relative error (1e-3)")
      ->check(CLI::PositiveNumber);
  command->add_option("--gpu", o.gpu, "number of the GPU; -1: on CPUs (-1)")->check(CLI::Range(-1, 1023));
  return command;
}

}  // namespace

int main(int argc, char** argv) {
  probe::CeilingOptions ceilings;
  probe::GradientOptions gradients;
  CLI::App app("Ceilings of a GPU, and gradients by differences");
  app.require_subcommand(1);
  const CLI::App* const asked = add_ceilings(app, ceilings);
  add_gradients(app, gradients);
  CLI11_PARSE(app, argc, argv);
  const Status status =
      asked->parsed() ? probe::measure_ceilings(ceilings) : probe::check_gradients(gradients);
  if (!status.ok()) fmt::print(stderr, "loom_probe: {}\n", status.message());
  return status.ok() ? 0 : 1;
}
