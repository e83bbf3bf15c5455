// Positions of a RoBERTa whose sequences have padding inside: as transformers counts them.
#include "model/batch_layout.h"
#include "model/fixtures.h"

namespace loom::testing {
namespace {

constexpr int32_t kPadding = 3;  // of the fixture

/// The fixture's embedding, of one sequence.
class RobertaEmbedding : public ::testing::Test {
 protected:
  RobertaEmbedding() {
    pass_.context = workers_;
    pass_.spec = &spec_;
    pass_.batch = 1;
  }
  std::vector<float> forward(const std::vector<int32_t>& token, const model::ModelSpec& spec) {
    std::vector<float> y(token.size() * static_cast<size_t>(spec.width));
    bound_.give(model::Given::output, y.data());
    run(token, spec, false);
    return y;
  }
  std::vector<float> backward(const std::vector<int32_t>& token) {
    std::vector<float> d(token.size() * static_cast<size_t>(spec_.width));
    for (size_t i = 0; i < d.size(); ++i) d[i] = static_cast<float>(i % 7) - 2.5f;
    std::vector<float> gradient(static_cast<size_t>(whole_.units()[0].elements));
    bound_.give(model::Given::derivative, d.data());
    bound_.gradient = gradient.data();
    run(token, spec_, true);
    return gradient;
  }
  void run(const std::vector<int32_t>& token, const model::ModelSpec& spec, bool back) {
    pass_.spec = &spec;
    pass_.tokens = static_cast<int64_t>(token.size());
    const model::Share share = model::Share::whole(spec);
    const model::RecipeSizes sizes = model::sizes_for<float>(share, 1, pass_.tokens);
    const model::Recipe recipe = model::embedding_recipe(spec, sizes);
    const model::BatchLayout layout(spec, sizes);
    std::vector<std::byte> arrays(static_cast<size_t>(layout.bytes()));
    pass_.arrays = layout.fill(token.data(), nullptr, -1, arrays.data(), arrays.data());
    std::vector<std::byte> workspace(static_cast<size_t>(recipe.workspace_bytes));
    bound_.parameters = whole_.parameters(0).data();
    bound_.workspace = workspace.data();
    bound_.give(model::Given::tokens, token.data());
    model::Runner<float>(spec, share)
        .run(pass_, whole_.units()[0], recipe, back ? recipe.backward : recipe.forward, bound_);
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
  model::Bound<float> bound_;
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

/// So their kernels need no array for them.
TEST_F(RobertaEmbedding, SequencesWithoutPaddingInsideHaveThePositionsOfTheirRows) {
  const model::BatchLayout layout(spec_, model::sizes_for<float>(model::Share::whole(spec_), 3, 4));
  std::vector<std::byte> arrays(static_cast<size_t>(layout.bytes()));
  std::vector<int32_t> token = {5, 6, 7, 8, 5, kPadding, kPadding, kPadding, 9, 9, 9, 9};
  const auto fill = [&] { return layout.fill(token.data(), nullptr, -1, arrays.data(), arrays.data()); };
  EXPECT_EQ(fill().positions, nullptr);
  token[9] = kPadding;
  const int32_t* const positions = fill().positions;
  ASSERT_NE(positions, nullptr);
  EXPECT_EQ(std::vector<int32_t>(positions, positions + 12),
            (std::vector<int32_t>{0, 1, 2, 3, 0, 1, 2, 3, 0, -1, 1, 2}));
}

}  // namespace
}  // namespace loom::testing
