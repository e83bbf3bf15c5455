// The plan kernel's protocol in one program, built with the thread sanitizer.
// plan.kernel_under_thread_sanitizer runs it on the kernel as it is. mutate_plan_kernel.py runs it on
// mutations of the kernel, each of which it must notice. Exits with 0 if everything is right; else it prints
// what is not.
#include <cstdio>

#include "plan_machine.h"

namespace weft::plan::testing {
namespace {

constexpr Limits kEager{.eager_intra_bytes = 1 << 20, .eager_inter_bytes = 1 << 20, .slice_bytes = 4096};
constexpr Limits kExposed{.eager_intra_bytes = 0, .eager_inter_bytes = 0, .slice_bytes = 4096};

struct Case {
  Collective collective;
  const char* algorithm;
  int ranks;
  Limits limits;
  uint32_t blocks;
  uint64_t packet_bytes;
  int nodes = 1;  // `ranks` on each
};

/// Both kinds of slot, exposed memory, several lanes, barriers, and senders that may run ahead; and several
/// nodes with a CPU for each rank.
constexpr Case kCases[] = {
    {Collective::all_reduce, "one_hop", 3, kEager, 2, 1 << 20},
    {Collective::all_reduce, "one_hop", 2, kEager, 2, 0},
    {Collective::broadcast, "one_hop", 3, kEager, 2, 1 << 20},
    {Collective::broadcast, "one_hop", 2, kEager, 1, 0},
    {Collective::all_gather, "recursive_doubling", 4, kEager, 3, 1 << 20},
    {Collective::all_gather, "recursive_doubling", 4, kExposed, 3, 0},
    {Collective::all_reduce, "direct", 3, kExposed, 2, 0},
    {Collective::broadcast, "direct", 3, kExposed, 2, 0},
    {Collective::all_gather, "ring", 3, kEager, 2, 1 << 20},
    {Collective::broadcast, "one_hop", 1, kEager, 2, 0, 2},
    {Collective::all_reduce, "one_hop", 2, kEager, 2, 1 << 20, 2},
    {Collective::all_reduce, "all_to_all", 2, kEager, 1, 0, 2},
};

Job job_for(const Case& c, uint64_t count) {
  const Request request{.collective = c.collective, .count = count, .element_bytes = 8};
  auto job = job_of(*find_algorithm(c.collective, c.algorithm), request,
                    topology::Layout::blocks(c.nodes, c.ranks), c.limits,
                    {.blocks = c.blocks,
                     .slot_bytes = 64 << 10,
                     .packet_bytes = c.packet_bytes,
                     .proxy_slot_bytes = c.nodes > 1 ? uint64_t{8 << 10} : 0});
  if (!job) throw std::logic_error(c.algorithm);
  return *job;
}

std::string in_turns() {
  for (const Case& c : kCases)
    for (unsigned seed = 1; seed <= 8; ++seed) {
      const Job job = job_for(c, 100);
      PlanMachine machine({job, job, job, job, job, job});
      std::string wrong = machine.run_in_turns(seed, machine.blocks());
      if (!wrong.empty()) return fmt::format("{} {} in turns: {}", name_of(c.collective), c.algorithm, wrong);
    }
  return {};
}

std::string in_threads() {
  for (const Case& c : kCases) {
    const Job job = job_for(c, 60);
    PlanMachine machine({job, job, job, job, job});
    machine.set_timeout(20'000'000'000);
    std::string wrong = machine.run_in_threads();
    if (!wrong.empty()) return fmt::format("{} {} in threads: {}", name_of(c.collective), c.algorithm, wrong);
  }
  return {};
}

/// Rank 1 never comes. The others wait for ever, until the CPU says that they shall leave.
std::string told_to_leave() {
  const Job job = job_for(kCases[0], 100);
  PlanMachine machine({job, job});
  (void)machine.run_in_turns(1, machine.blocks(), 1, 20'000);
  for (const int rank : {0, 2}) {
    if (machine.host(rank).begun != 1 || machine.host(rank).ended != 0)
      return "a rank does not wait for another";
    machine.host(rank).abort = 1;
  }
  std::string stuck = machine.run_in_turns(2, machine.blocks(), 1, 20'000);
  for (const int rank : {0, 2})
    if (machine.host(rank).ended != 1) return "blocks do not leave when they are told to";
  return stuck;
}

/// A graph is launched whose communicator has ended: no block touches a peer's memory.
std::string left_out() {
  const Job job = job_for(kCases[0], 100);
  PlanMachine machine({job});
  machine.set_captured();
  machine.host(1).abort = 1;
  (void)machine.run_in_turns(1, machine.blocks(), -1, 20'000);
  if (machine.host(1).begun != 1 || machine.host(1).ended != 1)
    return "a kernel that shall not begin does not end";
  if (machine.told(0, 1)) return "a kernel that shall not begin writes to a peer";
  return {};
}

/// A rank that has called something else is not read: the others wait, as for one that does not come.
std::string another_call() {
  const Job job = job_for({Collective::all_reduce, "direct", 3, kExposed, 2, 0}, 100);
  PlanMachine machine({job});
  machine.set_signature(1, 77);
  (void)machine.run_in_turns(1, machine.blocks(), -1, 100'000);
  for (const int rank : {0, 1, 2})
    if (machine.host(rank).begun != 1 || machine.host(rank).ended != 0)
      return "a rank reads another call's buffer";
  return {};
}

/// A wait ends by time, however often a block has polled.
std::string too_long() {
  const Job job = job_for(kCases[0], 100);
  PlanMachine patient({job});
  (void)patient.run_in_turns(1, patient.blocks(), 1, 100'000);
  if (patient.host(0).abort) return "a block that has time left gives up";
  PlanMachine machine({job});
  machine.set_timeout(1'000'000);
  (void)machine.run_in_turns(1, machine.blocks(), 1, 2'000);
  if (machine.host(0).abort) return "a block gives up too early";
  t_turns.fetch_add(2'000'000);
  (void)machine.run_in_turns(2, machine.blocks(), 1, 2'000);
  for (const int rank : {0, 2}) {
    const cuda::PlanHost& host = machine.host(rank);
    if (!host.reported || !host.abort || host.ended != 1) return "a block waits longer than it may";
    if (host.report.peer != 1 || host.report.action != static_cast<uint32_t>(cuda::PlanAction::wait))
      return "the report names another rank than the one that is missing";
  }
  return {};
}

}  // namespace
}  // namespace weft::plan::testing

int main() {
  using namespace weft::plan::testing;
  for (const auto check : {in_turns, told_to_leave, left_out, another_call, too_long, in_threads}) {
    const std::string wrong = check();
    if (wrong.empty()) continue;
    std::puts(wrong.c_str());
    return 1;
  }
  std::puts("right");
  return 0;
}
