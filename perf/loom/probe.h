// What loom_probe measures and checks, a line of JSON for each result.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace loom::probe {

/// Of a job whose speed is wanted: GPT-2 of these sizes.
struct CeilingOptions {
  int64_t layers = 12, width = 768, heads = 12, vocabulary = 50257, batch = 64, tokens = 1024;
  int64_t cube = 8192;  // rows and columns of the square product
  int64_t copy_bytes = int64_t{1} << 30;
  std::string precision = "bf16";
  int gpu = 0, repeats = 20;
};
/// The best that this GPU does of what a step is made of, each alone and many times in a row: a copy of its
/// memory, products of the job's shapes, attention of the job's shape.
Status measure_ceilings(const CeilingOptions& options);

struct GradientOptions {
  std::vector<std::string> families;  // empty: all
  int64_t width = 32, layers = 2, tokens = 8, batch = 4;
  int gpu = -1;        // -1: on CPUs
  int parameters = 0;  // of each model, that are compared; 0: all
  double tolerance = 1e-3;
};
/// Gradients of small models in fp32 beside differences of the loss, for each family and each task that it
/// has a head for. Errors: invalid_data where one is further off than the tolerance; the engine's.
Status check_gradients(const GradientOptions& options);

}  // namespace loom::probe
