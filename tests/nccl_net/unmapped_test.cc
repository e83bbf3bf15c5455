// Memory that is unmapped while the plugin still has it: before a message leaves it, is put into it, or is
// copied into it from where it had to wait. The process goes on, and both sides are told.
#include "two_processes.h"
#include "unmapped_memory.h"

namespace weft::nccl_net_test::unmapped_test {
namespace {

class Unmapped : public OverNets {};

/// Pages that are registered with a connection, and that may go away before the registration does.
class Pages {
 public:
  Pages(End& end, size_t bytes) : end_(end), pages_(bytes) {
    std::memset(data(), 0xee, bytes);
    EXPECT_EQ(end.host().register_memory(end.get(), data(), bytes, abi::kHostMemory, &memory_),
              abi::kSuccess);
  }
  ~Pages() {
    if (end_.get()) {
      EXPECT_EQ(end_.host().deregister(end_.get(), memory_), abi::kSuccess);
    }
  }

  void* data() const { return pages_.data(); }
  void* memory() const { return memory_; }
  void unmap() { pages_.unmap(); }

 private:
  End& end_;
  weft::testing::TakenAway pages_;
  void* memory_ = nullptr;
};

/// Waits for the end of a request; how it ended.
abi::Result end_of(PluginHost& host, void* request) {
  abi::Result result = abi::kSuccess;
  EXPECT_TRUE(wait_until([&] { return tested(host, request, nullptr, &result); })) << "a request never ends";
  return result;
}

/// Of the side whose mistake it is. NCCL then closes the connection, by which the other side hears of it.
void says_so(PluginHost& host, void* request) {
  EXPECT_EQ(end_of(host, request), abi::kInvalidUsage);
  EXPECT_TRUE(has_logged("a buffer was freed or unmapped while "))
      << (logged().empty() ? "" : logged().back());
}

constexpr size_t kLong = 4 << 20;  // goes by reference, once it has been cleared
constexpr size_t kShort = 12'000;  // is sent blind, and copied from a landing

// What libfabric is given by reference is its own to touch: its TCP provider reads by the kernel, which says
// no; and copies what comes, as its shared memory does, which ends the process, or never tells how a write
// ended.
TEST_P(Unmapped, ALongSendSaysSoOnBothSides) {
  if (net().name == "ofi_shm") GTEST_SKIP() << "libfabric does not tell of it";
  const bool by_libfabric = net().name != "tcp";
  run(
      [by_libfabric](Process& self) {
        End end = self.connect();
        Pages pages(end, kLong);
        void* request = send(end, pages.data(), kLong, 1, pages.memory());
        pages.unmap();
        self.meet();
        if (by_libfabric) {
          EXPECT_EQ(end_of(self.host(), request), abi::kRemoteError);
          EXPECT_TRUE(has_logged("Bad address"));
        } else {
          says_so(self.host(), request);
        }
        end.close();
        self.meet();
      },
      [](Process& self) {
        End end = self.accept();
        self.meet();
        Buffer buffer(end, kLong);
        EXPECT_NE(end_of(self.host(), receive(end, buffer, 1)), abi::kSuccess);
        self.meet();
      });
}

TEST_P(Unmapped, ALongReceiveSaysSo) {
  if (net().name == "ofi_shm") GTEST_SKIP() << "libfabric does not tell of it";
  run(
      [](Process& self) {
        End end = self.connect();
        Buffer buffer(end, kLong);
        self.meet();
        end_of(self.host(), send(end, buffer.data(), kLong, 1, buffer.memory()));  // may have left
        self.meet();
      },
      [](Process& self) {
        End end = self.accept();
        Pages pages(end, kLong);
        void* request = receive(end, {pages.data()}, {kLong}, {1}, {pages.memory()});
        pages.unmap();
        self.meet();
        says_so(self.host(), request);
        end.close();
        self.meet();
      });
}

TEST_P(Unmapped, AReceiveOfWhatHasComeBeforeSaysSo) {
  run(
      [](Process& self) {
        End end = self.connect();
        Buffer buffer(end, kShort);
        void* early = send(end, buffer.data(), kShort, 1, buffer.memory());
        finish(self.host(), send(end, buffer.data(), 8, 2, buffer.memory()));
        self.meet();
        end_of(self.host(), early);
        self.meet();
      },
      [](Process& self) {
        End end = self.accept();
        Buffer other(end, 8);
        finish(self.host(), receive(end, other, 2));
        self.meet();
        Pages pages(end, kShort);
        pages.unmap();
        void* request = receive(end, {pages.data()}, {kShort}, {1}, {pages.memory()});
        says_so(self.host(), request);
        end.close();
        self.meet();
      });
}

TEST_P(Unmapped, AShortReceiveThatIsPostedSaysSo) {
  run(
      [](Process& self) {
        End end = self.connect();
        Buffer buffer(end, kShort);
        self.meet();
        end_of(self.host(), send(end, buffer.data(), kShort, 1, buffer.memory()));
        self.meet();
      },
      [](Process& self) {
        End end = self.accept();
        Pages pages(end, kShort);
        void* request = receive(end, {pages.data()}, {kShort}, {1}, {pages.memory()});
        pages.unmap();
        self.meet();
        says_so(self.host(), request);
        end.close();
        self.meet();
      });
}

// More than may be ahead of its receives: the last ones leave when the first have been received.
TEST_P(Unmapped, AShortSendThatHadToWaitSaysSo) {
  static constexpr int kMessages = 16;
  run(
      [](Process& self) {
        End end = self.connect();
        Pages pages(end, kShort);
        std::vector<void*> requests;
        for (int i = 0; i < kMessages; ++i)
          requests.push_back(send(end, pages.data(), kShort, 1, pages.memory()));
        pages.unmap();
        self.meet();
        says_so(self.host(), requests.back());
        end.close();
        self.meet();
      },
      [](Process& self) {
        End end = self.accept();
        Buffer buffer(end, kShort);
        void* never = receive(end, buffer, 9);  // to poll with: libfabric's providers want both sides to
        abi::Result last = abi::kSuccess;
        EXPECT_TRUE(
            wait_until([&] { return tested(self.host(), never, nullptr, &last) || self.has_been_told(); }));
        self.meet();
        for (int i = 0; i < kMessages && last == abi::kSuccess; ++i)
          last = end_of(self.host(), receive(end, buffer, 1));
        EXPECT_NE(last, abi::kSuccess);
        self.meet();
      });
}

// What a CPU copies at once, without a system call.
constexpr size_t kShortest[] = {8, 1000, 4096};

TEST_P(Unmapped, AVeryShortSendSaysSo) {
  run(
      [](Process& self) {
        for (const size_t bytes : kShortest) {
          End end = self.connect();
          Pages pages(end, bytes);
          void* first = send(end, pages.data(), bytes, 1, pages.memory());
          pages.unmap();
          says_so(self.host(), send(end, pages.data(), bytes, 1, pages.memory()));
          (void)end_of(self.host(), first);
          end.close();
          self.meet();
        }
      },
      [](Process& self) {
        for (const size_t bytes : kShortest) {
          End end = self.accept();
          Buffer buffer(end, bytes);
          (void)end_of(self.host(), receive(end, buffer, 1));
          EXPECT_NE(end_of(self.host(), receive(end, buffer, 1)), abi::kSuccess) << "nothing was sent";
          self.meet();
        }
      });
}

TEST_P(Unmapped, AVeryShortReceiveSaysSo) {
  run(
      [](Process& self) {
        for (const size_t bytes : kShortest) {
          End end = self.connect();
          Buffer buffer(end, bytes);
          self.meet();
          (void)end_of(self.host(), send(end, buffer.data(), bytes, 1, buffer.memory()));
          self.meet();
        }
      },
      [](Process& self) {
        for (const size_t bytes : kShortest) {
          End end = self.accept();
          Pages pages(end, bytes);
          void* request = receive(end, {pages.data()}, {bytes}, {1}, {pages.memory()});
          pages.unmap();
          self.meet();
          says_so(self.host(), request);
          end.close();
          self.meet();
        }
      });
}

TEST_P(Unmapped, AReceiveOfWhatIsVeryShortAndHasComeBeforeSaysSo) {
  run(
      [](Process& self) {
        for (const size_t bytes : kShortest) {
          End end = self.connect();
          Buffer buffer(end, bytes);
          void* early = send(end, buffer.data(), bytes, 1, buffer.memory());
          finish(self.host(), send(end, buffer.data(), 8, 2, buffer.memory()));
          self.meet();
          (void)end_of(self.host(), early);
          self.meet();
        }
      },
      [](Process& self) {
        for (const size_t bytes : kShortest) {
          End end = self.accept();
          Buffer other(end, 8);
          finish(self.host(), receive(end, other, 2));
          self.meet();
          Pages pages(end, bytes);
          pages.unmap();
          says_so(self.host(), receive(end, {pages.data()}, {bytes}, {1}, {pages.memory()}));
          end.close();
          self.meet();
        }
      });
}

TEST_P(Unmapped, AnotherConnectionWithTheSamePeerGoesOn) {
  static constexpr size_t kBytes = 1000;
  run(
      [](Process& self) {
        End end = self.connect(), other = self.connect();
        Buffer sound(end, kBytes);
        Pages pages(end, kBytes);
        void* first = send(end, sound.data(), kBytes, 1, sound.memory());
        pages.unmap();
        says_so(self.host(), send(end, pages.data(), kBytes, 1, pages.memory()));
        (void)end_of(self.host(), first);
        end.close();
        Buffer buffer(other, kBytes);
        for (int i = 0; i < 3; ++i)
          finish(self.host(), send(other, buffer.data(), kBytes, 1, buffer.memory()));
        self.meet();
      },
      [](Process& self) {
        End end = self.accept(), other = self.accept();
        Buffer buffer(other, kBytes);
        for (int i = 0; i < 3; ++i) finish(self.host(), receive(other, buffer, 1));
        self.meet();
      });
}

std::vector<Net> with_little_memory() {
  std::vector<Net> nets = real_nets();
  for (Net& net : nets) net.environment.emplace_back("WEFT_EARLY_BYTES", "1M");
  return nets;
}

INSTANTIATE_TEST_SUITE_P(Conformance, Unmapped,
                         ::testing::Combine(::testing::ValuesIn(with_little_memory()),
                                            ::testing::Values(8, 12)),
                         name_of_net);

}  // namespace
}  // namespace weft::nccl_net_test::unmapped_test
