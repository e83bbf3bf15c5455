// The table of keys, and the two texts that are written from it.
#include "train/config_docs.h"

#include <fmt/format.h>

#include <map>

#include "model/spec.h"
#include "train/config_keys.h"

namespace loom::train {
namespace {

constexpr double kMostInt32 = 2147483647, kMostSteps = 4e9, kMany = 1e15;

constexpr std::string_view kHead =
    R"(# Loom's configuration

This page lists every key of a Loom config. It is generated from the table in `src/loom/train/config_docs.cc`.
`loom train --help` prints the same table.

A config is a JSON object of sections. Every key may also be given on the command line as `--section.key=value`.
Loom refuses an unknown key and names the nearest known one. Loom also refuses a value of another kind or out of range.
`loom plan config.json` shows what the config takes before anything runs.

```json
{
  "model": {"width": 128, "layers": 4, "heads": 4},
  "data": {"folder": "data", "sequence_length": 128, "global_batch": 16},
  "parallel": {"sharded_data_parallel_degree": 2},
  "run": {"out": "run", "steps": 500, "checkpoint_every": 100}
}
```

The run stores its config with every open value filled in, and prints the values that are no defaults.
`run.out/config.json` starts the same run again on the same number of ranks. For another number of ranks, set `data.microbatch` and `parallel.threads` to 0, and
`parallel.sharded_data_parallel_degree` and `parallel.partition` to `auto`.
)";

}  // namespace

