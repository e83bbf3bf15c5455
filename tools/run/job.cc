#include "run/job.h"

namespace weft::run {

Place place_of(const Job& job, int rank) {
  const int small = job.ranks / job.nodes;
  const int larger_nodes = job.ranks % job.nodes;
  const int ranks_on_larger = larger_nodes * (small + 1);
  if (rank < ranks_on_larger) return {rank / (small + 1), rank % (small + 1), small + 1};
  const int beyond = rank - ranks_on_larger;
  return {larger_nodes + beyond / small, beyond % small, small};
}

std::vector<std::string> environment_of(const Job& job, const Meeting& meeting, int rank) {
  const Place place = place_of(job, rank);
  std::vector<std::string> variables = {
      fmt::format("WEFT_RANK={}", rank),
      fmt::format("WEFT_WORLD_SIZE={}", job.ranks),
      fmt::format("WEFT_LOCAL_RANK={}", place.local_rank),
      fmt::format("WEFT_LOCAL_SIZE={}", place.local_size),
      fmt::format("WEFT_NODE={}", place.node),
      fmt::format("WEFT_ROOT={}", meeting.root),
      fmt::format("WEFT_JOB_SECRET={}", meeting.secret),
  };
  // One node is the machine itself, under whatever name the user has given it.
  if (job.nodes > 1) variables.push_back(fmt::format("WEFT_HOSTID=node{}", place.node));
  return variables;
}

std::vector<int> cpus_of(const Job& job, const std::vector<int>& cpus, int rank) {
  const size_t n = cpus.size();
  const size_t ranks = static_cast<size_t>(job.ranks);
  if (!job.bind || ranks > n) return {};
  return {cpus.begin() + static_cast<long>(n * rank / ranks),
          cpus.begin() + static_cast<long>(n * (rank + 1) / ranks)};
}

}  // namespace weft::run
