// Shapes of parts, and the stretches that they are made of.
#include "model/split.h"

#include <algorithm>

#include "base/round.h"

namespace loom::model {
namespace {

/// Along which side ranks divide a parameter. They divide the first layer of a sublayer, [in, out], and its
/// bias by columns, the second layer by rows (recipe_block.cc), and a vocabulary, [tokens, C], by tokens.
/// -1: none, every rank has all of it.
int cut_axis(const Parameter& parameter) {
  if (parameter.undivided) return -1;
  switch (parameter.part) {
    case Part::token_embedding:
    case Part::head_weight:
    case Part::head_bias:
    case Part::projection_weight:
    case Part::down_weight:
    case Part::up_bias:
    case Part::qkv_bias: return 0;
    case Part::up_weight:
    case Part::qkv_weight: return 1;
    default: return -1;
  }
}

/// A part of `count` elements that are divided over the ranks as evenly as can be: each but the last ones has
/// as many as the first.
struct Range {
  int64_t first = 0, count = 0;
};
Range part_of(int64_t count, TensorRank tensor) {
  const int64_t most = (count + tensor.degree - 1) / tensor.degree;
  const int64_t first = std::min(tensor.rank * most, count);
  return {first, std::min(most, count - first)};
}

/// A parameter as a matrix [outer, side, inner], of which `side` is cut.
struct Sides {
  int64_t outer = 1, side = 1, inner = 1;
  std::vector<Range> held;  // by this rank, of each block of `side`
  int64_t share = 0;        // in all, by every rank but perhaps the last

