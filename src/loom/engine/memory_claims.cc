// Sums by machine and by control group.
#include "engine/memory_claims.h"

#include <algorithm>
#include <map>
#include <vector>

#include "base/control_group.h"
#include "base/hash.h"
#include "base/machine_id.h"
#include "base/process_memory.h"

namespace loom::engine {
namespace {

constexpr char kNeedsLess[] =
    "more ranks that share the state, activation_checkpointing or a smaller microbatch need less";

int64_t mib_above(double bytes) { return (static_cast<int64_t>(bytes) >> 20) + 1; }

/// All ranks that have some memory in common.
struct Sum {
  int first = -1;      // rank
  int64_t there = 0;   // bytes
  double taken = 0;    // by all
  double largest = 0;  // by one
  int ranks = 0;

  void add(int rank, int64_t bytes_there, int64_t bytes) {
    if (first < 0) first = rank, there = bytes_there;
    there = std::min(there, bytes_there);
    taken += static_cast<double>(bytes);
    largest = std::max(largest, static_cast<double>(bytes));
    ++ranks;
  }

  /// `has`: "this machine has"; `where`: "of one machine".
  Status check(const char* has, const char* where, const MemoryUse& use) const {
    if (taken <= static_cast<double>(there)) return {};
    if (ranks == 1)
      return fail(Code::out_of_memory, "a rank needs {} MiB {}, {} {} MiB; {}", mib_above(largest), use.one,
                  has, there >> 20, kNeedsLess);
    const auto fit = static_cast<int64_t>(static_cast<double>(there) / largest);
    return fail(Code::out_of_memory,
                "{} ranks {}, rank {} and others, need {} MiB {} together, {} {} MiB, which "
                "{}; {}",
                ranks, where, first, mib_above(taken), use.several, has, there >> 20,
                fit > 0 ? fmt::format("is enough for {} of them: the others would do on another machine", fit)
                        : fmt::format("is not enough for the largest, {} MiB", mib_above(largest)),
                kNeedsLess);
  }
};

}  // namespace

Status check_claims(std::span<const MemoryClaim> claims, const MemoryUse& use) {
  std::map<uint64_t, Sum> machines, groups;
  for (size_t rank = 0; rank < claims.size(); ++rank) {
    const MemoryClaim& claim = claims[rank];
    machines[claim.machine].add(static_cast<int>(rank), claim.machine_bytes, claim.bytes);
    if (claim.group != 0) groups[claim.group].add(static_cast<int>(rank), claim.group_bytes, claim.bytes);
  }
  // The tighter limit first: a group is a part of its machine.
  for (const auto& [group, sum] : groups)
    LOOM_TRY(sum.check("the control group may have", "in one control group", use));
  for (const auto& [machine, sum] : machines) LOOM_TRY(sum.check("this machine has", "of one machine", use));
  return {};
}

Status check_memory(int64_t bytes, const Groups& groups, const MemoryUse& use) {
  MemoryClaim own{machine_id(), installed_bytes(), 0, 0, bytes};
  if (const GroupLimit limit = memory_limit(); limit.limited) {
    Hash64 hash;  // a group's number tells it apart from others of its machine only
    hash.add(own.machine);
    hash.add(limit.group);
    own.group = hash.value();
    own.group_bytes = static_cast<int64_t>(limit.amount);
  }
  const Result<std::vector<MemoryClaim>> all = groups.gather(own);
  LOOM_TRY(all.status());
  return check_claims(*all, use);
}

}  // namespace loom::engine
