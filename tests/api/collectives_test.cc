// Every collective over real transports, ranks as threads: values, in place and not, over layouts and sizes
// that reach every algorithm.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "api/ranks.h"

namespace weft::testing {
namespace {

// Element i of rank r: small whole numbers, so that sums of floats are exact.
float value(int rank, size_t i) { return static_cast<float>((rank + 1) * static_cast<int>(i % 31 + 1)); }

std::vector<float> filled(int rank, size_t count, size_t first = 0) {
  std::vector<float> v(count);
  for (size_t i = 0; i < count; ++i) v[i] = value(rank, first + i);
  return v;
}

float sum_over(int size, size_t i) { return static_cast<float>(size * (size + 1) / 2) * value(0, i); }

/// The first i below `count` that is not right, or `count`. One assertion for all elements: under a sanitizer
/// each one costs as much as hundreds of elements.
template <typename IsRight>
size_t first_wrong(size_t count, IsRight is_right) {
  for (size_t i = 0; i < count; ++i)
    if (!is_right(i)) return i;
  return count;
}

const std::vector<size_t> kCounts{0, 1, 2, 7, 100, 1000, 5000, 70000, 1 << 20};

struct Layouts : ::testing::TestWithParam<Nodes> {};

TEST_P(Layouts, AllReduce) {
  run_ranks(GetParam(), [](Rank& me) {
    for (size_t count : kCounts) {
      for (bool in_place : {false, true}) {
        std::vector<float> send = filled(me.rank, count), recv(count, -1);
        if (in_place) recv = send;
        WEFT_OK(weftAllReduce(in_place ? recv.data() : send.data(), recv.data(), count, weftFloat, weftSum,
                              me.comm, nullptr));
        ASSERT_EQ(first_wrong(count, [&](size_t i) { return recv[i] == sum_over(me.size, i); }), count)
            << count;
      }
    }
  });
}

TEST_P(Layouts, AllGather) {
  run_ranks(GetParam(), [](Rank& me) {
    for (size_t count : kCounts) {
      for (bool in_place : {false, true}) {
        std::vector<float> send = filled(me.rank, count), recv(count * me.size, -1);
        if (in_place) std::copy(send.begin(), send.end(), recv.begin() + me.rank * count);
        WEFT_OK(weftAllGather(in_place ? recv.data() + me.rank * count : send.data(), recv.data(), count,
                              weftFloat, me.comm, nullptr));
        for (int r = 0; r < me.size; ++r)
          ASSERT_EQ(first_wrong(count, [&](size_t i) { return recv[r * count + i] == value(r, i); }), count)
              << count;
      }
    }
  });
}

TEST_P(Layouts, ReduceScatter) {
  run_ranks(GetParam(), [](Rank& me) {
    for (size_t count : kCounts) {
      for (bool in_place : {false, true}) {
        std::vector<float> send = filled(me.rank, count * me.size), recv(count, -1);
        float* out = in_place ? send.data() + me.rank * count : recv.data();
        WEFT_OK(weftReduceScatter(send.data(), out, count, weftFloat, weftSum, me.comm, nullptr));
        ASSERT_EQ(
            first_wrong(count, [&](size_t i) { return out[i] == sum_over(me.size, me.rank * count + i); }),
            count)
            << count;
      }
    }
  });
}

TEST_P(Layouts, BroadcastAndReduceFromEveryRoot) {
  run_ranks(GetParam(), [](Rank& me) {
    for (size_t count : kCounts) {
      for (int root = 0; root < me.size; ++root) {
        std::vector<float> buffer = me.rank == root ? filled(root, count) : std::vector<float>(count, -1);
        WEFT_OK(weftBcast(buffer.data(), count, weftFloat, root, me.comm, nullptr));
        ASSERT_EQ(first_wrong(count, [&](size_t i) { return buffer[i] == value(root, i); }), count) << count;

        std::vector<float> send = filled(me.rank, count), recv(me.rank == root ? count : 0);
        WEFT_OK(weftReduce(send.data(), recv.data(), count, weftFloat, weftSum, root, me.comm, nullptr));
        ASSERT_EQ(first_wrong(recv.size(), [&](size_t i) { return recv[i] == sum_over(me.size, i); }),
                  recv.size())
            << count;
      }
    }
  });
}

TEST_P(Layouts, AllToAllGatherScatter) {
  run_ranks(GetParam(), [](Rank& me) {
    for (size_t count : kCounts) {
      if (count > 100000) continue;
      std::vector<float> send = filled(me.rank, count * me.size), recv(count * me.size, -1);
      WEFT_OK(weftAlltoAll(send.data(), recv.data(), count, weftFloat, me.comm, nullptr));
      for (int r = 0; r < me.size; ++r)
        ASSERT_EQ(first_wrong(count,
                              [&](size_t i) { return recv[r * count + i] == value(r, me.rank * count + i); }),
                  count);
      const int root = me.size - 1;
      std::fill(recv.begin(), recv.end(), -1.f);
      WEFT_OK(weftGather(send.data(), recv.data(), count, weftFloat, root, me.comm, nullptr));
      for (int r = 0; r < me.size && me.rank == root; ++r)
        ASSERT_EQ(first_wrong(count, [&](size_t i) { return recv[r * count + i] == value(r, i); }), count);
      std::fill(recv.begin(), recv.end(), -1.f);
      WEFT_OK(weftScatter(send.data(), recv.data(), count, weftFloat, root, me.comm, nullptr));
      ASSERT_EQ(first_wrong(count, [&](size_t i) { return recv[i] == value(root, me.rank * count + i); }),
                count);
    }
  });
}

TEST_P(Layouts, SendAndRecvAroundARingAndToOneself) {
  run_ranks(GetParam(), [](Rank& me) {
    for (size_t count : kCounts) {
      std::vector<float> send = filled(me.rank, count), recv(count, -1), own(count, -1);
      const int next = (me.rank + 1) % me.size, previous = (me.rank + me.size - 1) % me.size;
      WEFT_OK(weftGroupStart());
      WEFT_OK(weftSend(send.data(), count, weftFloat, next, me.comm, nullptr));
      WEFT_OK(weftSend(send.data(), count, weftFloat, me.rank, me.comm, nullptr));
      WEFT_OK(weftRecv(own.data(), count, weftFloat, me.rank, me.comm, nullptr));
      WEFT_OK(weftRecv(recv.data(), count, weftFloat, previous, me.comm, nullptr));
      WEFT_OK(weftGroupEnd());
      ASSERT_EQ(first_wrong(count, [&](size_t i) { return recv[i] == value(previous, i); }), count) << count;
      ASSERT_EQ(own, send);
    }
  });
}

// It is one copy, which could wait for one of the streams only.
TEST(Transfers, ToOneselfOnTwoStreamsAreRefused) {
  run_ranks(blocks(1, 1), [](Rank& me) {
    weftStream_t a, b;
    WEFT_OK(weftStreamCreate(&a));
    WEFT_OK(weftStreamCreate(&b));
    int sent = 7, received = 0;
    const std::pair<weftStream_t, weftStream_t> unequal[] = {{a, b}, {nullptr, a}, {a, nullptr}};
    for (const auto& [sends, receives] : unequal) {
      WEFT_OK(weftGroupStart());
      WEFT_OK(weftSend(&sent, 1, weftInt, 0, me.comm, sends));
      WEFT_OK(weftRecv(&received, 1, weftInt, 0, me.comm, receives));
      EXPECT_EQ(weftGroupEnd(), weftInvalidUsage);
      EXPECT_NE(std::string(weftGetLastError(nullptr)).find("the same stream"), std::string::npos)
          << weftGetLastError(nullptr);
    }
    WEFT_OK(weftGroupStart());
    WEFT_OK(weftRecv(&received, 1, weftInt, 0, me.comm, a));
    WEFT_OK(weftSend(&sent, 1, weftInt, 0, me.comm, a));
    WEFT_OK(weftGroupEnd());
    WEFT_OK(weftStreamSynchronize(a));
    EXPECT_EQ(received, 7);
    WEFT_OK(weftStreamDestroy(a));
    WEFT_OK(weftStreamDestroy(b));
  });
}

TEST_P(Layouts, AGroupsSendsAndRecvsOnOneStreamRunTogether) {
  run_ranks(GetParam(), [](Rank& me) {
    weftStream_t stream;
    WEFT_OK(weftStreamCreate(&stream));
    for (size_t count : kCounts) {
      std::vector<float> send = filled(me.rank, count), recv(count, -1), back(count, -1);
      const int next = (me.rank + 1) % me.size, previous = (me.rank + me.size - 1) % me.size;
      // Around, and in a second group back again: the groups run one after the other.
      WEFT_OK(weftGroupStart());
      WEFT_OK(weftSend(send.data(), count, weftFloat, next, me.comm, stream));
      WEFT_OK(weftRecv(recv.data(), count, weftFloat, previous, me.comm, stream));
      WEFT_OK(weftGroupEnd());
      WEFT_OK(weftGroupStart());
      WEFT_OK(weftSend(recv.data(), count, weftFloat, previous, me.comm, stream));
      WEFT_OK(weftRecv(back.data(), count, weftFloat, next, me.comm, stream));
      WEFT_OK(weftGroupEnd());
      WEFT_OK(weftStreamSynchronize(stream));
      ASSERT_EQ(first_wrong(count, [&](size_t i) { return recv[i] == value(previous, i); }), count) << count;
      ASSERT_EQ(back, send);
    }
    WEFT_OK(weftStreamDestroy(stream));
  });
}

TEST_P(Layouts, OperationsOnTwoStreamsAreInFlightTogether) {
  run_ranks(GetParam(), [](Rank& me) {
    weftStream_t a, b;
    WEFT_OK(weftStreamCreate(&a));
    WEFT_OK(weftStreamCreate(&b));
    const size_t count = 100000;
    std::vector<float> x = filled(me.rank, count), y = filled(me.rank, count), gathered(count * me.size);
    // The order on `b` is turned around against `a` and between ranks: only operations in flight together can
    // end.
    for (int round = 0; round < 5; ++round) {
      WEFT_OK(weftAllReduce(x.data(), x.data(), count, weftFloat, weftMax, me.comm, a));
      WEFT_OK(weftAllGather(y.data(), gathered.data(), count, weftFloat, me.comm, b));
    }
    WEFT_OK(weftStreamSynchronize(b));
    WEFT_OK(weftStreamDestroy(a));
    EXPECT_EQ(weftStreamQuery(b), weftSuccess);
    WEFT_OK(weftStreamDestroy(b));
    ASSERT_EQ(first_wrong(count, [&](size_t i) { return x[i] == value(me.size - 1, i); }), count);
    for (int r = 0; r < me.size; ++r)
      ASSERT_EQ(first_wrong(count, [&](size_t i) { return gathered[r * count + i] == value(r, i); }), count);
  });
}

TEST_P(Layouts, SplitByParity) {
  run_ranks(GetParam(), [](Rank& me) {
    weftComm_t half = nullptr;
    WEFT_OK(weftCommSplit(me.comm, me.rank % 2, -me.rank, &half, nullptr));
    int size = 0, rank = 0;
    WEFT_OK(weftCommCount(half, &size));
    WEFT_OK(weftCommUserRank(half, &rank));
    ASSERT_EQ(size, (me.size + 1 - me.rank % 2) / 2);
    ASSERT_EQ(rank, size - 1 - me.rank / 2);  // the key turns the order around
    float mine = static_cast<float>(me.rank), sum = 0, expected = 0;
    for (int r = me.rank % 2; r < me.size; r += 2) expected += static_cast<float>(r);
    WEFT_OK(weftAllReduce(&mine, &sum, 1, weftFloat, weftSum, half, nullptr));
    ASSERT_EQ(sum, expected);
    WEFT_OK(weftCommDestroy(half));
  });
}

INSTANTIATE_TEST_SUITE_P(Nodes, Layouts,
                         ::testing::Values(blocks(1, 1), blocks(1, 2), blocks(1, 3), blocks(2, 1),
                                           blocks(2, 2), blocks(4, 1), blocks(3, 2),
                                           Nodes{"a", "a", "a", "b", "b"},
                                           Nodes{"a", "b", "a", "b", "c", "a", "b"}),
                         [](const auto& info) {
                           std::string name;
                           for (const auto& node : info.param) name += node.back();
                           return name;
                         });

// ---- types and operators
// --------------------------------------------------------------------------------------------

template <typename T>
void check_operators(Rank& me, weftDataType_t type) {
  const size_t count = 999;
  std::vector<T> send(count), recv(count);
  for (size_t i = 0; i < count; ++i) send[i] = static_cast<T>((me.rank + 2) + static_cast<int>(i % 5));
  for (weftRedOp_t op : {weftSum, weftProd, weftMax, weftMin, weftAvg, weftBand, weftBor, weftBxor}) {
    if (std::is_floating_point_v<T> && op >= weftBand) continue;
    WEFT_OK(weftAllReduce(send.data(), recv.data(), count, type, op, me.comm, nullptr));
    for (size_t i = 0; i < count; ++i) {
      T expected = static_cast<T>(2 + static_cast<int>(i % 5));
      for (int r = 1; r < me.size; ++r) {
        const T x = static_cast<T>(r + 2 + static_cast<int>(i % 5));
        if (op == weftSum || op == weftAvg) expected = static_cast<T>(expected + x);
        if (op == weftProd) expected = static_cast<T>(expected * x);
        if (op == weftMax) expected = std::max(expected, x);
        if (op == weftMin) expected = std::min(expected, x);
        if constexpr (std::is_integral_v<T>) {
          if (op == weftBand) expected = static_cast<T>(expected & x);
          if (op == weftBor) expected = static_cast<T>(expected | x);
          if (op == weftBxor) expected = static_cast<T>(expected ^ x);
        }
      }
      if (op == weftAvg) expected = static_cast<T>(expected / static_cast<T>(me.size));
      ASSERT_EQ(recv[i], expected) << "type " << type << " op " << op;
    }
  }
}

TEST(Types, EveryWideTypeWithEveryOperator) {
  run_ranks(blocks(2, 2), [](Rank& me) {
    check_operators<int8_t>(me, weftInt8);
    check_operators<uint8_t>(me, weftUint8);
    check_operators<int32_t>(me, weftInt32);
    check_operators<uint32_t>(me, weftUint32);
    check_operators<int64_t>(me, weftInt64);
    check_operators<uint64_t>(me, weftUint64);
    check_operators<float>(me, weftFloat);
    check_operators<double>(me, weftDouble);
  });
}

TEST(Types, FloatsHaveNoBitwiseOperators) {
  run_ranks(blocks(1, 1), [](Rank& me) {
    double x = 1;
    for (const weftRedOp_t op : {weftBand, weftBor, weftBxor})
      for (const weftDataType_t type :
           {weftHalf, weftFloat, weftDouble, weftBfloat16, weftFloat8e4m3, weftFloat8e5m2})
        EXPECT_EQ(weftAllReduce(&x, &x, 1, type, op, me.comm, nullptr), weftInvalidOp);
    EXPECT_NE(
        std::string(weftGetLastError(nullptr)).find("bxor, a bitwise operator, which f8e5m2 does not have"),
        std::string::npos)
        << weftGetLastError(nullptr);
  });
}

TEST(Types, ShortFloatsAreMovedAndSummed) {
  // Bit patterns of 1.0; their sum over 4 ranks is 4.0 in every format.
  struct Format {
    weftDataType_t type;
    size_t bytes;
    uint16_t one, four;
  };
  run_ranks(blocks(2, 2), [](Rank& me) {
    for (const Format& f : {Format{weftHalf, 2, 0x3c00, 0x4400}, Format{weftBfloat16, 2, 0x3f80, 0x4080},
                            Format{weftFloat8e4m3, 1, 0x38, 0x48}, Format{weftFloat8e5m2, 1, 0x3c, 0x44}}) {
      const size_t count = 777;
      std::vector<uint8_t> send(count * f.bytes), recv(count * f.bytes);
      for (size_t i = 0; i < count; ++i)
        std::copy_n(reinterpret_cast<const uint8_t*>(&f.one), f.bytes, &send[i * f.bytes]);
      WEFT_OK(weftAllReduce(send.data(), recv.data(), count, f.type, weftSum, me.comm, nullptr));
      for (size_t i = 0; i < count; ++i)
        ASSERT_TRUE(std::equal(&recv[i * f.bytes], &recv[i * f.bytes] + f.bytes,
                               reinterpret_cast<const uint8_t*>(&f.four)))
            << "type " << f.type;
    }
  });
}

TEST(Types, PreMultipliedSumScalesEachRanksInput) {
  run_ranks(blocks(2, 2), [](Rank& me) {
    for (size_t count : {size_t{3}, size_t{50000}}) {
      float scalar = static_cast<float>(me.rank + 1);
      weftRedOp_t op;
      WEFT_OK(weftRedOpCreatePreMulSum(&op, &scalar, weftFloat, weftScalarHostImmediate, me.comm));
      std::vector<float> send(count, 2.f), recv(count);
      WEFT_OK(weftAllReduce(send.data(), recv.data(), count, weftFloat, op, me.comm, nullptr));
      for (float x : recv) ASSERT_EQ(x, 2.f * (1 + 2 + 3 + 4));
      ASSERT_EQ(send[0], 2.f);
      WEFT_OK(weftRedOpDestroy(op, me.comm));
      EXPECT_EQ(weftAllReduce(send.data(), recv.data(), count, weftFloat, op, me.comm, nullptr),
                weftInvalidOp);
    }
  });
}

TEST(Strict, SameBitsWhateverTheLayout) {
  const size_t count = 3000;
  auto reduced_on = [&](const Nodes& nodes) {
    std::vector<float> result(count);
    run_ranks(
        nodes,
        [&](Rank& me) {
          std::vector<float> send(count), recv(count);
          for (size_t i = 0; i < count; ++i)
            send[i] = std::sin(static_cast<float>(me.rank * 7919 + static_cast<int>(i))) *
                      std::exp2f(me.rank * 5.f);
          WEFT_OK(weftAllReduce(send.data(), recv.data(), count, weftFloat, weftSum, me.comm, nullptr));
          if (me.rank == 0) result = recv;
        },
        [](weftConfig_t& config) { config.strict = 1; });
    return result;
  };
  const auto one_node = reduced_on(blocks(1, 6));
  EXPECT_EQ(one_node, reduced_on(blocks(6, 1)));
  EXPECT_EQ(one_node, reduced_on(blocks(2, 3)));
  EXPECT_EQ(one_node, reduced_on(Nodes{"a", "b", "a", "b", "b", "b"}));
}

}  // namespace
}  // namespace weft::testing
