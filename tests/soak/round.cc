#include "round.h"

#include <algorithm>

#include "random.h"

namespace soak {
namespace {

constexpr size_t kMostBytes = 2 << 20;  // of a rank's block

int bytes_of(weftDataType_t type) {
  constexpr int kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return kBytes[type];
}

size_t random_count(Random& random, weftDataType_t type) {
  const int kind = random.below(100);
  const auto bytes = static_cast<size_t>(kind < 4    ? 0
                                         : kind < 35 ? random.between(1, 64)
                                         : kind < 65 ? random.between(1, 8 << 10)
                                         : kind < 93 ? random.between(1, 256 << 10)
                                                     : random.between(1, static_cast<int>(kMostBytes)));
  return bytes == 0 ? 0 : std::max<size_t>(bytes / static_cast<size_t>(bytes_of(type)), 1);
}

Call random_call(Random& random, int ranks) {
  Call call;
  call.what = static_cast<What>(random.below(kWhats));
  call.type = static_cast<weftDataType_t>(random.below(weftNumTypes));
  const bool whole = call.type <= weftUint64;
  call.op = static_cast<weftRedOp_t>(random.below(whole ? weftNumOps : weftAvg + 1));
  call.count = random_count(random, call.type);
  call.root = random.below(ranks);
  call.in_place = random.chance(30);
  call.shareable = random.chance(20);
  call.seed = random.next();
  return call;
}

/// The sizes of the communicators that are alive in a script, and which ranks they have. All children of one
/// split count as one communicator: every rank calls on its own.
struct Living {
  int index;
  int least_ranks;  // of the smallest of them: roots must be in all
};

std::vector<Act> random_script(Random& random, int ranks, int acts) {
  std::vector<Act> script;
  std::vector<Living> living = {{0, ranks}};
  int made = 1;
  for (int i = 0; i < acts; ++i) {
    Act act;
    const size_t chosen = static_cast<size_t>(random.below(static_cast<int>(living.size())));
    act.comm = living[chosen].index;
    if (living.size() < 4 && act.comm == 0 && ranks > 1 && random.chance(12)) {
      act.kind = Act::Kind::split;
      std::vector<int> sizes(2);
      for (int rank = 0; rank < ranks; ++rank) {
        act.colors.push_back(random.below(2));
        act.keys.push_back(random.below(ranks));
        ++sizes[static_cast<size_t>(act.colors.back())];
      }
      if (sizes[0] > 0 && sizes[1] > 0) living.push_back({made, std::min(sizes[0], sizes[1])});
      else living.push_back({made, ranks});
      ++made;
    } else if (act.comm != 0 && random.chance(15)) {
      act.kind = Act::Kind::drop;
      living.erase(living.begin() + static_cast<ptrdiff_t>(chosen));
    } else {
      act.kind = Act::Kind::calls;
      act.mode = static_cast<Mode>(random.below(3));
      const int calls = act.mode == Mode::blocking ? 1 : random.between(1, 5);
      for (int c = 0; c < calls; ++c) act.calls.push_back(random_call(random, living[chosen].least_ranks));
    }
    script.push_back(std::move(act));
  }
  return script;
}

void place_ranks(Random& random, Round& round, int ranks) {
  const int nodes = random.between(1, std::min(ranks, 4));
  const int workers = random.between(1, kWorkers);
  const bool blocks = random.chance(60);
  for (int rank = 0; rank < ranks; ++rank) {
    round.node_of.push_back(blocks ? rank * nodes / ranks : random.below(nodes));
    round.process_of.push_back(random.below(workers));
  }
}

void choose_event(Random& random, Round& round, int acts) {
  const int ranks = round.ranks();
  const int kind = random.below(100);
  round.event = kind < 45   ? Event::none
                : kind < 70 ? Event::death
                : kind < 80 ? Event::stop
                : kind < 90 ? Event::slow
                            : Event::abort;
  if (ranks < 2 && round.event != Event::stop) round.event = Event::none;
  round.at_act = random.below(acts);
  round.pause_ms = random.between(1, random.chance(20) ? 800 : 60);
  round.chosen = round.event == Event::stop ? round.process_of[static_cast<size_t>(random.below(ranks))]
                                            : random.below(ranks);
  if (round.event != Event::death) return;
  if (random.chance(60)) round.at_us = random.below(random.chance(50) ? 3000 : 60000);
  const int dying = random.between(1, std::min(ranks - 1, 3));
  std::vector<int> order(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) order[static_cast<size_t>(rank)] = rank;
  for (size_t i = order.size() - 1; i > 0; --i)
    std::swap(order[i], order[static_cast<size_t>(random.below(static_cast<int>(i) + 1))]);
  for (int i = 0; i < dying; ++i)
    round.process_of[static_cast<size_t>(order[static_cast<size_t>(i)])] = kWorkers + random.below(kVictims);
}

}  // namespace

const char* name_of(What what) {
  constexpr const char* kNames[] = {"AllReduce",   "Reduce",     "Broadcast",      "ReduceScatter",
                                    "AllGather",   "AlltoAll",   "Gather",         "Scatter",
                                    "Send + Recv", "AllGatherV", "ReduceScatterV", "AlltoAllV"};
  return kNames[static_cast<int>(what)];
}

std::string describe(const Act& act) {
  std::string text = "communicator " + std::to_string(act.comm) + ":";
  if (act.kind == Act::Kind::drop) return text + " destroy";
  if (act.kind == Act::Kind::split) {
    for (size_t rank = 0; rank < act.colors.size(); ++rank)
      text += (rank == 0 ? " split " : " ") + std::to_string(act.colors[rank]) + "/" +
              std::to_string(act.keys[rank]);
    return text;
  }
  text += act.mode == Mode::blocking ? "" : act.mode == Mode::streams ? " on streams:" : " in a group:";
  for (const Call& call : act.calls)
    text += std::string(" ") + name_of(call.what) + " of " + std::to_string(call.count);
  return text;
}

bool Round::uses(int process) const {
  return std::find(process_of.begin(), process_of.end(), process) != process_of.end();
}

std::vector<int> Round::dead() const {
  std::vector<int> dead;
  for (int rank = 0; rank < ranks(); ++rank)
    if (process_of[static_cast<size_t>(rank)] >= kWorkers) dead.push_back(rank);
  return dead;
}

std::string Round::describe() const {
  constexpr const char* kEvents[] = {"", ", deaths", ", a stopped process", ", a slow rank", ", an abort"};
  std::string text = std::to_string(ranks()) + " ranks (node/process";
  for (size_t rank = 0; rank < node_of.size(); ++rank)
    text += " " + std::to_string(node_of[rank]) + "/" + std::to_string(process_of[rank]);
  return text + ")" + kEvents[static_cast<int>(event)];
}

Round make_round(uint64_t seed) {
  Random random(seed);
  Round round;
  round.seed = seed;
  const int ranks = random.between(1, random.chance(30) ? 8 : 5);
  place_ranks(random, round, ranks);
  const int acts = random.between(3, 20);
  round.script = random_script(random, ranks, acts);
  choose_event(random, round, acts);
  round.after = random_script(random, ranks - static_cast<int>(round.dead().size()), random.between(1, 8));
  round.strict = random.chance(20);
  round.nonblocking = random.chance(15);
  round.finalize = random.chance(30);
  return round;
}

std::vector<int> members_of_split(const Act& split, int rank) {
  std::vector<int> members;
  for (size_t other = 0; other < split.colors.size(); ++other)
    if (split.colors[other] == split.colors[static_cast<size_t>(rank)])
      members.push_back(static_cast<int>(other));
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return split.keys[static_cast<size_t>(a)] < split.keys[static_cast<size_t>(b)];
  });
  return members;
}

}  // namespace soak
