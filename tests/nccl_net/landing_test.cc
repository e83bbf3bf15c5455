// The memory in which messages wait for their receive: it is bounded, in messages and bytes, for a connection
// and for the process; and what the bound holds back cannot lock up.
#include "two_processes.h"

namespace weft::nccl_net_test::landing_test {
namespace {

/// Ways with the least memory that the setting allows: 1 MiB for the process, of which the first connection
/// gets an eighth.
std::vector<Net> with_little_memory(std::vector<Net> nets) {
  for (Net& net : nets) net.environment.emplace_back("WEFT_EARLY_BYTES", "1M");
  return nets;
}
constexpr size_t kGrant = (1 << 20) / 8;
constexpr size_t kBytes = 10'000;

class Landing : public OverNets {};

/// Sends that are over after so many looks at all of them.
size_t over_after(PluginHost& host, std::vector<void*>& requests, int looks) {
  size_t over = 0;
  for (int look = 0; look < looks; ++look) {
    over += std::erase_if(requests, [&](void* each) {
      abi::Result result = abi::kSuccess;
      const bool done = tested(host, each, nullptr, &result);
      EXPECT_EQ(result, abi::kSuccess);
      return done;
    });
  }
  return over;
}

TEST_P(Landing, ASenderIsHeldBackByBytes) {
  constexpr int kMessages = 32;
  run(
      [](Process& self) {
        End end = self.connect();
        Buffer buffer(end, kBytes * kMessages);
        fill(buffer.data(), buffer.size(), 1);
        std::vector<void*> requests;
        size_t started = 0, over = 0;
        const auto go_on = [&] {
          void* request = nullptr;
          if (started < kMessages) {
            EXPECT_EQ(self.host().send(end.get(), buffer.data() + started * kBytes, kBytes, 1,
                                       buffer.memory(), &request),
                      abi::kSuccess);
          }
          if (request) requests.push_back(request), ++started;
          over += over_after(self.host(), requests, 1);
        };
        for (int turn = 0; turn < 2000; ++turn) go_on();
        // All of them would fit into the sockets, and are fewer than may be ahead by number.
        EXPECT_LE(over, kGrant / kBytes);
        self.meet();
        EXPECT_TRUE(wait_until([&] { return go_on(), over == kMessages; }));
        self.meet();
      },
      [](Process& self) {
        End end = self.accept();
        Buffer buffer(end, kBytes * kMessages);
        self.meet();
        for (int i = 0; i < kMessages; ++i) {
          std::byte* at = buffer.data() + i * kBytes;
          EXPECT_EQ(finish(self.host(), receive(end, {at}, {kBytes}, {1}, {buffer.memory()})).at(0),
                    static_cast<int>(kBytes));
        }
        EXPECT_TRUE(holds(buffer.data(), buffer.size(), 1));
        self.meet();
      });
}

// The tags that come last are received first, while others have all of the landings.
TEST_P(Landing, AnyOrderOfReceivesGoesOn) {
  constexpr int kTags = 10, kOfEach = 4;
  const auto size = [](int tag, int i) { return tag % 2 ? kBytes + i : size_t{40} * i; };
  run(
      [&](Process& self) {
        End end = self.connect();
        Buffer buffer(end, kTags * kOfEach * (kBytes + kOfEach));
        std::vector<void*> requests;
        std::byte* at = buffer.data();
        for (int tag = 0; tag < kTags; ++tag) {
          for (int i = 0; i < kOfEach; ++i) {
            fill(at, size(tag, i), tag * kOfEach + i);
            requests.push_back(send(end, at, size(tag, i), tag, buffer.memory()));
            at += kBytes + kOfEach;
          }
        }
        for (void* request : requests) finish(self.host(), request);
        self.meet();
      },
      [&](Process& self) {
        End end = self.accept();
        Buffer buffer(end, 2 * kBytes);
        for (int tag = kTags - 1; tag >= 0; --tag) {
          for (int i = 0; i < kOfEach; ++i) {
            ASSERT_EQ(finish(self.host(), receive(end, buffer, tag)).at(0), static_cast<int>(size(tag, i)))
                << "tag " << tag << ", message " << i;
            ASSERT_TRUE(holds(buffer.data(), size(tag, i), tag * kOfEach + i));
          }
        }
        self.meet();
      });
}

// A receive that is withdrawn leaves its message behind; that must not use up the landings.
TEST_P(Landing, WithdrawnReceivesGiveTheirLandingsBack) {
  constexpr int kMessages = 60;
  run(
      [this](Process& self) {
        End end = self.connect();
        Buffer buffer(end, kBytes);
        fill(buffer.data(), kBytes, 1);
        void* const never =
            without_order(net()) ? send(end, buffer.data(), kBytes, 9, buffer.memory()) : nullptr;
        never ? self.meet_polling(never) : self.meet();
        for (int i = 0; i < kMessages; ++i)
          finish(self.host(), send(end, buffer.data(), kBytes, 1, buffer.memory()));
        self.meet();
      },
      [](Process& self) {
        End end = self.accept();
        abi::Result result = abi::kSuccess;
        {
          Buffer taken_away(end, kBytes);
          std::vector<void*> requests;
          for (int i = 0; i < kMessages / 2; ++i) requests.push_back(receive(end, taken_away, 1));
          taken_away.deregister();
          for (void* request : requests) EXPECT_TRUE(tested(self.host(), request, nullptr, &result));
        }
        self.meet();
        Buffer buffer(end, kBytes);
        for (int i = kMessages / 2; i < kMessages; ++i) {
          ASSERT_EQ(finish(self.host(), receive(end, buffer, 1)).at(0), static_cast<int>(kBytes));
          ASSERT_TRUE(holds(buffer.data(), kBytes, 1));
        }
        self.meet();
      });
}

INSTANTIATE_TEST_SUITE_P(Conformance, Landing,
                         ::testing::Combine(::testing::ValuesIn(with_little_memory(nets())),
                                            ::testing::Values(12)),
                         name_of_net);

class SharedLandings : public OverNets {};

// The last of many connections gets nothing: its messages wait for their receive. When the others have
// closed, the next one gets a share again.
TEST_P(SharedLandings, AreSharedByAllConnections) {
  constexpr int kConnections = 40;
  const auto is_over_unreceived = [](Process& self, End& end, Buffer& buffer) {
    std::vector<void*> requests = {send(end, buffer.data(), 100, 1, buffer.memory())};
    const bool over = over_after(self.host(), requests, 500) == 1;
    self.meet();  // now it is received
    for (void* request : requests) finish(self.host(), request);
    self.meet();
    return over;
  };
  const auto take = [](Process& self, End& end) {
    Buffer buffer(end, 100);
    self.meet();
    EXPECT_EQ(finish(self.host(), receive(end, buffer, 1)).at(0), 100);
    EXPECT_TRUE(holds(buffer.data(), 100, 7));
    self.meet();
  };
  run(
      [&](Process& self) {
        for (const int connections : {kConnections, 1}) {
          std::vector<End> ends;
          for (int i = 0; i < connections; ++i) ends.push_back(self.connect());
          Buffer buffer(ends.back(), 100);
          fill(buffer.data(), 100, 7);
          EXPECT_EQ(is_over_unreceived(self, ends.back(), buffer), connections == 1);
        }
      },
      [&](Process& self) {
        for (const int connections : {kConnections, 1}) {
          std::vector<End> ends;
          for (int i = 0; i < connections; ++i) ends.push_back(self.accept());
          take(self, ends.back());
        }
      });
}

INSTANTIATE_TEST_SUITE_P(Conformance, SharedLandings,
                         ::testing::Combine(::testing::Values(with_little_memory(nets()).front()),
                                            ::testing::Values(8)),
                         name_of_net);

}  // namespace
}  // namespace weft::nccl_net_test::landing_test
