// More than two processes: rings and all-to-all of four, as NCCL's channels are, with everything in flight at
// once, and the death of one of the four.
#include "many_processes.h"

#include <algorithm>
#include <random>

namespace weft::nccl_net_test::many_processes_test {
namespace {

constexpr int kRanks = 4;
constexpr size_t kMostBytes = 300'000;

/// From nothing over what is sent blind to what needs several pieces; the same for whoever asks.
size_t size_of(uint64_t message) {
  constexpr size_t kSizes[] = {0, 1, 700, 4096, 4097, 30'000, 66'000, kMostBytes - 1};
  const size_t most = kSizes[mix(message) % std::size(kSizes)];
  return most > 1000 ? most - mix(message + 1) % 1000 : most;
}

class ManyProcesses : public OverNets {
 public:
  void run(const RankBody& body, int killed = -1) { run_ranks(kRanks, version(), net(), body, killed); }
};

/// Memory that is registered with one connection to be sent on, and with another to be received into.
class Forwarded {
 public:
  Forwarded(End& to, End& from, size_t bytes) : to_(to), from_(from), bytes_(bytes, std::byte{0xee}) {
    for (const auto& [end, memory] : {std::pair(&to_, &for_send_), std::pair(&from_, &for_receive_)})
      EXPECT_EQ(end->host().register_memory(end->get(), data(), bytes, abi::kHostMemory, memory),
                abi::kSuccess);
  }
  ~Forwarded() {
    EXPECT_EQ(to_.host().deregister(to_.get(), for_send_), abi::kSuccess);
    EXPECT_EQ(from_.host().deregister(from_.get(), for_receive_), abi::kSuccess);
  }
  std::byte* data() { return bytes_.data(); }
  void* for_send() { return for_send_; }
  void* for_receive() { return for_receive_; }

 private:
  End &to_, &from_;
  std::vector<std::byte> bytes_;
  void *for_send_ = nullptr, *for_receive_ = nullptr;
};

// An AllGather as NCCL's ring has it: what one process received, it sends on from where it lies.
TEST_P(ManyProcesses, PassBlocksAroundARing) {
  constexpr int kRounds = 30;
  const auto seed = [](int round, int block) { return static_cast<uint64_t>(round * 10 + block); };
  run([&](Rank& self) {
    const int next = (self.number() + 1) % kRanks, previous = (self.number() + kRanks - 1) % kRanks;
    Rank::Ends ends = self.connect({next}, {previous});
    End &to = ends.to.at(next), &from = ends.from.at(previous);
    Forwarded blocks(to, from, kRanks * kMostBytes);
    const auto block = [&](int number) { return blocks.data() + number * kMostBytes; };
    for (int round = 0; round < kRounds; ++round) {
      std::fill_n(blocks.data(), kRanks * kMostBytes, std::byte{0xee});
      fill(block(self.number()), size_of(seed(round, self.number())), seed(round, self.number()));
      for (int step = 0; step < kRanks - 1; ++step) {
        const int out = (self.number() + kRanks - step) % kRanks, in = (out + kRanks - 1) % kRanks;
        run_all(self.host(),
                {to_receive(from, block(in), kMostBytes, step, blocks.for_receive()),
                 to_send(to, block(out), size_of(seed(round, out)), step, blocks.for_send())},
                [&](size_t i, int bytes) {
                  EXPECT_EQ(bytes, static_cast<int>(size_of(seed(round, i == 0 ? in : out))));
                });
      }
      for (int i = 0; i < kRanks; ++i) {
        const size_t bytes = size_of(seed(round, i));
        ASSERT_TRUE(holds(block(i), bytes, seed(round, i))) << "round " << round << ", block " << i;
        ASSERT_TRUE(all_are(block(i) + bytes, kMostBytes - bytes, std::byte{0xee})) << "beyond block " << i;
      }
    }
    self.meet(self.others());
  });
}

/// Every rank has `kAtOnce` messages in flight to, and from, each of `ranks`; some rounds of that.
class AllToAll {
 public:
  static constexpr int kAtOnce = 6, kRounds = 4;
  AllToAll(Rank& self, Rank::Ends& ends, const std::vector<int>& ranks)
      : self_(self), ends_(ends), ranks_(ranks) {
    for (const int rank : ranks) {
      sources_.emplace(rank, std::make_unique<Buffer>(ends.to.at(rank), kAtOnce * kMostBytes));
      targets_.emplace(rank, std::make_unique<Buffer>(ends.from.at(rank), kAtOnce * kMostBytes));
    }
  }

  void run(int first_round) {
    for (int round = first_round; round < first_round + kRounds; ++round) exchange(round);
  }

