// Units divided over ranks: parameters go to ranks and come back, and their steps compute what one rank's do.
#include "model/split.h"

#include "model/split_model.h"
#include "ops/arrays.h"
#include "support.h"

namespace loom::testing::split_test {
namespace {

const std::vector<int32_t> kTokens = {1, 12, 0, 5, 5, 7, 3, 2, 9, 11, 4, 8};
const std::vector<int32_t> kTargets = {12, 0, 5, 5, 7, 2, -1, 9, 11, 4, 6, 1};

model::ModelSpec spec_of(int heads) {
  model::ModelSpec spec = small_spec();
  spec.heads = heads;
  spec.vocabulary = 13;
  return spec;
}

/// With `targets` of each sequence the head picks the rows that `target` has them in.
void expect_equal_steps(const model::ModelSpec& spec, int degree, bool divides_rows, bool training,
                        const std::vector<int32_t>& target = kTargets, int64_t targets = 0) {
  WholeModel<double> whole(spec);
  SplitModel<double> split(spec, degree, divides_rows);
  for (size_t u = 0; u < whole.units().size(); ++u) {
    const std::vector<float> values =
        as<float>(random_values(whole.units()[u].elements, 40 + static_cast<uint32_t>(u), 0.3));
    whole.parameters(static_cast<int>(u)) = doubles(values);
    split.set_parameters(static_cast<int>(u), values);
  }
  for (model::Pass* pass : {&whole.pass(), &split.pass()}) {
    pass->training = training;
    pass->seed = 9;
    pass->first_sample = 6;
  }
  const double wanted = whole.step(kTokens, target, 2), got = split.step(kTokens, target, 2, targets);
  EXPECT_NEAR(got, wanted, 1e-12);
  for (size_t u = 0; u < whole.units().size(); ++u) {
    const Doubles gradient = split.gradients(static_cast<int>(u));
    for (const model::Parameter& parameter : whole.units()[u].parameters) {
      const auto part = [&](const Doubles& all) {
        return Doubles(all.begin() + parameter.offset, all.begin() + parameter.offset + parameter.elements());
      };
      EXPECT_LT(error_of(part(gradient), part(whole.gradients(static_cast<int>(u)))), 1e-11)
          << parameter.name;
    }
  }
}

TEST(Split, RanksMakeTheWholeModelsStep) {
  for (const int degree : {1, 2, 4})
    for (const bool divides_rows : {false, true}) {
      SCOPED_TRACE(fmt::format("{} ranks{}", degree, divides_rows ? ", rows divided" : ""));
      expect_equal_steps(spec_of(4), degree, divides_rows, false);
    }
}

/// Three columns each, and one for the last rank.
TEST(Split, AHiddenLayerNeedNotDivide) {
  model::ModelSpec spec = spec_of(4);
  spec.feed_forward = 10;
  for (const bool divides_rows : {false, true}) expect_equal_steps(spec, 4, divides_rows, false);
}

TEST(Split, RanksDropWhatTheWholeModelDrops) {
  model::ModelSpec spec = spec_of(4);
  spec.tied = false;
  spec.embedding_dropout = spec.residual_dropout = spec.attention_dropout = 0.3f;
  for (const bool divides_rows : {false, true}) expect_equal_steps(spec, 2, divides_rows, true);
}

model::ModelSpec masked_spec() {
  model::ModelSpec bert = spec_of(4);
  bert.task = model::Task::masked;
  bert.norms = model::NormPlacement::post;
  bert.causal = false;
  bert.first_position = 2;
  bert.context = 8;
  bert.embedding_norm = bert.head_transform = bert.head_bias = true;
  bert.token_types = 2;
  return bert;
}

TEST(Split, AMaskedHeadSeesTheRowsWithTargetsOnly) {
  const std::vector<int32_t> three = {-1, 0, -1, -1, 7, -1, -1, -1, -1, -1, 6, -1};
  const std::vector<int32_t> first = {-1, 0, 5, -1, -1, -1, -1, -1, -1, -1, -1, -1};  // one rank has all
  const std::vector<int32_t> none(12, -1);
  for (const int degree : {2, 4})
    for (const bool divides_rows : {false, true})
      for (const bool tied : {true, false})
        for (const std::vector<int32_t>* target : {&three, &first, &none, &kTargets}) {
          SCOPED_TRACE(fmt::format("{} ranks{}", degree, divides_rows ? ", rows divided" : ""));
          model::ModelSpec spec = masked_spec();
          spec.tied = tied;
          spec.residual_dropout = spec.head_dropout = 0.2f;
          spec.dropout_before_pooler = true;  // as RoBERTa: of the rows that a rank has
          // Places for more rows than there are, too.
          expect_equal_steps(spec, degree, divides_rows, true, *target, target == &kTargets ? 6 : 3);
        }
}

/// Token 5 stands twice inside the first sequence, so that rows of one rank lie in several runs.
TEST(Split, PaddingInsideASequenceTakesNoPlaceOnAnyRank) {
  for (const int degree : {1, 2, 4})
    for (const bool divides_rows : {false, true}) {
      SCOPED_TRACE(fmt::format("{} ranks{}", degree, divides_rows ? ", rows divided" : ""));
      model::ModelSpec spec = masked_spec();
      spec.padding = 5;
      expect_equal_steps(spec, degree, divides_rows, false, kTargets, 6);
    }
}

TEST(Split, RanksMakeTheStepOfEveryKindOfBlockAndEnd) {
  model::ModelSpec bloom = spec_of(4);
  bloom.position = model::Position::alibi;
  bloom.embedding_norm = true;
  model::ModelSpec gptj = spec_of(4), neox = spec_of(4);
  gptj.tied = false;
  gptj.residual = model::Residual::parallel_one_norm;
  gptj.position = model::Position::rotary_interleaved;
  gptj.rotary_dims = 2;
  gptj.qkv_bias = gptj.projection_bias = false;
  gptj.head_bias = true;
  neox.residual = model::Residual::parallel_two_norms;
  neox.position = model::Position::rotary_half;
  neox.rotary_dims = 2;
  model::ModelSpec llama = spec_of(4);
  llama.position = model::Position::rotary_half;
  llama.rotary_dims = llama.head_size = 6;  // not the width over the heads
  llama.key_value_heads = 2;
  llama.rms_norm = llama.gated = true;
  llama.activation = ops::Activation::silu;
  llama.feed_forward = 11;  // which two ranks do not divide evenly
  llama.tied = llama.projection_bias = false;
  for (model::ModelSpec spec : {bloom, gptj, neox, llama, masked_spec()}) {
    spec.embedding_dropout = spec.residual_dropout = spec.attention_dropout = 0.2f;
    for (const bool divides_rows : {false, true}) {
      SCOPED_TRACE(fmt::format("position {}, task {}{}", static_cast<int>(spec.position),
                               static_cast<int>(spec.task), divides_rows ? ", rows divided" : ""));
      expect_equal_steps(spec, 2, divides_rows, true);
    }
  }
}

/// A whole unit's buffer with every element its own number, and zeros in the gaps.
std::vector<float> numbered(const model::Unit& unit) {
  std::vector<float> values(unit.elements, 0.0f);
  for (const model::Parameter& parameter : unit.parameters)
    for (int64_t i = 0; i < parameter.elements(); ++i)
      values[parameter.offset + i] = static_cast<float>(parameter.offset + i + 1);
  return values;
}

std::vector<float> share_of_numbers(const model::Unit& unit, model::TensorRank tensor) {
  const std::vector<float> whole = numbered(unit);
  std::vector<float> held(model::held_by(tensor, unit).elements);
  // In two reads, as two members of a partition group.
  const size_t half = held.size() / 2;
  for (const auto& [begin, end] : {std::pair{size_t{0}, half}, {half, held.size()}})
    EXPECT_TRUE(model::read_share(unit, tensor, static_cast<int64_t>(begin),
                                  std::span<float>(held).subspan(begin, end - begin),
                                  [&](int64_t from, std::span<float> into) -> Status {
                                    std::copy_n(whole.begin() + from, into.size(), into.begin());
                                    return {};
                                  })
                    .ok());
  return held;
}

TEST(Split, SharesPutTogetherAreTheWholeUnit) {
  model::ModelSpec spec = spec_of(4);
  spec.feed_forward = 10;  // which four ranks do not divide evenly
  spec.gated = true;
  spec.head_size = 3;
  for (const int degree : {1, 2, 4})
    for (const model::Unit& unit : model::units_of(spec)) {
      std::vector<std::vector<float>> shares;
      for (int rank = 0; rank < degree; ++rank) {
        shares.push_back(share_of_numbers(unit, {degree, rank}));
        EXPECT_EQ(shares[rank].size(), shares[0].size());
      }
      const model::StoredShares stored(unit, degree,
                                       [&](int rank, int64_t begin, std::span<float> into) -> Status {
                                         std::copy_n(shares[rank].begin() + begin, into.size(), into.begin());
                                         return {};
                                       });
      std::vector<float> joined(unit.elements, -1.0f);
      LOOM_ASSERT_OK(stored.read(0, joined));
      EXPECT_EQ(joined, numbered(unit)) << unit.name() << " of " << degree;
      // Any other degree reads the same from them.
      for (const int other : {1, 2, 4})
        for (int rank = 0; rank < other; ++rank) {
          std::vector<float> held(model::held_by({other, rank}, unit).elements);
          LOOM_ASSERT_OK(model::read_share(
              unit, {other, rank}, 0, held,
              [&](int64_t begin, std::span<float> into) { return stored.read(begin, into); }));
          EXPECT_EQ(held, share_of_numbers(unit, {other, rank})) << unit.name();
        }
    }
}

TEST(Split, QueriesKeysAndValuesAreCutByHeads) {
  const model::Unit block = model::units_of(spec_of(4))[1];
  const std::vector<float> held = share_of_numbers(block, {4, 2});
  const model::Unit share = model::held_by({4, 2}, block);
  const float* row = share.at(model::Part::qkv_weight, held.data());
  const float first = static_cast<float>(block.find(model::Part::qkv_weight)->offset + 1);
  // Width 8, heads of 2: head 2's columns of q, of k and of v; then the next row.
  for (const auto& [at, column] : {std::pair{0, 4}, {1, 5}, {2, 12}, {3, 13}, {4, 20}, {5, 21}, {6, 28}})
    EXPECT_EQ(row[at], first + static_cast<float>(column)) << at;
}

}  // namespace
}  // namespace loom::testing::split_test
