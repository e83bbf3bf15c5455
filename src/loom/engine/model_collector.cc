// The whole model, put together at rank 0: a piece of a unit at a time. The ranks that hold parts of the
// piece send them, one rank after the other. So no rank has more of the model than its share and a piece.
#include "engine/model_collector.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "model/hugging_face.h"

namespace loom::engine {
namespace {

/// Reads whole units on rank 0, from the masters of the copy of the model that rank 0 holds a part of.
class Collector {
 public:
  Collector(const RankContext& context, const std::function<HeldMaster(int unit)>& held)
      : context_(context), held_(held) {
    const Groups& groups = context.groups;
    const program::Layout& layout = groups.layout();
    rank_at_.resize(static_cast<size_t>(groups.ranks()));
    for (int rank = 0; rank < groups.ranks(); ++rank)
      rank_at_[static_cast<size_t>(groups.place_of(rank))] = rank;
    self_ = groups.rank();
    group_ = layout.group(groups.place_of(kRoot));
    of_that_copy_ = group_ == groups.group();
  }

  /// Whether this rank reads the unit with the others: it holds a part of it, or is rank 0.
  bool begin(const model::Unit& whole) {
    const program::Job& job = context_.job;
    const HeldMaster held = held_(whole.index);
    stage_ = held.stage;
    if (!of_that_copy_ || (self_ != kRoot && context_.groups.coordinates().stage != stage_)) return false;
    master_ = held.master;
    shard_ = job.shard(context_.units[static_cast<size_t>(whole.index)]);
    runs_ = model::runs_of_all(whole, job.tensor_degree);
    return true;
  }

  /// Elements [begin, begin + into.size()) of the unit's buffer, all of parameters, on rank 0.
  Status read(int64_t begin, std::span<float> into) {
    for (int tensor = 0; tensor < context_.job.tensor_degree; ++tensor)
      for (int member = 0; member < context_.job.degree; ++member)
        LOOM_TRY(take({tensor, member}, begin, into));
    return {};
  }

 private:
  static constexpr int kRoot = 0;  // the rank that reads
  struct Holder {
    int tensor, member;
  };

  int rank_of(Holder holder) const {
    const int data = group_ * context_.job.degree + holder.member;
    const int place = context_.groups.layout().place({data, stage_, holder.tensor});
    return rank_at_[static_cast<size_t>(place)];
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

  /// `count` elements of this rank's shard from `held` on.
  Status fetch(int64_t held, int64_t count, float* into) const {
    return context_.device.transfer().download(master_ + held, count * static_cast<int64_t>(sizeof(float)),
                                               [&](int64_t offset, std::span<const std::byte> piece) {
                                                 std::memcpy(reinterpret_cast<std::byte*>(into) + offset,
                                                             piece.data(), piece.size());
                                                 return Status();
                                               });
  }

  /// What one rank holds of a piece goes to rank 0.
  Status take(Holder holder, int64_t begin, std::span<float> into) {
    const int rank = rank_of(holder);
    if (self_ != rank && self_ != kRoot) return {};
    const auto size = static_cast<int64_t>(into.size());
    Status fetched;
    if (rank == kRoot) {
      for_parts_of(holder, begin, size, [&](int64_t at, int64_t held, int64_t count) {
        if (fetched.ok()) fetched = fetch(held, count, into.data() + at);
      });
      return fetched;
    }
    sent_.resize(into.size());
    int64_t next = 0;
    if (self_ == rank) {
      for_parts_of(holder, begin, size, [&](int64_t, int64_t held, int64_t count) {
        if (fetched.ok()) fetched = fetch(held, count, sent_.data() + next);
        next += count;
      });
      LOOM_TRY(fetched);
      return context_.groups.send(std::as_bytes(std::span(sent_).first(static_cast<size_t>(next))), kRoot);
    }
    const int64_t all = for_parts_of(holder, begin, size, [](int64_t, int64_t, int64_t) {});
    LOOM_TRY(context_.groups.receive(std::as_writable_bytes(std::span(sent_).first(static_cast<size_t>(all))),
                                     rank));
    for_parts_of(holder, begin, size, [&](int64_t at, int64_t, int64_t count) {
      std::copy_n(sent_.begin() + next, count, into.begin() + at);
      next += count;
    });
    return {};
  }

  const RankContext& context_;
  const std::function<HeldMaster(int unit)>& held_;
  std::vector<int> rank_at_;  // of each place
  int self_ = 0;
  int group_ = 0;              // partition group that has the copy of the model which rank 0 is of
  bool of_that_copy_ = false;  // this rank as well
  // Of the unit at hand.
  int stage_ = 0;
  const float* master_ = nullptr;
  int64_t shard_ = 0;
  std::vector<model::Run> runs_;
  std::vector<float> sent_;
};

}  // namespace

Status save_model(const std::string& folder, format::DType dtype, const RankContext& context,
                  const std::function<HeldMaster(int unit)>& held) {
  const bool writes = context.groups.rank() == 0;
  std::optional<format::ModelWriter> writer;
  // Rank 0's failures must not leave the others with what they send: they are told at the end.
  Status status;
  if (writes) {
    status = format::write_config(folder, model::config_of(context.job.spec));
    if (status.ok()) {
      Result<format::ModelWriter> created =
          format::ModelWriter::create(folder, model::tensor_specs(context.whole_units, dtype));
      status = created.status();
      if (created.ok()) writer.emplace(created.take());
    }
  }
  Collector collector(context, held);
  for (const model::Unit& unit : context.whole_units) {
    if (!collector.begin(unit)) continue;
    Status read;
    const Status written = model::write_parameters(writer && status.ok() ? &*writer : nullptr, unit,
                                                   [&](int64_t begin, std::span<float> into) {
                                                     read = collector.read(begin, into);
                                                     return read;
                                                   });
    if (!read.ok()) {  // other ranks wait for what this rank would send or receive
      context.groups.abort(read);
      return read;
    }
    if (status.ok()) status = written;
  }
  if (writer && status.ok()) status = writer->finish();
  return context.groups.agree(status);
}

}  // namespace loom::engine