const std::vector<KeyDoc>& key_docs() {
  static const std::vector<KeyDoc> docs = {
      {"model.family",
       "choice",
       "",
       {},
       "gpt2, gptj, gpt_neox, gpt_neo, bloom, llama, mistral, qwen2, qwen3, bert, roberta",
       "gpt2, or the family of model.from",
       "The model family."},
      {"model.task",
       "choice",
       "",
       {},
       "causal, masked, classification",
       "the task of the data or the family",
       "What the model is trained for. A dataset with labels is for classification."},
      {"model.from",
       "text",
       "",
       {},
       "a folder",
       "random weights",
       "The Hugging Face model to start from. It brings family and sizes. Another size beside it is refused, "
       "except "
       "model.dropout."},
      {"model.vocabulary",
       "whole number",
       "tokens",
       {},
       "",
       "the vocabulary of the dataset",
       "The size of the vocabulary. It must be at least that of the dataset."},
      {"model.context",
       "whole number",
       "tokens",
       {},
       "",
       "data.sequence_length",
       "The longest sequence of the model."},
      {"model.width", "whole number", "elements", {}, "", "256", "The width of the hidden states."},
      {"model.layers",
       "whole number",
       "blocks",
       {{0, model::kMostLayers}},
       "",
       "4",
       "The number of transformer blocks."},
      {"model.heads",
       "whole number",
       "heads",
       {},
       "",
       "4",
       "The number of attention heads. It must divide the width."},
      {"model.key_value_heads",
       "whole number",
       "heads",
       {},
       "",
       "as many as model.heads",
       "The number of heads of keys and values, in llama and its relatives. It must divide model.heads; 0 "
       "is "
       "the default."},
      {"model.feed_forward",
       "whole number",
       "elements",
       {},
       "",
       "4 times the width; in llama and its relatives 8/3 times, rounded up to a multiple of 256",
       "The width of the hidden layer in a block."},
      {"model.activation",
       "choice",
       "",
       {},
       "gelu_new, gelu, relu, silu",
       "that of the family",
       "The activation in a block's feed-forward part."},
      {"model.dropout",
       "number",
       "",
       {},
       "0 to below 1",
       "0, or that of model.from",
       "The dropout probability of embedding, residuals, attention and a classifier's head, where the family "
       "has "
       "one: llama and its relatives have attention's alone."},
      {"model.tied",
       "flag",
       "",
       {},
       "true, false",
       "that of the family, or of model.from",
       "Whether embedding and head share one matrix."},

      {"data.folder", "text", "", {}, "a folder", "", "The dataset that `loom tokenize` wrote."},
      {"data.sequence_length",
       "whole number",
       "tokens",
       {{1, kMostInt32}},
       "",
       "",
       "The length of a training sequence."},
      {"data.global_batch",
       "whole number",
       "sequences",
       {{1, kMostInt32}},
       "",
       "",
       "The sequences of a step, over all ranks. The data ranks must divide it."},
      {"data.microbatch",
       "whole number",
       "sequences",
       {{0, kMostInt32}},
       "",
       "a rank's whole share",
       "The sequences that a rank computes together. A smaller value accumulates gradients over "
       "microbatches."},
      {"data.packing",
       "flag",
       "",
       {},
       "true, false",
       "",
       "Whether a sequence holds as many texts as it has room for, which do not see each other. Only for a "
       "dataset of `loom tokenize --completions`. Learned positions behind the longest text stay untrained. "
       "Predicted times and FLOP/s count attention over whole sequences."},

      {"parallel.sharded_data_parallel_degree",
       "whole number",
       "ranks",
       {{0, 1e6}},
       "1 to 1000000, or auto",
       "",
       "The data ranks that share one copy of the state (a partition group). `auto` takes the smallest "
       "degree that "
       "fits parallel.memory_limit_mb."},
      {"parallel.shard_optimizer_state",
       "flag",
       "",
       {},
       "true, false",
       "",
       "Whether the degree above divides only fp32 masters and moments. Parameters and gradients then stay "
       "whole."},
      {"parallel.pipeline_degree",
       "whole number",
       "stages",
       {{1, 1e6}},
       "",
       "",
       "The stages of the pipeline."},
      {"parallel.tensor_degree",
       "whole number",
       "ranks",
       {{1, 1e6}},
       "",
       "",
       "The ranks that share the work on each layer. The degree must divide model.heads and "
       "model.key_value_heads."},
      {"parallel.pipeline",
       "choice",
       "",
       {},
       "simple, 1f1b, interleaved",
       "",
       "The schedule of the pipeline."},
      {"parallel.virtual_stages",
       "whole number",
       "parts",
       {{1, 1e6}},
       "",
       "",
       "The parts of the model on each rank, with `interleaved`."},
      {"parallel.active_microbatches",
       "whole number",
       "microbatches",
       {{0, 1e9}},
       "",
       "what the schedule needs",
       "The most microbatches that a stage has begun and not finished. With `1f1b`, more than the number of "
       "stages hide slow "
       "links and take memory."},
      {"parallel.partition",
       "choice",
       "",
       {},
       "auto, tree, even, or first units such as 0,5,9",
       "",
       "How the pipeline cuts the model. `auto` finds the best cut, `tree` is SMP's algorithm, `even` counts "
       "units."},
      {"parallel.tied",
       "choice",
       "",
       {},
       "auto, copies, together",
       "",
       "What a pipeline does with a tied matrix. `copies` keeps one at each end. `together` allows no cut "
       "between them. "
       "`auto` is `copies`, but asks for a choice where parallel.partition lists units."},
      {"parallel.memory_weight",
       "number",
       "",
       {{0, 1}},
       "",
       "0.8; 0.2 with parallel.optimize speed",
       "The weight of memory against time in the partition."},
      {"parallel.profile",
       "flag",
       "",
       {},
       "true, false",
       "",
       "Whether rank 0 measures time and memory of each kind of unit for the partition. Otherwise the cost "
       "model gives them."},
      {"parallel.optimize",
       "choice",
       "",
       {},
       "memory, speed",
       "",
       "With tensor ranks: `memory` divides the rows between sublayers (sequence parallelism), `speed` keeps "
       "all rows on each "
       "rank."},
      {"parallel.prescaled_batch",
       "flag",
       "",
       {},
       "true, false",
       "",
       "Whether each tensor rank reads all sequences of its group. Otherwise each reads a part, and the "
       "ranks exchange them."},
      {"parallel.placement",
       "choice",
       "",
       {},
       "cluster, spread, or the letters D, P and T in any order",
       "",
       "Which ranks are neighbours. The rightmost letter varies fastest. `cluster` is DPT, `spread` is TPD."},
      {"parallel.memory_limit_mb",
       "whole number",
       "MiB",
       {{0, 1e12}},
       "",
       "no limit",
       "The most memory of a rank's arena, on the stage that needs most."},
      {"parallel.prefetch",
       "whole number",
       "instructions",
       {{0, 1000}},
       "",
       "",
       "How many computing instructions ahead of its use a gather is issued."},
      {"parallel.in_flight",
       "whole number",
       "reductions",
       {{1, 1000}},
       "",
       "",
       "The most reductions that a rank has issued and not waited for."},
      {"parallel.live_parameters",
       "whole number",
       "elements",
       {{0, kMany}},
       "",
       "",
       "The elements of gathered units that may stay in memory for their next use."},
      {"parallel.activation_checkpointing",
       "choice",
       "",
       {},
       "none, each, group_K, contiguous, every_K",
       "",
       "Which blocks are computed again in the backward pass. `group_K` recomputes K blocks together, "
       "`every_K` recomputes one "
       "block of K. `contiguous` takes all blocks of a part together."},
      {"parallel.activation_offloading",
       "flag",
       "",
       {},
       "true, false",
       "",
       "Whether activations that are not needed soon go to a file meanwhile."},
      {"parallel.activation_loading_horizon",
       "whole number",
       "instructions",
       {{0, 1e6}},
       "",
       "",
       "How many computing instructions ahead of its use an offloaded activation is loaded."},
      {"parallel.offload_folder",
       "text",
       "",
       {},
       "a folder",
       "TMPDIR, or /var/tmp",
       "Where the file of offloaded activations lies. The folder must be on a disk. On GPUs there is no "
       "file: "
       "they lie in pinned memory of the host."},
      {"parallel.precision",
       "choice",
       "",
       {},
       "fp32, bf16, fp16",
       "",
       "The type of parameters, activations and messages. Masters, moments and sums stay fp32."},
      {"parallel.strict",
       "flag",
       "",
       {},
       "true, false",
       "",
       "Whether losses have the same bits on every layout with the same tensor degree and data.microbatch."},
      {"parallel.device",
       "choice",
       "",
       {},
       "auto, cpu, cuda",
       "",
       "Where the ranks compute. With `cuda` each takes the GPU of its number on the machine, and ranks "
       "share "
       "GPUs where there are fewer. `auto` takes GPUs if every rank has one that can train the model. "
       "`loom plan` does not read it: it models CPUs, or the machine of `--cluster`."},
      {"parallel.attention",
       "choice",
       "",
       {},
       "own, cudnn, auto",
       "",
       "What computes attention on GPUs. `own` is Loom's kernels. `cudnn` is NVIDIA's cuDNN, and the run "
       "ends before "
       "its first step if cuDNN cannot compute the model's attention. `auto` takes cuDNN if every rank can, "
       "or else "
       "the kernels, and the run logs why. `loom plan` does not read it: it models Loom's kernels."},
      {"parallel.threads",
       "whole number",
       "threads",
       {{0, 4096}},
       "",
       "the CPUs that the rank may run on, divided by the ranks that share them",
       "The computing threads of a rank."},

      {"optimizer.learning_rate", "number", "", {{0, 1e6}}, "", "", "The learning rate after the warmup."},
      {"optimizer.final_rate",
       "number",
       "",
       {},
       "0 to optimizer.learning_rate",
       "a tenth of optimizer.learning_rate",
       "The learning rate of the last step."},
      {"optimizer.warmup_steps",
       "whole number",
       "steps",
       {{0, kMostSteps}},
       "",
       "",
       "The steps in which the rate rises from 0."},
      {"optimizer.schedule",
       "choice",
       "",
       {},
       "cosine, linear, constant",
       "",
       "How the rate falls after the warmup."},
      {"optimizer.beta1", "number", "", {{0, 0.999999}}, "", "", "AdamW's decay of the first moment."},
      {"optimizer.beta2", "number", "", {{0, 0.9999999}}, "", "", "AdamW's decay of the second moment."},
      {"optimizer.epsilon", "number", "", {{1e-30, 1}}, "", "", "AdamW's term in the denominator."},
      {"optimizer.weight_decay",
       "number",
       "",
       {{0, 1e6}},
       "",
       "",
       "AdamW's decoupled weight decay, of matrices only."},
      {"optimizer.clip_norm",
       "number",
       "",
       {{0, 1e30}},
       "",
       "0: no clipping",
       "The largest norm of the whole gradient. A larger gradient is scaled down."},

      {"loss_scale.initial", "number", "", {{1e-6, 1e30}}, "", "", "The loss scale of the first fp16 step."},
      {"loss_scale.factor",
       "number",
       "",
       {{1.001, 65536}},
       "",
       "",
       "What the scale is divided by after an overflow, and multiplied by after a window."},
      {"loss_scale.window",
       "whole number",
       "steps",
       {{1, kMany}},
       "",
       "",
       "The steps without an overflow after which the scale grows."},
      {"loss_scale.minimum",
       "number",
       "",
       {{1e-6, 1e30}},
       "",
       "",
       "The smallest scale. An overflow at this scale ends the run."},
      {"loss_scale.delayed_shift",
       "whole number",
       "overflows",
       {{1, 1e6}},
       "",
       "",
       "Which overflow since the last growth divides the scale. Earlier ones only skip their step."},
      {"loss_scale.static",
       "number",
       "",
       {},
       "0, or 1e-06 to 1e+30",
       "0: the scale adapts",
       "A fixed loss scale. The 32nd overflow in a row ends the run."},

      {"run.out",
       "text",
       "",
       {},
       "a folder",
       "",
       "Where the run writes. All nodes must see it. One run owns it at a time."},
      {"run.steps", "whole number", "steps", {{1, kMostSteps}}, "", "", "The last step."},
      {"run.seed",
       "whole number",
       "",
       {},
       "",
       "",
       "The seed of weights, dropout, masks and the order of data."},
      {"run.evaluate_every",
       "whole number",
       "steps",
       {{0, kMostSteps}},
       "",
       "at the end only",
       "The steps between evaluations."},
      {"run.evaluation_steps",
       "whole number",
       "batches",
       {{1, kMany}},
       "",
       "",
       "The batches of an evaluation, at most."},
      {"run.checkpoint_every",
       "whole number",
       "steps",
       {{0, kMostSteps}},
       "",
       "at the end only",
       "The steps between checkpoints."},
      {"run.keep", "whole number", "checkpoints", {{1, 1e6}}, "", "", "The newest checkpoints that stay."},
      {"run.checkpoint_optimizer",
       "flag",
       "",
       {},
       "true, false",
       "",
       "Whether checkpoints hold the optimizer's moments. Without them a resumed run starts its moments at "
       "zero."},
      {"run.save_model_every",
       "whole number",
       "steps",
       {{0, kMostSteps}},
       "",
       "at the end only",
       "The steps between whole models in `models/`."},
      {"run.model_dtype",
       "choice",
       "",
       {},
       "auto, fp32, bf16, fp16",
       "",
       "The type that saved models are stored in. `auto` is that of `model.from`, by its `config.json`, or "
       "fp32."},
      {"run.resume",
       "flag",
       "",
       {},
       "true, false",
       "",
       "Whether the run continues from the newest checkpoint of run.out. With false, run.out may hold none."},
      {"run.resume_from",
       "text",
       "",
       {},
       "a folder",
       "none",
       "The checkpoint to start from where run.out has none. Any layout may have written it."},
      {"run.trace_step",
       "whole number",
       "step",
       {},
       "0 to run.steps",
       "the last step",
       "The step whose timeline the report shows, counted from 1."},
      {"run.trace_ranks",
       "whole number",
       "ranks",
       {{0, 1e6}},
       "",
       "",
       "The ranks in that timeline, from rank 0 on. 0 leaves the timeline out."},
      {"run.remeasure",
       "flag",
       "",
       {},
       "true, false",
       "",
       "Whether the run measures its machine's rates anew. With false, it takes those of an earlier run from "
       "`$XDG_CACHE_HOME/loom` or `~/.cache/loom`, where there are any."},
  };
  return docs;
}

