// Shapes of parts, and the stretches that they are made of.
#include "model/split.h"

#include <algorithm>

namespace loom::model {
namespace {

/// How a parameter is cut: along which side, and in how many equal blocks, each by itself.
struct Split {
  int axis = -1;  // -1: not at all
  int blocks = 1;
};

Split split_of(const Parameter& parameter) {
  if (parameter.undivided) return {};
  switch (parameter.part) {
    case Part::token_embedding:
    case Part::head_weight:
    case Part::head_bias:
    case Part::projection_weight:
    case Part::up_bias:
    case Part::down_weight: return {0, 1};
    case Part::up_weight: return {1, 1};
    case Part::qkv_weight: return {1, 3};
    case Part::qkv_bias: return {0, 3};
    default: return {};
  }
}

/// A parameter as a matrix [outer, side, inner], of which `side` is cut.
struct Cut {
  int64_t outer = 1, side = 1, inner = 1;
  int blocks = 1;     // of `side`
  int64_t block = 1;  // its length
  int64_t share = 1;  // of a block, for every rank but perhaps the last
  int64_t held = 1;   // of a block, by this rank
  int64_t first = 0;  // of a block, held by this rank

  Cut(const Parameter& parameter, TensorRank tensor) {
    const Split split = split_of(parameter);
    blocks = split.blocks;
    const int degree = split.axis < 0 ? 1 : tensor.degree;
    const int axis = std::max(split.axis, 0);
    for (int i = 0; i < static_cast<int>(parameter.shape.size()); ++i)
      (i < axis ? outer : i == axis ? side : inner) *= static_cast<int64_t>(parameter.shape[i]);
    block = side / blocks;
    share = (block + degree - 1) / degree;
    first = split.axis < 0 ? 0 : std::min(tensor.rank * share, block);
    held = std::min(share, block - first);
  }
};

}  // namespace

Status check_split(const ModelSpec& spec, int degree) {
  if (degree < 1) return fail(Code::invalid_argument, "tensor_degree is {}, must be at least 1", degree);
  const auto divides = [&](const char* name, int64_t value) -> Status {
    if (value % degree == 0) return {};
    std::string choices;
    for (int64_t d = 1; d <= spec.heads; ++d)
      if (spec.heads % d == 0 && spec.feed_forward % d == 0)
        choices += (choices.empty() ? "" : ", ") + std::to_string(d);
    return fail(Code::invalid_argument,
                "tensor_degree is {}, must divide model.{}, {}; this model can have {}", degree, name, value,
                choices);
  };
  LOOM_TRY(divides("heads", spec.heads));
  LOOM_TRY(divides("feed_forward", spec.feed_forward));
  if (vocabulary_of(spec, {degree, degree - 1}).count <= 0)
    return fail(
        Code::invalid_argument,
        "tensor_degree is {}, which leaves a rank without any of the vocabulary's {} tokens; take less",
        degree, spec.vocabulary);
  return {};
}

ops::VocabularyRange vocabulary_of(const ModelSpec& spec, TensorRank tensor) {
  const int64_t share = (spec.vocabulary + tensor.degree - 1) / tensor.degree;
  const int64_t first = std::min(tensor.rank * share, spec.vocabulary);
  return {first, std::min(share, spec.vocabulary - first)};
}

Share share_of(const ModelSpec& spec, TensorRank tensor, bool divides_rows) {
  const int64_t heads = spec.heads / tensor.degree;
  return {heads,         heads * tensor.rank, spec.feed_forward / tensor.degree, vocabulary_of(spec, tensor),
          tensor.degree, tensor.rank,         divides_rows && tensor.degree > 1};
}

int64_t picked_rows(const Share& share, int64_t targets) {
  const int64_t grain = share.divides_rows ? share.degree : 1;
  return (targets + grain - 1) / grain * grain;
}

bool is_cut(const Parameter& parameter) { return split_of(parameter).axis >= 0; }

bool is_of_rows(const Parameter& parameter) {
  // These biases are added to rows, but their gradients are made where a sublayer has all of them.
  return !is_cut(parameter) && !parameter.undivided && parameter.part != Part::projection_bias &&
         parameter.part != Part::down_bias;
}

Unit held_by(TensorRank tensor, const Unit& whole) {
  if (tensor.degree == 1) return whole;
  Unit unit = whole;
  unit.elements = 0;
  for (Parameter& parameter : unit.parameters) {
    const Cut cut(parameter, tensor);
    const int64_t room = cut.outer * cut.blocks * cut.share * cut.inner;
    parameter.offset = unit.elements;
    if (is_cut(parameter))
      parameter.shape[static_cast<size_t>(split_of(parameter).axis)] =
          static_cast<uint64_t>(cut.blocks * cut.held);
    unit.elements += (room + Unit::kAlign - 1) / Unit::kAlign * Unit::kAlign;
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
    const Cut cut(parameter, tensor);
    int64_t at = held.parameters[p].offset;
    before = runs.size();
    for (int64_t outer = 0; outer < cut.outer; ++outer)
      for (int block = 0; block < cut.blocks; ++block) {
        const int64_t row = outer * cut.side + block * cut.block + cut.first;
        add(parameter.offset + row * cut.inner, at, cut.held * cut.inner);
        at += cut.held * cut.inner;
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
