// The eager limits by name, and that transports have no others.
#include "transport/eager.h"

#include <gtest/gtest.h>

#include "transport/ofi_protocol.h"
#include "transport/shm.h"
#include "transport/tcp_transport.h"

namespace weft::transport {
namespace {

TEST(Eager, NetsAreKnownByTheirNames) {
  for (const Net net : {Net::tcp, Net::efa, Net::ofi}) EXPECT_EQ(find_net(name_of(net)), net);
  EXPECT_FALSE(find_net("verbs").has_value());
  EXPECT_FALSE(find_net("").has_value());
  EXPECT_EQ(net_of_provider("efa"), Net::efa);
  EXPECT_EQ(net_of_provider("verbs;ofi_rxm"), Net::ofi);
}

TEST(Eager, WhatIsAskedForCounts) {
  EXPECT_EQ(shm_eager_bytes(100), 100u);
  for (const Net net : {Net::tcp, Net::efa, Net::ofi}) EXPECT_EQ(net_eager_bytes(net, 100), 100u);
}

TEST(Eager, TransportsTakeThese) {
  const int local[] = {0, 1};
  auto shm = ShmTransport::create(0, 2, local, {});
  ASSERT_TRUE(shm.ok()) << shm.status().message();
  EXPECT_EQ((*shm)->eager_bytes(), shm_eager_bytes());
  EXPECT_EQ(TcpTransport::Options().eager_bytes, net_eager_bytes(Net::tcp));
}

/// A buffer holds a message and its header, and nothing of its pages is left over.
TEST(Eager, MessagesFillTheirBuffers) {
  for (const Net net : {Net::efa, Net::ofi})
    EXPECT_EQ((net_eager_bytes(net) + sizeof(ofi::Header)) % 4096, 0u) << name_of(net);
}

}  // namespace
}  // namespace weft::transport
