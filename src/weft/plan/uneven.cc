// uneven: every pair of ranks by itself, everybody beginning with another peer.
//
//     nothing               AlltoAll: a signal, by whose signature a wrong count shows; else no message
//     small                 the giver puts                                            the taker waits
//     large, same node      the giver exposes its block      the taker copies, done   the giver waits
//     large, other node     the taker exposes its block      the giver puts slices    the taker waits
//
// A ReduceScatter's taker is sent its block into scratch, or reads it where it is exposed, and reduces all of
// them at once, in rank order: so strict order costs nothing.
#include "plan/uneven.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/hash.h"
#include "plan/at_once.h"
#include "plan/transfer.h"

namespace weft::plan {
namespace {

constexpr char kName[] = "uneven";

/// How a block goes from one rank to another; both say the same.
enum class Way : uint8_t { nothing, put, read, slices };

class Pairs {
 public:
  explicit Pairs(const Task& task) : task_(task), uneven_(*task.request.uneven) {}

  uint64_t given_bytes(int to) const { return bytes(uneven_.given[to].count); }
  uint64_t taken_bytes(int from) const { return bytes(uneven_.taken[from].count); }
  Region given(Builder& b, int to) const { return b.input(bytes(uneven_.given[to].begin)); }
  Region taken(Builder& b, int from) const { return b.output(bytes(uneven_.taken[from].begin)); }
  Way way(int a, int b, uint64_t block_bytes) const {
    if (block_bytes == 0) return Way::nothing;
    const bool same_node = task_.layout.same_node(a, b);
    const uint64_t eager =
        same_node ? task_.limits.eager_intra_bytes : eager_bytes_meeting(task_.layout, task_.limits);
    if (block_bytes <= eager) return Way::put;
    return same_node ? Way::read : Way::slices;
  }
  Way way_to(int to) const { return way(task_.rank, to, given_bytes(to)); }
  Way way_from(int from) const { return way(from, task_.rank, taken_bytes(from)); }