namespace {

/// The default as a reader wants it.
std::string default_of(const KeyDoc& doc, const std::string& json) {
  if (json == "null" || json == "\"\"" || json == "0" || json == "0.0")
    if (!doc.otherwise.empty()) return std::string(doc.otherwise);
  if (doc.key == "parallel.memory_weight" || doc.key == "optimizer.final_rate")
    return std::string(doc.otherwise);
  if (json == "\"\"") return "none";
  return json;
}

std::map<std::string_view, std::string> defaults() {
  std::map<std::string_view, std::string> values;
  for (const KeyDoc& doc : key_docs())
    for (const KeyDefault& each : key_defaults())
      if (each.key == doc.key) values[doc.key] = default_of(doc, each.value);
  return values;
}

}  // namespace

std::string values_of(const KeyDoc& doc) {
  if (!doc.values.empty()) return std::string(doc.values);
  if (doc.limits) return fmt::format("{} to {}", doc.limits->least, doc.limits->greatest);
  return std::string(doc.kind);
}

std::string config_help() {
  const auto values = defaults();
  std::string text =
      "Keys of the config, each with its default and (allowed values), as in "
      "docs/reference/loom-config.md:\n";
  for (const KeyDoc& doc : key_docs())
    text += fmt::format("  {} {} ({}{}{})\n      {}\n", doc.key, values.at(doc.key), values_of(doc),
                        doc.unit.empty() ? "" : " ", doc.unit, doc.meaning);
  return text;
}

std::string config_markdown() {
  const auto values = defaults();
  std::string page(kHead);
  std::string_view section;
  for (const KeyDoc& doc : key_docs()) {
    const std::string_view its = doc.key.substr(0, doc.key.find('.'));
    if (its != section)
      page += fmt::format(
          "\n## {}\n\n| key | kind | unit | default | allowed | meaning |\n| --- | --- | --- | --- | --- | "
          "--- |\n",
          section = its);
    page += fmt::format("| `{}` | {} | {} | {} | {} | {} |\n", doc.key, doc.kind, doc.unit,
                        values.at(doc.key), values_of(doc), doc.meaning);
  }
  return page;
}

}  // namespace loom::train
