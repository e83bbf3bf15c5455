// Which steps are done at once on a GPU, what that saves, and that their arrays lie apart.
#include "model/fusion.h"

#include "model/family_specs.h"
#include "model/objectives/objective.h"
#include "support.h"

namespace loom::testing {
namespace {

using model::Fusion;
using model::Recipe;
using model::Step;

model::ModelSpec spec_of(model::Family family, model::Task task, float dropout) {
  model::ModelSpec sizes;
  sizes.vocabulary = 40;
  sizes.context = 8;
  sizes.width = 32;
  sizes.layers = 2;
  sizes.heads = 4;
  sizes.feed_forward = 64;
  model::ModelSpec spec = family_spec(family, task, sizes);
  if (task == model::Task::classification) spec.labels = 3;
  spec.residual_dropout = spec.embedding_dropout = spec.attention_dropout = dropout;
  model::complete(spec);
  return spec;
}

model::Recipes recipes_of(const model::ModelSpec& spec, int degree, bool divides_rows, bool of_gpu) {
  model::RecipeSizes sizes = model::sizes_for<bf16>(model::share_of(spec, {degree, 0}, divides_rows), 4, 8);
  sizes.table.of_gpu = of_gpu;
  return {spec, sizes};
}

std::vector<Fusion> pairs_of(const std::vector<Step>& steps) {
  std::vector<Fusion> pairs;
  for (size_t i = 0; i + 1 < steps.size(); ++i)
    if (steps[i].fuses) pairs.push_back(model::fusion_of(steps[i], steps[i + 1]));
  return pairs;
}

TEST(Fusion, OfBlocksAreThoseThatStandSideBySide) {
  using enum Fusion;
  using Pairs = std::vector<Fusion>;
  const auto block = [](model::Family family, float dropout) {
    return recipes_of(spec_of(family, model::usual_task(family), dropout), 1, false, true).block;
  };
  EXPECT_EQ(pairs_of(block(model::Family::gpt2, 0.1f).forward), (Pairs{residual_norm, linear_gelu}));
  EXPECT_EQ(pairs_of(block(model::Family::gpt2, 0.1f).backward),
            (Pairs{linear_input_gelu_gradient, norm_gradient_dropout}));
  EXPECT_EQ(pairs_of(block(model::Family::gpt2, 0).backward), (Pairs{linear_input_gelu_gradient}));
  EXPECT_EQ(pairs_of(block(model::Family::gptj, 0.1f).forward), (Pairs{linear_gelu})) << "parallel";
  EXPECT_EQ(pairs_of(block(model::Family::roberta, 0.1f).forward), (Pairs{residual_norm, residual_norm}))
      << "post-norm, with a GELU that no epilogue has";
  const Recipe on_cpus =
      recipes_of(spec_of(model::Family::gpt2, model::Task::causal, 0.1f), 1, false, false).block;
  EXPECT_TRUE(pairs_of(on_cpus.forward).empty() && pairs_of(on_cpus.backward).empty());
}

/// A norm's derivative and what a dropout left of it would have shared memory: rows are done out of order.
TEST(Fusion, ArraysOfBothStepsLieApart) {
  for (const model::Family family :
       {model::Family::gpt2, model::Family::gptj, model::Family::gpt_neox, model::Family::gpt_neo,
        model::Family::bloom, model::Family::llama, model::Family::bert, model::Family::roberta})
    for (const model::Task task : {model::Task::causal, model::Task::masked, model::Task::classification}) {
      if (!model::choices_of(family, task).ok()) continue;
      for (const auto& [degree, divides] : {std::pair{1, false}, {2, false}, {2, true}}) {
        const model::Recipes recipes = recipes_of(spec_of(family, task, 0.1f), degree, divides, true);
        for (const Recipe* recipe : {&recipes.embedding, &recipes.block, &recipes.loss, &recipes.evaluation})
          for (const std::vector<Step>* steps : {&recipe->forward, &recipe->backward})
            for (size_t i = 0; i + 1 < steps->size(); ++i) {
              if (!(*steps)[i].fuses) continue;
              for (const int written : (*steps)[i + 1].writes)
                for (const int read : (*steps)[i].reads) {
                  if (written < 0 || read < 0 || written == read) continue;
                  const model::Array &a = recipe->arrays[static_cast<size_t>(written)],
                                     &b = recipe->arrays[static_cast<size_t>(read)];
                  if (a.place != b.place || a.place != model::Place::workspace) continue;
                  EXPECT_TRUE(a.offset >= b.offset + b.bytes || b.offset >= a.offset + a.bytes)
                      << model::family_name(family) << ": " << a.name << ", " << b.name;
                }
            }
      }
    }
}

/// Bytes that a step's second half reads of what the first has just made, and writes where both write there.
double saved_bytes(const Recipe& recipe) {
  double bytes = 0;
  for (const std::vector<Step>* steps : {&recipe.forward, &recipe.backward})
    for (size_t i = 0; i + 1 < steps->size(); ++i) {
      if (!(*steps)[i].fuses) continue;
      const Step& second = (*steps)[i + 1];
      const bool in_place = second.writes[0] == (*steps)[i].writes[0];
      bytes += (in_place ? 2 : 1) * 2.0 * static_cast<double>(second.rows * second.in);
    }
  return bytes;
}

/// GPT-2 of 124M, 64 x 1024 tokens in bf16: 26 bytes a token, block and element of the width, and 2 more with
/// dropout.
TEST(Fusion, SavesTrafficOfGpt2) {
  for (const float dropout : {0.0f, 0.1f}) {
    model::ModelSpec spec;
    spec.vocabulary = 50257;
    spec.context = 1024;
    spec.width = 768;
    spec.layers = 12;
    spec.heads = 12;
    spec.feed_forward = 3072;
    spec.tied = true;
    spec.residual_dropout = dropout;
    model::RecipeSizes sizes = model::sizes_for<bf16>(model::Share::whole(spec), 64, 1024);
    sizes.table.of_gpu = true;
    const double elements = 64.0 * 1024 * 768;
    // The sum that a norm reads, the hidden layer before GELU, and twice its derivative; a norm's derivative.
    EXPECT_DOUBLE_EQ(saved_bytes(model::block_recipe(spec, sizes)),
                     2 * elements * (1 + 4 + 2 * 4 + (dropout > 0 ? 1 : 0)));
    EXPECT_NEAR(12 * saved_bytes(model::block_recipe(spec, sizes)) / 1e9, dropout > 0 ? 16.9 : 15.7, 0.1);
  }
}

}  // namespace
}  // namespace loom::testing
