// Every collective on GPU memory, ranks as threads that share a device or have two: values, in place and not,
// over layouts and sizes that reach every algorithm. With the fake driver a CPU that touches GPU memory dies,
// and work that nobody has waited for is seen.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <latch>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "api/ranks.h"
#include "cuda/device_memory.h"

namespace weft::testing {
namespace {

using Values = std::vector<float>;

float value(int rank, size_t i) { return static_cast<float>((rank + 1) * static_cast<int>(i % 31 + 1)); }

Values filled(int rank, size_t count, size_t first = 0) {
  Values v(count);
  for (size_t i = 0; i < count; ++i) v[i] = value(rank, first + i);
  return v;
}
Values sums(int size, size_t count, size_t first = 0) {
  Values v(count);
  for (int r = 0; r < size; ++r)
    for (size_t i = 0; i < count; ++i) v[i] += value(r, first + i);
  return v;
}
/// What all ranks give, one after the other.
Values gathered(int size, size_t count, size_t first = 0) {
  Values v;
  for (int r = 0; r < size; ++r) {
    const Values part = filled(r, count, first);
    v.insert(v.end(), part.begin(), part.end());
  }
  return v;
}

const std::vector<size_t> kCounts{0, 1, 7, 1000, 5000, 70000, 300001};

struct DeviceLayouts : ::testing::TestWithParam<Nodes> {
  void SetUp() override { WEFT_NEED_DEVICE(); }
};

TEST_P(DeviceLayouts, AllReduce) {
  run_ranks(
      GetParam(),
      [](Rank& me) {
        const DeviceStream stream;
        for (size_t count : kCounts)
          for (bool in_place : {false, true}) {
            const Values mine = filled(me.rank, count);
            DeviceArray<float> send(mine), recv(mine);
            WEFT_OK(weftAllReduce(in_place ? recv.data() : send.data(), recv.data(), count, weftFloat,
                                  weftSum, me.comm, stream.weft()));
            stream.synchronize();
            ASSERT_EQ(recv.get(), sums(me.size, count)) << count << (in_place ? " in place" : "");
            ASSERT_EQ(send.get(), mine);
          }
      },
      on_device);
}

TEST_P(DeviceLayouts, AllGatherAndReduceScatterWithoutWaitingBetween) {
  run_ranks(
      GetParam(),
      [](Rank& me) {
        const DeviceStream stream;
        for (size_t count : kCounts) {
          const auto all = static_cast<size_t>(me.size) * count;
          DeviceArray<float> mine(filled(me.rank, count)), gather(all), back(count), in_place(all);
          in_place.set(filled(me.rank, count), static_cast<size_t>(me.rank) * count);
          float* const own = in_place.data() + static_cast<size_t>(me.rank) * count;
          WEFT_OK(weftAllGather(mine.data(), gather.data(), count, weftFloat, me.comm, stream.weft()));
          WEFT_OK(weftReduceScatter(gather.data(), back.data(), count, weftFloat, weftSum, me.comm,
                                    stream.weft()));
          WEFT_OK(weftAllGather(own, in_place.data(), count, weftFloat, me.comm, stream.weft()));
          stream.synchronize();
          const Values expected = gathered(me.size, count);
          ASSERT_EQ(gather.get(), expected) << count;
          ASSERT_EQ(in_place.get(), expected) << count << " in place";
          // Everybody's buffer is the same by now, so each sum is so many times this rank's part.
          Values sum = filled(me.rank, count);
          for (float& x : sum) x *= static_cast<float>(me.size);
          ASSERT_EQ(back.get(), sum) << count;
        }
      },
      on_device);
}

TEST_P(DeviceLayouts, BroadcastAndReduceFromEveryRoot) {
  run_ranks(
      GetParam(),
      [](Rank& me) {
        const DeviceStream stream;
        for (size_t count : kCounts)
          for (int root = 0; root < me.size; ++root) {
            DeviceArray<float> buffer(me.rank == root ? filled(root, count) : Values(count, -1));
            DeviceArray<float> send(filled(me.rank, count)), recv(me.rank == root ? count : 0);
            WEFT_OK(weftBcast(buffer.data(), count, weftFloat, root, me.comm, stream.weft()));
            WEFT_OK(weftReduce(send.data(), recv.data(), count, weftFloat, weftSum, root, me.comm,
                               stream.weft()));
            stream.synchronize();
            ASSERT_EQ(buffer.get(), filled(root, count)) << count;
            if (me.rank == root) {
              ASSERT_EQ(recv.get(), sums(me.size, count)) << count;
            }
          }
      },
      on_device);
}

TEST_P(DeviceLayouts, AllToAllGatherScatter) {
  run_ranks(
      GetParam(),
      [](Rank& me) {
        const DeviceStream stream;
        for (size_t count : kCounts) {
          if (count > 100000) continue;
          const auto all = static_cast<size_t>(me.size) * count;
          const int root = me.size - 1;
          DeviceArray<float> send(filled(me.rank, all)), exchanged(all), gather(all), scattered(count);
          WEFT_OK(weftAlltoAll(send.data(), exchanged.data(), count, weftFloat, me.comm, stream.weft()));
          WEFT_OK(weftGather(send.data(), gather.data(), count, weftFloat, root, me.comm, stream.weft()));
          WEFT_OK(weftScatter(send.data(), scattered.data(), count, weftFloat, root, me.comm, stream.weft()));
          stream.synchronize();
          const size_t own = static_cast<size_t>(me.rank) * count;
          ASSERT_EQ(exchanged.get(), gathered(me.size, count, own)) << count;
          if (me.rank == root) {
            ASSERT_EQ(gather.get(), gathered(me.size, count)) << count;
          }
          ASSERT_EQ(scattered.get(), filled(root, count, own)) << count;
        }
      },
      on_device);
}

TEST_P(DeviceLayouts, AGroupsSendsAndRecvsOnOneStreamRunTogether) {
  run_ranks(
      GetParam(),
      [](Rank& me) {
        const DeviceStream stream;
        for (size_t count : kCounts) {
          const Values mine = filled(me.rank, count);
          DeviceArray<float> send(mine), recv(count), own(count), back(count);
          const int next = (me.rank + 1) % me.size, previous = (me.rank + me.size - 1) % me.size;
          WEFT_OK(weftGroupStart());
          WEFT_OK(weftSend(send.data(), count, weftFloat, next, me.comm, stream.weft()));
          WEFT_OK(weftSend(send.data(), count, weftFloat, me.rank, me.comm, stream.weft()));
          WEFT_OK(weftRecv(own.data(), count, weftFloat, me.rank, me.comm, stream.weft()));
          WEFT_OK(weftRecv(recv.data(), count, weftFloat, previous, me.comm, stream.weft()));
          WEFT_OK(weftGroupEnd());
          WEFT_OK(weftGroupStart());
          WEFT_OK(weftSend(recv.data(), count, weftFloat, previous, me.comm, stream.weft()));
          WEFT_OK(weftRecv(back.data(), count, weftFloat, next, me.comm, stream.weft()));
          WEFT_OK(weftGroupEnd());
          stream.synchronize();
          ASSERT_EQ(recv.get(), filled(previous, count)) << count;
          ASSERT_EQ(own.get(), mine);
          ASSERT_EQ(back.get(), mine);
        }
      },
      on_device);
}

INSTANTIATE_TEST_SUITE_P(Nodes, DeviceLayouts,
                         ::testing::Values(blocks(1, 1), blocks(1, 3), blocks(3, 1), blocks(2, 2),
                                           Nodes{"a", "b", "a", "b", "c"}),
                         [](const auto& info) {
                           std::string name;
                           for (const auto& node : info.param) name += node.back();
                           return name;
                         });

// ---- types and operators

template <typename T>
void check_operators(Rank& me, const DeviceStream& stream, weftDataType_t type) {
  const size_t count = 4099;
  std::vector<T> mine(count);
  for (size_t i = 0; i < count; ++i) mine[i] = static_cast<T>((me.rank + 2) + static_cast<int>(i % 5));
  const DeviceArray<T> send(mine), recv(count);
  for (weftRedOp_t op : {weftSum, weftProd, weftMax, weftMin, weftAvg, weftBand, weftBor, weftBxor}) {
    if (std::is_floating_point_v<T> && op >= weftBand) continue;
    WEFT_OK(weftAllReduce(send.data(), recv.data(), count, type, op, me.comm, stream.weft()));
    stream.synchronize();
    std::vector<T> expected(count);
    for (size_t i = 0; i < count; ++i) {
      T& e = expected[i] = static_cast<T>(2 + static_cast<int>(i % 5));
      for (int r = 1; r < me.size; ++r) {
        const T x = static_cast<T>(r + 2 + static_cast<int>(i % 5));
        if (op == weftSum || op == weftAvg) e = static_cast<T>(e + x);
        if (op == weftProd) e = static_cast<T>(e * x);
        if (op == weftMax) e = std::max(e, x);
        if (op == weftMin) e = std::min(e, x);
        if constexpr (std::is_integral_v<T>) {
          if (op == weftBand) e = static_cast<T>(e & x);
          if (op == weftBor) e = static_cast<T>(e | x);
          if (op == weftBxor) e = static_cast<T>(e ^ x);
        }
      }
      if (op == weftAvg) e = static_cast<T>(e / static_cast<T>(me.size));
    }
    ASSERT_EQ(recv.get(), expected) << "type " << type << " op " << op;
  }
}

TEST(DeviceTypes, EveryWideTypeWithEveryOperator) {
  WEFT_NEED_DEVICE();
  run_ranks(
      blocks(2, 2),
      [](Rank& me) {
        const DeviceStream stream;
        check_operators<int8_t>(me, stream, weftInt8);
        check_operators<uint8_t>(me, stream, weftUint8);
        check_operators<int32_t>(me, stream, weftInt32);
        check_operators<uint32_t>(me, stream, weftUint32);
        check_operators<int64_t>(me, stream, weftInt64);
        check_operators<uint64_t>(me, stream, weftUint64);
        check_operators<float>(me, stream, weftFloat);
        check_operators<double>(me, stream, weftDouble);
      },
      on_device);
}

// As groups of transfers and reductions.
TEST(DeviceUneven, CollectivesMoveBlocksOfTheirOwnSizes) {
  WEFT_NEED_DEVICE();
  run_ranks(
      blocks(2, 2),
      [](Rank& me) {
        const DeviceStream stream;
        const std::vector<size_t> counts = {5, 0, 70'000, 900}, places = {75'000, 3, 10, 71'000};
        const size_t own = counts[static_cast<size_t>(me.rank)];
        std::vector<int32_t> mine(own + 1), all(76'000);
        for (size_t k = 0; k < own; ++k) mine[k] = me.rank * 1'000'000 + static_cast<int32_t>(k);
        for (int r = 0; r < me.size; ++r)
          for (size_t k = 0; k < counts[r]; ++k)
            all[places[r] + k] = r * 1'000'000 + static_cast<int32_t>(k) + me.rank;
        const DeviceArray<int32_t> send(mine), gathered(all.size()), input(all), reduced(own + 1);
        WEFT_OK(weftAllGatherV(send.data(), gathered.data(), counts.data(), places.data(), weftInt32, me.comm,
                               stream.weft()));
        WEFT_OK(weftReduceScatterV(input.data(), reduced.data(), counts.data(), places.data(), weftInt32,
                                   weftSum, me.comm, stream.weft()));
        stream.synchronize();
        const std::vector<int32_t> got = gathered.get(), sums = reduced.get();
        for (int r = 0; r < me.size; ++r)
          for (size_t k = 0; k < counts[r]; ++k)
            ASSERT_EQ(got[places[r] + k], r * 1'000'000 + static_cast<int32_t>(k));
        for (size_t k = 0; k < own; ++k)
          ASSERT_EQ(sums[k], me.size * (me.rank * 1'000'000 + static_cast<int32_t>(k)) + 6);
        // Rank a gives a + b elements to rank b.
        std::vector<size_t> both;
        std::vector<int32_t> given;
        for (int r = 0; r < me.size; ++r) {
          both.push_back(static_cast<size_t>(me.rank + r));
          given.insert(given.end(), both.back(), 10 * me.rank + r);
        }
        const DeviceArray<int32_t> from(given), into(given.size());
        WEFT_OK(weftAlltoAllV(from.data(), both.data(), nullptr, into.data(), both.data(), nullptr, weftInt32,
                              me.comm, stream.weft()));
        stream.synchronize();
        std::vector<int32_t> expected;
        for (int r = 0; r < me.size; ++r) expected.insert(expected.end(), both[r], 10 * r + me.rank);
        EXPECT_EQ(into.get(), expected);
      },
      on_device);
}

// A sum of such values overflows before it is divided.
TEST(DeviceTypes, AveragesOfEqualValuesAreThatValue) {
  WEFT_NEED_DEVICE();
  run_ranks(
      Nodes{"a", "b", "a", "b", "c"},
      [](Rank& me) {
        const DeviceStream stream;
        const auto check = [&]<typename Bits>(weftDataType_t type, std::initializer_list<Bits> values) {
          for (const Bits value : values) {
            for (const size_t count : {size_t{3}, size_t{1000}, size_t{50000}}) {
              const std::vector<Bits> same(count, value);
              const DeviceArray<Bits> send(same), recv(count);
              WEFT_OK(weftAllReduce(send.data(), recv.data(), count, type, weftAvg, me.comm, stream.weft()));
              stream.synchronize();
              ASSERT_EQ(recv.get(), same) << "type " << type << " of " << count;
            }
          }
        };
        check(weftHalf, std::initializer_list<uint16_t>{0x7bff, 0x78e2, 0x0001, 0xfbff});
        check(weftBfloat16, std::initializer_list<uint16_t>{0x7f7f, 0x0001, 0xff7f});
        check(weftFloat8e4m3, std::initializer_list<uint8_t>{0x7e, 0x01, 0xfe});
        check(weftFloat8e5m2, std::initializer_list<uint8_t>{0x7b, 0x01, 0xfb});
        check(weftFloat, std::initializer_list<uint32_t>{0x7f7fffff, 0x00000001, 0xff7fffff});
        check(weftDouble, std::initializer_list<uint64_t>{0x7fefffffffffffff, 0x0000000000000001});
      },
      on_device);
}

TEST(DeviceTypes, PreMultipliedSumsTakeScalarsOfTheHostAndOfTheDevice) {
  WEFT_NEED_DEVICE();
  run_ranks(
      blocks(2, 2),
      [](Rank& me) {
        const DeviceStream stream;
        const float scalar = static_cast<float>(me.rank + 1);
        const DeviceArray<float> on_gpu(Values{scalar});
        for (size_t count : {size_t{3}, size_t{50000}}) {
          weftRedOp_t from_host, from_device;
          WEFT_OK(weftRedOpCreatePreMulSum(&from_host, const_cast<float*>(&scalar), weftFloat,
                                           weftScalarHostImmediate, me.comm));
          WEFT_OK(
              weftRedOpCreatePreMulSum(&from_device, on_gpu.data(), weftFloat, weftScalarDevice, me.comm));
          const DeviceArray<float> send(Values(count, 2.f)), a(count), b(count);
          WEFT_OK(weftAllReduce(send.data(), a.data(), count, weftFloat, from_host, me.comm, stream.weft()));
          WEFT_OK(
              weftAllReduce(send.data(), b.data(), count, weftFloat, from_device, me.comm, stream.weft()));
          stream.synchronize();
          ASSERT_EQ(a.get(), Values(count, 2.f * (1 + 2 + 3 + 4)));
          ASSERT_EQ(b.get(), a.get());
          ASSERT_EQ(send.get(), Values(count, 2.f));
          WEFT_OK(weftRedOpDestroy(from_host, me.comm));
          WEFT_OK(weftRedOpDestroy(from_device, me.comm));
        }
      },
      on_device);
}

TEST(DeviceTypes, AScalarOfTheDeviceIsReadWhenTheStreamHasCome) {
  WEFT_NEED_DEVICE();
  if (!(*cuda::Device::open(0))->has_memory_operations()) GTEST_SKIP() << "a call waits for its stream";
  run_ranks(
      blocks(1, 2),
      [](Rank& me) {
        const DeviceStream stream;
        DeviceArray<float> scalar(Values{100}), values(Values(5000, 2)), sum(5000);
        weftRedOp_t op;
        WEFT_OK(weftRedOpCreatePreMulSum(&op, scalar.data(), weftFloat, weftScalarDevice, me.comm));
        HeldStream held(stream);
        WEFT_OK(weftAllReduce(values.data(), sum.data(), 5000, weftFloat, op, me.comm, stream.weft()));
        WEFT_OK(weftRedOpDestroy(op, me.comm));
        scalar.set(Values{static_cast<float>(me.rank + 3)});
        held.let_go();
        stream.synchronize();
        EXPECT_EQ(sum.get(), Values(5000, 2 * (3 + 4)));
      },
      on_device);
}

TEST(DeviceTypes, StrictSumsHaveTheBitsOfHostMemory) {
  WEFT_NEED_DEVICE();
  const size_t count = 3001;
  run_ranks(
      Nodes{"a", "b", "a", "b", "b", "b"},
      [&](Rank& me) {
        const DeviceStream stream;
        Values mine(count), on_host(count);
        for (size_t i = 0; i < count; ++i)
          mine[i] = 1.f / static_cast<float>(me.rank * 7919 + static_cast<int>(i) + 1);
        const DeviceArray<float> send(mine), recv(count);
        WEFT_OK(weftAllReduce(send.data(), recv.data(), count, weftFloat, weftSum, me.comm, stream.weft()));
        weftConfig_t config = WEFT_CONFIG_INITIALIZER;
        config.device = WEFT_DEVICE_HOST;
        weftComm_t host;
        WEFT_OK(weftCommSplit(me.comm, 0, me.rank, &host, &config));
        WEFT_OK(weftAllReduce(mine.data(), on_host.data(), count, weftFloat, weftSum, host, nullptr));
        stream.synchronize();
        ASSERT_EQ(recv.get(), on_host);
        WEFT_OK(weftCommDestroy(host));
      },
      [](weftConfig_t& config) {
        config.strict = 1;
        config.device = 0;
      });
}

// ---- two devices, two streams

TEST(TwoDevices, RanksOfOneNodeReachEachOthersMemory) {
  WEFT_NEED_DEVICE();
  if (*cuda::Device::count() < 2) GTEST_SKIP() << "this machine has one CUDA device";
  run_ranks(blocks(2, 2), [](Rank& me) {
    const int ordinal = me.rank % 2;
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.device = ordinal;
    weftComm_t comm;
    WEFT_OK(weftCommSplit(me.comm, 0, me.rank, &comm, &config));
    {
      const DeviceStream stream(ordinal);
      for (size_t count : kCounts) {
        const DeviceArray<float> send(filled(me.rank, count), ordinal), sum(count, ordinal),
            gather(count * static_cast<size_t>(me.size), ordinal);
        WEFT_OK(weftAllReduce(send.data(), sum.data(), count, weftFloat, weftSum, comm, stream.weft()));
        WEFT_OK(weftAllGather(send.data(), gather.data(), count, weftFloat, comm, stream.weft()));
        stream.synchronize();
        ASSERT_EQ(sum.get(), sums(me.size, count)) << count;
        ASSERT_EQ(gather.get(), gathered(me.size, count)) << count;
      }
    }
    WEFT_OK(weftCommDestroy(comm));
  });
}

// What the parent has found out about one device says nothing of another, and shrinking asks nobody.
TEST(TwoDevices, ACommunicatorThatIsShrunkFromOneOfHostMemoryStages) {
  WEFT_NEED_DEVICE();
  if (*cuda::Device::count() < 2) GTEST_SKIP() << "this machine has one CUDA device";
  run_ranks(Nodes{"a", "a", "b"}, [](Rank& me) {
    if (me.rank == 2) return;
    const int ordinal = me.rank;
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.device = ordinal;
    int gone = 2;
    weftComm_t comm;
    WEFT_OK(weftCommShrink(me.comm, &gone, 1, &comm, &config, WEFT_SHRINK_DEFAULT));
    {
      const DeviceStream stream(ordinal);
      for (size_t count : kCounts) {
        const DeviceArray<float> send(filled(me.rank, count), ordinal), sum(count, ordinal);
        WEFT_OK(weftAllReduce(send.data(), sum.data(), count, weftFloat, weftSum, comm, stream.weft()));
        stream.synchronize();
        ASSERT_EQ(sum.get(), sums(2, count)) << count;
      }
    }
    WEFT_OK(weftCommDestroy(comm));
  });
}

// Ranks that keep theirs would look for memory where the one with another stages.
TEST(TwoDevices, ShrinkingKeepsTheDevice) {
  WEFT_NEED_DEVICE();
  if (*cuda::Device::count() < 2) GTEST_SKIP() << "this machine has one CUDA device";
  run_ranks(
      blocks(2, 2),
      [](Rank& me) {
        weftConfig_t config = WEFT_CONFIG_INITIALIZER;
        config.device = 1;
        weftComm_t comm;
        EXPECT_EQ(weftCommShrink(me.comm, nullptr, 0, &comm, &config, WEFT_SHRINK_DEFAULT),
                  weftInvalidArgument);
        EXPECT_NE(std::string(weftGetLastError(nullptr)).find("keeps the communicator's device, 0"),
                  std::string::npos)
            << weftGetLastError(nullptr);
        config.device = 0;
        WEFT_OK(weftCommShrink(me.comm, nullptr, 0, &comm, &config, WEFT_SHRINK_DEFAULT));
        WEFT_OK(weftCommDestroy(comm));
        config.device = WEFT_DEVICE_HOST;
        WEFT_OK(weftCommShrink(me.comm, nullptr, 0, &comm, &config, WEFT_SHRINK_DEFAULT));
        WEFT_OK(weftCommDestroy(comm));
      },
      on_device);
}

// So that the program asks the driver for nothing that keeps the driver from answering the operation.
TEST(NewMemory, ACallStaysUntilItsOperationHasEndedTheFirstTime) {
  WEFT_NEED_DEVICE();
  if (!(*cuda::Device::open(0))->has_memory_operations()) GTEST_SKIP() << "every call stays";
  run_ranks(
      blocks(1, 2),
      [](Rank& me) {
        const DeviceStream stream;
        const size_t count = 100000;
        const DeviceArray<float> x(filled(me.rank, count)), y(filled(me.rank, count));
        const auto add_up = [&](const DeviceArray<float>& buffer) {
          WEFT_OK(
              weftAllReduce(buffer.data(), buffer.data(), count, weftFloat, weftMax, me.comm, stream.weft()));
        };
        const auto ended = [&] {
          weftCommStats_t stats = WEFT_COMM_STATS_INITIALIZER;
          EXPECT_EQ(weftCommGetStats(me.comm, &stats), weftSuccess);
          return stats.operations;
        };
        add_up(x);
        EXPECT_EQ(ended(), 1u);
        add_up(y);
        EXPECT_EQ(ended(), 2u);
        {
          HeldStream held(stream);
          add_up(x);  // known by now
          EXPECT_EQ(ended(), 2u);
        }
        stream.synchronize();
        EXPECT_EQ(x.get(), filled(me.size - 1, count));
      },
      on_device);
}

TEST(TwoStreams, TheSecondsOperationEndsWhileTheFirstWaits) {
  WEFT_NEED_DEVICE();
  if (!(*cuda::Device::open(0))->has_memory_operations()) GTEST_SKIP() << "a call waits for its stream";
  run_ranks(
      blocks(2, 2),
      [](Rank& me) {
        const DeviceStream a, b;
        const size_t count = 100000;
        const DeviceArray<float> x(filled(me.rank, count)), y(filled(me.rank, count)),
            gather(count * static_cast<size_t>(me.size));
        HeldStream held(a);
        WEFT_OK(weftAllReduce(x.data(), x.data(), count, weftFloat, weftSum, me.comm, a.weft()));
        const StreamMark first(a);
        WEFT_OK(weftAllGather(y.data(), gather.data(), count, weftFloat, me.comm, b.weft()));
        b.synchronize();
        EXPECT_FALSE(first.reached());
        EXPECT_EQ(gather.get(), gathered(me.size, count));
        held.let_go();
        a.synchronize();
        EXPECT_EQ(x.get(), sums(me.size, count));
      },
      on_device);
}

TEST(TwoStreams, AreInFlightTogether) {
  WEFT_NEED_DEVICE();
  run_ranks(
      blocks(2, 2),
      [](Rank& me) {
        const DeviceStream a, b;
        const size_t count = 100000;
        const DeviceArray<float> x(filled(me.rank, count)), y(filled(me.rank, count)),
            gather(count * static_cast<size_t>(me.size));
        for (int round = 0; round < 5; ++round) {
          WEFT_OK(weftAllReduce(x.data(), x.data(), count, weftFloat, weftMax, me.comm, a.weft()));
          WEFT_OK(weftAllGather(y.data(), gather.data(), count, weftFloat, me.comm, b.weft()));
        }
        b.synchronize();
        a.synchronize();
        ASSERT_EQ(x.get(), filled(me.size - 1, count));
        ASSERT_EQ(gather.get(), gathered(me.size, count));
      },
      on_device);
}

// All threads have one handle for their default streams. An operation stood behind one of another thread.
TEST(StreamsOfThreads, DoNotWaitForEachOther) {
  WEFT_NEED_DEVICE();
  if (!(*cuda::Device::open(0))->has_memory_operations()) GTEST_SKIP() << "a call waits for its stream";
  run_ranks(
      blocks(1, 2),
      [](Rank& me) {
        const size_t count = 1000;
        weftComm_t other = nullptr;
        weftConfig_t config = WEFT_CONFIG_INITIALIZER;
        on_device(config);
        config.timeoutSeconds = 5;
        WEFT_OK(weftCommSplit(me.comm, 0, me.rank, &other, &config));
        const DeviceArray<float> x(filled(me.rank, count)), y(filled(me.rank, count));
        const auto call = [&](weftComm_t comm, cuda::StreamHandle* stream) {
          float* const data = comm == other ? y.data() : x.data();
          WEFT_OK(weftAllReduce(data, data, count, weftFloat, weftMax, comm,
                                reinterpret_cast<weftStream_t>(stream)));
        };
        const DeviceStream stream;
        for (weftComm_t comm : {me.comm, other}) call(comm, stream.get());  // later ones return at once
        stream.synchronize();
        std::latch called(1);
        const auto thread = [&](weftComm_t comm, bool first) {
          if (!first) called.wait();
          for (int i = 0; i < 2; ++i) call(comm, stream_of_thread());
          if (first) called.count_down();
          const cuda::Scope scope(**cuda::Device::open(0));
          EXPECT_EQ(driver().stream_synchronize(stream_of_thread()), cuda::kSuccess);
        };
        std::thread a(thread, me.comm, me.rank == 0), b(thread, other, me.rank != 0);
        a.join();
        b.join();
        for (weftComm_t comm : {me.comm, other}) {
          weftResult_t failure = weftSuccess;
          WEFT_OK(weftCommGetAsyncError(comm, &failure));
          EXPECT_EQ(failure, weftSuccess) << weftGetLastError(comm);
        }
        WEFT_OK(weftCommDestroy(other));
      },
      [](weftConfig_t& config) {
        on_device(config);
        config.timeoutSeconds = 5;
      });
}

// CUDA's calls wait where a stream is full. What makes room is the end of an operation.
TEST(FullStream, MakesRoomWhileACallWaitsForIt) {
  WEFT_NEED_FAKE(fake);
  if (!(*cuda::Device::open(0))->has_memory_operations()) GTEST_SKIP() << "a call waits for its stream";
  run_ranks(
      blocks(1, 2),
      [](Rank& me) {
        constexpr int kCalls = 1000;  // two pieces of work each
        const DeviceStream stream;
        const size_t count = 1000;
        const DeviceArray<float> x(filled(me.rank, count));
        const auto call = [&] {
          WEFT_OK(weftAllReduce(x.data(), x.data(), count, weftFloat, weftMax, me.comm, stream.weft()));
        };
        call();
        HeldStream held(stream);
        std::thread lets_go([&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(300));
          held.let_go();
        });
        for (int i = 0; i < kCalls; ++i) call();
        lets_go.join();
        stream.synchronize();
        EXPECT_EQ(x.get(), filled(me.size - 1, count));
      },
      on_device);
}

// The driver gives no memory while another thread is in cudaFree, which waits for streams that wait for Weft.
TEST(FullStream, ACallThatWaitsForFlagsHoldsNobodyUp) {
  WEFT_NEED_FAKE(fake);
  if (!(*cuda::Device::open(0))->has_memory_operations()) GTEST_SKIP() << "a call waits for its stream";
  run_ranks(
      blocks(1, 1),
      [&](Rank& me) {
        constexpr int kCalls = 100;  // more than there are flags
        const DeviceStream stream;
        const DeviceArray<float> x(100);
        HeldStream held(stream);
        const auto allocations = [&] { return fake.calls("cuMemHostAlloc"); };
        std::vector<cuda::Device::Flags*> others;  // that earlier tests have left
        cuda::Device& device = **cuda::Device::open(0);
        for (const uint64_t before = allocations(); allocations() == before;) {
          const cuda::Scope scope(device);
          others.push_back(*device.take_flags());
        }
        const uint64_t before = allocations();
        fake.block("cuMemHostAlloc", 1);
        std::thread calls([&] {
          for (int i = 0; i < kCalls; ++i)
            WEFT_OK(weftAllReduce(x.data(), x.data(), 100, weftFloat, weftSum, me.comm, stream.weft()));
        });
        EXPECT_TRUE(eventually([&] { return allocations() > before; }));
        std::atomic<bool> answered{false};
        std::thread asks([&] {
          weftCommStats_t stats = WEFT_COMM_STATS_INITIALIZER;
          WEFT_OK(weftCommGetStats(me.comm, &stats));
          answered = true;
        });
        EXPECT_TRUE(eventually([&] { return answered.load(); }));
        fake.block("cuMemHostAlloc", 0);
        held.let_go();
        calls.join();
        asks.join();
        stream.synchronize();
        for (cuda::Device::Flags* flags : others) device.give_flags(flags);
      },
      on_device);
}

// Ranks of one process must not share a default stream: whatever the second calls comes after the first's
// wait.
TEST(NullStream, IsCudasDefaultStream) {
  WEFT_NEED_DEVICE();
  if (*cuda::Device::count() < 2) GTEST_SKIP() << "this machine has one CUDA device";
  run_ranks(blocks(1, 2), [](Rank& me) {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.device = me.rank;
    weftComm_t comm;
    WEFT_OK(weftCommSplit(me.comm, 0, me.rank, &comm, &config));
    const DeviceArray<float> send(filled(me.rank, 1000), me.rank), recv(1000, me.rank);
    WEFT_OK(weftAllReduce(send.data(), recv.data(), 1000, weftFloat, weftSum, comm, nullptr));
    ASSERT_EQ(recv.get(), sums(me.size, 1000));  // read in the order of the default stream
    WEFT_OK(weftCommDestroy(comm));
  });
}

}  // namespace
}  // namespace weft::testing
