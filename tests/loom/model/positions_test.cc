// Positions of a RoBERTa whose sequences have padding inside: as transformers counts them.
#include "model/positions.h"

#include "model/fixtures.h"

namespace loom::testing {
namespace {

constexpr int32_t kPadding = 3;  // of the fixture

/// The fixture's embedding, of one sequence.
class RobertaEmbedding : public ::testing::Test {
 protected:
  RobertaEmbedding() {
    pass_.workers = &workers_;
    pass_.spec = &spec_;
    pass_.batch = 1;
  }
  std::vector<float> forward(const std::vector<int32_t>& token, const model::ModelSpec& spec) {
    const model::Compute<float> compute(spec, model::Share::whole(spec));
    begin(token, spec);
    std::vector<float> y(token.size() * static_cast<size_t>(spec.width));
    compute.embedding_forward(pass_, whole_.parameters(0).data(), token.data(), y.data(), workspace_.data());
    return y;
  }
  std::vector<float> backward(const std::vector<int32_t>& token) {
    const model::Compute<float> compute(spec_, model::Share::whole(spec_));
    begin(token, spec_);
    std::vector<float> d(token.size() * static_cast<size_t>(spec_.width));
    for (size_t i = 0; i < d.size(); ++i) d[i] = static_cast<float>(i % 7) - 2.5f;
    std::vector<float> gradient(static_cast<size_t>(whole_.units()[0].elements));
    compute.embedding_backward(pass_, whole_.parameters(0).data(), token.data(), d.data(), gradient.data(),
                               false, workspace_.data());
    return gradient;
  }
  void begin(const std::vector<int32_t>& token, const model::ModelSpec& spec) {
    pass_.spec = &spec;
    pass_.tokens = static_cast<int64_t>(token.size());
    workspace_.resize(static_cast<size_t>(
        model::buffer_sizes<float>(spec, model::Share::whole(spec), 1, pass_.tokens).workspace));
  }
  std::vector<float> row(const std::vector<float>& y, int64_t number) const {
    return {y.begin() + number * spec_.width, y.begin() + (number + 1) * spec_.width};
  }
  /// Whether row `number` of a table of the gradient is zero.
  bool is_zero(const std::vector<float>& gradient, model::Part part, int64_t number) const {
    const model::Parameter& table = *whole_.units()[0].find(part);
    const auto first = gradient.begin() + table.offset + number * spec_.width;
    return std::all_of(first, first + spec_.width, [](float value) { return value == 0; });
  }

  WholeModel<float> whole_ = load_whole(fixture("families/roberta"));
  model::ModelSpec spec_ = Fixture("families/roberta").spec();
  Workers workers_{1};
  model::Pass pass_;
  std::vector<std::byte> workspace_;
};

/// Tokens behind padding used to have the places of their rows.
TEST_F(RobertaEmbedding, PaddingInsideASequenceTakesNoPlace) {
  const std::vector<float> with = forward({5, 6, kPadding, 7, 8, kPadding, kPadding, 9}, spec_),
                           without = forward({5, 6, 7, 8, 9}, spec_);
  EXPECT_EQ(row(with, 0), row(without, 0));
  EXPECT_EQ(row(with, 1), row(without, 1));
  EXPECT_EQ(row(with, 3), row(without, 2));
  EXPECT_EQ(row(with, 4), row(without, 3));
  EXPECT_EQ(row(with, 7), row(without, 4));
  // Padding has the row of the table before the first.
  model::ModelSpec earlier = spec_;
  earlier.first_position -= 1;
  earlier.context += 1;  // the table is the same
  EXPECT_EQ(row(with, 2), row(forward({kPadding}, earlier), 0));
  EXPECT_EQ(row(with, 5), row(with, 6));
}

TEST_F(RobertaEmbedding, PaddingIsNotTrained) {
  using model::Part;
  const std::vector<float> gradient = backward({5, kPadding, 7, kPadding, 8});
  EXPECT_TRUE(is_zero(gradient, Part::token_embedding, kPadding));
  EXPECT_TRUE(is_zero(gradient, Part::position_embedding, spec_.first_position - 1));
  for (const int64_t place : {0, 1, 2}) {
    EXPECT_FALSE(is_zero(gradient, Part::position_embedding, spec_.first_position + place));
    EXPECT_FALSE(is_zero(gradient, Part::token_embedding, std::vector<int64_t>{5, 7, 8}[place]));
  }
  EXPECT_TRUE(is_zero(gradient, Part::position_embedding, spec_.first_position + 3));
}

TEST_F(RobertaEmbedding, SequencesWithoutPaddingInsideAreOneRun) {
  pass_.batch = 3;
  pass_.tokens = 4;
  const std::vector<int32_t> token = {5, 6, 7, 8, 5, kPadding, kPadding, kPadding, 9, 9, 9, 9};
  int runs = 0;
  model::for_position_runs(pass_, token.data(), 2, 11, [&](const model::PositionRun& run) {
    ++runs;
    EXPECT_EQ(run.first, 2);
    EXPECT_EQ(run.rows, 9);
    EXPECT_EQ(run.phase, 2);
    EXPECT_EQ(run.period, 4);
  });
  EXPECT_EQ(runs, 1);
}

}  // namespace
}  // namespace loom::testing
