// A rank's operation fails while a peer of another process reads its memory. The caller then uses the buffer
// for something else. Over a scripted network.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/scripted_job.h"

namespace weft::engine {
namespace {

using plan::Collective;

constexpr uint64_t kCount = 3 << 20;  // int32; several turns of each copy
constexpr int32_t kReused = -7777777;

struct Case {
  std::string name;
  std::string algorithm;
  std::vector<Collective> collectives;  // by rank
};

/// Rank 0 fails while rank 1 reads its memory.
class RevokedMemory : public testing::TestWithParam<Case> {
 protected:
  /// Rank 0 fails once rank 1 has read so many times in its buffer. Returns how often rank 1 did that in all.
  static int run(int fails_after) {
    const Case& c = GetParam();
    const int ranks = static_cast<int>(c.collectives.size());
    ScriptedJob job{{.nodes = std::vector<int>(c.collectives.size(), 0), .algorithm = c.algorithm}};
    std::vector<std::vector<int32_t>> data;
    std::vector<Operation*> ops;
    for (int rank = 0; rank < ranks; ++rank) data.emplace_back(kCount, rank + 1);
    for (int rank = 0; rank < ranks; ++rank) {
      const int root = plan::is_transfer(c.collectives[rank]) ? 1 - rank : 0;
      ops.push_back(job.begin(rank, in_place(c.collectives[rank], data[rank].data(), kCount, root)));
    }
    int reads = 0;
    job.local.on_read = [&](int reader, const void* from) {
      reads += reader == 1 && from >= data[0].data() && from < data[0].data() + kCount;
    };
    for (bool failed = false; !failed && !ops[1]->end.finished;) {
      job.local.deliver_all();
      for (int rank = 0; rank < ranks; ++rank) (void)job.turn(rank);
      failed = reads >= fails_after;
      if (failed) job.comm(0).abort("");
      if (failed) std::ranges::fill(data[0], kReused);
    }
    job.settle();
    const auto succeeded = [&](int rank) { return ops[rank]->end.finished && ops[rank]->end.status.ok(); };
    for (int rank = 1; rank < ranks; ++rank) {
      const auto wrong = std::ranges::count_if(data[rank], [](int32_t value) { return value < 0; });
      EXPECT_FALSE(succeeded(rank) && wrong > 0) << "rank " << rank << " has " << wrong << " wrong elements";
    }
    EXPECT_EQ(succeeded(1), fails_after == kNever);
    job.look(1, now_ns() + 5'000'000'000);
    EXPECT_EQ(job.failure(1).message().find("rank 0 has failed while this rank was reading its memory") !=
                  std::string::npos,
              fails_after != kNever)
        << job.failure(1).message();
    return reads;
  }
  static constexpr int kNever = INT32_MAX;
};

TEST_P(RevokedMemory, IsNotTakenForData) {
  const int reads = run(kNever);
  ASSERT_GT(reads, 4);
  for (const int after : {1, reads / 2, reads * 3 / 4}) {
    SCOPED_TRACE("after read " + std::to_string(after) + " of " + std::to_string(reads));
    run(after);
  }
}

INSTANTIATE_TEST_SUITE_P(Of, RevokedMemory,
                         testing::Values(Case{"ASend", "", {Collective::send, Collective::recv}},
                                         Case{"AnAllReduceWhoseSumsArePassedOn",
                                              "allreduce=direct",
                                              {Collective::all_reduce, Collective::all_reduce,
                                               Collective::all_reduce}}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace weft::engine
