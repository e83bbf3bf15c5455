// Steps one by one, and places of arrays: first those that live longest side by side, then the others, each
// at the lowest place that is free while it lives.
#include "model/recipe_builder.h"

#include <numeric>

#include "base/round.h"
#include "model/fusion.h"

namespace loom::model {

bool makes_gradient(Kernel kernel) {
  switch (kernel) {
    case Kernel::embed_gradient:
    case Kernel::split_embed_gradient:
    case Kernel::places_gradient:
    case Kernel::norm_gradient:
    case Kernel::head_norm_gradient:
    case Kernel::linear_weight:
    case Kernel::clear:
    case Kernel::logits_gradient: return true;
    default: return false;
  }
}

int RecipeBuilder::given(Given what, const char* name, bool partial) {
  recipe_.arrays.push_back({name, Place::given, what, 0, 0, partial});
  return static_cast<int>(recipe_.arrays.size()) - 1;
}

int RecipeBuilder::add(const char* name, int64_t bytes) {
  recipe_.arrays.push_back({name, Place::workspace, Given::none, bytes, 0, false});
  return static_cast<int>(recipe_.arrays.size()) - 1;
}

Step& RecipeBuilder::step(Kernel kernel, std::initializer_list<int> reads,
                          std::initializer_list<int> writes) {
  Step step;
  step.kernel = kernel;
  std::copy(reads.begin(), reads.end(), step.reads.begin());
  std::copy(writes.begin(), writes.end(), step.writes.begin());
  steps().push_back(step);
  return steps().back();
}

Step& RecipeBuilder::on(Kernel kernel, std::initializer_list<int> reads, std::initializer_list<int> writes,
                        int64_t count, int64_t in) {
  Step& made = step(kernel, reads, writes);
  made.rows = made.of_rows = count;
  made.in = in;
  return made;
}

RecipeBuilder::Normed RecipeBuilder::norm(Part weight, int x, const char* name, int64_t count) {
  return norm_into(values(name, count * width()), weight, x, count);
}

RecipeBuilder::Normed RecipeBuilder::norm_into(int y, Part weight, int x, int64_t count) {
  const int mean = spec_.rms_norm ? -1 : sums("means", count);
  const Normed normed{y, mean, sums("deviations", count)};
  on(Kernel::norm, {x}, {normed.y, normed.mean, normed.deviation}, count, width()).part = weight;
  return normed;
}

Step& RecipeBuilder::norm_gradient(Part weight, int x, const Normed& normed, int dy, int dx, bool adds,
                                   int64_t count) {
  Step& made =
      on(Kernel::norm_gradient, {x, normed.mean, normed.deviation, dy, adds ? dx : -1}, {dx}, count, width());
  made.part = weight;
  made.adds = adds;
  return made;
}

Step& RecipeBuilder::product(Kernel kernel, Part weight, std::initializer_list<int> reads,
                             std::initializer_list<int> writes, int64_t count, int64_t in, int64_t out) {
  Step& made = on(kernel, reads, writes, count, in);
  made.part = weight;
  made.out = out;
  return made;
}

int RecipeBuilder::through(Site site, float probability, int d, int64_t count, int64_t per_sample,
                           const char* name) {
  const int dropped = probability > 0 ? values(name, count * width()) : d;
  Step& made = on(Kernel::dropout, {d}, {dropped}, count, width());
  made.site = site;
  made.probability = probability;
  made.per_sample = per_sample;
  made.own = true;
  return dropped;
}

int RecipeBuilder::exchange(Kernel kernel, int from, int to) {
  for (const int number : {from, to})
    if (array(number).place != Place::given) array(number).place = Place::exchanged;
  array(from).partial = true;
  step(kernel, {from}, {to});
  return to;
}

int RecipeBuilder::enter(int part, const char* name, int64_t all_elements) {
  return divides() ? exchange(Kernel::gather, part, values(name, all_elements)) : part;
}

int RecipeBuilder::leave(int summand, const char* name, int64_t own_elements) {
  if (!is_split()) return summand;
  return divides() ? exchange(Kernel::reduce_scatter, summand, values(name, own_elements))
                   : exchange(Kernel::all_reduce, summand, summand);
}

void RecipeBuilder::place(std::vector<Life>& lives) {
  constexpr int64_t kAlign = 64;
  const auto aligned = [](int64_t bytes) { return round_up(bytes, kAlign); };
  std::vector<size_t> order(recipe_.arrays.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return recipe_.arrays[a].bytes > recipe_.arrays[b].bytes; });
  std::vector<size_t> placed;
  for (const size_t number : order) {
    Array& array = recipe_.arrays[number];
    const Life& life = lives[number];
    if (life.first < 0) continue;
    if (array.place == Place::exchanged)
      (life.forward && life.backward ? recipe_.kept_bytes : recipe_.exchanged_bytes) += array.bytes;
    if (array.place == Place::saved) {
      array.offset = recipe_.saved_bytes;
      recipe_.saved_bytes += aligned(array.bytes);
    }
    if (array.place != Place::workspace) continue;
    bool moved = true;
    while (moved) {
      moved = false;
      for (const size_t other : placed) {
        const Array& there = recipe_.arrays[other];
        const Life& its = lives[other];
        if (its.first > life.last || life.first > its.last) continue;
        if (array.offset >= there.offset + aligned(there.bytes) ||
            there.offset >= array.offset + aligned(array.bytes))
          continue;
        array.offset = there.offset + aligned(there.bytes);
        moved = true;
      }
    }
    placed.push_back(number);
    recipe_.workspace_bytes = std::max(recipe_.workspace_bytes, array.offset + aligned(array.bytes));
  }
}

/// Marks steps that a table of operators may do at once with the next one. No step is part of two pairs.
void RecipeBuilder::fuse() {
  for (std::vector<Step>* pass : {&recipe_.forward, &recipe_.backward})
    for (size_t i = 0; i + 1 < pass->size(); ++i) {
      (*pass)[i].fuses = fusion_of((*pass)[i], (*pass)[i + 1]) != Fusion::none;
      if ((*pass)[i].fuses) ++i;
    }
}

Recipe RecipeBuilder::take() {
  if (sizes_.table.of_gpu) fuse();
  std::vector<Life> lives(recipe_.arrays.size());
  int64_t at = 0;
  for (const std::vector<Step>* pass : {&recipe_.forward, &recipe_.backward})
    for (const Step& step : *pass) {
      const auto use = [&](int number) {
        if (number < 0) return;
        Life& life = lives[static_cast<size_t>(number)];
        if (life.first < 0) life.first = at;
        life.last = at;
        (pass == &recipe_.forward ? life.forward : life.backward) = true;
      };
      for (const int number : step.reads) use(number);
      for (const int number : step.writes) use(number);
      at += step.fuses ? 0 : 1;
    }
  for (size_t i = 0; i < lives.size(); ++i)
    if (recipe_.arrays[i].place == Place::workspace && lives[i].forward && lives[i].backward)
      recipe_.arrays[i].place = Place::saved;
  place(lives);
  return std::move(recipe_);
}

}  // namespace loom::model
