// Objectives: what the rest of Loom asks of a task.
#include <gtest/gtest.h>

#include "model/families/family.h"
#include "model/objectives/objective.h"
#include "support.h"

namespace loom::testing {
namespace {

using model::Objective;

TEST(Objectives, AreFoundByTaskAndByName) {
  for (const Objective* one : model::objectives()) {
    EXPECT_EQ(&model::objective_of(one->task), one);
    const Result<model::Task> named = model::task_from(one->name);
    LOOM_ASSERT_OK(named);
    EXPECT_EQ(*named, one->task);
  }
  EXPECT_TRUE(fails_with(model::task_from("regression"), Code::invalid_argument,
                         "the task \"regression\" is unknown, must be causal, masked or classification"));
}

/// A family is made for one task, and has a head for it.
TEST(Objectives, EveryFamilyHasAUsualOne) {
  for (const model::FamilyDescription* family : model::descriptions()) {
    int usual = 0;
    for (const Objective* one : model::objectives()) {
      if (one->usual_of != family->reads) continue;
      ++usual;
      EXPECT_TRUE(one->check_family(*family).ok());
    }
    EXPECT_EQ(usual, 1) << family->name;
  }
}

TEST(Objectives, ReadTheRowsThatHaveTargets) {
  constexpr int64_t kTokens = 40;
  for (const Objective* one : model::objectives()) {
    SCOPED_TRACE(one->name);
    const int64_t targets = one->targets(kTokens), rows = one->rows_of_sequence(kTokens, targets);
    EXPECT_EQ(rows, one->rows == model::HeadRows::all               ? kTokens
                    : one->rows == model::HeadRows::one_of_sequence ? 1
                                                                    : targets);
    EXPECT_LE(rows, kTokens);
    EXPECT_GE(rows, 1);
  }
}

}  // namespace
}  // namespace loom::testing
