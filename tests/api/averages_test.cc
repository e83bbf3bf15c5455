// Averages of floats at the ends of their types' ranges, over real transports: no size, layout or order makes
// them leave what the ranks gave.
#include <algorithm>
#include <cstring>
#include <vector>

#include "api/ranks.h"

namespace weft::testing {
namespace {

/// Bits of positive values, which are ordered as the values are.
struct Ends {
  weftDataType_t type;
  size_t bytes;
  uint64_t greatest, least, between;  // the least is subnormal
};
constexpr Ends kEnds[] = {
    {weftHalf, 2, 0x7bff, 0x0001, 0x78e2},  // 40000 between
    {weftBfloat16, 2, 0x7f7f, 0x0001, 0x7f00},
    {weftFloat8e4m3, 1, 0x7e, 0x01, 0x38},
    {weftFloat8e5m2, 1, 0x7b, 0x01, 0x3c},
    {weftFloat, 4, 0x7f7fffff, 0x00000001, 0x7f000000},
    {weftDouble, 8, 0x7fefffffffffffff, 0x0000000000000001, 0x7fe0000000000000},
};

struct Array {
  size_t bytes;
  std::vector<uint8_t> data;
  Array(size_t count, const Ends& ends, uint64_t bits = 0) : bytes(ends.bytes), data(count * ends.bytes) {
    for (size_t i = 0; i < count; ++i) std::memcpy(&data[i * bytes], &bits, bytes);
  }
  uint64_t operator[](size_t i) const {
    uint64_t bits = 0;
    std::memcpy(&bits, &data[i * bytes], bytes);
    return bits;
  }
  size_t count() const { return data.size() / bytes; }
};

void expect_between(const Array& result, uint64_t least, uint64_t greatest, const Ends& ends,
                    const char* call) {
  for (size_t i = 0; i < result.count(); ++i)
    if (result[i] < least || result[i] > greatest)
      FAIL() << call << " of " << result.count() << " of type " << ends.type << ": element " << i << " is "
             << std::hex << result[i] << ", not between " << least << " and " << greatest;
}

/// Every rank gives `mine`, its own value; averages must lie between `least` and `greatest`.
void check(Rank& me, const Ends& ends, size_t count, uint64_t mine, uint64_t least, uint64_t greatest) {
  const Array send(count * static_cast<size_t>(me.size), ends, mine);
  Array recv(count, ends);
  WEFT_OK(weftAllReduce(send.data.data(), recv.data.data(), count, ends.type, weftAvg, me.comm, nullptr));
  expect_between(recv, least, greatest, ends, "AllReduce");
  recv = Array(count, ends);
  WEFT_OK(weftReduceScatter(send.data.data(), recv.data.data(), count, ends.type, weftAvg, me.comm, nullptr));
  expect_between(recv, least, greatest, ends, "ReduceScatter");
  const int root = me.size - 1;
  recv = Array(count, ends, mine);
  WEFT_OK(weftReduce(send.data.data(), recv.data.data(), count, ends.type, weftAvg, root, me.comm, nullptr));
  if (me.rank == root) expect_between(recv, least, greatest, ends, "Reduce");
}

void check_all(const Nodes& nodes, int strict) {
  run_ranks(
      nodes,
      [](Rank& me) {
        for (const Ends& ends : kEnds) {
          for (const size_t count : {1, 1000, 50000}) {
            for (const uint64_t all : {ends.greatest, ends.least, ends.between})
              check(me, ends, count, all, all, all);
            check(me, ends, count, me.rank % 2 == 0 ? ends.greatest : ends.least, ends.least, ends.greatest);
          }
        }
      },
      [strict](weftConfig_t& config) { config.strict = strict; });
}

// fp16 40000 gave infinity and e4m3 448 gave 224, by size and layout.
TEST(Averages, LieBetweenLeastAndGreatestInputOnEveryLayout) {
  for (const Nodes& nodes : {blocks(1, 3), blocks(4, 1), blocks(2, 3)}) check_all(nodes, 0);
  for (const int strict : {0, 1}) check_all(Nodes{"a", "b", "a", "b", "c"}, strict);
}

}  // namespace
}  // namespace weft::testing
