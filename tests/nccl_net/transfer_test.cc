// What arrives: every size, every order, groups, more than there is room for. Over all ways of reaching a
// peer, and over a transport without order.
#include <linux/tcp.h>
#include <netinet/in.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <numeric>
#include <random>

#include "two_processes.h"

namespace weft::nccl_net_test {
namespace {

class Transfer : public OverNets {};

const size_t kSizes[] = {0,     1,     2,     7,     64,    1000,    4096,      8127,         8128,
                         16320, 16321, 65535, 65536, 65537, 200'000, 1'000'000, (5 << 20) + 3};

TEST_P(Transfer, EverySizeArrivesExactly) {
  run(
      [](Process& self) {
        End end = self.connect();
        uint64_t seed = 0;
        for (const size_t bytes : kSizes) {
          Buffer buffer(end, bytes);
          fill(buffer.data(), bytes, ++seed);
          // Sent before it is received, or after, in turn. A long one is not complete before it is received.
          const bool first = seed % 2 == 0 && bytes < 5000;
          if (!first) self.meet();
          void* request = send(end, buffer.data(), bytes, 5, buffer.memory());
          EXPECT_EQ(finish(self.host(), request).at(0), static_cast<int>(bytes));
          if (first) self.meet();
        }
        self.meet();
      },
      [](Process& self) {
        End end = self.accept();
        uint64_t seed = 0;
        for (const size_t bytes : kSizes) {
          Buffer buffer(end, bytes + 1000);  // longer than what comes
          ++seed;
          const bool first = seed % 2 == 0 && bytes < 5000;
          void* request = first ? nullptr : receive(end, buffer, 5);
          self.meet();
          if (first) request = receive(end, buffer, 5);
          EXPECT_EQ(finish(self.host(), request).at(0), static_cast<int>(bytes));
          EXPECT_TRUE(holds(buffer.data(), bytes, seed)) << bytes << " B are not what was sent";
          EXPECT_TRUE(all_are(buffer.data() + bytes, 1000, std::byte{0xee})) << "beyond " << bytes << " B";
        }
        self.meet();
      });
}

/// Long and short ones in turn: they take different ways.
size_t size_of(uint64_t i) { return mix(i) % 3 == 0 ? 70'000 + mix(i) % 100'000 : mix(i) % 3000; }

TEST_P(Transfer, MessagesOfOneTagStayInOrder) {
  constexpr int kMessages = 400, kAtOnce = 16;
  run(
      [](Process& self) {
        End end = self.connect();
        Buffer buffer(end, kAtOnce * size_t{200'000});
        std::vector<void*> requests;
        for (int i = 0; i < kMessages; ++i) {
          std::byte* at = buffer.data() + (i % kAtOnce) * 200'000;
          if (i >= kAtOnce) finish(self.host(), requests[static_cast<size_t>(i - kAtOnce)]);
          fill(at, size_of(i), i);
          requests.push_back(send(end, at, size_of(i), -7, buffer.memory()));
        }
        for (int i = kMessages - kAtOnce; i < kMessages; ++i) finish(self.host(), requests[i]);
        self.meet();
      },
      [](Process& self) {
        End end = self.accept();
        Buffer buffer(end, kAtOnce * size_t{200'000});
        for (int first = 0; first < kMessages; first += kAtOnce) {
          std::vector<void*> requests;
          for (int i = 0; i < kAtOnce; ++i)
            requests.push_back(
                receive(end, {buffer.data() + i * 200'000}, {200'000}, {-7}, {buffer.memory()}));
          for (int i = kAtOnce - 1; i >= 0; --i) {  // tested from the last to the first
            const std::vector<int> bytes = finish(self.host(), requests[i]);
            ASSERT_EQ(bytes.at(0), static_cast<int>(size_of(first + i))) << "message " << first + i;
            ASSERT_TRUE(holds(buffer.data() + i * 200'000, size_of(first + i), first + i));
          }
        }
        self.meet();
      });
}

TEST_P(Transfer, TagsAreIndependent) {
  constexpr int kTags = 12, kRounds = 2;
  run(
      [](Process& self) {
        End end = self.connect();
        Buffer buffer(end, kRounds * kTags * size_t{100'000});
        std::vector<void*> requests;
        for (int i = 0; i < kRounds * kTags; ++i) {
          const size_t bytes = i % 2 ? 300 + i : 90'000 + i;
          fill(buffer.data() + i * 100'000, bytes, i);
          requests.push_back(send(end, buffer.data() + i * 100'000, bytes, i % kTags, buffer.memory()));
        }
        for (void* request : requests) finish(self.host(), request);
        self.meet();
      },
      [](Process& self) {
        End end = self.accept();
        Buffer buffer(end, kRounds * kTags * size_t{100'000});
        std::vector<std::pair<int, void*>> requests;
        for (int tag = kTags - 1; tag >= 0; --tag)  // the last tag first
          for (int i = tag; i < kRounds * kTags; i += kTags)
            requests.emplace_back(
                i, receive(end, {buffer.data() + i * 100'000}, {100'000}, {tag}, {buffer.memory()}));
        for (const auto& [i, request] : requests) {
          const int bytes = i % 2 ? 300 + i : 90'000 + i;
          EXPECT_EQ(finish(self.host(), request).at(0), bytes);
          EXPECT_TRUE(holds(buffer.data() + i * 100'000, static_cast<size_t>(bytes), i)) << "message " << i;
        }
        self.meet();
      });
}

// A message of a group has the tag of its place, but for the last, which has that of the first.
int tag_in_group(int i) { return i == 7 ? 100 : 100 + i; }
size_t size_in_group(int round, int i) {
  const size_t sizes[] = {0, 1, 500, 9000, 66'000, 150'000, 3, 77'777};
  return sizes[(round + i) % 8];
}

TEST_P(Transfer, GroupsOfReceivesReportEverySize) {
  static constexpr int kRounds = 24, kGroup = 8;
  run(
      [](Process& self) {
        End end = self.connect();
        Buffer buffer(end, kGroup * size_t{160'000});
        std::mt19937 random(7);
        for (int round = 0; round < kRounds; ++round) {
          std::vector<int> order = {0, 1, 2, 3, 4, 5, 6};
          std::shuffle(order.begin(), order.end(), random);
          order.push_back(7);  // after the other of its tag
          std::vector<void*> requests;
          for (const int i : order) {
            std::byte* at = buffer.data() + i * 160'000;
            fill(at, size_in_group(round, i), round * 8 + i);
            requests.push_back(send(end, at, size_in_group(round, i), tag_in_group(i), buffer.memory()));
          }
          for (void* request : requests) finish(self.host(), request);
        }
        self.meet();
      },
      [](Process& self) {
        End end = self.accept();
        ASSERT_GE(self.host().most_receives(0), kGroup);
        Buffer buffer(end, kGroup * size_t{160'000});
        for (int round = 0; round < kRounds; ++round) {
          std::fill_n(buffer.data(), buffer.size(), std::byte{0xee});
          std::vector<void*> data, memory;
          std::vector<size_t> bytes;
          std::vector<int> tags;
          for (int i = 0; i < kGroup; ++i) {
            data.push_back(buffer.data() + i * 160'000);
            bytes.push_back(size_in_group(round, i) + 100 * i);
            tags.push_back(tag_in_group(i));
            memory.push_back(buffer.memory());
          }
          const std::vector<int> sizes = finish(self.host(), receive(end, data, bytes, tags, memory));
          ASSERT_EQ(sizes.size(), 8u);
          for (int i = 0; i < kGroup; ++i) {
            const size_t expected = size_in_group(round, i);
            EXPECT_EQ(sizes[i], static_cast<int>(expected)) << "part " << i;
            EXPECT_TRUE(holds(buffer.data() + i * 160'000, expected, round * 8 + i)) << "part " << i;
            EXPECT_TRUE(all_are(buffer.data() + i * 160'000 + expected, 160'000 - expected, std::byte{0xee}));
          }
        }
        self.meet();
      });
}

TEST_P(Transfer, ThirtyTwoRequestsAreInFlightAndNoMore) {
  run(
      [](Process& self) {
        End end = self.connect();
        Buffer buffer(end, 32 * size_t{100'000});
        self.meet();
        std::vector<void*> requests;
        for (int i = 0; i < 32; ++i) {
          fill(buffer.data() + i * 100'000, 100'000, i);
          requests.push_back(send(end, buffer.data() + i * 100'000, 100'000, 1, buffer.memory()));
        }
        for (int i = 31; i >= 0; --i) finish(self.host(), requests[i]);
        self.meet();
      },
      [](Process& self) {
        End end = self.accept();
        Buffer buffer(end, 33 * size_t{100'000});
        std::vector<void*> requests;
        for (int i = 0; i < 32; ++i)
          requests.push_back(receive(end, {buffer.data() + i * 100'000}, {100'000}, {1}, {buffer.memory()}));
        // One more has to wait, and says so on every path.
        void* data = buffer.data() + 32 * 100'000;
        void* memory = buffer.memory();
        void* request = reinterpret_cast<void*>(abi::kOptionalCompletion);
        size_t bytes = 100'000;
        int tag = 1;
        EXPECT_EQ(self.host().receive(end.get(), 1, &data, &bytes, &tag, &memory, &request), abi::kSuccess);
        EXPECT_EQ(request, nullptr);
        self.meet();
        std::vector<int> order(32);
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), std::mt19937(3));
        for (const int i : order) {
          EXPECT_EQ(finish(self.host(), requests[i]).at(0), 100'000);
          EXPECT_TRUE(holds(buffer.data() + i * 100'000, 100'000, i));
        }
        self.meet();
      });
}

// A receiver has 32 requests, each of a group; a sender has as many for each place in a group.
TEST_P(Transfer, ASenderHasARequestForEveryReceiveOfEveryGroup) {
  static constexpr int kGroup = 8, kSends = 32 * kGroup;
  static constexpr size_t kBytes = 70'000;
  run(
      [](Process& self) {
        End end = self.connect();
        Buffer buffer(end, kSends * kBytes);
        std::vector<void*> requests;
        for (int i = 0; i < kSends; ++i) {
          std::byte* at = buffer.data() + i * kBytes;
          fill(at, kBytes, i);
          requests.push_back(send(end, at, kBytes, i % kGroup, buffer.memory()));
        }
        void* request = &end;
        EXPECT_EQ(self.host().send(end.get(), buffer.data(), kBytes, 0, buffer.memory(), &request),
                  abi::kSuccess);
        EXPECT_EQ(request, nullptr) << "one more than there may be";
        self.meet();
        std::shuffle(requests.begin(), requests.end(), std::mt19937(5));
        for (void* each : requests) finish(self.host(), each);
        self.meet();
      },
      [](Process& self) {
        End end = self.accept();
        Buffer buffer(end, kSends * kBytes);
        self.meet();
        std::vector<void*> requests;
        for (int first = 0; first < kSends; first += kGroup) {
          std::vector<void*> data, memory(kGroup, buffer.memory());
          std::vector<int> tags;
          for (int i = 0; i < kGroup; ++i)
            data.push_back(buffer.data() + (first + i) * kBytes), tags.push_back(i);
          requests.push_back(receive(end, data, std::vector<size_t>(kGroup, kBytes), tags, memory));
        }
        for (void* each : requests) EXPECT_EQ(finish(self.host(), each), std::vector<int>(kGroup, kBytes));
        for (int i = 0; i < kSends; ++i) EXPECT_TRUE(holds(buffer.data() + i * kBytes, kBytes, i)) << i;
        self.meet();
      });
}

TEST_P(Transfer, ASenderThatIsFarAheadIsHeldBack) {
  constexpr int kMessages = 1500;
  run(
      [](Process& self) {
        End end = self.connect();
        Buffer buffer(end, 64);
        fill(buffer.data(), 64, 9);
        std::vector<void*> requests;
        int accepted = 0;
        bool held_back = false, let_on = false;
        EXPECT_TRUE(wait_until([&] {
          void* request = nullptr;
          EXPECT_EQ(
              self.host().send(end.get(), buffer.data(), 1 + accepted % 64, 2, buffer.memory(), &request),
              abi::kSuccess);
          if (request) requests.push_back(request), ++accepted;
          else held_back = true;
          if (held_back && !let_on) self.meet(), let_on = true;
          std::erase_if(requests, [&](void* each) {
            abi::Result result = abi::kSuccess;
            const bool over = let_on && tested(self.host(), each, nullptr, &result);
            EXPECT_EQ(result, abi::kSuccess);
            return over;
          });
          return accepted == kMessages;
        }));
        EXPECT_TRUE(held_back) << "the sender went on without end";
        for (void* request : requests) finish(self.host(), request);
        self.meet();
      },
      [](Process& self) {
        End end = self.accept();
        Buffer buffer(end, 64);
        self.meet();
        for (int i = 0; i < kMessages; ++i) {
          ASSERT_EQ(finish(self.host(), receive(end, buffer, 2)).at(0), 1 + i % 64) << "message " << i;
          ASSERT_TRUE(holds(buffer.data(), 1 + i % 64, 9));
        }
        self.meet();
      });
}

TEST_P(Transfer, WhatIsCompleteArrivesThoughNobodyPolls) {
  constexpr int kMessages = 60;
  const auto size = [](int i) {
    return i % 20 < 10 ? size_t{60'000} : size_t{8};
  };  // short ones are gathered
  run(
      [&](Process& self) {
        End end = self.connect();
        Buffer buffer(end, 60'000);
        fill(buffer.data(), buffer.size(), 4);
        std::vector<void*> requests;
        for (int i = 0; i < kMessages; ++i)
          requests.push_back(send(end, buffer.data(), size(i), 3, buffer.memory()));
        for (void* request : requests) finish(self.host(), request);
        self.meet();  // and no call of the plugin until all is there
      },
      [&](Process& self) {
        End end = self.accept();
        Buffer buffer(end, 60'000);
        for (int i = 0; i < kMessages; ++i)
          EXPECT_EQ(finish(self.host(), receive(end, buffer, 3)).at(0), static_cast<int>(size(i)));
        self.meet();
      });
}

// More receives are posted while short messages are expected than the sender asks for at once: where it comes
// to rely on clears that come unasked, none comes.
TEST_P(Transfer, LongMessagesForReceivesFromBeforeGoOn) {
  static constexpr int kGroups = 20, kGroup = 8;
  static constexpr size_t kBytes = 66'000;
  run(
      [](Process& self) {
        End end = self.connect();
        Buffer buffer(end, kBytes);
        finish(self.host(), send(end, buffer.data(), 8, 1, buffer.memory()));
        self.meet();
        fill(buffer.data(), kBytes, 3);
        std::vector<void*> requests;
        for (int i = 0; i < kGroups * kGroup; ++i)
          requests.push_back(send(end, buffer.data(), kBytes, 1, buffer.memory()));
        for (void* request : requests) finish(self.host(), request);
        self.meet();
      },
      [](Process& self) {
        End end = self.accept();
        Buffer buffer(end, kGroups * kGroup * kBytes);
        EXPECT_EQ(finish(self.host(), receive(end, buffer, 1)).at(0), 8);
        std::vector<void*> requests;
        for (int group = 0; group < kGroups; ++group) {
          std::vector<void*> data, memory(kGroup, buffer.memory());
          for (int i = 0; i < kGroup; ++i) data.push_back(buffer.data() + (group * kGroup + i) * kBytes);
          requests.push_back(
              receive(end, data, std::vector<size_t>(kGroup, kBytes), std::vector<int>(kGroup, 1), memory));
        }
        self.meet();
        for (void* request : requests) finish(self.host(), request);
        for (int i = 0; i < kGroups * kGroup; ++i)
          EXPECT_TRUE(holds(buffer.data() + i * kBytes, kBytes, 3)) << "message " << i;
        self.meet();
      });
}

// Each is longer than what the kernel holds, so while one goes out the clears of those after it have come.
// Asking for one all the same costs a write here and a read there: it was done for most messages that took
// longer than the time for which a clear was waited for.
TEST(LongMessages, AreNotAskedForWhileOthersGoOut) {
  static constexpr int kMessages = 16, kAtOnce = 8;
  static constexpr size_t kBytes = 48 << 20;
  const Net net{"tcp",
                {{"WEFT_NET", "tcp"}, {"WEFT_SOCKET_IFNAME", "lo"}, {"MUTATION", "unasked"}},
                WEFT_NCCL_NET_MUTANT};
  const auto move_all = [](Process& self, std::deque<void*> requests, const std::function<void*()>& start) {
    for (int moved = 0; moved < kMessages; ++moved) {
      while (requests.size() < kAtOnce && moved + static_cast<int>(requests.size()) < kMessages)
        requests.push_back(start());
      ASSERT_EQ(finish(self.host(), requests.front()).at(0), static_cast<int>(kBytes));
      requests.pop_front();
    }
    self.meet();
  };
  run_two(
      12, net,
      [&](Process& self) {
        End end = self.connect();
        Buffer buffer(end, kBytes);
        self.meet();
        move_all(self, {}, [&] { return send(end, buffer.data(), kBytes, 1, buffer.memory()); });
      },
      [&](Process& self) {
        End end = self.accept();
        Buffer buffer(end, kBytes);
        std::deque<void*> requests;
        for (int i = 0; i < kAtOnce; ++i) requests.push_back(receive(end, buffer, 1));
        self.meet();
        move_all(self, std::move(requests), [&] { return receive(end, buffer, 1); });
      });
}

// Where complete means that it is with the peer's kernel or memory. Over libfabric's sockets, or a transport
// that holds arrivals back, what has not been taken in is lost with its sender.
TEST_P(Transfer, WhatIsCompleteArrivesThoughTheSenderHasGone) {
  if (net().name != "tcp" && net().name != "ofi_shm") GTEST_SKIP() << "not promised over " << net().name;
  run(
      [](Process& self) {
        End end = self.connect();
        Buffer buffer(end, 5000);
        fill(buffer.data(), buffer.size(), 4);
        std::vector<void*> requests;
        for (int i = 0; i < 40; ++i)
          requests.push_back(send(end, buffer.data(), buffer.size(), 3, buffer.memory()));
        for (void* request : requests) finish(self.host(), request);
        buffer.deregister();
        end.close();
      },
      [](Process& self) {
        End end = self.accept();
        Buffer buffer(end, 5000);
        for (int i = 0; i < 40; ++i) {
          const std::vector<int> bytes = finish(self.host(), receive(end, buffer, 3));
          ASSERT_EQ(bytes.at(0), 5000) << "message " << i;
          EXPECT_TRUE(holds(buffer.data(), 5000, 4));
        }
      });
}

TEST_P(Transfer, TwoRailsShareAMessage) {
  if (version() < 9) GTEST_SKIP() << "version 8 knows no virtual devices";
  const auto use_two_rails = [](Process& self) {
    const int device = self.host().make_virtual_device({0, 0});
    EXPECT_EQ(device, self.host().devices() - 1);
    EXPECT_EQ(self.host().properties(device).parts.count, 2);
    self.use_device(device);
  };
  constexpr size_t kBytes = (9 << 20) + 5;
  run(
      [&](Process& self) {
        use_two_rails(self);
        End end = self.connect();
        Buffer buffer(end, kBytes);
        for (int i = 0; i < 3; ++i) {
          fill(buffer.data(), kBytes, i);
          finish(self.host(), send(end, buffer.data(), kBytes, 0, buffer.memory()));
        }
        self.meet();
        if (net().name != "ofi_shm") {  // of all others a rail is a socket, libfabric's, too
          EXPECT_EQ(busy_sockets(3 * kBytes), 2);
        }
      },
      [&](Process& self) {
        use_two_rails(self);
        End end = self.accept();
        Buffer buffer(end, kBytes);
        for (int i = 0; i < 3; ++i) {
          EXPECT_EQ(finish(self.host(), receive(end, buffer, 0)).at(0), static_cast<int>(kBytes));
          EXPECT_TRUE(holds(buffer.data(), kBytes, i));
        }
        self.meet();
      });
}

INSTANTIATE_TEST_SUITE_P(Conformance, Transfer,
                         ::testing::Combine(::testing::ValuesIn(nets()), ::testing::Values(8, 12)),
                         name_of_net);

/// Ways on which other messages than by default are sent before their receive is known.
std::vector<Net> with_eager_bytes(const std::string& bytes) {
  std::vector<Net> nets = real_nets();
  for (Net& net : nets) net.environment.emplace_back("WEFT_EAGER_INTER_BYTES", bytes);
  return nets;
}

INSTANTIATE_TEST_SUITE_P(FewEager, Transfer,
                         ::testing::Combine(::testing::ValuesIn(with_eager_bytes("5000")),
                                            ::testing::Values(12)),
                         name_of_net);
INSTANTIATE_TEST_SUITE_P(ManyEager, Transfer,
                         ::testing::Combine(::testing::Values(with_eager_bytes("256K").front()),
                                            ::testing::Values(12)),
                         name_of_net);

}  // namespace
}  // namespace weft::nccl_net_test
