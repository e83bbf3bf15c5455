// Memory that is taken away while a message is on its way between it and the peer: from then on the plugin
// neither writes nor reads it, whatever still comes; and whom else that concerns.
#include <algorithm>

#include "many_processes.h"

namespace weft::nccl_net_test {
namespace {

class TakenMemory : public OverNets {};

constexpr size_t kHuge = 64 << 20;
constexpr std::byte kTaken{0xdd};
/// Over libfabric a deregistration waits for the message, so that none is interrupted.
int rounds_over(const std::string& net) { return net.starts_with("ofi") ? 3 : 20; }

/// How a request ends, whether well or not.
abi::Result end_of(PluginHost& host, void* request, std::vector<int>* bytes = nullptr) {
  abi::Result result = abi::kSuccess;
  EXPECT_TRUE(wait_until([&] { return tested(host, request, bytes, &result); })) << "a request never ends";
  return result;
}

/// Sends, where the connection may be lost already; how that ends.
abi::Result send_and_end(End& end, Buffer& from, size_t bytes, int tag) {
  void* request = nullptr;
  abi::Result result = abi::kSuccess;
  EXPECT_TRUE(wait_until([&] {
    result = end.host().send(end.get(), from.data(), bytes, tag, from.memory(), &request);
    return result != abi::kSuccess || request != nullptr;
  })) << "no room for a send";
  return result == abi::kSuccess ? end_of(end.host(), request) : result;
}
abi::Result receive_and_end(End& end, Buffer& into, int tag, std::vector<int>* bytes = nullptr) {
  void *request = nullptr, *data = into.data(), *memory = into.memory();
  size_t size = into.size();
  const abi::Result result = end.host().receive(end.get(), 1, &data, &size, &tag, &memory, &request);
  return result == abi::kSuccess && request ? end_of(end.host(), request, bytes) : result;
}

/// Polls until the request is over or the other process has said something. Returns whether it ended well.
bool ends_well(Process& self, void* request) {
  abi::Result result = abi::kSuccess;
  bool over = false;
  EXPECT_TRUE(wait_until([&] {
    over = over || tested(self.host(), request, nullptr, &result);
    return over || self.has_been_told();
  }));
  return over && result == abi::kSuccess;
}

// A message of which a part has come when its memory is taken away. What is left of it goes nowhere, and over
// sockets the connection goes on. Where a message is in place at once, in all rounds, there is nothing to
// see.
TEST_P(TakenMemory, IsNotWrittenAnyMore) {
  const bool over_tcp = net().name == "tcp";
  const int rounds = rounds_over(net().name);
  run(
      [rounds](Process& self) {
        for (int round = 0; round < rounds; ++round) {
          End end = self.connect();
          Buffer source(end, kHuge, std::byte{0x11}), marker(end, 100, std::byte{0x22});
          const bool well = ends_well(self, send(end, source.data(), kHuge, 1, source.memory())) &&
                            ends_well(self, send(end, marker.data(), 100, 2, marker.memory()));
          self.meet();
          if (!well) end.close();  // as NCCL does, by which the other side hears of it
          bool interrupted = false;
          self.meet();
          self.hear(&interrupted, 1);
          if (interrupted) break;
        }
      },
      [over_tcp, rounds](Process& self) {
        bool interrupted = false;
        for (int round = 0; round < rounds && !interrupted; ++round) {
          End end = self.accept();
          Buffer target(end, kHuge), marker(end, 100);
          void* request = receive(end, target, 1);
          const volatile std::byte* const first = target.data();
          abi::Result result = abi::kSuccess;
          bool over = false;
          EXPECT_TRUE(wait_until([&] {
            over = tested(self.host(), request, nullptr, &result);
            return over || *first == std::byte{0x11} || first[kHuge / 2] == std::byte{0x11};
          }));
          if (!over) {
            target.deregister();
            EXPECT_EQ(end_of(self.host(), request), abi::kRemoteError);
            interrupted = !all_are(target.data(), kHuge, std::byte{0x11});
            std::fill_n(target.data(), kHuge, kTaken);
          }
          // Takes in what still comes: over sockets the marker is behind it, libfabric's shared memory says
          // nothing of it.
          void* last = receive(end, marker, 2);
          bool marked = false;
          const auto look = [&] {
            marked = marked || tested(self.host(), last, nullptr, &result);
            return marked;
          };
          (void)wait_until(look, over || over_tcp ? 30 : 1);
          if (over_tcp) {
            EXPECT_TRUE(marked && result == abi::kSuccess);
            EXPECT_TRUE(all_are(marker.data(), 100, std::byte{0x22}));
          }
          self.meet();
          self.meet();
          EXPECT_TRUE(wait_until(look)) << "the sender has closed the connection";
          self.tell(&interrupted, 1);
          if (!over) {
            EXPECT_TRUE(all_are(target.data(), kHuge, kTaken))
                << "it was written after it had been taken away";
          }
        }
        if (over_tcp) {
          EXPECT_TRUE(interrupted) << "every message was in place before anybody could look";
        }
      });
}

/// Receives a message and takes its memory away when a part of it has come and the sender has stopped
/// polling.
void take_from_under(Process& self, bool sender_lives) {
  End end = self.accept();
  Buffer target(end, kHuge), marker(end, 100);
  void* request = receive(end, target, 1);
  const volatile std::byte* const first = target.data();
  abi::Result result = abi::kSuccess;
  bool over = false;
  EXPECT_TRUE(wait_until([&] {
    over = tested(self.host(), request, nullptr, &result);
    return over || *first == std::byte{0x11} || first[kHuge / 2] == std::byte{0x11};
  }));
  self.meet();
  target.deregister();
  if (!over) {
    EXPECT_EQ(end_of(self.host(), request), abi::kRemoteError);
  }
  std::fill_n(target.data(), kHuge, kTaken);
  if (sender_lives) self.tell("m", 1);
  // Takes in what still comes, until the sender has gone.
  EXPECT_NE(receive_and_end(end, marker, 2), abi::kSuccess);
  EXPECT_TRUE(all_are(target.data(), kHuge, kTaken)) << "it was written after it had been taken away";
}

TEST_P(TakenMemory, IsNotWrittenAnyMoreThoughTheSenderGivesNoAnswer) {
  run(
      [](Process& self) {
        End end = self.connect();
        Buffer source(end, kHuge, std::byte{0x11});
        void* request = send(end, source.data(), kHuge, 1, source.memory());
        (void)ends_well(self, request);
        self.meet();
        char byte;
        self.hear(&byte, 1);  // nobody polls here meanwhile
        abi::Result result = abi::kSuccess;
        (void)wait_until([&] { return tested(self.host(), request, nullptr, &result); }, 1);
        end.close();
      },
      [](Process& self) { take_from_under(self, true); });
}

TEST_P(TakenMemory, IsNotWrittenAnyMoreThoughTheSenderDies) {
  run(
      [](Process& self) {
        End end = self.connect();
        Buffer source(end, kHuge, std::byte{0x11});
        (void)ends_well(self, send(end, source.data(), kHuge, 1, source.memory()));
        self.meet();
        _exit(0);
      },
      [](Process& self) { take_from_under(self, false); });
}

// A sender knows of a receive, does not poll for long, and hears late that it was taken away: it asks before
// it writes, since the network would refuse that, and end all between the two.
TEST(TakenMemoryAlone, OfASenderThatHasNotListenedIsAskedFor) {
  constexpr size_t kBytes = 200'000;
  for (const char* provider : {"shm", WEFT_OFI_TCP}) {
    const Net net{provider,
                  {{"WEFT_NET", "ofi"},
                   {"WEFT_PROVIDER", provider},
                   {"WEFT_SOCKET_IFNAME", "lo"},
                   {"MUTATION", "late"}},
                  WEFT_NCCL_NET_MUTANT};
    run_two(
        12, net,
        [](Process& self) {
          End end = self.connect();
          Buffer buffer(end, kBytes);
          fill(buffer.data(), kBytes, 3);
          finish(self.host(), send(end, buffer.data(), 100, 2, buffer.memory()));
          self.meet();
          self.meet();
          finish(self.host(), send(end, buffer.data(), kBytes, 1, buffer.memory()));
          finish(self.host(), send(end, buffer.data(), kBytes, 3, buffer.memory()));
          self.meet();
        },
        [](Process& self) {
          End end = self.accept();
          Buffer taken(end, kBytes), other(end, kBytes);
          void* request = receive(end, taken, 1);
          finish(self.host(), receive(end, other, 2));
          self.meet();
          taken.deregister();
          self.meet();
          EXPECT_EQ(end_of(self.host(), request), abi::kRemoteError);
          finish(self.host(), receive(end, other, 3));
          EXPECT_TRUE(holds(other.data(), kBytes, 3));
          self.meet();
        });
  }
}

/// Three processes: a receiver, a sender that does not poll while memory is taken away, and one that does.
enum Part { kReceiver, kSilent, kLively };
constexpr size_t kTakenBytes = 200'000;
/// After a longer pause than this a sender asks before it writes.
constexpr int kShortPauseMs = 150;

void send_to_taken_memory(Rank& self) {
  Rank::Ends ends = self.connect({kReceiver}, {});
  End& end = ends.to.at(kReceiver);
  Buffer buffer(end, kTakenBytes);
  fill(buffer.data(), kTakenBytes, 3);
  finish(self.host(), send(end, buffer.data(), 100, 2, buffer.memory()));
  void* const waits = send(end, buffer.data(), kTakenBytes, 3, buffer.memory());
  const auto poll_until_told = [&] {
    abi::Result result = abi::kSuccess;
    EXPECT_TRUE(wait_until(
        [&] { return tested(self.host(), waits, nullptr, &result) || self.has_been_told(kReceiver); }));
  };
  self.meet({kReceiver});
  if (self.number() == kLively) {
    poll_until_told();
    char byte;
    self.hear(kReceiver, &byte, 1);  // its memory is taken away now
    if (!self.has_been_told(kReceiver, kShortPauseMs)) poll_until_told();
  }
  self.meet({kReceiver});
  finish(self.host(), send(end, buffer.data(), kTakenBytes, 1, buffer.memory()));
  finish(self.host(), waits);
  self.meet({kReceiver});
}

void take_memory_from_both(Rank& self) {
  Rank::Ends ends = self.connect({}, {kSilent, kLively});
  End &silent = ends.from.at(kSilent), &lively = ends.from.at(kLively);
  Buffer taken_of_silent(silent, kTakenBytes), taken_of_lively(lively, kTakenBytes);
  Buffer of_silent(silent, kTakenBytes), of_lively(lively, kTakenBytes);
  void* const never[] = {receive(silent, taken_of_silent, 1), receive(lively, taken_of_lively, 1)};
  finish(self.host(), receive(silent, of_silent, 2));
  finish(self.host(), receive(lively, of_lively, 2));
  self.meet(self.others());
  taken_of_silent.deregister();
  self.tell(kLively, "m", 1);
  taken_of_lively.deregister();
  self.meet(self.others());
  for (void* const request : never) EXPECT_EQ(end_of(self.host(), request), abi::kRemoteError);
  run_all(self.host(),
          {to_receive(silent, of_silent.data(), kTakenBytes, 3, of_silent.memory()),
           to_receive(lively, of_lively.data(), kTakenBytes, 3, of_lively.memory())},
          [](size_t, int) {});
  EXPECT_TRUE(holds(of_silent.data(), kTakenBytes, 3));
  EXPECT_TRUE(holds(of_lively.data(), kTakenBytes, 3));
  self.meet(self.others());
}

// A process that does not poll gives no answer. A process that polls still has its full time to answer. Else
// its next write meets a withdrawn key, and the connection is lost.
TEST(TakenMemoryAlone, OfASilentSenderLeavesOthersTheirTime) {
  for (const char* provider : {"shm", WEFT_OFI_TCP}) {
    const Net net{provider,
                  {{"WEFT_NET", "ofi"},
                   {"WEFT_PROVIDER", provider},
                   {"WEFT_SOCKET_IFNAME", "lo"},
                   {"MUTATION", "late"}},
                  WEFT_NCCL_NET_MUTANT};
    run_ranks(3, 12, net, [](Rank& self) {
      if (self.number() == kReceiver) take_memory_from_both(self);
      else send_to_taken_memory(self);
    });
  }
}

// The mirror: a message of which a part has left. It never arrives with bytes of what the memory became.
TEST_P(TakenMemory, IsNotReadAnyMore) {
  run(
      [](Process& self) {
        End end = self.connect();
        Buffer source(end, kHuge);
        fill(source.data(), kHuge, 3);
        void* request = send(end, source.data(), kHuge, 1, source.memory());
        abi::Result result = abi::kSuccess;
        bool over = false;
        EXPECT_TRUE(wait_until([&] {  // until the other side has some of it
          over = over || tested(self.host(), request, nullptr, &result);
          return over || self.has_been_told();
        }));
        source.deregister();
        std::fill_n(source.data(), kHuge, kTaken);
        if (!over) {
          EXPECT_EQ(end_of(self.host(), request), abi::kRemoteError);
        }
        self.meet();
        end.close();
        self.meet();
      },
      [](Process& self) {
        End end = self.accept();
        Buffer target(end, kHuge);
        void* request = receive(end, target, 1);
        const volatile std::byte* const first = target.data();
        std::vector<int> bytes;
        abi::Result result = abi::kSuccess;
        bool over = false, told = false;
        const auto look = [&] {
          over = over || tested(self.host(), request, &bytes, &result);
          return over;
        };
        EXPECT_TRUE(wait_until([&] { return look() || *first != std::byte{0xee}; }));
        EXPECT_TRUE(wait_until([&] {  // goes on taking it in while the sender takes its memory away
          look();
          if (!std::exchange(told, true)) self.tell("m", 1);
          return self.has_been_told();
        }));
        char byte;
        self.hear(&byte, 1);
        EXPECT_TRUE(wait_until(look)) << "the sender has closed the connection";
        if (result == abi::kSuccess) {
          EXPECT_EQ(bytes.at(0), static_cast<int>(kHuge));
          EXPECT_TRUE(holds(target.data(), kHuge, 3)) << "it came with other bytes than were sent";
        }
        self.meet();
      });
}

INSTANTIATE_TEST_SUITE_P(Conformance, TakenMemory,
                         ::testing::Combine(::testing::ValuesIn(nets()), ::testing::Values(8, 12)),
                         name_of_net);

// ---- Whom else it concerns

class Neighbours : public OverNets {};

End connect_with(Process& self, PluginHost& host) {
  char handle[abi::kHandleBytes];
  void* sender = nullptr;
  self.hear(handle, sizeof handle);
  EXPECT_TRUE(
      wait_until([&] { return host.connect(0, handle, &sender) != abi::kSuccess || sender != nullptr; }));
  return End(host, End::Side::sender, sender);
}
End accept_with(Process& self, PluginHost& host) {
  char handle[abi::kHandleBytes] = {};
  void *listener = nullptr, *receiver = nullptr;
  EXPECT_EQ(host.listen(0, handle, &listener), abi::kSuccess);
  self.tell(handle, sizeof handle);
  EXPECT_TRUE(
      wait_until([&] { return host.accept(listener, &receiver) != abi::kSuccess || receiver != nullptr; }));
  EXPECT_EQ(host.close_listener(listener), abi::kSuccess);
  return End(host, End::Side::receiver, receiver);
}

constexpr size_t kLong = 4 << 20;
constexpr int kMessages = 12;

size_t neighbours_bytes(int message) { return message % 2 ? kLong : 300; }

// A communicator is aborted while its receives are cleared; the sender writes all the same, into memory that
// is not registered any more. From version 11 on other communicators do not notice. Before, those of a
// process share their endpoint over libfabric, whose providers may close the connection of the two processes.
// Where the network keeps no order, the receiver closes the endpoint. Then every request ends with an error.
TEST_P(Neighbours, OfAConnectionThatEndsWithClearedReceives) {
  const bool apart = version() >= 11 || !net().name.starts_with("ofi");
  const std::string library = net().library;
  const int version = this->version();
  run(
      [&](Process& self) {
        const auto second = PluginHost::open(library, version);
        End doomed = self.connect(), neighbour = connect_with(self, *second);
        Buffer lost(doomed, kLong), source(neighbour, kLong);
        void* request = send(doomed, lost.data(), kLong, 1, lost.memory());
        self.meet();  // the other side has asked for it,
        self.meet();  // and does not want it any more
        EXPECT_NE(end_of(self.host(), request), abi::kInternalError);
        abi::Result result = abi::kSuccess;
        for (int i = 0; i < kMessages && result == abi::kSuccess; ++i) {
          fill(source.data(), neighbours_bytes(i), static_cast<uint64_t>(i));
          result = send_and_end(neighbour, source, neighbours_bytes(i), 7);
        }
        if (result != abi::kSuccess) neighbour.close();  // by which the other side hears of it
        if (apart) {
          EXPECT_EQ(result, abi::kSuccess) << (logged().empty() ? "" : logged().back());
        }
        self.meet();
      },
      [&](Process& self) {
        const auto second = PluginHost::open(library, version);
        End doomed = self.accept(), neighbour = accept_with(self, *second);
        Buffer target(neighbour, kLong);
        {
          Buffer into(doomed, kLong);
          void* never = receive(doomed, into, 1);
          self.meet();
          // Until the clear is out: the other side looks for it only later.
          abi::Result result = abi::kSuccess;
          const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
          while (std::chrono::steady_clock::now() < end) (void)tested(self.host(), never, nullptr, &result);
          into.deregister();
          doomed.close();
        }
        self.meet();
        abi::Result result = abi::kSuccess;
        for (int i = 0; i < kMessages && result == abi::kSuccess; ++i) {
          std::vector<int> bytes;
          result = receive_and_end(neighbour, target, 7, &bytes);
          if (result != abi::kSuccess) break;
          EXPECT_EQ(bytes.at(0), static_cast<int>(neighbours_bytes(i)));
          EXPECT_TRUE(holds(target.data(), neighbours_bytes(i), static_cast<uint64_t>(i))) << "message " << i;
        }
        if (result != abi::kSuccess) neighbour.close();
        if (apart) {
          EXPECT_EQ(result, abi::kSuccess) << (logged().empty() ? "" : logged().back());
        }
        self.meet();
      });
}

INSTANTIATE_TEST_SUITE_P(Conformance, Neighbours,
                         ::testing::Combine(::testing::ValuesIn(nets()), ::testing::Values(8, 12)),
                         name_of_net);

}  // namespace
}  // namespace weft::nccl_net_test
