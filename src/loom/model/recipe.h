// Recipe: what a unit computes, as a list of steps. One description serves a rank that has the whole unit and
// tensor ranks that share it: with one rank the list has no exchanges. The program's instructions are ranges
// of steps between exchanges; the verifier, the cost model, the memory planner and the runner (runner.h) read
// the same list.
//
// A step is a kernel with the arrays that it reads and writes, its sizes, and the part of the unit's
// parameters that it applies. Arrays are numbered within a recipe, which has them for forward and backward:
//
//   given      the caller has them: a unit's input and output, tokens, losses …
//   saved      forward leaves them for backward; they lie in one buffer
//   workspace  of one pass; they lie in one buffer, and share its bytes by their lifetimes
//   exchanged  tensor ranks exchange them, so that each is a buffer of its own
//
// Names: M rows of a microbatch, C the width, H·D heads, F the hidden layer, V the vocabulary; R rows that
// the head computes. Where rows are divided (sequence_parallel.h) a rank's `own` rows are M / T of them.
//
// Steps and arrays have the same numbers, offsets and bytes on all tensor ranks. The last rank's columns may
// be fewer, so a rank's steps have its own sizes.
//
// Thread safety: values; pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "model/pass.h"
#include "model/units.h"

namespace loom::model {

/// What a step computes: its operands in order, -> its results. Gradients of parameters are results, too.
enum class Kernel {
  // of the embedding
  embed,                 // -> y: rows of the tables of tokens, positions and types, added up
  embed_gradient,        // d ->: their gradients
  split_embed,           // -> summand: rows of the tokens that this rank has
  split_embed_gradient,  // d ->
  places,                // x -> y: x + positions + type, of own rows
  places_gradient,       // d ->
  // of blocks and heads
  norm,                 // x -> y, mean, deviation; an RMS norm has no mean
  norm_gradient,        // x, mean, deviation, dy -> dx, which `adds` to what is there
  linear,               // x -> y; with the bias unless `adds`: a summand has none
  linear_input,         // dy -> dx
  linear_weight,        // x, dy ->
  head_norm,            // qkv -> qkv, deviations of heads
  head_norm_gradient,   // qkv, deviations -> changes dqkv
  rotary,               // changes qkv; back again with `adds`
  attention,            // qkv -> heads, log-sums
  attention_gradient,   // qkv, heads, log-sums, dheads -> dqkv
  activation,           // x -> y
  activation_gradient,  // x, dy -> dx
  gated,                // gate and up -> activation(gate) · up
  gated_gradient,       // gate and up, dy -> their gradients
  residual,             // x, product -> x + dropout(product + bias)
  dropout,              // x -> y; nothing where both are the same and nothing is dropped
  add,                  // a, b -> a + b
  copy,                 // a -> b
  clear,                // ->: zeros where no other step writes the gradient; or a number that is counted up
  // of the head
  pick,             // x, rows -> picked, losses: rows that the head computes, losses are zeros
  logits,           // x -> logits
  logits_gradient,  // logits, x -> dx; the matrix's gradient is added to from the second time on
  cross_entropy,    // logits, targets -> logits, losses: logits become their derivatives
  split_begin,      // logits, targets -> logits, numbers: what other ranks must know of this rank's
  split_finish,     // logits, targets, all numbers -> logits, losses
  count_right,      // logits, targets -> right: adds sequences whose likeliest class is the target
  sum_losses,       // losses -> loss: in the order of rows
  read_logits,      // logits of one row -> those, of the type of sums
  give_back,        // d of picked rows, back -> d of own rows
  // exchanges of tensor ranks
  gather,          // own -> all
  all_reduce,      // changes a summand to the sum
  reduce_scatter,  // summand of all rows -> sum of own rows
};
constexpr bool is_exchange(Kernel kernel) { return kernel >= Kernel::gather; }

enum class Place { given, saved, workspace, exchanged };

/// What the caller has. `loss` is the sum of losses, `right` counts a classification's sequences, `logits`
/// are one row's. Losses are of M rows; where the head picks R rows the first R are theirs, and the others
/// are zeros.
enum class Given {
  input,
  output,
  derivative,
  tokens,
  targets,
  losses,
  loss,
  right,
  logits,
  picked,  // these three are Pass::arrays'
  picked_targets,
  back,
  none
};
constexpr int kGiven = 9;  // that Bound::give() takes

struct Array {
  const char* name = "";
  Place place = Place::workspace;
  Given given = Given::none;
  int64_t bytes = 0;
  int64_t offset = 0;  // in the buffer of what is saved, or in the workspace
  /// Whether it has this rank's rows, or its summand of a sum, and not what all ranks have together.
  bool partial = false;
};

struct Step {
  Kernel kernel = Kernel::copy;
  std::array<int, 5> reads = {-1, -1, -1, -1, -1};  // numbers of arrays
  std::array<int, 3> writes = {-1, -1, -1};
  Part part = Part::token_embedding;  // of the unit, that is applied
  /// A product's are [rows, in] · [in, out]; other arrays [rows, in]. Attention's keys are [rows, out].
  int64_t rows = 0, in = 0, out = 0;
  int64_t first = 0;            // the first of these rows in the head's arrays
  int64_t of_rows = 0;          // rows of all steps that do this for a part of the rows
  bool counted = false;         // rows are those of BatchArrays::count
  Site site = Site::attention;  // of what is dropped
  float probability = 0;
  int64_t per_sample = 0;  // rows of a sequence: where what is dropped stands in the global batch
  ops::Activation activation = ops::Activation::tanh;
  bool own = false;  // of own rows
  bool adds = false;
  /// The next step may be done at once with this one (fusion.h): their arrays lie apart.
  bool fuses = false;
};

/// Whether it makes gradients of parameters.
bool makes_gradient(Kernel kernel);
/// Whether it looks at how long sequences are, where a model attends by length.
constexpr bool attends(Kernel kernel) {
  return kernel == Kernel::attention || kernel == Kernel::attention_gradient;
}

struct Recipe {
  std::vector<Array> arrays;
  std::vector<Step> forward, backward;  // of a head all is in `forward`
  int64_t saved_bytes = 0, workspace_bytes = 0;
  int64_t exchanged_bytes = 0;  // of exchanged arrays that one pass uses
  int64_t kept_bytes = 0;       // of exchanged arrays that forward leaves for backward
};

/// Rows whose logits one rank has at a time, where nothing else is asked for: the largest buffer of small
/// models.
constexpr int64_t kHeadRows = 512;

/// What recipes depend on of the table of operators that runs them: of the CPU's as it is here.
struct TableTraits {
  /// Rows whose logits one rank has at a time; T tensor ranks have T times as many, of a part of the columns.
  /// Each piece of rows reads and writes the whole gradient of the head's matrix.
  int64_t head_rows = kHeadRows;
  /// A GPU's table has logits of the type of activations, and not of that of sums. It does some neighbouring
  /// steps at once.
  bool of_gpu = false;

