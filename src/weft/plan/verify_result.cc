// Result: executes the plans on symbolic memory. A value says which ranks' contributions are in a byte, and
// from where in their inputs. The caller knows that there are no races, so one order of execution is enough.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <map>

#include "plan/uneven.h"
#include "plan/verify_world.h"

namespace weft::plan::verifier {
namespace {

constexpr Code kBroken = Code::internal_error;

/// What is known of a run of bytes, but for where it comes from.
struct Content {
  std::vector<uint64_t> ranks;  // whose contributions are in it, a bit each
  bool final = false;           // it has been through a final reduce
  bool canonical = false;       // … which added all raw inputs in rank order

  friend auto operator<=>(const Content&, const Content&) = default;
};

/// Byte k of the run holds `content` of byte from + k of the inputs.
struct Piece {
  uint64_t begin, end;  // address
  uint32_t content;
  uint64_t from;
};

/// All contents there are, by number.
class Contents {
 public:
  explicit Contents(int ranks) : words_((static_cast<size_t>(ranks) + 63) / 64) {}

  uint32_t raw(int rank) {
    Content content{std::vector<uint64_t>(words_), false, false};
    content.ranks[rank / 64] = uint64_t{1} << rank % 64;
    return number_of(content);
  }
  uint32_t number_of(const Content& content) {
    const auto [it, is_new] = numbers_.try_emplace(content, static_cast<uint32_t>(all_.size()));
    if (is_new) all_.push_back(content);
    return it->second;
  }
  const Content& operator[](uint32_t number) const { return all_[number]; }
  size_t words() const { return words_; }

 private:
  size_t words_;
  std::vector<Content> all_;
  std::map<Content, uint32_t> numbers_;
};

std::vector<int> ranks_in(const Content& content) {
  std::vector<int> ranks;
  for (int rank = 0; rank < static_cast<int>(content.ranks.size()) * 64; ++rank) {
    if (content.ranks[rank / 64] >> rank % 64 & 1) ranks.push_back(rank);
  }
  return ranks;
}

uint32_t count_ranks(const Content& content) {
  int count = 0;
  for (const uint64_t word : content.ranks) count += std::popcount(word);
  return static_cast<uint32_t>(count);
}

/// One arena: pieces by address, without overlaps. Bytes in no piece were never written.
class Arena {
 public:
  void write(std::vector<Piece> pieces, uint64_t begin, uint64_t end) {
    split(begin);
    split(end);
    pieces_.erase(pieces_.lower_bound(begin), pieces_.lower_bound(end));
    for (const Piece& piece : pieces) pieces_.emplace(piece.begin, piece);
  }
  /// The pieces of [begin, end), cut to it.
  std::vector<Piece> read(uint64_t begin, uint64_t end) const {
    std::vector<Piece> found;
    auto it = pieces_.upper_bound(begin);
    if (it != pieces_.begin()) --it;
    for (; it != pieces_.end() && it->first < end; ++it) {
      Piece piece = it->second;
      if (piece.end <= begin) continue;
      if (piece.begin < begin) piece.from += begin - piece.begin, piece.begin = begin;
      piece.end = std::min(piece.end, end);
      found.push_back(piece);
    }
    return found;
  }

 private:
  void split(uint64_t at) {
    auto it = pieces_.lower_bound(at);
    if (it == pieces_.begin()) return;
    Piece& left = (--it)->second;
    if (left.end <= at) return;
    const Piece right{at, left.end, left.content, left.from + (at - left.begin)};
    left.end = at;
    pieces_.emplace(at, right);
  }
  std::map<uint64_t, Piece> pieces_;
};

class Execution {
 public:
  Execution(const World& world, const Timeline& t)
      : world_(world),
        t_(t),
        contents_(world.ranks()),
        arenas_(static_cast<size_t>(world.ranks()) * kArenas) {}

  Status run() {
    fill_inputs();
    std::map<Event, std::vector<Piece>> in_flight;  // by the event of writing
    for (Event event : t_.order) {
      const StepRef ref = t_.step_of[event];
      const Step& step = world_.step(ref);
      if (step.bytes == 0 || !moves(step.kind)) continue;
      const bool starts = event < t_.first_event.back();
      if (step.kind == StepKind::reduce) {
        WEFT_TRY(reduce(ref));
      } else if (step.kind == StepKind::copy) {
        std::vector<Piece> pieces;
        WEFT_TRY(read(ref, 0, pieces));
        write(ref, std::move(pieces));
      } else if (!starts && t_.read_of[t_.event_of(ref)] == event) {
        WEFT_TRY(read(ref, 0, in_flight[event + 1]));
      } else if (!starts) {
        write(ref, std::move(in_flight.extract(event).mapped()));
      }
    }
    for (int rank = 0; rank < world_.ranks(); ++rank) {
      if (world_.takes_part(rank)) WEFT_TRY(check_output(rank));
    }
    return {};
  }

 private:
  static constexpr int kArenas = 3;

