// Places and coordinates.
#include "program/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/check.h"

namespace loom::program {
namespace {

int& digit(Coordinates& at, char letter) {
  return letter == 'D' ? at.data : letter == 'P' ? at.stage : at.tensor;
}

/// Whether every rank has the whole model's program.
bool data_only(const Layout& layout) { return layout.pipeline * layout.tensor == 1; }

std::string cell(const Layout& layout, int place) {
  if (data_only(layout)) return fmt::format("g{}m{}", layout.group(place), layout.member(place));
  const Coordinates at = layout.coordinates(place);
  return fmt::format("d{}p{}t{}", at.data, at.stage, at.tensor);
}

}  // namespace

const char* group_name(GroupKind kind) {
  constexpr const char* kNames[kGroupKinds] = {"partition", "replication", "pipeline",
                                               "ends",      "tensor",      "model"};
  return kNames[static_cast<int>(kind)];
}

std::string Layout::order() const {
  if (placement == "cluster") return "DPT";
  if (placement == "spread") return "TPD";
  return placement;
}

Status Layout::check() const {
  LOOM_TRY(at_least_one("the data parallel degree", data));
  LOOM_TRY(at_least_one("pipeline_degree", pipeline));
  LOOM_TRY(at_least_one("tensor_degree", tensor));
  LOOM_TRY(at_least_one("sharded_data_parallel_degree", shard));
  if (data % shard != 0)
    return fail(Code::invalid_argument,
                "parallel.sharded_data_parallel_degree is {}, must divide the number of data ranks, {}",
                shard, data);
  std::string letters = order();
  std::sort(letters.begin(), letters.end());
  if (letters != "DPT")
    return fail(Code::invalid_argument,
                "placement is \"{}\", must be cluster, spread, or the letters D, P and T in any order",
                placement);
  return {};
}

int Layout::partition_places() const {
  int places = shard;
  const std::string letters = order();
  for (size_t i = letters.find('D') + 1; i < letters.size(); ++i) places *= degree_of(letters[i]);
  return places;
}

std::vector<int> Layout::places(const std::vector<int>& node_of) const {
  std::map<int, int> size_of, seen;
  for (const int node : node_of) ++size_of[node];
  const bool even = std::all_of(size_of.begin(), size_of.end(),
                                [&](const auto& node) { return node.second == size_of.begin()->second; });
  // (0, node) of those that fill groups, (1, node) of the others.
  std::vector<std::pair<int, int>> turn;
  for (const int node : node_of) {
    const int whole = size_of[node] / partition_places() * partition_places();
    turn.emplace_back(!even && seen[node]++ >= whole ? 1 : 0, node);
  }
  std::vector<int> order(node_of.size()), places(node_of.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return turn[a] < turn[b]; });
  for (size_t place = 0; place < order.size(); ++place) places[order[place]] = static_cast<int>(place);
  return places;
}

Coordinates Layout::coordinates(int place) const {
  const std::string letters = order();
  Coordinates at;
  for (size_t i = letters.size(); i-- > 0;) {
    const int degree = degree_of(letters[i]);
    digit(at, letters[i]) = place % degree;
    place /= degree;
  }
  return at;
}

int Layout::place(const Coordinates& at) const {
  Coordinates digits = at;
  int place = 0;
  for (const char letter : order()) place = place * degree_of(letter) + digit(digits, letter);
  return place;
}

std::vector<int> Layout::peers(GroupKind kind, int place) const {
  const Coordinates self = coordinates(place);
  const int first = self.data / shard * shard;  // data rank of the partition group's first member
  std::vector<int> places;
  const auto add = [&](int data_rank, int stage, int tensor_rank) {
    places.push_back(this->place({data_rank, stage, tensor_rank}));
  };
  switch (kind) {
    case GroupKind::partition:
      for (int m = 0; m < shard; ++m) add(first + m, self.stage, self.tensor);
      break;
    case GroupKind::replication:
      for (int g = 0; g < replicas(); ++g) add(g * shard + self.data % shard, self.stage, self.tensor);
      break;
    case GroupKind::pipeline:
      for (int s = 0; s < pipeline; ++s) add(self.data, s, self.tensor);
      break;
    case GroupKind::ends:
      if (pipeline == 1 || (self.stage != 0 && self.stage != pipeline - 1)) return {place};
      for (const int s : {0, pipeline - 1}) add(self.data, s, self.tensor);
      break;
    case GroupKind::tensor:
      for (int t = 0; t < tensor; ++t) add(self.data, self.stage, t);
      break;
    case GroupKind::model:
      for (int s = 0; s < pipeline; ++s)
        for (int t = 0; t < tensor; ++t)
          for (int m = 0; m < shard; ++m) add(first + m, s, t);
      break;
  }
  return places;
}

bool Layout::spans_nodes(GroupKind kind, int place, int ranks_per_node) const {
  for (const int peer : peers(kind, place))
    if (peer / ranks_per_node != place / ranks_per_node) return true;
  return false;
}

std::string to_string(const Layout& layout) {
  return fmt::format("{} rank{} (D {}, P {}, T {}, p {}, {})", layout.ranks(), layout.ranks() == 1 ? "" : "s",
                     layout.data, layout.pipeline, layout.tensor, layout.shard, layout.order());
}

std::string picture(const Layout& layout, int ranks_per_node) {
  constexpr int kRanks = 64, kCells = 16;  // drawn in all, and on a line
  const int ranks = layout.ranks(), nodes = (ranks + ranks_per_node - 1) / ranks_per_node;
  const int lines = std::max(2, kRanks / std::min(ranks_per_node, kCells));
  std::string text;
  for (int node = 0; node < nodes; ++node) {
    if (nodes > lines && node == lines - 1) {
      text += fmt::format("… {} node{}\n", nodes - lines, nodes - lines == 1 ? "" : "s");
      node = nodes - 1;
    }
    text += fmt::format("node {:>3}:", node);
    const int begin = node * ranks_per_node, end = std::min(ranks, begin + ranks_per_node);
    for (int place = begin; place < end; ++place) {
      if (end - begin > kCells && place == begin + kCells - 1) {
        text += "  …";
        place = end - 1;
      }
      text += "  " + cell(layout, place);
    }
    text += '\n';
  }
  return text;
}

std::string groups_text(const Layout& layout) {
  constexpr int kShown = 4;
  std::string text;
  for (int k = 0; k < kGroupKinds; ++k) {
    const auto kind = static_cast<GroupKind>(k);
    if (kind == GroupKind::model && data_only(layout)) continue;
    const int size =
        static_cast<int>(layout.peers(kind, 0).size());  // the first place is in one of each kind
    if (size == 1) continue;
    const int count = kind == GroupKind::ends ? layout.data * layout.tensor : layout.ranks() / size;
    text += fmt::format("{:<12}{:>4} of {:<4}", group_name(kind), count, size);
    int shown = 0;
    for (int place = 0; place < layout.ranks() && shown < std::min(count, kShown); ++place) {
      const std::vector<int> peers = layout.peers(kind, place);
      if (peers.size() == 1 || peers.front() != place) continue;
      ++shown;
      text += " {";
      for (int i = 0; i < std::min(size, 2 * kShown); ++i)
        text += fmt::format("{}{}", i > 0 ? " " : "", peers[i]);
      text += size > 2 * kShown ? " …}" : "}";
    }
    text += count > kShown ? " …\n" : "\n";
  }
  return text;
}

}  // namespace loom::program
