// NCCL's threads on one connection: one registers memory, and makes and closes other connections of the same
// communicator, while another sends, receives and tests.
#include "two_processes.h"

namespace weft::nccl_net_test::threads_test {
namespace {

class Threads : public OverNets {};

constexpr int kMessages = 400, kRounds = 12, kRegistrations = 30, kAtOnce = 4;
constexpr size_t kRoom = 100'000;

size_t size_of(int message) { return mix(message) % (message % 5 ? 2000 : kRoom); }

/// The thread that NCCL calls its proxy.
void move_messages(End& end, Buffer& buffer, bool sends) {
  std::vector<void*> requests(kMessages);
  for (int i = 0; i < kMessages + kAtOnce; ++i) {
    if (const int last = i - kAtOnce; last >= 0) {
      std::byte* const place = buffer.data() + last % kAtOnce * kRoom;
      EXPECT_EQ(finish(end.host(), requests[last]).at(0), static_cast<int>(size_of(last)));
      EXPECT_TRUE(sends || holds(place, size_of(last), last)) << "message " << last;
    }
    if (i >= kMessages) continue;
    std::byte* const place = buffer.data() + i % kAtOnce * kRoom;
    if (sends) fill(place, size_of(i), i);
    requests[i] = sends ? send(end, place, size_of(i), 3, buffer.memory())
                        : receive(end, {place}, {kRoom}, {3}, {buffer.memory()});
  }
}

/// The thread that calls NCCL, beside that.
void come_and_go(Process& self, End& end, bool connects) {
  for (int round = 0; round < kRounds; ++round) {
    End other = connects ? self.connect() : self.accept();
    for (int i = 0; i < kRegistrations; ++i) {
      const Buffer mine(end, 5000 + i), its(other, 5000 + i);
    }
    self.meet();
  }
}

void run_side(Process& self, bool sends) {
  End end = sends ? self.connect() : self.accept();
  Buffer buffer(end, kAtOnce * kRoom);
  std::thread proxy([&] { move_messages(end, buffer, sends); });
  come_and_go(self, end, sends);
  proxy.join();
  self.meet();
}

TEST_P(Threads, RegisterAndConnectBesideThoseThatSend) {
  run([](Process& self) { run_side(self, true); }, [](Process& self) { run_side(self, false); });
}

INSTANTIATE_TEST_SUITE_P(Conformance, Threads,
                         ::testing::Combine(::testing::ValuesIn(real_nets()), ::testing::Values(8, 12)),
                         name_of_net);

}  // namespace
}  // namespace weft::nccl_net_test::threads_test