  /// What a rank's output must hold.
  struct Expected {
    uint64_t begin, bytes;
    int rank;       // whose raw input; -1 for the sum of all
    uint64_t from;  // byte of the inputs
  };

  Arena& arena(const Interval& bytes) {
    return arenas_[static_cast<size_t>(bytes.rank * kArenas + bytes.arena)];
  }

  void fill_inputs() {
    for (int rank = 0; rank < world_.ranks(); ++rank) {
      if (!world_.takes_part(rank) || world_.size_of(rank, Space::input) == 0) continue;
      if (world_.plan(rank).request.uneven) {
        fill_blocks(rank, *world_.plan(rank).request.uneven);
        continue;
      }
      const Interval input = world_.locate(rank, {rank, Space::input, 0}, world_.size_of(rank, Space::input));
      arena(input).write({{input.begin, input.end, contents_.raw(rank), 0}}, input.begin, input.end);
    }
  }

  /// Bytes of uneven blocks are numbered as if the blocks lay one behind the other. What lies between them
  /// was never written.
  void fill_blocks(int rank, const Uneven& uneven) {
    const uint64_t element = world_.plan(rank).request.element_bytes;
    const bool one = world_.plan(rank).request.collective == Collective::all_gather;
    uint64_t from = 0;
    for (const Uneven::Block& block : uneven.given) {
      const uint64_t bytes = block.count * element;
      const Interval place = world_.locate(rank, {rank, Space::input, block.begin * element}, bytes);
      if (bytes > 0)
        arena(place).write({{place.begin, place.end, contents_.raw(rank), from}}, place.begin, place.end);
      if (one) return;
      from += bytes;
    }
  }

  /// Where the block that rank `from` gives to `to` begins in that numbering.
  uint64_t first_given(int from, int to) const {
    const Request& request = world_.plan(from).request;
    uint64_t before = 0;
    for (int r = 0; r < to; ++r) before += request.uneven->given[static_cast<size_t>(r)].count;
    return before * request.element_bytes;
  }

  std::vector<Expected> expected_blocks(int rank) const {
    const Request& request = world_.plan(rank).request;
    if (request.collective == Collective::reduce_scatter)
      return {{0, world_.size_of(rank, Space::output), -1, first_given(rank, rank)}};
    std::vector<Expected> blocks;
    for (int from = 0; from < world_.ranks(); ++from) {
      const SharedBlock block = shared_block(request, Space::output, from);
      const uint64_t first = request.collective == Collective::all_to_all ? first_given(from, rank) : 0;
      blocks.push_back({block.begin, block.bytes, from, first});
    }
    return blocks;
  }

  /// What source number `index` of a step holds, at addresses counted from 0.
  Status read(StepRef ref, size_t index, std::vector<Piece>& pieces) {
    const Step& step = world_.step(ref);
    const Region& source = world_.plan(ref.rank).sources_of(step)[index];
    const Interval bytes = world_.locate(ref.rank, source, step.bytes);
    pieces = arena(bytes).read(bytes.begin, bytes.end);
    uint64_t expected = 0;
    for (Piece& piece : pieces) {
      piece.begin -= bytes.begin, piece.end -= bytes.begin;
      if (piece.begin != expected) return unwritten(ref, source, expected, piece.begin);
      expected = piece.end;
    }
    return expected == step.bytes ? Status{} : unwritten(ref, source, expected, step.bytes);
  }

  Status unwritten(StepRef ref, const Region& source, uint64_t begin, uint64_t end) const {
    return fail(kBroken, "{} reads {}, which was never written", world_.name_of(ref),
                World::name_of(source + begin, end - begin));
  }

  void write(StepRef ref, std::vector<Piece> pieces) {
    const Step& step = world_.step(ref);
    const Interval bytes = world_.locate(ref.rank, step.dst, step.bytes);
    for (Piece& piece : pieces) piece.begin += bytes.begin, piece.end += bytes.begin;
    arena(bytes).write(std::move(pieces), bytes.begin, bytes.end);
  }