  Sides(const Parameter& parameter, TensorRank tensor) {
    const int cut = cut_axis(parameter), axis = std::max(cut, 0);
    if (cut < 0) tensor = {};
    for (int i = 0; i < static_cast<int>(parameter.shape.size()); ++i)
      (i < axis ? outer : i == axis ? side : inner) *= static_cast<int64_t>(parameter.shape[i]);
    const bool whole = cut < 0 || parameter.blocks.empty();
    int64_t begin = 0;
    for (const int64_t length : whole ? std::vector<int64_t>{side} : parameter.blocks) {
      const Range own = part_of(length, tensor);
      held.push_back({begin + own.first, own.count});
      share += part_of(length, {tensor.degree, 0}).count;
      begin += length;
    }
  }
  int64_t held_in_all() const {
    int64_t count = 0;
    for (const Range& block : held) count += block.count;
    return count;
  }
};

}  // namespace

Status check_split(const ModelSpec& spec, int degree) {
  if (degree < 1) return fail(Code::invalid_argument, "tensor_degree is {}, must be at least 1", degree);
  const AttentionGeometry attention = spec.attention();
  if (!attention.divides(degree)) {
    std::string choices;
    for (int64_t d = 1; d <= spec.heads; ++d)
      if (attention.divides(d)) choices += (choices.empty() ? "" : ", ") + std::to_string(d);
    return fail(Code::invalid_argument, "tensor_degree is {}, must divide {}, {}; this model can have {}",
                degree, spec.heads % degree != 0 ? "model.heads" : "model.key_value_heads",
                spec.heads % degree != 0 ? spec.heads : attention.key_value_heads, choices);
  }
  if (part_of(spec.feed_forward, {degree, degree - 1}).count <= 0)
    return fail(
        Code::invalid_argument,
        "tensor_degree is {}, which leaves a rank without any of model.feed_forward's {} columns; take less",
        degree, spec.feed_forward);
  if (vocabulary_of(spec, {degree, degree - 1}).count <= 0)
    return fail(
        Code::invalid_argument,
        "tensor_degree is {}, which leaves a rank without any of the vocabulary's {} tokens; take less",
        degree, spec.vocabulary);
  return {};
}

ops::VocabularyRange vocabulary_of(const ModelSpec& spec, TensorRank tensor) {
  const Range own = part_of(spec.vocabulary, tensor);
  return {own.first, own.count};
}

Share share_of(const ModelSpec& spec, TensorRank tensor, bool divides_rows) {
  const AttentionGeometry attention = spec.attention().of_one(tensor.degree);
  return {attention,
          attention.query_heads * tensor.rank,
          part_of(spec.feed_forward, tensor).count,
          vocabulary_of(spec, tensor),
          tensor.degree,
          tensor.rank,
          divides_rows && tensor.degree > 1};
}

bool is_cut(const Parameter& parameter) { return cut_axis(parameter) >= 0; }

Unit held_by(TensorRank tensor, const Unit& whole) {
  if (tensor.degree == 1) return whole;
  Unit unit = whole;
  unit.elements = 0;
  for (Parameter& parameter : unit.parameters) {
    const Sides sides(parameter, tensor);
    const int64_t room = sides.outer * sides.share * sides.inner;
    parameter.offset = unit.elements;
    if (is_cut(parameter)) {
      parameter.shape[static_cast<size_t>(cut_axis(parameter))] = static_cast<uint64_t>(sides.held_in_all());
      for (size_t block = 0; block < parameter.blocks.size(); ++block)
        parameter.blocks[block] = sides.held[block].count;
    }
    unit.elements += round_up(room, Unit::kAlign);
  }
  return unit;
}

std::vector<Unit> units_of(const ModelSpec& spec, TensorRank tensor) {
  std::vector<Unit> units = units_of(spec);
  for (Unit& unit : units) unit = held_by(tensor, unit);
  return units;
}

std::vector<Run> runs_of(const Unit& whole, TensorRank tensor) {
  const Unit held = held_by(tensor, whole);
  std::vector<Run> runs;
  size_t before =
      0;  // runs of other parameters, which stay apart: what all ranks hold is the same run for all
  const auto add = [&](int64_t in_whole, int64_t in_held, int64_t length) {
    if (length == 0) return;
    if (runs.size() > before && runs.back().whole + runs.back().length == in_whole &&
        runs.back().held + runs.back().length == in_held)
      runs.back().length += length;
    else runs.push_back({in_whole, in_held, length, tensor.rank});
  };
  for (size_t p = 0; p < whole.parameters.size(); ++p) {
    const Parameter& parameter = whole.parameters[p];
    const Sides sides(parameter, tensor);
    int64_t at = held.parameters[p].offset;
    before = runs.size();
    for (int64_t outer = 0; outer < sides.outer; ++outer)
      for (const Range& block : sides.held) {
        const int64_t row = outer * sides.side + block.first;
        add(parameter.offset + row * sides.inner, at, block.count * sides.inner);
        at += block.count * sides.inner;
      }
  }
  return runs;
}

Status read_share(const Unit& whole, TensorRank tensor, int64_t begin, std::span<float> into,
                  const ReadRange& read_whole) {
  if (tensor.degree == 1) return read_whole(begin, into);
  std::fill(into.begin(), into.end(), 0.0f);
  const int64_t end = begin + static_cast<int64_t>(into.size());
  for (const Run& run : runs_of(whole, tensor)) {
    const int64_t first = std::max(begin, run.held), last = std::min(end, run.held + run.length);
    if (first >= last) continue;
    LOOM_TRY(read_whole(run.whole + first - run.held,
                        into.subspan(static_cast<size_t>(first - begin), static_cast<size_t>(last - first))));
  }
  return {};
}

std::vector<Run> runs_of_all(const Unit& whole, int degree) {
  std::vector<Run> runs, once;
  for (int rank = 0; rank < degree; ++rank)
    for (const Run& run : runs_of(whole, {degree, rank})) runs.push_back(run);
  std::stable_sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.whole < b.whole; });
  for (const Run& run : runs)
    if (once.empty() || run.whole >= once.back().whole + once.back().length) once.push_back(run);
  return once;
}

StoredShares::StoredShares(const Unit& whole, int degree, Read read_share)
    : runs_(runs_of_all(whole, degree)), read_(std::move(read_share)) {}

Status StoredShares::read(int64_t begin, std::span<float> into) const {
  std::fill(into.begin(), into.end(), 0.0f);
  const int64_t end = begin + static_cast<int64_t>(into.size());
  auto run = std::partition_point(runs_.begin(), runs_.end(),
                                  [&](const Run& r) { return r.whole + r.length <= begin; });
  for (; run != runs_.end() && run->whole < end; ++run) {
    const int64_t first = std::max(begin, run->whole), last = std::min(end, run->whole + run->length);
    LOOM_TRY(read_(run->rank, run->held + first - run->whole,
                   into.subspan(static_cast<size_t>(first - begin), static_cast<size_t>(last - first))));
  }
  return {};
}

}  // namespace loom::model
