// Recipes: lists of steps that hold for every rank, whose arrays are written before they are read and are in
// nobody's way, and whose exchanges stand where summands become sums.
#include "model/recipe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "model/families.h"
#include "model/objectives/objective.h"
#include "model/split.h"
#include "support.h"

namespace loom::testing {
namespace {

using model::Kernel;
using model::Place;
using model::Recipe;
using model::Step;

constexpr int64_t kSequences = 4, kLength = 8, kTargetsOfEach = 2;

model::ModelSpec recipe_spec(model::Family family, model::Task task) {
  model::ModelSpec spec = *model::choices_of(family, task);
  spec.vocabulary = 43;  // which neither two nor four ranks divide
  spec.context = 16;
  spec.width = 32;
  spec.layers = 2;
  spec.heads = 4;
  spec.feed_forward = 66;
  spec.labels = 3;
  spec.residual_dropout = spec.embedding_dropout = spec.head_dropout = 0.1f;
  model::complete(spec);
  return spec;
}

using Visit = std::function<void(const model::ModelSpec&, int degree, bool divides_rows)>;

/// Every family and task, on one rank and on several.
void for_every(const Visit& visit) {
  for (const model::Family family :
       {model::Family::gpt2, model::Family::gptj, model::Family::gpt_neox, model::Family::gpt_neo,
        model::Family::bloom, model::Family::bert, model::Family::roberta})
    for (const model::Task task : {model::Task::causal, model::Task::masked, model::Task::classification}) {
      if (!model::choices_of(family, task).ok()) continue;
      SCOPED_TRACE(fmt::format("{} {}", model::family_name(family), model::objective_of(task).name));
      for (const int degree : {1, 2, 4})
        for (const bool divides_rows : {false, true})
          if (degree > 1 || !divides_rows) visit(recipe_spec(family, task), degree, divides_rows);
    }
}

model::Recipes recipes_for(const model::ModelSpec& spec, int degree, int rank, bool divides_rows) {
  const model::Share share = model::share_of(spec, {degree, rank}, divides_rows);
  return {spec, model::sizes_for<float>(share, kSequences, kLength,
                                        spec.task == model::Task::masked ? kTargetsOfEach : 0)};
}

std::vector<const Recipe*> all_of(const model::Recipes& recipes) {
  return {&recipes.embedding, &recipes.block, &recipes.loss, &recipes.evaluation, &recipes.logits};
}

std::vector<Step> all_steps_of(const Recipe& recipe) {
  std::vector<Step> steps = recipe.forward;
  steps.insert(steps.end(), recipe.backward.begin(), recipe.backward.end());
  return steps;
}

TEST(Recipe, AllTensorRanksHaveTheSameStepsAndArrays) {
  for_every([](const model::ModelSpec& spec, int degree, bool divides_rows) {
    const model::Recipes first = recipes_for(spec, degree, 0, divides_rows),
                         last = recipes_for(spec, degree, degree - 1, divides_rows);
    for (size_t r = 0; r < all_of(first).size(); ++r) {
      const Recipe &a = *all_of(first)[r], &b = *all_of(last)[r];
      EXPECT_EQ(a.saved_bytes, b.saved_bytes);
      EXPECT_EQ(a.workspace_bytes, b.workspace_bytes);
      ASSERT_EQ(a.arrays.size(), b.arrays.size());
      for (size_t i = 0; i < a.arrays.size(); ++i) {
        EXPECT_EQ(a.arrays[i].place, b.arrays[i].place) << a.arrays[i].name;
        EXPECT_EQ(a.arrays[i].bytes, b.arrays[i].bytes) << a.arrays[i].name;
        EXPECT_EQ(a.arrays[i].offset, b.arrays[i].offset) << a.arrays[i].name;
      }
      const std::vector<Step> of_a = all_steps_of(a), of_b = all_steps_of(b);
      ASSERT_EQ(of_a.size(), of_b.size());
      for (size_t i = 0; i < of_a.size(); ++i) {
        EXPECT_EQ(of_a[i].kernel, of_b[i].kernel);
        EXPECT_EQ(of_a[i].reads, of_b[i].reads);
        EXPECT_EQ(of_a[i].writes, of_b[i].writes);
      }
    }
  });
}

std::vector<Kernel> computing(const std::vector<Step>& steps) {
  std::vector<Kernel> kernels;
  for (const Step& step : steps)
    if (!model::is_exchange(step.kernel)) kernels.push_back(step.kernel);
  return kernels;
}

TEST(Recipe, ABlockOfOneRankIsThatOfSeveralWithoutExchanges) {
  for_every([](const model::ModelSpec& spec, int degree, bool divides_rows) {
    const Recipe one = recipes_for(spec, 1, 0, false).block,
                 several = recipes_for(spec, degree, 0, divides_rows).block;
    EXPECT_EQ(computing(one.forward), computing(several.forward));
    EXPECT_EQ(computing(one.forward).size(), one.forward.size()) << "one rank exchanges nothing";
    // With divided rows the gradient of the way down stands elsewhere.
    const std::vector<Kernel> a = computing(one.backward), b = computing(several.backward);
    EXPECT_EQ(std::multiset<Kernel>(a.begin(), a.end()), std::multiset<Kernel>(b.begin(), b.end()));
    const auto exchanges = several.forward.size() - one.forward.size();
    EXPECT_EQ(exchanges, degree == 1 ? 0u : divides_rows ? 4u : 2u);
  });
}

/// As `transformers`' RobertaLMHead. The config's one probability for both heads was taken for it, too.
TEST(Recipe, AMaskedRobertaDropsNothingBeforeTheDenseLayerOfItsHead) {
  const auto dropouts = [](model::Task task) {
    const model::ModelSpec spec = recipe_spec(model::Family::roberta, task);
    EXPECT_GT(spec.head_dropout, 0);
    const std::vector<Step> steps = all_steps_of(recipes_for(spec, 1, 0, false).loss);
    return std::ranges::count(steps, Kernel::dropout, &Step::kernel);
  };
  EXPECT_EQ(dropouts(model::Task::masked), 0);
  EXPECT_EQ(dropouts(model::Task::classification), 4) << "before and behind the dense layer, and back";
}

TEST(Recipe, NothingIsReadBeforeItIsWritten) {
  for_every([](const model::ModelSpec& spec, int degree, bool divides_rows) {
    const model::Recipes recipes = recipes_for(spec, degree, 0, divides_rows);
    for (const Recipe* recipe : all_of(recipes)) {
      std::set<int> written;
      for (const Step& step : all_steps_of(*recipe)) {
        for (const int array : step.reads)
          EXPECT_TRUE(array < 0 || written.contains(array) ||
                      recipe->arrays[static_cast<size_t>(array)].place == Place::given);
        written.insert(step.writes.begin(), step.writes.end());
      }
    }
  });
}

/// Each array is filled with its number by the step that writes it, and still has it where it is read.
TEST(Recipe, ArraysThatLiveTogetherLieApart) {
  for_every([](const model::ModelSpec& spec, int degree, bool divides_rows) {
    const model::Recipes recipes = recipes_for(spec, degree, 0, divides_rows);
    for (const Recipe* recipe : all_of(recipes)) {
      std::vector<int> saved(static_cast<size_t>(recipe->saved_bytes), -1),
          workspace(static_cast<size_t>(recipe->workspace_bytes), -1);
      const auto bytes = [&](int number) {
        const model::Array& array = recipe->arrays[static_cast<size_t>(number)];
        std::vector<int>& memory = array.place == Place::saved ? saved : workspace;
        return std::span(memory).subspan(static_cast<size_t>(array.offset), static_cast<size_t>(array.bytes));
      };
      const auto lies_in_memory = [&](int number) {
        if (number < 0) return false;
        const Place place = recipe->arrays[static_cast<size_t>(number)].place;
        return place == Place::saved || place == Place::workspace;
      };
      const auto still_there = [&](const std::vector<int>& numbers) {
        return std::all_of(numbers.begin(), numbers.end(), [&](int number) {
          if (!lies_in_memory(number)) return true;
          const std::span<int> there = bytes(number);
          return std::all_of(there.begin(), there.end(), [&](int byte) { return byte == number; });
        });
      };
      for (const Step& step : all_steps_of(*recipe)) {
        const std::vector<int> read(step.reads.begin(), step.reads.end());
        EXPECT_TRUE(still_there(read));
        for (const int number : step.writes)
          if (lies_in_memory(number)) std::ranges::fill(bytes(number), number);
        EXPECT_TRUE(still_there(read)) << "a result lies where an operand is read";
      }
    }
  });
}

/// What a rank's rows or columns of a matrix make of all its columns or rows.
bool makes_summand(const Step& step, const model::ModelSpec& spec) {
  switch (step.kernel) {
    case Kernel::split_embed: return true;
    case Kernel::linear: return step.part != model::Part::dense_weight && step.out == spec.width;
    case Kernel::linear_input: return step.part != model::Part::dense_weight && step.in == spec.width;
    case Kernel::logits_gradient: return spec.task != model::Task::classification;
    default: return false;
  }
}

TEST(Recipe, SummandsAreAddedUpBeforeTheyAreRead) {
  for_every([](const model::ModelSpec& spec, int degree, bool divides_rows) {
    if (degree == 1) return;
    const model::Recipes recipes = recipes_for(spec, degree, 0, divides_rows);
    for (const Recipe* recipe : all_of(recipes)) {
      std::set<int> summands;
      for (const Step& step : all_steps_of(*recipe)) {
        if (model::is_exchange(step.kernel)) summands.erase(step.reads[0]);
        for (const int array : step.reads) EXPECT_FALSE(array >= 0 && summands.contains(array));
        if (makes_summand(step, spec)) summands.insert(step.writes[0]);
      }
      EXPECT_TRUE(summands.empty()) << "never added up";
    }
  });
}

}  // namespace
}  // namespace loom::testing
