// How often an operation calls the driver, with an upper bound for each collective. A call costs a
// microsecond or two, and one thread makes those of all ranks of a process: they are most of what a short
// operation takes. Ranks are threads that share a device, in back-to-back calls that each end before the next
// begins.
#include <algorithm>
#include <barrier>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "api/handles.h"
#include "api/ranks.h"
#include "cuda/device_memory.h"
#include "device/cuda/kernels.h"
#include "model/pins.h"

namespace weft::testing {
namespace {

using plan::Collective;

struct Case {
  int ranks;
  Collective collective;
  size_t bytes;  // of the longer buffer
  const char* algorithm;
  double caller;  // calls of the caller's thread, with what entering a context takes
  double all;     // calls of all threads for a rank, without that
};

/// One call of a case, on buffers that are long enough.
void call(const Case& c, const Rank& me, const DeviceArray<char>& send, const DeviceArray<char>& recv,
          weftStream_t stream) {
  const size_t count = c.bytes / sizeof(float), part = count / static_cast<size_t>(me.size);
  switch (c.collective) {
    case Collective::all_reduce:
      WEFT_OK(weftAllReduce(send.data(), recv.data(), count, weftFloat, weftSum, me.comm, stream));
      break;
    case Collective::all_gather:
      WEFT_OK(weftAllGather(send.data(), recv.data(), part, weftFloat, me.comm, stream));
      break;
    case Collective::reduce_scatter:
      WEFT_OK(weftReduceScatter(send.data(), recv.data(), part, weftFloat, weftSum, me.comm, stream));
      break;
    default: WEFT_OK(weftBroadcast(send.data(), recv.data(), count, weftFloat, 0, me.comm, stream));
  }
}

struct Counts {
  double caller = 0, all = 0;
};

/// Of a call: the least of the caller's, since the caller may do a part of the progress thread's work; the
/// mean of all threads', less what asking devices whether they work may have taken.
Counts count_calls(const FakeControls& fake, const Case& c) {
  constexpr int kCalls = 20;
  // Each 100 ms a rank's context asks a device whether it works: an event is made, recorded and queried.
  constexpr double kCallsOfAQuestion = 3;
  constexpr std::chrono::milliseconds kBetweenQuestions(100);
  std::barrier meeting(c.ranks);
  std::vector<Counts> of_rank(static_cast<size_t>(c.ranks));
  double progress = 0, questions = 0;
  run_ranks(
      blocks(1, c.ranks),
      [&](Rank& me) {
        const auto pins = model::parse_pins(fmt::format("*={}", c.algorithm));
        ASSERT_TRUE(pins.ok()) << pins.status().message();
        me.comm->comm->pin(*pins);
        (void)driver().context_push((*cuda::Device::open(0))->context());  // as a program has it
        const DeviceArray<char> send(c.bytes), recv(c.bytes);
        const DeviceStream stream;
        const auto run = [&] {
          call(c, me, send, recv, stream.weft());
          stream.synchronize();
        };
        for (int i = 0; i < 3; ++i) run();  // memory and mappings are there
        meeting.arrive_and_wait();
        const auto begin = std::chrono::steady_clock::now();
        const FakeCudaCalls before = fake.calls_of(1);
        meeting.arrive_and_wait();
        Counts& mine = of_rank[static_cast<size_t>(me.rank)];
        mine.caller = 1e9;
        for (int i = 0; i < kCalls; ++i) {
          const FakeCudaCalls own = fake.calls_of(0);
          call(c, me, send, recv, stream.weft());
          const FakeCudaCalls since = fake.calls_of(0);
          const double work = static_cast<double>(since.work - own.work);
          mine.caller = std::min(mine.caller, work + static_cast<double>(since.entries - own.entries));
          mine.all += work / kCalls / c.ranks;
          stream.synchronize();
        }
        meeting.arrive_and_wait();
        if (me.rank == 0) {
          progress = static_cast<double>(fake.calls_of(1).work - before.work);
          questions = static_cast<double>((std::chrono::steady_clock::now() - begin) / kBetweenQuestions + 1);
        }
        weftCommStats_t stats = WEFT_COMM_STATS_INITIALIZER;
        WEFT_OK(weftCommGetStats(me.comm, &stats));
        EXPECT_EQ(std::string(stats.lastAlgorithm), c.algorithm);
        EXPECT_EQ(std::string(stats.intraTransport), "mapped GPU memory");
        meeting.arrive_and_wait();
      },
      [](weftConfig_t& config) { config.device = 0; });
  Counts sum{of_rank.front().caller, progress / kCalls / c.ranks};
  for (const Counts& counts : of_rank) {
    sum.caller = std::max(sum.caller, counts.caller);
    sum.all += counts.all;
  }
  sum.all -= questions * kCallsOfAQuestion / kCalls;
  return sum;
}

TEST(DriverCalls, AreFew) {
  WEFT_NEED_FAKE(fake);
  // How many turns an operation takes is chance, and each has an event.
  constexpr double kSlack = 0.5;
  // What is queued in one turn shares an event. The bounds of one_hop and of the ring are those without that.
  const Case cases[] = {
      {2, Collective::all_reduce, 64, "one_hop", 9, 15},
      {4, Collective::all_reduce, 64, "one_hop", 9, 23},
      {2, Collective::all_reduce, 64, "direct", 9, 9},
      {4, Collective::all_reduce, 64, "direct", 9, 9},
      {2, Collective::all_reduce, 1 << 20, "direct", 9, 12},
      {4, Collective::all_reduce, 1 << 20, "direct", 9, 18},
      {2, Collective::all_gather, 64, "one_hop", 9, 15},
      {4, Collective::all_gather, 64, "one_hop", 9, 23},
      {2, Collective::all_gather, 1 << 20, "direct", 9, 12},
      {4, Collective::all_gather, 1 << 20, "direct", 9, 18},
      {4, Collective::all_gather, 16 << 20, "ring", 9, 81},
      {2, Collective::reduce_scatter, 1 << 20, "direct", 9, 9},
      {4, Collective::reduce_scatter, 1 << 20, "direct", 9, 9},
      {4, Collective::broadcast, 64, "one_hop", 9, 10},
      {4, Collective::broadcast, 1 << 20, "direct", 9, 11},
  };
  for (const Case& c : cases) {
    // Without kernels the CPU adds, and more is copied.
    const bool adds = c.collective == Collective::all_reduce || c.collective == Collective::reduce_scatter;
    if (adds && cuda::kernel_image().empty()) continue;
    const Counts counts = count_calls(fake, c);
    const std::string what = fmt::format("{} of {} bytes, {} ranks, {}", plan::name_of(c.collective), c.bytes,
                                         c.ranks, c.algorithm);
    std::printf("%-50s caller %5.1f, all %6.1f\n", what.c_str(), counts.caller, counts.all);
    EXPECT_LE(counts.caller, c.caller) << what;
    EXPECT_LE(counts.all, c.all + kSlack) << what;
  }
}

}  // namespace
}  // namespace weft::testing
