// All-gathers before there is any transport: what the parent and a child of a rank send. The input says which
// rank of how many this is, how long the parent's bytes are, and then both's.
#include "bootstrap/tree.h"

#include "fuzz.h"
#include "known_job.h"

using namespace weft;
using namespace weft::bootstrap;

FUZZ_TARGET(tree) {
  const int ranks = 1 + static_cast<int>(input.take_below(64));
  const int rank = static_cast<int>(input.take_below(static_cast<size_t>(ranks)));
  fuzz::Wire parent;
  parent.write(input.take_bytes(input.take<uint16_t>()));
  parent.end();
  std::vector<fuzz::Wire> children;
  std::map<int, UniqueFd> connections;
  for (const int child : tree_children(rank, ranks)) {
    fuzz::Wire& wire = children.emplace_back();
    wire.write(input.take_bytes(input.take<uint16_t>()));
    wire.end();
    connections[child] = wire.take_other();
  }
  Tree tree(rank, ranks, rank == 0 ? UniqueFd() : parent.take_other(), std::move(connections));
  for (int round = 0; round < 2; ++round) {
    const auto all = tree.all_gather(std::as_bytes(std::span("mine")), Deadline::in_seconds(1));
    if (!all.ok()) return;
    fuzz::require(all->of_rank.size() == static_cast<size_t>(ranks),
                  "an all-gather has an entry of each rank");
  }
}
