#include "base/workers.h"
#include "ops/arrays.h"

namespace loom::testing {
namespace {

LOOM_ON_EVERY_TABLE(CrossEntropy);

constexpr int64_t kRows = 6, kVocabulary = 37;
constexpr double kScale = 0.25;
const std::vector<int32_t> kTargets = {0, 36, 5, -1, 17, 5};

double reference(const Doubles& logits, int64_t row) {
  if (kTargets[row] < 0) return 0;
  double sum = 0;
  for (int64_t v = 0; v < kVocabulary; ++v) sum += std::exp(logits[row * kVocabulary + v]);
  return std::log(sum) - logits[row * kVocabulary + kTargets[row]];
}

template <typename A>
std::pair<Doubles, Doubles> run(const Doubles& logits) {
  Workers workers(2);
  auto values = as<A>(logits);
  Doubles loss(kRows, -1);
  table<A>().cross_entropy(workers, values.data(), kTargets.data(), loss.data(), kRows, kVocabulary,
                           A(kScale));
  return {loss, doubles(values)};
}

TEST_P(CrossEntropy, IsTheReferenceAndItsGradientFiniteDifferences) {
  const Doubles logits = random_values(kRows * kVocabulary, 1, 3);
  const auto [loss, gradient] = run<double>(logits);
  for (int64_t r = 0; r < kRows; ++r) EXPECT_NEAR(loss[r], reference(logits, r), 1e-12);
  const auto total = [](const Doubles& changed) {
    double sum = 0;
    for (int64_t r = 0; r < kRows; ++r) sum += kScale * reference(changed, r);
    return sum;
  };
  EXPECT_LT(error_of(gradient, finite_differences(total, logits)), kDifferenceTolerance);

  const auto [loss32, gradient32] = run<float>(rounded<float>(logits));
  EXPECT_LT(error_of(loss32, loss), 1e-6);
  EXPECT_LT(error_of(gradient32, gradient), 1e-6);
}

TEST_P(CrossEntropy, LargeLogitsDoNotOverflowAndANaNIsSeen) {
  Doubles logits(kRows * kVocabulary, -2e4);
  logits[0] = 3e4;
  const auto [loss, gradient] = run<float>(logits);
  EXPECT_EQ(loss[0], 0);
  EXPECT_NEAR(loss[1], std::log(37.0), 1e-6);
  logits[kVocabulary + 3] = NAN;
  EXPECT_TRUE(std::isnan(run<float>(logits).first[1]));
}

}  // namespace
}  // namespace loom::testing
