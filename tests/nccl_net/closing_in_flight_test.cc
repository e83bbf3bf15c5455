// Connections that are closed with requests in flight, in any order, by several threads at once and without a
// word between the processes: the other side goes on registering and posting, and no other connection of the
// device takes any notice.
#include <atomic>

#include "two_processes.h"

namespace weft::nccl_net_test {
namespace {

class ClosingInFlight : public OverNets {};

constexpr size_t kBytes = 1 << 20;

/// What a test returns of a request once it is over.
abi::Result outcome_of(PluginHost& host, void* request) {
  abi::Result result = abi::kSuccess;
  EXPECT_NE(request, nullptr);
  if (!request) return result;
  EXPECT_TRUE(wait_until([&] { return tested(host, request, nullptr, &result); })) << "a request never ends";
  return result;
}

/// A connection of the same device that is in use until `over`; its last message has one byte.
void send_beside(End& end, const std::atomic<bool>& over) {
  constexpr size_t kRoom = 300'000;
  Buffer buffer(end, kRoom);
  uint64_t seed = 0;
  for (bool last = false; !last; ++seed) {
    last = over;
    const size_t bytes = last ? 1 : seed % 2 ? kRoom : 2000;
    fill(buffer.data(), bytes, seed);
    if (finish(end.host(), send(end, buffer.data(), bytes, 1, buffer.memory())).empty()) return;
  }
}
void receive_beside(End& end) {
  Buffer buffer(end, 300'000);
  for (uint64_t seed = 0;; ++seed) {
    const std::vector<int> bytes = finish(end.host(), receive(end, buffer, 1));
    ASSERT_FALSE(bytes.empty()) << "the connection beside those that are closed is lost";
    ASSERT_GT(bytes[0], 0);
    EXPECT_TRUE(holds(buffer.data(), static_cast<size_t>(bytes[0]), seed)) << "message " << seed;
    if (bytes[0] == 1) return;
  }
}

/// Registers and posts as many requests as there may be, takes the memory away and closes.
void post_and_close(End end, size_t bytes, bool sends, bool deregisters) {
  std::vector<std::unique_ptr<Buffer>> buffers;
  for (int i = 0; i < abi::kMostRequests; ++i) {
    Buffer& buffer = *buffers.emplace_back(std::make_unique<Buffer>(end, bytes));
    ASSERT_NE(buffer.memory(), nullptr);
    ASSERT_NE(sends ? send(end, buffer.data(), bytes, 1, buffer.memory()) : receive(end, buffer, 1), nullptr);
  }
  if (deregisters)
    for (auto& buffer : buffers) buffer->deregister();
  end.close();
}

void expect_open_endpoints() {
  for (const std::string& line : logged())
    EXPECT_EQ(line.find("the connections of its device are closed"), line.npos) << line;
}

constexpr int kThreads = 4, kRounds = 6;

TEST_P(ClosingInFlight, FromSeveralThreadsDisturbsNoOtherConnectionOfTheDevice) {
  // The provider of these tests takes seconds for all that is under way at once, in which no write ends.
  const size_t bytes = without_order(net()) ? 64 << 10 : kBytes;
  std::vector<char> handles(kThreads * abi::kHandleBytes);
  const auto in_threads = [](const std::function<void(int, int)>& round_of) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([t, &round_of] {
        for (int round = 0; round < kRounds; ++round) round_of(t, round);
      });
    for (std::thread& thread : threads) thread.join();
  };
  run(
      [&](Process& self) {
        End beside = self.connect();
        self.hear(handles.data(), handles.size());
        std::atomic<bool> over = false;
        std::thread other([&] { send_beside(beside, over); });
        in_threads([&](int t, int round) {
          char handle[abi::kHandleBytes];
          std::memcpy(handle, &handles[static_cast<size_t>(t) * sizeof handle], sizeof handle);
          post_and_close(End(self.host(), End::Side::sender, self.connect_to(handle)), bytes, true,
                         round % 2 == 0);
        });
        over = true;
        other.join();
        expect_open_endpoints();
        self.meet();
      },
      [&](Process& self) {
        End beside = self.accept();
        void* listeners[kThreads] = {};
        for (int t = 0; t < kThreads; ++t)
          ASSERT_EQ(
              self.host().listen(0, &handles[static_cast<size_t>(t) * abi::kHandleBytes], &listeners[t]),
              abi::kSuccess);
        self.tell(handles.data(), handles.size());
        std::thread other([&] { receive_beside(beside); });
        in_threads([&](int t, int round) {
          post_and_close(End(self.host(), End::Side::receiver, self.accept_from(listeners[t])), bytes, false,
                         round % 3 == 0);
        });
        other.join();
        expect_open_endpoints();
        for (void* listener : listeners) EXPECT_EQ(self.host().close_listener(listener), abi::kSuccess);
        self.meet();
      });
}

/// Polls the endpoint until what was done elsewhere is noticed: a message over the connection beside it.
void pass_one(End& end, bool sends, uint64_t seed) {
  Buffer buffer(end, 1000);
  if (sends) fill(buffer.data(), 1000, seed);
  finish(end.host(), sends ? send(end, buffer.data(), 1000, 4, buffer.memory()) : receive(end, buffer, 4));
  EXPECT_TRUE(holds(buffer.data(), 1000, seed));
}

// NCCL may be in the middle of registering and posting: both go on, and what was posted ends with an error.
TEST_P(ClosingInFlight, TheOtherSideStillRegistersAndItsRequestsEndAsRemoteErrors) {
  const auto goes_on = [](End& end, bool sends) {
    PluginHost& host = end.host();
    for (int round = 0; round < 2; ++round) {  // before the loss is noticed, and after
      Buffer buffer(end, kBytes);
      ASSERT_NE(buffer.memory(), nullptr);
      void* request = sends ? send(end, buffer.data(), kBytes, 1, buffer.memory()) : receive(end, buffer, 1);
      EXPECT_EQ(outcome_of(host, request), abi::kRemoteError);
    }
  };
  run(
      [&](Process& self) {
        End beside = self.connect(), first = self.connect(), second = self.connect();
        first.close();
        self.meet();
        pass_one(beside, true, 1);
        self.meet();
        goes_on(second, true);
        second.close();
        pass_one(beside, true, 2);
        self.meet();
      },
      [&](Process& self) {
        End beside = self.accept(), first = self.accept(), second = self.accept();
        self.meet();
        pass_one(beside, false, 1);
        goes_on(first, false);
        second.close();
        self.meet();
        pass_one(beside, false, 2);
        self.meet();
      });
}

// The receives were cleared, and the memory is another connection's, too: a closed sender writes no more, so
// nothing has to be cut off.
TEST_P(ClosingInFlight, MemoryThatAnotherConnectionHasRegisteredIsNoReasonToCloseThatToo) {
  run(
      [](Process& self) {
        End closing = self.connect(), beside = self.connect();
        {
          Buffer buffer(closing, kBytes);  // so that the receiver expects long messages, and clears
          finish(self.host(), send(closing, buffer.data(), kBytes, 1, buffer.memory()));
        }
        self.meet();
        Buffer buffer(beside, kBytes);
        fill(buffer.data(), kBytes, 9);
        closing.close();
        self.meet();
        finish(self.host(), send(beside, buffer.data(), kBytes, 1, buffer.memory()));
        self.meet();
      },
      [](Process& self) {
        End closing = self.accept(), beside = self.accept();
        Buffer buffer(beside, kBytes);
        void* memory = nullptr;
        ASSERT_EQ(
            self.host().register_memory(closing.get(), buffer.data(), kBytes, abi::kHostMemory, &memory),
            abi::kSuccess);
        finish(self.host(), receive(closing, {buffer.data()}, {kBytes}, {1}, {memory}));
        std::vector<void*> requests;
        for (int i = 0; i < 3; ++i)
          requests.push_back(receive(closing, {buffer.data()}, {kBytes}, {1}, {memory}));
        for (int i = 0; i < 1000; ++i) {  // the clears go out
          abi::Result result = abi::kSuccess;
          EXPECT_FALSE(tested(self.host(), requests.front(), nullptr, &result));
        }
        self.meet();
        self.meet();
        for (void* request : requests) EXPECT_EQ(outcome_of(self.host(), request), abi::kRemoteError);
        EXPECT_EQ(self.host().deregister(closing.get(), memory), abi::kSuccess);
        closing.close();
        EXPECT_EQ(finish(self.host(), receive(beside, buffer, 1)).at(0), static_cast<int>(kBytes));
        EXPECT_TRUE(holds(buffer.data(), kBytes, 9));
        self.meet();
      });
}

/// `tcp;ofi_rxm` is what libfabric's reliable datagrams over TCP have been for longest.
std::vector<Net> nets_and_rxm() {
  std::vector<Net> all = nets();
  Net rxm = all[1];
  rxm.name = "ofi_rxm";
  rxm.environment[1].second = "tcp;ofi_rxm";
  all.insert(all.begin() + 2, rxm);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Conformance, ClosingInFlight,
                         ::testing::Combine(::testing::ValuesIn(nets_and_rxm()), ::testing::Values(8, 12)),
                         name_of_net);

}  // namespace
}  // namespace weft::nccl_net_test