  bool operator==(const TableTraits&) const = default;
};

/// What recipes depend on besides the spec.
struct RecipeSizes {
  Share share;
  int64_t batch = 0, tokens = 0;
  int64_t targets = 0;  // of a sequence, at most, that a masked model's head computes; 0: all may have one
  int64_t element_bytes = 4;  // of activations
  int64_t sum_bytes = 4;      // of statistics, and of a CPU's logits
  TableTraits table = {};
  bool packed = false;  // a sequence holds several texts (batch_arrays.h)
  int64_t rows() const { return batch * tokens; }
};
template <typename T>
RecipeSizes sizes_for(const Share& share, int64_t batch, int64_t tokens, int64_t targets = 0) {
  return {share, batch, tokens, targets, sizeof(T), sizeof(acc_t<T>)};
}

/// What a head's pass is for: forward, loss and backward at once; losses alone; logits of one row.
enum class HeadPass { loss, evaluation, logits };
/// R: rows that a head puts together before it computes them (batch_arrays.h); 0 where it computes all.
int64_t picked_rows(const ModelSpec& spec, const RecipeSizes& sizes, HeadPass pass);

Recipe embedding_recipe(const ModelSpec& spec, const RecipeSizes& sizes);
Recipe block_recipe(const ModelSpec& spec, const RecipeSizes& sizes);

Recipe head_recipe(const ModelSpec& spec, const RecipeSizes& sizes, HeadPass pass);

/// All recipes of a model: blocks are alike.
struct Recipes {
  Recipe embedding, block, loss, evaluation, logits;

  Recipes(const ModelSpec& spec, const RecipeSizes& sizes);
  const Recipe& head(HeadPass pass) const {
    return pass == HeadPass::loss ? loss : pass == HeadPass::evaluation ? evaluation : logits;
  }
};

/// Bytes of the buffers that units share.
struct BufferSizes {
  int64_t activation = 0;                                                    // of a unit's output, own rows
  int64_t saved = 0;                                                         // of a block
  int64_t kept = 0;                                                          // of a block: Recipe::kept_bytes
  int64_t workspace = 0;                                                     // enough for any pass
  int64_t embedding_workspace = 0, block_workspace = 0, head_workspace = 0;  // … of a unit of that kind
  int64_t workspace_of(UnitKind kind) const {
    return kind == UnitKind::embedding ? embedding_workspace
           : kind == UnitKind::block   ? block_workspace
                                       : head_workspace;
  }
};
BufferSizes buffer_sizes(const ModelSpec& spec, const RecipeSizes& sizes, const Recipes& recipes);

}  // namespace loom::model
