// Probes from inside: what measuring leaves behind.
#include <stdlib.h>

#include "engine/ranks.h"
#include "job/probe_inter.h"
#include "transport/ofi.h"

namespace weft::engine {
namespace {

TEST(Probe, LeavesNothingRegistered) {
  setenv("WEFT_NET", "ofi", 1);  // where this test is alone in its process, nobody has read it yet
  run_ranks({"a", "b"}, [](Communicator& comm) {
    Context& context = comm.context();
    const auto* ofi = dynamic_cast<transport::OfiTransport*>(context.fabric().between_nodes());
    if (ofi == nullptr) GTEST_SKIP() << "an earlier test has chosen another network";
    const auto live = [&] {
      const Lock lock = context.lock();
      return ofi->rails().registrations().live;
    };
    const size_t before = live();
    job::ProbeInbox inbox(context);
    ASSERT_EQ(sum_of_ones(comm), 2);  // both ranks have theirs
    model::Machine machine;
    job::InterProbe probe(context, inbox, comm.id(), 1 - comm.rank(), Deadline::in_seconds(20));
    const Status measured = probe.measure(comm.rank() == 0 ? &machine : nullptr);
    EXPECT_TRUE(measured.ok()) << measured.message();
    EXPECT_EQ(sum_of_ones(comm), 2);
    EXPECT_EQ(live(), before);
  });
}

}  // namespace
}  // namespace weft::engine
