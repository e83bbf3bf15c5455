// Which NICs the ranks of a machine take.
#include <gtest/gtest.h>

#include "bootstrap/ranks.h"
#include "engine/context/fabric.h"
#include "fabric/fake_efa.h"
#include "transport/ofi.h"

namespace weft::fabric_test {
namespace {

// Every rank took the first four, and the others were idle.
TEST(Nics, TheRanksOfAMachineShareThemOut) {
  use_fake_efa({{"FAKE_EFA_RAILS", "8"}, {"WEFT_NET", "ofi"}, {"WEFT_PROVIDER", "efa"}, {"WEFT_SHM", "0"}});
  std::vector<std::string> taken(2);
  const auto members = bootstrap::join_all(bootstrap::make_id(), 2);
  ASSERT_EQ(members.size(), 2u);
  bootstrap::on_each_rank(2, [&](int rank) {
    const auto fabric = engine::Fabric::open(*members[static_cast<size_t>(rank)], "", -1, bootstrap::soon());
    ASSERT_TRUE(fabric.ok()) << fabric.status().message();
    const auto* network = dynamic_cast<const transport::OfiTransport*>((*fabric)->between_nodes());
    ASSERT_NE(network, nullptr);
    for (const auto& rail : network->rails().all())
      taken[static_cast<size_t>(rank)] += std::string(rail->info().domain_attr->name) + " ";
  });
  EXPECT_EQ(taken[0], "rdmap0s27-rdm rdmap1s27-rdm rdmap2s27-rdm rdmap3s27-rdm ");
  EXPECT_EQ(taken[1], "rdmap4s27-rdm rdmap5s27-rdm rdmap6s27-rdm rdmap7s27-rdm ");
}

}  // namespace
}  // namespace weft::fabric_test