 private:
  struct Message {
    int from, to, number;
  };
  static uint64_t seed(int round, const Message& message) {
    return ((round * 10 + message.from) * 10 + message.to) * 10 + message.number;
  }

  void exchange(int round) {
    std::vector<Message> messages;
    for (const int rank : ranks_) {
      for (int i = 0; i < kAtOnce; ++i) {
        messages.push_back({self_.number(), rank, i});
        messages.push_back({rank, self_.number(), i});
      }
    }
    std::shuffle(messages.begin(), messages.end(), std::mt19937(round * 10 + self_.number()));
    std::vector<Start> starts;
    for (const Message& message : messages) starts.push_back(prepare(round, message));
    run_all(self_.host(), starts, [&](size_t i, int bytes) {
      EXPECT_EQ(bytes, static_cast<int>(size_of(seed(round, messages[i]))));
    });
    for (const Message& message : messages)
      if (message.to == self_.number()) check(round, message);
  }

  Start prepare(int round, const Message& message) {
    const uint64_t id = seed(round, message);
    const bool sends = message.from == self_.number();
    Buffer& buffer = sends ? *sources_.at(message.to) : *targets_.at(message.from);
    std::byte* at = buffer.data() + message.number * kMostBytes;
    if (sends) {
      fill(at, size_of(id), id);
      return to_send(ends_.to.at(message.to), at, size_of(id), message.number, buffer.memory());
    }
    std::fill_n(at, kMostBytes, std::byte{0xee});
    return to_receive(ends_.from.at(message.from), at, kMostBytes, message.number, buffer.memory());
  }

  void check(int round, const Message& message) {
    const uint64_t id = seed(round, message);
    const std::byte* at = targets_.at(message.from)->data() + message.number * kMostBytes;
    EXPECT_TRUE(holds(at, size_of(id), id))
        << "round " << round << ", message " << message.number << " of process " << message.from;
    EXPECT_TRUE(all_are(at + size_of(id), kMostBytes - size_of(id), std::byte{0xee}));
  }

  Rank& self_;
  Rank::Ends& ends_;
  const std::vector<int> ranks_;
  std::map<int, std::unique_ptr<Buffer>> sources_, targets_;  // by rank
};

TEST_P(ManyProcesses, SendFromAllToAll) {
  run([](Rank& self) {
    Rank::Ends ends = self.connect(self.others(), self.others());
    {
      AllToAll exchange(self, ends, self.others());
      exchange.run(0);
    }
    self.meet(self.others());
  });
}

// One is killed with requests of all others in flight. They are told, and go on with one another.
TEST_P(ManyProcesses, TheDeathOfOneReachesTheOthers) {
  constexpr int kVictim = 3;
  run(
      [&](Rank& self) {
        Rank::Ends ends = self.connect(self.others(), self.others());
        {
          AllToAll before(self, ends, self.others());
          before.run(0);
        }
        self.meet(self.others());
        if (self.number() == kVictim) {
          char byte;
          for (const int rank : self.others()) self.hear(rank, &byte, 1);
          raise(SIGKILL);
        }
        End &to = ends.to.at(kVictim), &from = ends.from.at(kVictim);
        {
          Buffer source(to, kMostBytes), target(from, kMostBytes);
          void* requests[] = {send(to, source.data(), kMostBytes, 77, source.memory()),
                              receive(from, target, 77)};
          self.tell(kVictim, "d", 1);
          for (void* request : requests) {
            abi::Result result = abi::kSuccess;
            EXPECT_TRUE(wait_until([&] { return tested(self.host(), request, nullptr, &result); }))
                << "nobody says that a process has died";
            EXPECT_EQ(result, abi::kRemoteError);
          }
          EXPECT_TRUE(has_logged("the connection with 127.0.0.1:"));
          // And what is begun anew ends so, too.
          abi::Result result = abi::kSuccess;
          EXPECT_TRUE(
              tested(self.host(), send(to, source.data(), 10, 78, source.memory()), nullptr, &result));
          EXPECT_EQ(result, abi::kRemoteError);
        }
        std::vector<int> alive = self.others();
        std::erase(alive, kVictim);
        {
          AllToAll after(self, ends, alive);
          after.run(10);
        }
        to.close(), from.close();
        self.meet(alive);
      },
      kVictim);
}

INSTANTIATE_TEST_SUITE_P(Conformance, ManyProcesses,
                         ::testing::Combine(::testing::ValuesIn(nets()), ::testing::Values(8, 12)),
                         name_of_net);

}  // namespace
}  // namespace weft::nccl_net_test::many_processes_test
