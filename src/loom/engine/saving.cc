// The whole model, put together at rank 0: a piece of a unit at a time, for which whoever holds some of it
// sends that, one rank after the other. So nobody has more of the model than its share and a piece.
#include <algorithm>
#include <optional>

#include "engine/executor.h"
#include "engine/weft_call.h"
#include "model/hugging_face.h"

namespace loom::engine {

/// Reads whole units on rank 0, from the masters of the copy of the model that rank 0 holds a part of. Ranks
/// are those of Groups::model(): stage by stage, tensor rank by tensor rank, member by member.
template <typename T>
class Executor<T>::Collector {
 public:
  explicit Collector(const Executor& executor) : executor_(executor) {
    const program::Layout& layout = executor.groups_.layout();
    const int root = executor.groups_.place_of(0), self = executor.groups_.place();
    const auto number_of = [&](int place) {
      const program::Coordinates at = layout.coordinates(place);
      return number(at.stage, at.tensor, layout.member(place));
    };
    root_ = number_of(root);
    self_ = number_of(self);
    of_that_copy_ = layout.group(root) == layout.group(self);
  }

  /// Whether this rank reads the unit with the others: it holds a part of it, or is rank 0.
  bool begin(const model::Unit& whole) {
    const program::Job& job = executor_.job_;
    stage_ = executor_.norms_[whole.index].stage;
    if (!of_that_copy_ || (self_ != root_ && executor_.groups_.coordinates().stage != stage_)) return false;
    master_ = executor_.states_[whole.index].master;
    shard_ = job.shard(executor_.units_[whole.index]);
    runs_ = model::runs_of_all(whole, job.tensor_degree);
    return true;
  }

  /// Elements [begin, begin + into.size()) of the unit's buffer, all of parameters, on rank 0.
  Status read(int64_t begin, std::span<float> into) {
    for (int tensor = 0; tensor < executor_.job_.tensor_degree; ++tensor)
      for (int member = 0; member < executor_.job_.degree; ++member)
        LOOM_TRY(take(number(stage_, tensor, member), {tensor, member}, begin, into));
    return {};
  }

 private:
  struct Holder {
    int tensor, member;
  };

  int number(int stage, int tensor, int member) const {
    return (stage * executor_.job_.tensor_degree + tensor) * executor_.job_.degree + member;
  }

  /// copy(place in the piece, place in the holder's shard, elements) for what a holder has of a piece of
  /// `size` elements from `begin` on, in order; how much that is.
  template <typename F>
  int64_t for_parts_of(Holder holder, int64_t begin, int64_t size, F&& copy) const {
    const int64_t shard_begin = holder.member * shard_, end = begin + size;
    int64_t count = 0;
    auto run = std::partition_point(runs_.begin(), runs_.end(),
                                    [&](const model::Run& r) { return r.whole + r.length <= begin; });
    for (; run != runs_.end() && run->whole < end; ++run) {
      if (run->rank != holder.tensor) continue;
      const int64_t to_held = run->held - run->whole;  // from a place in the whole unit's buffer
      const int64_t first = std::max({begin, run->whole, shard_begin - to_held}),
                    last = std::min({end, run->whole + run->length, shard_begin + shard_ - to_held});
      if (first >= last) continue;
      copy(first - begin, first + to_held - shard_begin, last - first);
      count += last - first;
    }
    return count;
  }

  /// What one rank holds of a piece goes to rank 0.
  Status take(int rank, Holder holder, int64_t begin, std::span<float> into) {
    if (self_ != rank && self_ != root_) return {};
    const auto size = static_cast<int64_t>(into.size());
    if (rank == root_) {
      for_parts_of(holder, begin, size, [&](int64_t at, int64_t held, int64_t count) {
        std::copy_n(master_ + held, count, into.begin() + at);
      });
      return {};
    }
    sent_.resize(into.size());
    int64_t next = 0;
    if (self_ == rank) {
      for_parts_of(holder, begin, size, [&](int64_t, int64_t held, int64_t count) {
        std::copy_n(master_ + held, count, sent_.begin() + next);
        next += count;
      });
      if (next == 0) return {};
      return from_weft(weftSend(sent_.data(), static_cast<size_t>(next), weftFloat32, root_,
                                executor_.groups_.model(), nullptr));
    }
    const int64_t all = for_parts_of(holder, begin, size, [](int64_t, int64_t, int64_t) {});
    if (all == 0) return {};
    LOOM_TRY_WEFT(weftRecv(sent_.data(), static_cast<size_t>(all), weftFloat32, rank,
                           executor_.groups_.model(), nullptr));
    for_parts_of(holder, begin, size, [&](int64_t at, int64_t, int64_t count) {
      std::copy_n(sent_.begin() + next, count, into.begin() + at);
      next += count;
    });
    return {};
  }

  const Executor& executor_;
  int root_ = 0, self_ = 0;
  bool of_that_copy_ = false;  // of the model, which rank 0 is of
  // Of the unit at hand.
  int stage_ = 0;
  const A* master_ = nullptr;
  int64_t shard_ = 0;
  std::vector<model::Run> runs_;
  std::vector<float> sent_;
};

template <typename T>
Status Executor<T>::save_model(const std::string& folder) {
  const bool writes = groups_.rank() == 0;
  std::optional<format::ModelWriter> writer;
  // Rank 0's failures must not leave the others with what they send: they are told at the end.
  Status status;
  if (writes) {
    status = format::write_config(folder, model::config_of(job_.spec));
    if (status.ok()) {
      Result<format::ModelWriter> created =
          format::ModelWriter::create(folder, model::tensor_specs(whole_units_));
      status = created.status();
      if (created.ok()) writer.emplace(created.take());
    }
  }
  Collector collector(*this);
  for (const model::Unit& unit : whole_units_) {
    if (!collector.begin(unit)) continue;
    Status read;
    const Status written = model::write_parameters(writer && status.ok() ? &*writer : nullptr, unit,
                                                   [&](int64_t begin, std::span<float> into) {
                                                     read = collector.read(begin, into);
                                                     return read;
                                                   });
    LOOM_TRY(read);
    if (status.ok()) status = written;
  }
  if (writer && status.ok()) status = writer->finish();
  return groups_.agree(status);
}

#define LOOM_INSTANTIATE(T) template Status Executor<T>::save_model(const std::string&);
LOOM_INSTANTIATE(float)
LOOM_INSTANTIATE(bf16)
LOOM_INSTANTIATE(fp16)

}  // namespace loom::engine