  Status reduce(StepRef ref) {
    const Step& step = world_.step(ref);
    std::vector<std::vector<Piece>> sources(step.source_count);
    std::vector<uint64_t> cuts{0, step.bytes};
    for (size_t i = 0; i < sources.size(); ++i) {
      WEFT_TRY(read(ref, i, sources[i]));
      for (const Piece& piece : sources[i]) cuts.push_back(piece.begin);
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::vector<size_t> at(sources.size(), 0);
    std::vector<Piece> result;
    for (size_t c = 0; c + 1 < cuts.size(); ++c) {
      std::vector<Piece> column;
      for (size_t i = 0; i < sources.size(); ++i) {
        while (sources[i][at[i]].end <= cuts[c]) ++at[i];
        Piece piece = sources[i][at[i]];
        piece.from += cuts[c] - piece.begin;
        column.push_back(piece);
      }
      uint32_t sum = 0;
      WEFT_TRY(add_up(ref, column, cuts[c], sum));
      result.push_back({cuts[c], cuts[c + 1], sum, column[0].from});
    }
    write(ref, std::move(result));
    return {};
  }

  /// The sum of what lies at one place of all sources.
  Status add_up(StepRef ref, std::span<const Piece> column, uint64_t at, uint32_t& sum) {
    const Step& step = world_.step(ref);
    const auto broken = [&](const std::string& why) {
      return fail(kBroken, "{}: at byte {}, {}", world_.name_of(ref), at, why);
    };
    Content total{std::vector<uint64_t>(contents_.words()), step.final, false};
    bool in_rank_order = static_cast<int>(column.size()) == world_.ranks();
    for (size_t i = 0; i < column.size(); ++i) {
      const Content& part = contents_[column[i].content];
      const uint32_t claimed = world_.plan(ref.rank).contributions_of(step)[i];
      if (part.final) return broken(fmt::format("source {} is final already", i));
      if (claimed != count_ranks(part)) {
        return broken(fmt::format("source {} holds the contributions of ranks {}, the plan says of {} ranks",
                                  i, fmt::join(ranks_in(part), ", "), claimed));
      }
      if (column[i].from != column[0].from) {
        return broken(fmt::format("source {} comes from byte {} of the inputs, source 0 from byte {}", i,
                                  column[i].from, column[0].from));
      }
      for (size_t w = 0; w < total.ranks.size(); ++w) {
        if ((total.ranks[w] & part.ranks[w]) != 0) {
          return broken(fmt::format("source {} adds ranks {} again", i, fmt::join(ranks_in(part), ", ")));
        }
        total.ranks[w] |= part.ranks[w];
      }
      in_rank_order = in_rank_order && column[i].content == contents_.raw(static_cast<int>(i));
    }
    if (step.final) {
      const std::vector<int> present = ranks_in(total);
      if (static_cast<int>(present.size()) != world_.ranks()) {
        return broken(fmt::format("a final reduce of only ranks {}", fmt::join(present, ", ")));
      }
      total.canonical = in_rank_order;
    }
    sum = contents_.number_of(total);
    return {};
  }

  std::vector<Expected> expected_output(int rank) const {
    const Request& request = world_.plan(rank).request;
    const uint64_t size = world_.size_of(rank, Space::output), one = request.bytes();
    const uint64_t own = one * static_cast<uint64_t>(rank);
    if (size == 0) return {};
    if (request.uneven) return expected_blocks(rank);
    switch (request.collective) {
      case Collective::all_reduce:
      case Collective::reduce: return {{0, size, -1, 0}};
      case Collective::reduce_scatter: return {{0, size, -1, own}};
      case Collective::broadcast:
      case Collective::recv: return {{0, size, request.root, 0}};
      case Collective::scatter: return {{0, size, request.root, own}};
      default: break;
    }
    std::vector<Expected> blocks;  // of all_gather, gather, all_to_all
    for (int from = 0; from < world_.ranks(); ++from) {
      blocks.push_back({one * static_cast<uint64_t>(from), one, from,
                        request.collective == Collective::all_to_all ? own : 0});
    }
    return blocks;
  }

  Status check_output(int rank) {
    for (const Expected& expected : expected_output(rank)) {
      const Region region{rank, Space::output, expected.begin};
      if (expected.bytes == 0) continue;
      const Interval bytes = world_.locate(rank, region, expected.bytes);
      uint64_t next = bytes.begin;
      for (const Piece& piece : arena(bytes).read(bytes.begin, bytes.end)) {
        const Region at = region + (piece.begin - bytes.begin);
        if (piece.begin != next) return missing(region + (next - bytes.begin), piece.begin - next);
        WEFT_TRY(check_piece(expected, piece, at, expected.from + (piece.begin - bytes.begin)));
        next = piece.end;
      }
      if (next != bytes.end) return missing(region + (next - bytes.begin), bytes.end - next);
    }
    return {};
  }

  Status missing(const Region& region, uint64_t bytes) const {
    return fail(kBroken, "{} was never written", World::name_of(region, bytes));
  }

  Status check_piece(const Expected& expected, const Piece& piece, const Region& at, uint64_t from) {
    const Content& content = contents_[piece.content];
    const std::string where = World::name_of(at, piece.end - piece.begin);
    const std::string holds =
        fmt::format("{} holds byte {} of ranks {}", where, piece.from, fmt::join(ranks_in(content), ", "));
    if (piece.from != from) return fail(kBroken, "{}, should be byte {}", holds, from);
    if (expected.rank >= 0) {
      if (piece.content == contents_.raw(expected.rank)) return {};
      return fail(kBroken, "{}, should be of rank {}", holds, expected.rank);
    }
    if (!content.final) return fail(kBroken, "{} that went through no final reduce", holds);
    if (world_.plan(at.rank).request.strict && !content.canonical) {
      return fail(kBroken, "{}, not added in strict order, by one reduce of all raw inputs in rank order",
                  where);
    }
    return {};
  }

  const World& world_;
  const Timeline& t_;
  Contents contents_;
  std::vector<Arena> arenas_;
};

}  // namespace

Status check_result(const World& world, const Timeline& t) { return Execution(world, t).run(); }

}  // namespace weft::plan::verifier
