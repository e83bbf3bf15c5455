// When things go wrong: wrong arguments, strangers, buffers taken away, processes that die; and what comes
// close to it: handshakes that take their time, many connections at once.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>

#include "two_processes.h"

namespace weft::nccl_net_test {
namespace {

class Failure : public OverNets {};

TEST_P(Failure, NeitherSideOfAHandshakeBlocks) {
  run(
      [](Process& self) {
        char handle[abi::kHandleBytes];
        self.hear(handle, sizeof handle);
        for (int i = 0; i < 50; ++i) {  // nobody accepts yet
          void* sender = &handle;
          ASSERT_EQ(self.host().connect(0, handle, &sender), abi::kSuccess);
          ASSERT_EQ(sender, nullptr);
        }
        self.meet();
        End end(self.host(), End::Side::sender, self.connect_to(handle));
        self.meet();
      },
      [](Process& self) {
        char handle[abi::kHandleBytes] = {};
        void *listener = nullptr, *receiver = &listener;
        ASSERT_EQ(self.host().listen(0, handle, &listener), abi::kSuccess);
        for (int i = 0; i < 50; ++i) {  // nobody connects yet
          ASSERT_EQ(self.host().accept(listener, &receiver), abi::kSuccess);
          ASSERT_EQ(receiver, nullptr);
        }
        self.tell(handle, sizeof handle);
        self.meet();
        End end(self.host(), End::Side::receiver, self.accept_from(listener));
        EXPECT_EQ(self.host().close_listener(listener), abi::kSuccess);
        self.meet();
      });
}

TEST_P(Failure, EndsCloseWithRequestsInFlight) {
  run(
      [](Process& self) {
        for (int round = 0; round < 3; ++round) {
          End end = self.connect();
          {
            Buffer buffer(end, 3 << 20);
            for (int i = 0; i < 8; ++i) send(end, buffer.data(), buffer.size(), i, buffer.memory());
            self.meet();
            if (round == 2) end.close();  // before its memory is deregistered
          }
        }
        self.meet();
      },
      [](Process& self) {
        for (int round = 0; round < 3; ++round) {
          End end = self.accept();
          {
            Buffer buffer(end, 3 << 20);
            for (int i = 0; i < 8; ++i) receive(end, buffer, round == 1 ? i : 50 + i);
            self.meet();
            if (round == 2) end.close();
          }
        }
        self.meet();
      });
}

TEST_P(Failure, ARequestWhoseMemoryIsTakenAwaySaysSo) {
  run(
      [](Process& self) {
        End end = self.connect();
        Buffer buffer(end, 2 << 20);
        void* request = send(end, buffer.data(), buffer.size(), 1, buffer.memory());  // never received
        buffer.deregister();
        abi::Result result = abi::kSuccess;
        EXPECT_TRUE(tested(self.host(), request, nullptr, &result));
        EXPECT_EQ(result, abi::kRemoteError);
        EXPECT_TRUE(has_logged("its memory was deregistered while the request was under way"));
        Buffer other(end, 100);
        fill(other.data(), 100, 5);
        finish(self.host(), send(end, other.data(), 100, 2, other.memory()));
        self.meet();
      },
      [](Process& self) {
        End end = self.accept();
        Buffer first(end, 1000);
        void* request = receive(end, first, 9);  // never sent
        first.deregister();
        abi::Result result = abi::kSuccess;
        EXPECT_TRUE(tested(self.host(), request, nullptr, &result));
        EXPECT_EQ(result, abi::kRemoteError);
        Buffer other(end, 100);
        finish(self.host(), receive(end, other, 2));
        EXPECT_TRUE(holds(other.data(), 100, 5));
        self.meet();
      });
}

// A receiver tells of a few receives, and of the next ones when these have had their messages. Here they
// never have them, and the next ones get theirs all the same. The sends to those that were taken away are
// over without having gone anywhere, whether they had been told of or not.
TEST_P(Failure, ReceivesBehindThoseThatWereTakenAwayGetTheirMessages) {
  constexpr size_t kBytes = 200'000;
  constexpr int kTaken = 6, kLeft = 8;
  const int rounds =
      net().name.starts_with("ofi") ? 2 : 12;  // there each waits for a word that does not come
  run(
      [this, rounds](Process& self) {
        End end = self.connect();
        Buffer buffer(end, kBytes);
        void* const never =
            without_order(net()) ? send(end, buffer.data(), kBytes, 9, buffer.memory()) : nullptr;
        for (int round = 0; round < rounds; ++round) {
          never ? self.meet_polling(never) : self.meet();
          for (int i = 0; i < kTaken + kLeft; ++i) {
            fill(buffer.data(), kBytes, static_cast<uint64_t>(round * 100 + i));
            finish(self.host(), send(end, buffer.data(), kBytes, 1, buffer.memory()));
          }
        }
        self.meet();
      },
      [rounds](Process& self) {
        End end = self.accept();
        Buffer into(end, kLeft * kBytes);
        for (int round = 0; round < rounds; ++round) {
          std::vector<void*> requests;
          {
            Buffer taken(end, kBytes);
            for (int i = 0; i < kTaken; ++i) requests.push_back(receive(end, taken, 1));
            for (size_t i = 0; i < kLeft; ++i)
              requests.push_back(receive(end, {into.data() + i * kBytes}, {kBytes}, {1}, {into.memory()}));
          }
          self.meet();
          for (int i = 0; i < kTaken + kLeft; ++i) {
            abi::Result result = abi::kSuccess;
            EXPECT_TRUE(wait_until([&] {
              return tested(self.host(), requests[static_cast<size_t>(i)], nullptr, &result);
            })) << i
                << " in round " << round;
            EXPECT_EQ(result, i < kTaken ? abi::kRemoteError : abi::kSuccess);
          }
          for (int i = 0; i < kLeft; ++i)
            EXPECT_TRUE(holds(into.data() + static_cast<size_t>(i) * kBytes, kBytes,
                              static_cast<uint64_t>(round * 100 + kTaken + i)))
                << i << " in round " << round;
        }
        self.meet();
      });
}

// What there is to say to a peer that does not listen is tried again at every poll; once, however many there
// were.
TEST_P(Failure, APeerThatDoesNotListenHoldsNobodyUp) {
  run(
      [](Process& self) {
        End end = self.connect();
        Buffer buffer(end, 1 << 20);
        void* request = send(end, buffer.data(), buffer.size(), 1, buffer.memory());
        abi::Result result = abi::kSuccess;
        for (int poll = 0; poll < 100; ++poll) EXPECT_FALSE(tested(self.host(), request, nullptr, &result));
        self.meet();
        EXPECT_TRUE(wait_until([&] { return tested(self.host(), request, nullptr, &result); }));
        EXPECT_EQ(result, abi::kRemoteError);
      },
      [](Process& self) {
        End end = self.accept();
        self.meet();
      });
}

TEST_P(Failure, TheDeathOfAPeerReachesEveryRequest) {
  run(
      [](Process& self) {
        End end = self.connect();
        Buffer buffer(end, 1 << 20);
        finish(self.host(), send(end, buffer.data(), 10, 0, buffer.memory()));
        self.meet();
        _exit(0);
      },
      [](Process& self) {
        End end = self.accept();
        Buffer buffer(end, 1 << 20);
        void* here = receive(end, buffer, 0);
        void* never = receive(end, buffer, 1);
        finish(self.host(), here);
        self.meet();
        abi::Result result = abi::kSuccess;
        EXPECT_TRUE(wait_until([&] { return tested(self.host(), never, nullptr, &result); }));
        EXPECT_EQ(result, abi::kRemoteError);
        EXPECT_TRUE(has_logged("the connection with 127.0.0.1:"));
      });
}

TEST_P(Failure, AMessageThatIsTooLongFailsOnBothSides) {
  run(
      [](Process& self) {
        End end = self.connect();
        Buffer buffer(end, 300'000);
        void* request = send(end, buffer.data(), 300'000, 1, buffer.memory());
        abi::Result result = abi::kSuccess;
        EXPECT_TRUE(wait_until([&] { return tested(self.host(), request, nullptr, &result); }));
        EXPECT_EQ(result, abi::kInvalidUsage);
        EXPECT_TRUE(has_logged("a message of 300000 bytes with tag 1 was sent to a receive of 200000 bytes"));
        finish(self.host(), send(end, buffer.data(), 100, 2, buffer.memory()));
        // The receive is as short as one that no clear is needed for.
        request = send(end, buffer.data(), 300'000, 3, buffer.memory());
        EXPECT_TRUE(wait_until([&] { return tested(self.host(), request, nullptr, &result); }));
        EXPECT_TRUE(has_logged("a message of 300000 bytes with tag 3 was sent to a receive of 60 bytes"));
        self.meet();
      },
      [](Process& self) {
        End end = self.accept();
        Buffer buffer(end, 300'000);
        void* memory = buffer.memory();
        void* request = receive(end, {buffer.data()}, {200'000}, {1}, {memory});
        abi::Result result = abi::kSuccess;
        EXPECT_TRUE(wait_until([&] { return tested(self.host(), request, nullptr, &result); }));
        EXPECT_EQ(result, abi::kInvalidUsage);
        request = receive(end, {buffer.data()}, {50}, {2}, {memory});
        EXPECT_TRUE(wait_until([&] { return tested(self.host(), request, nullptr, &result); }));
        EXPECT_TRUE(has_logged("a message of 100 bytes with tag 2 came for a receive of 50 bytes"));
        request = receive(end, {buffer.data()}, {60}, {3}, {memory});
        EXPECT_TRUE(wait_until([&] { return tested(self.host(), request, nullptr, &result); }));
        EXPECT_TRUE(has_logged("a message of 300000 bytes with tag 3 came for a receive of 60 bytes"));
        EXPECT_TRUE(all_are(buffer.data(), buffer.size(), std::byte{0xee}));
        self.meet();
      });
}

// Whoever waits for a send polls no more when it is over, so that by then its refusal is out. Those that are
// written right after one another share a write, over TCP, and wait for it.
TEST_P(Failure, ARefusalIsOutBeforeItsSendIsOver) {
  constexpr int kGood = 4, kTooLong = 8;  // these are cleared together, when the first of the others is there
  constexpr size_t kBytes = 600'000, kShort = 300'000;
  const auto finish_all = [](Process& self, const std::vector<void*>& requests, abi::Result expected) {
    for (void* request : requests) {
      abi::Result result = abi::kSuccess;
      const bool over = wait_until([&] { return tested(self.host(), request, nullptr, &result); });
      EXPECT_TRUE(over);
      if (!over) return;
      EXPECT_EQ(result, expected);
    }
  };
  run(
      [&](Process& self) {
        End end = self.connect();
        Buffer buffer(end, kBytes);
        const auto start = [&](int count) {
          std::vector<void*> requests;
          for (int i = 0; i < count; ++i)
            requests.push_back(send(end, buffer.data(), kBytes, 1, buffer.memory()));
          return requests;
        };
        self.meet();
        finish_all(self, start(kGood), abi::kSuccess);
        self.meet();
        finish_all(self, start(kTooLong), abi::kInvalidUsage);
        self.meet();
      },
      [&](Process& self) {
        End end = self.accept();
        Buffer buffer(end, kBytes);
        std::vector<void*> good, too_long;
        for (int i = 0; i < kGood; ++i) good.push_back(receive(end, buffer, 1));
        for (int i = 0; i < kTooLong; ++i)
          too_long.push_back(receive(end, {buffer.data()}, {kShort}, {1}, {buffer.memory()}));
        self.meet();
        finish_all(self, good, abi::kSuccess);
        for (int poll = 0; poll < 1000; ++poll) {  // what clears them is on its way
          abi::Result result = abi::kSuccess;
          EXPECT_FALSE(tested(self.host(), too_long.front(), nullptr, &result));
        }
        self.meet();
        finish_all(self, too_long, abi::kInvalidUsage);
        self.meet();
      });
}

TEST_P(Failure, ThreadsHaveConnectionsOfTheirOwn) {
  constexpr int kThreads = 4, kMessages = 60;
  const auto exchange = [](Process& self, bool sends, std::vector<End>& ends) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        End& end = ends[static_cast<size_t>(t)];
        Buffer buffer(end, 200'000);
        for (int i = 0; i < kMessages; ++i) {
          const size_t bytes = mix(t * 1000 + i) % (i % 2 ? 150'000 : 500);
          if (sends) {
            fill(buffer.data(), bytes, t * 1000 + i);
            finish(self.host(), send(end, buffer.data(), bytes, t, buffer.memory()));
          } else {
            EXPECT_EQ(finish(self.host(), receive(end, buffer, t)).at(0), static_cast<int>(bytes));
            EXPECT_TRUE(holds(buffer.data(), bytes, t * 1000 + i)) << "thread " << t << ", message " << i;
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    self.meet();
  };
  run(
      [&](Process& self) {
        std::vector<End> ends;
        for (int t = 0; t < kThreads; ++t) ends.push_back(self.connect());
        exchange(self, true, ends);
      },
      [&](Process& self) {
        std::vector<End> ends;
        for (int t = 0; t < kThreads; ++t) ends.push_back(self.accept());
        exchange(self, false, ends);
      });
}

TEST_P(Failure, AProcessConnectsToItself) {
  run([](Process& self) {
    char handle[abi::kHandleBytes] = {};
    void *listener = nullptr, *sender = nullptr, *receiver = nullptr;
    ASSERT_EQ(self.host().listen(0, handle, &listener), abi::kSuccess);
    ASSERT_TRUE(wait_until([&] {
      abi::Result result = abi::kSuccess;
      if (!sender) result = self.host().connect(0, handle, &sender);
      if (!receiver && result == abi::kSuccess) result = self.host().accept(listener, &receiver);
      EXPECT_EQ(result, abi::kSuccess);
      return sender && receiver;
    }));
    EXPECT_EQ(self.host().close_listener(listener), abi::kSuccess);
    End from(self.host(), End::Side::sender, sender), to(self.host(), End::Side::receiver, receiver);
    Buffer source(from, 500'000), target(to, 500'000);
    for (const size_t bytes : {size_t{12}, source.size()}) {
      fill(source.data(), bytes, bytes);
      void* sent = send(from, source.data(), bytes, 1, source.memory());
      void* received = receive(to, target, 1);
      int left = 2;
      EXPECT_TRUE(wait_until([&] {  // one thread drives both
        abi::Result result = abi::kSuccess;
        if (sent && tested(self.host(), sent, nullptr, &result)) sent = nullptr, --left;
        if (received && tested(self.host(), received, nullptr, &result)) received = nullptr, --left;
        EXPECT_EQ(result, abi::kSuccess);
        return left == 0;
      }));
      EXPECT_TRUE(holds(target.data(), bytes, bytes));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Conformance, Failure,
                         ::testing::Combine(::testing::ValuesIn(nets()), ::testing::Values(8, 12)),
                         name_of_net);

// ---- Bad input

class BadInput : public OverNets {};

TEST_P(BadInput, IsAnsweredByASentence) {
  run([](Process& self) {
    PluginHost& host = self.host();
    char handle[abi::kHandleBytes] = {};
    void *listener = nullptr, *sender = nullptr, *memory = nullptr, *request = nullptr;
    EXPECT_EQ(host.listen(99, handle, &listener), abi::kInvalidArgument);
    EXPECT_TRUE(has_logged("there is no network device 99"));
    EXPECT_EQ(host.listen(-1, handle, &listener), abi::kInvalidArgument);
    EXPECT_EQ(host.has_device(99), abi::kInvalidArgument);
    EXPECT_EQ(host.has_device(host.devices()), abi::kInvalidArgument);
    EXPECT_EQ(host.connect(0, handle, &sender), abi::kInvalidArgument);
    EXPECT_TRUE(has_logged("was not written by this plugin"));

    ASSERT_EQ(host.listen(0, handle, &listener), abi::kSuccess);
    char other[abi::kHandleBytes];
    std::memcpy(other, handle, sizeof other);
    ++other[4];  // the version
    EXPECT_EQ(host.connect(0, other, &sender), abi::kInvalidUsage);
    EXPECT_TRUE(has_logged("is of version 9 of this plugin's protocol, must be 8"));
    std::memcpy(other, handle, sizeof other);
    ++other[60];
    EXPECT_EQ(host.connect(0, other, &sender), abi::kInvalidArgument);
    EXPECT_TRUE(has_logged("its checksum is wrong"));
    std::memcpy(other, handle, sizeof other);
    EXPECT_EQ(host.connect(99, other, &sender), abi::kInvalidArgument);
    EXPECT_EQ(sender, nullptr);
    EXPECT_EQ(host.close_listener(listener), abi::kSuccess);
    abi::Result result = abi::kSuccess;  // nobody listens any more
    EXPECT_TRUE(wait_until([&] {
      result = host.connect(0, other, &sender);
      return result != abi::kSuccess;
    }));
    EXPECT_EQ(result, abi::kRemoteError);
    EXPECT_TRUE(has_logged("connecting to 127.0.0.1:"));

    EXPECT_EQ(host.register_memory(nullptr, handle, 1, abi::kHostMemory, &memory), abi::kInvalidArgument);
    int done = 0;
    EXPECT_EQ(host.test(nullptr, &done, nullptr), abi::kInvalidArgument);
    EXPECT_EQ(host.send(nullptr, handle, 1, 0, nullptr, &request), abi::kInvalidArgument);
  });
}

TEST_P(BadInput, OfVirtualDevicesIsAnsweredByASentence) {
  if (version() < 9) GTEST_SKIP() << "version 8 knows no virtual devices";
  run([](Process& self) {
    PluginHost& host = self.host();
    const int devices = host.devices();
    int made = -1;
    EXPECT_EQ(host.make_virtual_device({0, 99}, 2, &made), abi::kInvalidArgument);
    EXPECT_TRUE(has_logged("there is no network device 99"));
    EXPECT_EQ(host.make_virtual_device({}, 0, &made), abi::kInvalidArgument);
    EXPECT_TRUE(has_logged("a virtual device of 0 devices was asked for, must be 1 to 4"));
    EXPECT_EQ(host.make_virtual_device({0, 0, 0, 0}, 5, &made), abi::kInvalidArgument);
    EXPECT_TRUE(has_logged("a virtual device of 5 devices was asked for, must be 1 to 4"));
    EXPECT_EQ(host.make_virtual_device({0}, -1, &made), abi::kInvalidArgument);
    const int pair = host.make_virtual_device({0, 0});
    EXPECT_EQ(host.make_virtual_device({0, pair}, 2, &made), abi::kInvalidArgument);
    EXPECT_TRUE(has_logged("is virtual already and cannot be part of another"));
    EXPECT_EQ(made, -1);
    EXPECT_EQ(host.devices(), devices + 1);
  });
}

TEST_P(BadInput, OfConnectionsIsAnsweredByASentence) {
  run(
      [](Process& self) {
        PluginHost& host = self.host();
        End end = self.connect();
        Buffer buffer(end, 1000);
        void *memory = nullptr, *request = nullptr;
        EXPECT_EQ(host.register_memory(end.get(), buffer.data(), 10, abi::kCudaMemory, &memory),
                  abi::kInvalidUsage);
        EXPECT_TRUE(has_logged("CUDA memory cannot be registered: this device takes host memory only"));
        EXPECT_EQ(host.send(end.get(), buffer.data(), 10, 0, nullptr, &request), abi::kInvalidArgument);
        EXPECT_TRUE(has_logged("are not registered with this connection"));
        EXPECT_EQ(host.send(end.get(), buffer.data() + 995, 10, 0, buffer.memory(), &request),
                  abi::kInvalidArgument);
        EXPECT_TRUE(has_logged("lie outside of the memory registered for them"));
        EXPECT_EQ(host.send(end.get(), buffer.data(), (size_t{1} << 30) + 1, 0, buffer.memory(), &request),
                  abi::kInvalidArgument);
        EXPECT_EQ(host.deregister(end.get(), &host), abi::kInvalidArgument);
        EXPECT_TRUE(has_logged("memory is deregistered that was not registered"));
        self.meet();
      },
      [](Process& self) {
        End end = self.accept();
        Buffer buffer(end, 1000);
        std::vector<void*> data(9, buffer.data()), memory(9, buffer.memory());
        std::vector<size_t> bytes(9, 10);
        std::vector<int> tags(9, 0);
        void* request = nullptr;
        EXPECT_EQ(self.host().receive(end.get(), 9, data.data(), bytes.data(), tags.data(), memory.data(),
                                      &request),
                  abi::kInvalidArgument);
        EXPECT_TRUE(has_logged("9 receives in a group, must be 1 to 8"));
        self.meet();
      });
}

TEST_P(BadInput, StrangersAreSentAwayAndHoldUpNobody) {
  run(
      [](Process& self) {
        End end = self.connect();
        self.meet();
      },
      [](Process& self) {
        char handle[abi::kHandleBytes] = {};
        void* listener = nullptr;
        ASSERT_EQ(self.host().listen(0, handle, &listener), abi::kSuccess);
        uint16_t port = 0;
        std::memcpy(&port, handle + 8, sizeof port);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        address.sin_port = htons(port);
        int strangers[2];
        for (int& stranger : strangers) {  // one says nothing, one talks garbage
          stranger = ::socket(AF_INET, SOCK_STREAM, 0);
          ASSERT_EQ(::connect(stranger, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
        }
        const std::string garbage(2000, 'x');
        EXPECT_EQ(::send(strangers[1], garbage.data(), garbage.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(garbage.size()));
        self.tell(handle, sizeof handle);
        End end(self.host(), End::Side::receiver, self.accept_from(listener));
        char byte;
        EXPECT_LE(::recv(strangers[1], &byte, 1, 0), 0);  // sent away
        EXPECT_EQ(self.host().close_listener(listener), abi::kSuccess);
        for (const int stranger : strangers) ::close(stranger);
        self.meet();
      });
}

/// NCCL would ask for the connection for ever, and log nothing.
TEST_P(BadInput, NoDescriptorForAConnectionIsAnError) {
  run(
      [](Process& self) {
        char handle[abi::kHandleBytes];
        self.hear(handle, sizeof handle);
        void* sender = nullptr;
        abi::Result result = abi::kSuccess;
        EXPECT_TRUE(wait_until([&] {
          result = self.host().connect(0, handle, &sender);
          return result != abi::kSuccess;
        })) << "the other side has closed its listener";
        EXPECT_EQ(result, abi::kRemoteError);
      },
      [](Process& self) {
        char handle[abi::kHandleBytes] = {};
        void *listener = nullptr, *receiver = nullptr;
        ASSERT_EQ(self.host().listen(0, handle, &listener), abi::kSuccess);
        // For the end: a sanitizer looks at objects through a pipe.
        const int spares[] = {::dup(STDIN_FILENO), ::dup(STDIN_FILENO)};
        const int free = ::dup(STDIN_FILENO);
        ASSERT_GE(free, 0);
        ::close(free);
        const rlimit limit{static_cast<rlim_t>(free), static_cast<rlim_t>(free)};
        ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
        self.tell(handle, sizeof handle);
        abi::Result result = abi::kSuccess;
        EXPECT_TRUE(wait_until(
            [&] {
              result = self.host().accept(listener, &receiver);
              return result != abi::kSuccess;
            },
            5));
        EXPECT_EQ(result, abi::kSystemError);
        EXPECT_TRUE(has_logged("accepting a connection: Too many open files"));
        for (const int spare : spares) ::close(spare);
        EXPECT_EQ(self.host().close_listener(listener), abi::kSuccess);
      });
}

INSTANTIATE_TEST_SUITE_P(Conformance, BadInput,
                         ::testing::Combine(::testing::ValuesIn(real_nets()), ::testing::Values(8, 12)),
                         name_of_net);

// In a process of its own: settings are read once.
TEST(BadSetting, MakesInitFailWithASentence) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    setenv("WEFT_NET", "ofi", 1);
    setenv("WEFT_PROVIDER", "nonesuch", 1);
    abi::Result result = abi::kSuccess;
    const bool refused = PluginHost::refuses(library_under_test(), &result);
    const bool said = has_logged("libfabric has no provider 'nonesuch' here that Weft can use; it offers ");
    _exit(refused && said && result == abi::kInvalidUsage ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace weft::nccl_net_test
