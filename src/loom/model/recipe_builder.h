// RecipeBuilder: writes the steps of a unit one after the other, and finds where its arrays lie.
//
// Internal to the recipes' files. Thread safety: one thread.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "model/recipe.h"
#include "model/sequence_parallel.h"
#include "model/split.h"

namespace loom::model {

class RecipeBuilder {
 public:
  RecipeBuilder(const ModelSpec& spec, const RecipeSizes& sizes)
      : spec_(spec),
        sizes_(sizes),
        share_(sizes.share),
        largest_(share_.degree == 1 ? share_ : share_of(spec, {share_.degree, 0}, share_.divides_rows)) {}

  /// What follows is of the backward pass.
  void turn() { backward_ = true; }
  Recipe take();

 protected:
  int64_t width() const { return spec_.width; }
  int64_t rows() const { return sizes_.rows(); }
  int64_t own() const { return own_rows(share_, rows()); }
  bool divides() const { return share_.divides_rows; }
  bool is_split() const { return share_.degree > 1; }

  int given(Given what, const char* name, bool partial = false);
  /// Arrays of `elements`, of activations or of sums. What forward writes and backward reads is saved.
  int values(const char* name, int64_t elements) { return add(name, elements * sizes_.element_bytes); }
  int sums(const char* name, int64_t elements) { return add(name, elements * sizes_.sum_bytes); }
  int add(const char* name, int64_t bytes);

  Step& step(Kernel kernel, std::initializer_list<int> reads, std::initializer_list<int> writes);
  /// … on `count` rows of `in` elements.
  Step& on(Kernel kernel, std::initializer_list<int> reads, std::initializer_list<int> writes, int64_t count,
           int64_t in);
  /// y, with its statistics, from x.
  struct Normed {
    int y, mean, deviation;
  };
  Normed norm(Part weight, int x, const char* name, int64_t count);
  Normed norm_into(int y, Part weight, int x, int64_t count);
  Step& norm_gradient(Part weight, int x, const Normed& normed, int dy, int dx, bool adds, int64_t count);
  Step& product(Kernel kernel, Part weight, std::initializer_list<int> reads,
                std::initializer_list<int> writes, int64_t count, int64_t in, int64_t out);
  /// d after a dropout that does not stand in the same array; d itself where nothing is dropped.
  int through(Site site, float probability, int d, int64_t count, int64_t per_sample, const char* name);

  /// All rows of what each rank has its own rows of. In a list without divided rows, the array itself.
  int enter(int part, const char* name, int64_t all_elements);
  /// The sum of what each rank has a summand of, on the rows that the rank has. With one rank the array
  /// itself.
  int leave(int summand, const char* name, int64_t own_elements);
  int exchange(Kernel kernel, int from, int to);
  bool is_exchanged(int array) const;

  Array& array(int number) { return recipe_.arrays[static_cast<size_t>(number)]; }
  std::vector<Step>& steps() { return backward_ ? recipe_.backward : recipe_.forward; }

  const ModelSpec& spec_;
  const RecipeSizes sizes_;
  const Share share_, largest_;  // this rank's, and the first one's, whose arrays are the largest

 private:
  /// The first and the last step that uses an array, counted through both passes. Steps that may be done at
  /// once count as one.
  struct Life {
    int64_t first = -1, last = -1;
    bool forward = false, backward = false;
  };
  void fuse();
  void place(std::vector<Life>& lives);

  Recipe recipe_;
  bool backward_ = false;
};

}  // namespace loom::model
