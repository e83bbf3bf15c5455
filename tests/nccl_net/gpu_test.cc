// GPU memory: what the properties say of it, that it travels untouched by a CPU, what came before anybody
// knew that it was for a GPU, registrations that come and go, and flushes. The device is the fake driver's
// (cuda/fake_driver), whose memory faults when a CPU touches it; the network is a provider of libfabric that
// claims to reach it (cuda/fake_network) and refuses what is not registered. Gpu's tests run with a real
// driver and the network that there is, too (gpu.plugin); then nothing counts the driver's calls.
#include "gpu_memory.h"

namespace weft::nccl_net_test::gpu_test {
namespace {

// ---- What is reached

struct Offer {
  const char* name;
  std::vector<std::pair<std::string, std::string>> environment;
  int memory;
  const char* why_not;
};
void PrintTo(const Offer& offer, std::ostream* out) { *out << offer.name; }

class GpuOffer : public ::testing::TestWithParam<Offer> {};

TEST_P(GpuOffer, IsWhatThePropertiesAndRegistrationsSay) {
  const Offer& offer = GetParam();
  const bool reached = offer.memory & abi::kCudaMemory;
  const auto both = [&](Process& self, End end) {
    const abi::PropertiesV12 properties = self.host().properties(0);
    EXPECT_EQ(properties.memory, offer.memory);
    EXPECT_EQ(properties.force_flush, reached ? 1 : 0) << "the fake device orders nothing";
    EXPECT_EQ(properties.registrations_are_global, reached ? 1 : 0);
    EXPECT_TRUE(has_logged(reached ? "GPU memory as well as host memory (GPUDirect)" : offer.why_not));
    const testing::DeviceArray<std::byte> memory(1000);
    void* registered = nullptr;
    EXPECT_EQ(self.host().register_memory(end.get(), memory.data(), 1000, abi::kCudaMemory, &registered),
              reached ? abi::kSuccess : abi::kInvalidUsage);
    if (reached) {
      EXPECT_EQ(self.host().deregister(end.get(), registered), abi::kSuccess);
    } else {
      EXPECT_TRUE(has_logged("this device takes host memory only, as its properties say"));
    }
    self.meet();
  };
  run_two(
      12, with("offer", offer.environment), [&](Process& self) { both(self, self.connect()); },
      [&](Process& self) { both(self, self.accept()); });
}

INSTANTIATE_TEST_SUITE_P(
    Conformance, GpuOffer,
    ::testing::Values(
        Offer{"all_there", {}, abi::kHostMemory | abi::kCudaMemory, ""},
        Offer{"sockets", {{"WEFT_NET", "tcp"}}, abi::kHostMemory, "sockets move host memory only"},
        Offer{"turned_off", {{"WEFT_GPU_DIRECT", "off"}}, abi::kHostMemory, "WEFT_GPU_DIRECT is off"},
        Offer{
            "no_order", {{"FAKE_CUDA_FLUSH", "0"}}, abi::kHostMemory, "does not order a network interface's"},
        Offer{"no_offer",
              {{"FAKE_GPU_NETWORK", ""}},
              abi::kHostMemory,
              "offers no remote writes of GPU memory"},
        Offer{"no_registration",
              {{"FAKE_GPU_NETWORK", "0"}},
              abi::kHostMemory,
              "cannot register 65536 bytes of GPU memory"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(GpuOfferWanted, InVainMakesInitFailWithASentence) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    for (const auto& [name, value] : with("on", {{"WEFT_GPU_DIRECT", "on"}, {"WEFT_NET", "tcp"}}).environment)
      setenv(name.c_str(), value.c_str(), 1);
    abi::Result result = abi::kSuccess;
    const bool refused = PluginHost::refuses(WEFT_NCCL_NET_MUTANT, &result);
    const bool said =
        has_logged("WEFT_GPU_DIRECT is on, but device lo cannot have GPUDirect: sockets move host");
    _exit(refused && said && result == abi::kInvalidUsage ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// ---- What arrives

class Gpu : public OverNets {};

// The first is long, and waits for its receive: by then both ends know that there is GPU memory.
const size_t kSizes[] = {200'000, 0, 1, 7, 1000, 8128, 16'320, 65'536, (3 << 20) + 3};

template <typename Source>
void send_every_size(Process& self) {
  End end = self.connect();
  uint64_t seed = 0;
  for (const size_t bytes : kSizes) {
    Source buffer(end, bytes);
    buffer.fill(bytes, ++seed);
    if (seed % 2) self.meet();  // sent after its receive, or before
    void* request = send(end, buffer.data(), bytes, 5, buffer.memory());
    if (seed % 2 == 0) self.meet();
    EXPECT_EQ(finish(self.host(), request).at(0), static_cast<int>(bytes));
  }
  self.meet();
}

template <typename Target>
void receive_every_size(Process& self) {
  End end = self.accept();
  ASSERT_TRUE(testing::cuda::driver().ok());
  const testing::FakeControls driver;
  const auto calls = [&](const char* function) { return driver.valid() ? driver.calls(function) : 0; };
  if (Target::kOnGpu) {
    EXPECT_EQ(self.host().properties(0).memory & abi::kCudaMemory, abi::kCudaMemory);
  }
  uint64_t seed = 0;
  for (const size_t bytes : kSizes) {
    Target buffer(end, bytes + 1000);
    ++seed;
    const uint64_t copies = calls("cuMemcpyAsync");
    void* request = nullptr;
    if (seed % 2 == 0) self.meet();
    request = receive(end, {buffer.data()}, {bytes + 1000}, {5}, {buffer.memory()});
    if (seed % 2) self.meet();
    EXPECT_EQ(finish(self.host(), request).at(0), static_cast<int>(bytes));
    const uint64_t flushes = calls("cuFlushGPUDirectRDMAWrites");
    flush(end, {buffer.data()}, {static_cast<int>(bytes)}, {buffer.memory()});
    const uint64_t due = driver.valid() && Target::kOnGpu && bytes > 0 ? 1 : 0;
    EXPECT_EQ(calls("cuFlushGPUDirectRDMAWrites") - flushes, due);
    EXPECT_EQ(calls("cuMemcpyAsync"), copies) << bytes << " B were copied, not put in place";
    EXPECT_TRUE(buffer.holds(bytes, seed)) << bytes << " B are not what was sent";
  }
  self.meet();
}

TEST_P(Gpu, EverySizeArrivesFromGpuToGpu) { run(send_every_size<OnGpu>, receive_every_size<OnGpu>); }
TEST_P(Gpu, EverySizeArrivesFromGpuToHost) { run(send_every_size<OnGpu>, receive_every_size<OnHost>); }
TEST_P(Gpu, EverySizeArrivesFromHostToGpu) { run(send_every_size<OnHost>, receive_every_size<OnGpu>); }

INSTANTIATE_TEST_SUITE_P(Conformance, Gpu,
                         ::testing::Combine(::testing::Values(gpu_net()), ::testing::ValuesIn(kVersions)),
                         name_of_net);

class GpuTransfer : public OverNets {};

size_t size_of(uint64_t i) { return mix(i) % 3 == 0 ? 70'000 + mix(i) % 100'000 : mix(i) % 3000; }

TEST_P(GpuTransfer, MessagesOfOneTagStayInOrder) {
  constexpr int kMessages = 120, kAtOnce = 12;
  constexpr size_t kRoom = 200'000;
  run(
      [](Process& self) {
        End end = self.connect();
        OnGpu buffer(end, kAtOnce * kRoom);
        std::vector<void*> requests;
        for (int i = 0; i < kMessages; ++i) {
          const size_t at = static_cast<size_t>(i % kAtOnce) * kRoom;
          if (i >= kAtOnce) finish(self.host(), requests[static_cast<size_t>(i - kAtOnce)]);
          buffer.fill(size_of(i), i, at);
          requests.push_back(send(end, buffer.data() + at, size_of(i), -7, buffer.memory()));
        }
        for (int i = kMessages - kAtOnce; i < kMessages; ++i) finish(self.host(), requests[i]);
        self.meet();
      },
      [](Process& self) {
        End end = self.accept();
        OnGpu buffer(end, kAtOnce * kRoom);
        for (int first = 0; first < kMessages; first += kAtOnce) {
          std::vector<void*> requests;
          for (int i = 0; i < kAtOnce; ++i)
            requests.push_back(receive(end, {buffer.data() + i * kRoom}, {kRoom}, {-7}, {buffer.memory()}));
          for (int i = kAtOnce - 1; i >= 0; --i) {  // tested from the last to the first
            const std::vector<int> bytes = finish(self.host(), requests[i]);
            ASSERT_EQ(bytes.at(0), static_cast<int>(size_of(first + i))) << "message " << first + i;
            ASSERT_TRUE(buffer.starts_with(size_of(first + i), first + i, i * kRoom));
          }
        }
        self.meet();
      });
}

// Of host memory, and of both devices.
TEST_P(GpuTransfer, GroupsMixHostMemoryAndDevices) {
  static constexpr int kRounds = 12, kGroup = 6;
  static constexpr size_t kRoom = 160'000;
  const auto size = [](int round, int i) {
    const size_t sizes[] = {0, 500, 9000, 66'000, 150'000, 3, 77'777};
    return sizes[(round + i) % 7];
  };
  run(
      [&](Process& self) {
        End end = self.connect();
        OnHost host(end, kGroup * kRoom);
        OnGpu first(end, kGroup * kRoom, 0), second(end, kGroup * kRoom, 1);
        Place* const places[] = {&host, &first, &second};
        for (int round = 0; round < kRounds; ++round) {
          std::vector<void*> requests;
          for (int i = kGroup - 1; i >= 0; --i) {
            Place& from = *places[(round + i / 2) % 3];
            from.fill(size(round, i), round * 8 + i, i * kRoom);
            requests.push_back(send(end, from.data() + i * kRoom, size(round, i), 100 + i, from.memory()));
          }
          for (void* request : requests) finish(self.host(), request);
        }
        self.meet();
      },
      [&](Process& self) {
        End end = self.accept();
        const testing::FakeControls driver;
        OnHost host(end, kGroup * kRoom);
        OnGpu first(end, kGroup * kRoom, 0), second(end, kGroup * kRoom, 1);
        Place* const places[] = {&host, &first, &second};
        for (int round = 0; round < kRounds; ++round) {
          std::vector<void*> data, memory;
          std::vector<int> tags;
          for (int i = 0; i < kGroup; ++i) {
            Place& to = *places[(round + i) % 3];
            data.push_back(to.data() + i * kRoom), memory.push_back(to.memory()), tags.push_back(100 + i);
          }
          void* request = receive(end, data, std::vector<size_t>(kGroup, kRoom), tags, memory);
          std::vector<int> sizes = finish(self.host(), request);
          ASSERT_EQ(sizes.size(), 8u);
          sizes.resize(kGroup);
          const uint64_t flushes = driver.calls("cuFlushGPUDirectRDMAWrites");
          flush(end, data, sizes, memory);
          EXPECT_EQ(driver.calls("cuFlushGPUDirectRDMAWrites") - flushes, 2u) << "one for each device";
          for (int i = 0; i < kGroup; ++i) {
            EXPECT_EQ(sizes[i], static_cast<int>(size(round, i))) << "part " << i;
            EXPECT_TRUE(places[(round + i) % 3]->starts_with(size(round, i), round * 8 + i, i * kRoom))
                << "part " << i << " of round " << round;
          }
        }
        self.meet();
      });
}

// Short messages from host memory leave at once; here they are there before their receives are, and some are
// in landings, before any GPU memory is.
TEST_P(GpuTransfer, WhatCameBeforeItWasKnownToBeForAGpuIsCopiedThere) {
  constexpr int kMessages = 20;
  run(
      [](Process& self) {
        End end = self.connect();
        OnHost buffer(end, 5000);
        buffer.fill(5000, 3);
        finish(self.host(), send(end, buffer.data(), 10, 7, buffer.memory()));  // the network connects
        for (int round = 0; round < 2; ++round) {
          std::vector<void*> requests;
          for (int i = 0; i < kMessages; ++i)
            requests.push_back(send(end, buffer.data(), 100 + i, i % 2, buffer.memory()));
          if (round == 0)
            for (void* request : requests) finish(self.host(), request);
          self.meet();
          if (round == 1)
            for (void* request : requests) finish(self.host(), request);
        }
        self.meet();
      },
      [](Process& self) {
        End end = self.accept();
        OnHost other(end, 5000);
        finish(self.host(), receive(end, {other.data()}, {5000}, {7}, {other.memory()}));
        self.meet();
        // Takes one in, and with it what else has come.
        EXPECT_EQ(finish(self.host(), receive(end, {other.data()}, {5000}, {1}, {other.memory()})).at(0),
                  101);
        OnGpu buffer(end, 5000);
        const testing::FakeControls driver;
        for (int round = 0; round < 2; ++round) {
          for (int i = 0; i < kMessages; ++i) {
            if (round == 0 && i == 1) continue;
            const uint64_t copies = driver.calls("cuMemcpyAsync");
            EXPECT_EQ(
                finish(self.host(), receive(end, {buffer.data()}, {5000}, {i % 2}, {buffer.memory()})).at(0),
                100 + i);
            EXPECT_TRUE(round > 0 || driver.calls("cuMemcpyAsync") == copies + 1);
            EXPECT_TRUE(buffer.starts_with(100 + i, 3)) << "message " << i;
          }
          if (round == 0) self.meet();
        }
        self.meet();
      });
}

TEST_P(GpuTransfer, TwoRailsShareGpuMemory) {
  constexpr size_t kBytes = (5 << 20) + 5;
  constexpr int kMessages = 3;
  const auto use_two_rails = [](Process& self) {
    const int device = self.host().make_virtual_device({0, 0});
    EXPECT_EQ(self.host().properties(device).memory, abi::kHostMemory | abi::kCudaMemory);
    self.use_device(device);
  };
  run(
      [&](Process& self) {
        use_two_rails(self);
        End end = self.connect();
        OnGpu buffer(end, kBytes);
        for (int i = 0; i < kMessages; ++i) {
          buffer.fill(kBytes, i);
          finish(self.host(), send(end, buffer.data(), kBytes, 0, buffer.memory()));
        }
        self.meet();
        EXPECT_EQ(busy_sockets(kMessages * kBytes), 2) << "rails that carried a part of it";
      },
      [&](Process& self) {
        use_two_rails(self);
        End end = self.accept();
        OnGpu buffer(end, kBytes);
        for (int i = 0; i < kMessages; ++i) {
          EXPECT_EQ(
              finish(self.host(), receive(end, {buffer.data()}, {kBytes}, {0}, {buffer.memory()})).at(0),
              static_cast<int>(kBytes));
          EXPECT_TRUE(buffer.holds(kBytes, i));
        }
        self.meet();
      });
}

INSTANTIATE_TEST_SUITE_P(Conformance, GpuTransfer,
                         ::testing::Combine(::testing::Values(gpu_net(), unordered_gpu_net()),
                                            ::testing::Values(12)),
                         name_of_net);

// Puts need keys, and no agreement: a sender without GPUDirect reaches a receiver's GPU, and a GPU's sender a
// receiver's host.
TEST(GpuTransferAlone, OneSideIsEnough) {
  const Net without = with("without", {{"WEFT_GPU_DIRECT", "off"}});
  const Net gpu = gpu_net();
  run_two(12, without, send_every_size<OnHost>, receive_every_size<OnGpu>, 100, &gpu);
  run_two(
      12, gpu, send_every_size<OnGpu>, [](Process& self) { receive_every_size<OnHost>(self); }, 100,
      &without);
}

// ---- Registrations, and requests that lose theirs

class GpuMemory : public OverNets {};

abi::Result outcome_of(Process& self, void* request) {
  abi::Result result = abi::kSuccess;
  EXPECT_TRUE(wait_until([&] { return tested(self.host(), request, nullptr, &result); }));
  return result;
}

TEST_P(GpuMemory, IsDeregisteredInAnyOrderAndWithRequestsInFlight) {
  run(
      [](Process& self) {
        End end = self.connect();
        {
          OnGpu whole(end, 2 << 20);
          void* part = nullptr;  // of the same memory
          EXPECT_EQ(
              self.host().register_memory(end.get(), whole.data() + 4096, 8192, abi::kCudaMemory, &part),
              abi::kSuccess);
          void* request = send(end, whole.data(), whole.size(), 1, whole.memory());  // never received
          whole.deregister();
          EXPECT_EQ(outcome_of(self, request), abi::kRemoteError);
          EXPECT_TRUE(has_logged("its memory was deregistered while the request was under way"));
          whole.fill(8192, 6, 4096);
          finish(self.host(), send(end, whole.data() + 4096, 8192, 2, part));
          EXPECT_EQ(self.host().deregister(end.get(), part), abi::kSuccess);
        }
        OnGpu fresh(end, 2 << 20);  // perhaps where the first was
        fresh.fill(2 << 20, 7);
        finish(self.host(), send(end, fresh.data(), 2 << 20, 3, fresh.memory()));
        self.meet();
      },
      [](Process& self) {
        End end = self.accept();
        OnGpu first(end, 1000), second(end, 2 << 20);
        void* never = receive(end, {first.data()}, {1000}, {9}, {first.memory()});
        first.deregister();
        EXPECT_EQ(outcome_of(self, never), abi::kRemoteError);
        finish(self.host(), receive(end, {second.data()}, {8192}, {2}, {second.memory()}));
        EXPECT_TRUE(second.starts_with(8192, 6));
        finish(self.host(), receive(end, {second.data()}, {second.size()}, {3}, {second.memory()}));
        EXPECT_TRUE(second.holds(second.size(), 7));
        self.meet();
      });
}

TEST_P(GpuMemory, GoesWithItsConnection) {
  run(
      [](Process& self) {
        End end = self.connect();
        OnGpu buffer(end, 3 << 20);
        for (int i = 0; i < 8; ++i) send(end, buffer.data(), buffer.size(), i, buffer.memory());
        self.meet();
        end.close();
        buffer.free();
        self.meet();
      },
      [](Process& self) {
        End end = self.accept();
        OnGpu buffer(end, 3 << 20);
        for (int i = 0; i < 8; ++i)
          receive(end, {buffer.data()}, {buffer.size()}, {i < 4 ? i : 50 + i}, {buffer.memory()});
        self.meet();
        end.close();
        buffer.free();
        self.meet();
      });
}

TEST_P(GpuMemory, OfTheWrongKindIsAnsweredByASentence) {
  run(
      [](Process& self) {
        End end = self.connect();
        PluginHost& host = self.host();
        OnGpu gpu(end, 1000);
        OnHost other(end, 1000);
        void *memory = nullptr, *request = nullptr;
        EXPECT_EQ(host.register_memory(end.get(), other.data(), 10, abi::kCudaMemory, &memory),
                  abi::kInvalidArgument);
        EXPECT_TRUE(has_logged("is no memory of a CUDA device, or was freed"));
        EXPECT_EQ(host.register_memory(end.get(), gpu.data(), 10, abi::kHostMemory, &memory),
                  abi::kInvalidArgument);
        EXPECT_TRUE(has_logged("is memory of CUDA device 0, but is being registered as host memory"));
        EXPECT_EQ(host.register_memory(end.get(), gpu.data(), 10, 64, &memory), abi::kInvalidUsage);
        EXPECT_TRUE(
            has_logged("memory of type 64 cannot be registered, only host memory (1) and CUDA's (2)"));
        EXPECT_EQ(host.send(end.get(), gpu.data() + 995, 10, 0, gpu.memory(), &request),
                  abi::kInvalidArgument);
        EXPECT_TRUE(has_logged("lie outside of the memory registered for them"));
        // A dma-buf is taken where the properties say so, which needs a younger libfabric.
        const bool takes = self.host().properties(0).memory & abi::kDmaBuf;
        const abi::Result taken =
            host.register_dma_buf(end.get(), gpu.data(), 1000, abi::kCudaMemory, 0, -1, &memory);
        EXPECT_EQ(taken, abi::kInvalidUsage);
        EXPECT_TRUE(
            has_logged(takes ? "as a dma-buf: " : "a dma-buf cannot be registered: this device takes none"));
        EXPECT_EQ(host.register_dma_buf(end.get(), other.data(), 10, abi::kHostMemory, 0, -1, &memory),
                  abi::kInvalidUsage);
        EXPECT_TRUE(has_logged("memory of type 1 cannot be registered by a dma-buf, only CUDA's (2)"));
        self.meet();
      },
      [](Process& self) {
        End end = self.accept();
        OnGpu gpu(end, 1000);
        void *data = gpu.data(), *nobodys = &self, *request = &self;
        int bytes = 10;
        EXPECT_EQ(self.host().flush(end.get(), 1, &data, &bytes, &nobodys, &request), abi::kInvalidArgument);
        EXPECT_TRUE(has_logged("are not registered with this connection"));
        EXPECT_EQ(self.host().flush(nullptr, 1, &data, &bytes, &nobodys, &request), abi::kInvalidArgument);
        self.meet();
      });
}

INSTANTIATE_TEST_SUITE_P(Conformance, GpuMemory,
                         ::testing::Combine(::testing::Values(gpu_net()), ::testing::Values(12)),
                         name_of_net);

}  // namespace
}  // namespace weft::nccl_net_test::gpu_test
