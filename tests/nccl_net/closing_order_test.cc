// A communicator's context that is finalized before what was made in it: a connection, a listener, and a
// connection that is being made.
#include "two_processes.h"

namespace weft::nccl_net_test::closing_order_test {
namespace {

class ClosingOrder : public OverNets {};

constexpr size_t kBytes = 200'000;

void send_one(End& end, uint64_t seed) {
  Buffer buffer(end, kBytes);
  fill(buffer.data(), kBytes, seed);
  finish(end.host(), send(end, buffer.data(), kBytes, 1, buffer.memory()));
}
void receive_one(End& end, uint64_t seed) {
  Buffer buffer(end, kBytes);
  EXPECT_EQ(finish(end.host(), receive(end, buffer, 1)).at(0), static_cast<int>(kBytes));
  EXPECT_TRUE(holds(buffer.data(), kBytes, seed));
}

TEST_P(ClosingOrder, TheContextMayGoFirst) {
  run(
      [](Process& self) {
        End end = self.connect();
        char begun[abi::kHandleBytes], fresh[abi::kHandleBytes];
        self.hear(begun, sizeof begun);
        self.hear(fresh, sizeof fresh);
        void* sender = nullptr;
        for (int i = 0; i < 50; ++i) {  // nobody accepts yet
          ASSERT_EQ(self.host().connect(0, begun, &sender), abi::kSuccess);
          ASSERT_EQ(sender, nullptr);
        }
        EXPECT_EQ(self.host().finalize(), abi::kSuccess);
        self.meet();
        send_one(end, 1);
        EXPECT_EQ(self.host().connect(0, begun, &sender), abi::kInvalidArgument)
            << "it went with its context";
        EXPECT_TRUE(has_logged("has been used for another connection already"));
        // Without a context there is the process's.
        End late(self.host(), End::Side::sender, self.connect_to(fresh));
        send_one(late, 2);
        self.meet();
        end.close();
      },
      [](Process& self) {
        End end = self.accept();
        void* listeners[2] = {};
        for (void*& listener : listeners) {
          char handle[abi::kHandleBytes] = {};
          ASSERT_EQ(self.host().listen(0, handle, &listener), abi::kSuccess);
          self.tell(handle, sizeof handle);
        }
        EXPECT_EQ(self.host().finalize(), abi::kSuccess);
        self.meet();
        receive_one(end, 1);
        End late(self.host(), End::Side::receiver, self.accept_from(listeners[1]));
        receive_one(late, 2);
        self.meet();
        late.close();
        end.close();
        for (void* listener : listeners) EXPECT_EQ(self.host().close_listener(listener), abi::kSuccess);
      });
}

// The farewell came by a socket of its own, before the message, which was given up after 100 ms.
TEST(ClosingOrderAlone, AMessageThatTheFarewellHasCountedIsWaitedFor) {
  const Net& tcp = nets().front();
  Net tardy{"tardy", tcp.environment, WEFT_NCCL_NET_MUTANT};
  tardy.environment.emplace_back("MUTATION", "tardy");
  run_two(
      12, tcp,
      [](Process& self) {
        End end = self.connect();
        Buffer buffer(end, 1000);
        fill(buffer.data(), 1000, 7);
        finish(self.host(), send(end, buffer.data(), 1000, 1, buffer.memory()));
        buffer.deregister();
        end.close();
        self.meet();
      },
      [](Process& self) {
        End end = self.accept();
        Buffer buffer(end, 1000);
        const std::vector<int> bytes = finish(self.host(), receive(end, buffer, 1));
        ASSERT_FALSE(bytes.empty());
        EXPECT_EQ(bytes[0], 1000);
        EXPECT_TRUE(holds(buffer.data(), 1000, 7));
        self.meet();
      },
      100, &tardy);
}

INSTANTIATE_TEST_SUITE_P(Conformance, ClosingOrder,
                         ::testing::Combine(::testing::ValuesIn(nets()), ::testing::Values(11, 12)),
                         name_of_net);

}  // namespace
}  // namespace weft::nccl_net_test::closing_order_test