 private:
  uint64_t bytes(uint64_t count) const { return count * task_.request.element_bytes; }
  const Task& task_;
  const Uneven& uneven_;
};

/// What the giver does of a block, once the exposures are made.
void give(const Task& task, const Pairs& pairs, Builder& b, int to, Region dst) {
  const Way way = pairs.way_to(to);
  const uint64_t bytes = pairs.given_bytes(to);
  if (way == Way::put) {
    b.put(0, to, pairs.given(b, to), dst, bytes, tag(Phase::data));
  } else if (way == Way::read) {
    b.wait(b.new_lane(), to, tag(Phase::done));
  } else if (way == Way::slices) {
    const int lane = b.new_lane();
    b.wait(lane, to, tag(Phase::open), dst.space);
    put_slices(b, lane, to, pairs.given(b, to), dst, Slices(bytes, task));
  } else if (task.request.collective == Collective::all_to_all) {
    b.signal(0, to, tag(Phase::data));
  }
}

/// What both sides open at first: blocks to be read, and places for slices.
void open(const Task& task, const Pairs& pairs, Builder& b, Space landing) {
  for (int k = 1; k < task.ranks(); ++k) {
    const int to = task.rank_after(k), from = task.rank_before(k);
    if (pairs.way_to(to) == Way::read) b.signal(0, to, tag(Phase::open), Space::input);
    if (pairs.way_from(from) == Way::slices) b.signal(0, from, tag(Phase::open), landing);
  }
}

/// AllGather and AlltoAll. Lane 0 has all that waits for nobody first, then the waits for short blocks.
void move(const Task& task, Builder& b) {
  const Pairs pairs(task);
  open(task, pairs, b, Space::output);
  for (int k = 1; k < task.ranks(); ++k) {
    const int to = task.rank_after(k);
    if (pairs.way_to(to) == Way::put || pairs.way_to(to) == Way::nothing)
      give(task, pairs, b, to, {to, Space::output, 0});
  }
  b.copy(0, pairs.given(b, task.rank), pairs.taken(b, task.rank), pairs.taken_bytes(task.rank));
  for (int k = 1; k < task.ranks(); ++k) {
    const int to = task.rank_after(k), from = task.rank_before(k);
    if (pairs.way_to(to) == Way::read || pairs.way_to(to) == Way::slices)
      give(task, pairs, b, to, {to, Space::output, 0});
    const Way way = pairs.way_from(from);
    if (way == Way::slices) {
      receive_slices(b, b.new_lane(), from, Slices(pairs.taken_bytes(from), task));
    } else if (way == Way::read) {
      const int lane = b.new_lane();
      b.wait(lane, from, tag(Phase::open), Space::input);
      b.copy(lane, {from, Space::input, 0}, pairs.taken(b, from), pairs.taken_bytes(from));
      b.signal(lane, from, tag(Phase::done));
    } else if (way == Way::put || task.request.collective == Collective::all_to_all) {
      b.wait(0, from, tag(Phase::data));
    }
  }
}

/// Where rank `from`'s block lies in the scratch of `to`, which has room for those that are sent.
uint64_t slot(const Pairs& pairs, int to, int from, uint64_t block_bytes) {
  uint64_t before = 0;
  for (int r = 0; r < from; ++r)
    before += r != to && pairs.way(r, to, block_bytes) != Way::read ? block_bytes : 0;
  return before;
}

void reduce_scatter(const Task& task, Builder& b) {
  const Pairs pairs(task);
  const uint64_t own_bytes = pairs.taken_bytes(task.rank);
  b.reserve(slot(pairs, task.rank, task.ranks(), own_bytes));
  open(task, pairs, b, Space::scratch);
  for (const bool waits : {false, true}) {
    for (int k = 1; k < task.ranks(); ++k) {
      const int to = task.rank_after(k);
      const Way way = pairs.way_to(to);
      if ((way == Way::read || way == Way::slices) != waits) continue;
      give(task, pairs, b, to, {to, Space::scratch, slot(pairs, to, task.rank, pairs.given_bytes(to))});
    }
  }
  if (own_bytes == 0) return;
  const int lane = 0;
  std::vector<Source> sources(static_cast<size_t>(task.ranks()));
  for (int r = 0; r < task.ranks(); ++r) {
    const Way way = pairs.way_from(r);
    sources[static_cast<size_t>(r)].region = r == task.rank ? pairs.given(b, r)
                                             : way == Way::read
                                                 ? Region{r, Space::input, 0}
                                                 : b.scratch(slot(pairs, task.rank, r, own_bytes));
  }
  for (int k = 1; k < task.ranks(); ++k) {
    const int from = task.rank_before(k);
    const Way way = pairs.way_from(from);
    if (way == Way::slices) receive_slices(b, lane, from, Slices(own_bytes, task));
    else if (way == Way::read) b.wait(lane, from, tag(Phase::open), Space::input);
    else b.wait(lane, from, tag(Phase::data));
  }
  b.reduce(lane, sources, pairs.taken(b, task.rank), own_bytes);
  for (int k = 1; k < task.ranks(); ++k)
    if (pairs.way_from(task.rank_before(k)) == Way::read)
      b.signal(lane, task.rank_before(k), tag(Phase::done));
}

uint64_t counts_hash(const std::vector<Uneven::Block>& blocks) {
  std::vector<uint64_t> counts;
  for (const Uneven::Block& block : blocks) counts.push_back(block.count);
  return hash_64({reinterpret_cast<const char*>(counts.data()), counts.size() * sizeof(uint64_t)});
}

uint64_t total(const std::vector<Uneven::Block>& blocks) {
  uint64_t sum = 0;
  for (const Uneven::Block& block : blocks) sum += block.count;
  return sum;
}

std::string describe_pair(const Uneven::Block& given, const Uneven::Block& taken, int peer) {
  return fmt::format(" ({} to rank {}, {} from rank {})", given.count, peer, taken.count, peer);
}

std::string describe_all(const std::vector<Uneven::Block>& blocks) {
  constexpr size_t most = 16;
  std::vector<uint64_t> counts;
  for (size_t r = 0; r < std::min(blocks.size(), most); ++r) counts.push_back(blocks[r].count);
  return fmt::format(" ({}{})", fmt::join(counts, ", "), blocks.size() > most ? ", …" : "");
}

Request make_request(Collective collective, uint64_t count, uint32_t element_bytes, Uneven uneven) {
  Request request{.collective = collective, .count = count, .element_bytes = element_bytes};
  request.disjoint = collective == Collective::all_to_all;
  request.uneven = std::make_shared<const Uneven>(std::move(uneven));
  return request;
}

}  // namespace

uint64_t Uneven::extent(const std::vector<Block>& blocks) {
  uint64_t end = 0;
  for (const Block& block : blocks)
    if (block.count > 0) end = std::max(end, block.begin + block.count);
  return end;
}

std::vector<Uneven::Block> blocks_of(const uint64_t* counts, const uint64_t* begins, int ranks) {
  std::vector<Uneven::Block> blocks(static_cast<size_t>(ranks));
  uint64_t next = 0;
  for (size_t r = 0; r < blocks.size(); ++r) {
    blocks[r] = {begins ? begins[r] : next, counts[r]};
    next += counts[r];
  }
  return blocks;
}

Request uneven_gather(std::vector<Uneven::Block> blocks, uint32_t element_bytes, int rank) {
  const uint64_t hash = counts_hash(blocks), count = total(blocks);
  const Uneven::Block own{0, blocks[static_cast<size_t>(rank)].count};
  std::vector<Uneven::Block> given(blocks.size(), own);
  return make_request(Collective::all_gather, count, element_bytes,
                      {std::move(given), std::move(blocks), hash});
}

Request uneven_reduce_scatter(std::vector<Uneven::Block> blocks, uint32_t element_bytes, int rank) {
  const uint64_t hash = counts_hash(blocks), count = total(blocks);
  const Uneven::Block own{0, blocks[static_cast<size_t>(rank)].count};
  std::vector<Uneven::Block> taken(blocks.size(), own);
  return make_request(Collective::reduce_scatter, count, element_bytes,
                      {std::move(blocks), std::move(taken), hash});
}

// The count is of no meaning to other ranks.
Request uneven_all_to_all(std::vector<Uneven::Block> given, std::vector<Uneven::Block> taken,
                          uint32_t element_bytes) {
  return make_request(Collective::all_to_all, 0, element_bytes, {std::move(given), std::move(taken), 0});
}

Request even_like(const Request& uneven) {
  Request even = uneven;
  even.uneven = nullptr;
  const uint64_t ranks = uneven.uneven->given.size();
  const uint64_t most = uneven.collective == Collective::all_to_all
                            ? std::max(total(uneven.uneven->given), total(uneven.uneven->taken))
                            : uneven.count;
  even.count = (most + ranks - 1) / ranks;
  return even;
}

SharedBlock shared_block(const Request& request, Space space, int peer) {
  if (!request.uneven || space == Space::scratch) return {};
  const Uneven& uneven = *request.uneven;
  const Uneven::Block& block =
      (space == Space::input ? uneven.given : uneven.taken)[static_cast<size_t>(peer)];
  return {block.begin * request.element_bytes, block.count * request.element_bytes};
}

Status check_uneven(const Request& of_a, int a, const Request& of_b, int b) {
  Request plain_a = of_a, plain_b = of_b;
  plain_a.uneven = plain_b.uneven = nullptr;
  if (plain_a != plain_b || !of_a.uneven || !of_b.uneven || of_a.uneven->hash != of_b.uneven->hash)
    return fail(Code::mismatch, "rank {}'s plan is for another request than rank {}'s", b, a);
  const auto of = [](const std::vector<Uneven::Block>& blocks, int rank) {
    return blocks[static_cast<size_t>(rank)].count;
  };
  const bool every = of_a.collective == Collective::all_to_all;
  if (every && of(of_a.uneven->given, b) != of(of_b.uneven->taken, a))
    return fail(Code::mismatch, "rank {} gives {} elements to rank {}, which takes {}", a,
                of(of_a.uneven->given, b), b, of(of_b.uneven->taken, a));
  return {};
}

std::string describe_counts(const Request& request, int peer) {
  if (!request.uneven) return "";
  const Uneven& uneven = *request.uneven;
  if (request.collective == Collective::all_to_all)
    return describe_pair(uneven.given[static_cast<size_t>(peer)], uneven.taken[static_cast<size_t>(peer)],
                         peer);
  return describe_all(request.collective == Collective::all_gather ? uneven.taken : uneven.given);
}

std::string describe_counts_of_peer(const Request& request, int rank, int peer) {
  if (!request.uneven || request.collective != Collective::all_to_all) return describe_counts(request, peer);
  const Uneven& uneven = *request.uneven;
  return describe_pair(uneven.taken[static_cast<size_t>(peer)], uneven.given[static_cast<size_t>(peer)],
                       rank);
}

Plan make_uneven(const Request& request, const topology::Layout& layout, const Limits& limits, int rank) {
  Builder builder(kName, request, layout.ranks(), rank);
  const Task task{request, layout, limits, rank};
  if (request.collective == Collective::reduce_scatter) reduce_scatter(task, builder);
  else move(task, builder);
  return builder.finish();
}

}  // namespace weft::plan
