// Weft's transport when the network fails: a card that is lost, a peer that stops, registrations that are
// refused, memory that is not there.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "fabric/fake_efa.h"
#include "transport/ofi.h"
#include "transport/ofi_ranks.h"

namespace weft::fabric_test {
namespace {

using namespace transport;
using ofi_test::FunctionSink;

/// Two transports of this process.
struct Pair {
  std::unique_ptr<OfiTransport> a, b;
  FunctionSink a_sink, b_sink;

  explicit Pair(const Settings& settings) {
    use_fake_efa(settings);
    auto both = ofi_test::introduced(2, ofi_test::named("efa"));
    EXPECT_TRUE(both.ok()) << both.status().message();
    a = std::move((*both)[0]), b = std::move((*both)[1]);
  }
  static Envelope envelope(size_t bytes) {
    Envelope e;
    e.bytes = static_cast<uint32_t>(bytes);
    return e;
  }
  /// Polls both so many times, or until `over`.
  bool until(const std::function<bool()>& over, int polls = 200'000) {
    for (int i = 0; i < polls && !over(); ++i) {
      EXPECT_TRUE(a->poll(a_sink).ok());
      EXPECT_TRUE(b->poll(b_sink).ok());
    }
    return over();
  }
};

TEST(Fault, ALostRailLosesThePeersThatItLedTo) {
  Pair pair(Settings{{"FAKE_EFA_LOSE_RAIL", "0@20"}});
  const std::vector<char> payload(1000);
  Status refused;
  EXPECT_TRUE(pair.until([&] {
    const auto outcome = pair.a->send(1, Pair::envelope(payload.size()), payload.data());
    if (!outcome) refused = outcome.status();
    return !refused.ok() && !pair.a_sink.losses.empty();
  }));
  ASSERT_EQ(pair.a_sink.losses.size(), 1u);
  EXPECT_EQ(pair.a_sink.losses[0].first, 1);
  const std::string why(pair.a_sink.losses[0].second.message());
  EXPECT_NE(why.find("rank 1"), std::string::npos) << why;
  EXPECT_NE(why.find("the card has failed"), std::string::npos) << why;
  EXPECT_EQ(refused.code(), Code::remote_error);
}

TEST(Fault, APeerThatStopsIsBusyAndHoldsNobodyUp) {
  Pair pair(Settings{{"FAKE_EFA_STOP", "1@0"}});
  const std::vector<char> payload(1000);
  bool busy = false;
  pair.until(
      [&] {
        const auto outcome = pair.a->send(1, Pair::envelope(payload.size()), payload.data());
        EXPECT_TRUE(outcome.ok()) << outcome.status().message();
        busy = outcome && *outcome == Progress::busy;
        return false;
      },
      5000);
  EXPECT_TRUE(busy);
  EXPECT_TRUE(pair.a_sink.losses.empty()) << "a peer that is there is not lost";
  const Status flushed = pair.a->flush(Deadline::in_seconds(0.05));
  EXPECT_EQ(flushed.code(), Code::timeout);
  pair.a.reset();
}

TEST(Fault, ARegistrationThatIsRefusedIsAnErrorOfThatCallAlone) {
  Pair pair(Settings{{"FAKE_EFA_REGISTRATIONS", "2"}});  // of the buffers for messages
  std::vector<char> memory(10'000);
  const auto exposed = pair.a->expose(memory.data(), memory.size());
  ASSERT_FALSE(exposed.ok());
  EXPECT_EQ(exposed.status().code(), Code::system_error);
  EXPECT_NE(exposed.status().message().find("ulimit -l"), std::string::npos) << exposed.status().message();
  EXPECT_EQ(pair.a->rails().registrations().live, 0u);
  int came = 0;
  pair.b_sink.on_arrived = [&](int, const Envelope&, const void*) { ++came; };
  bool sent = false;
  EXPECT_TRUE(pair.until([&] {
    if (!sent) sent = *pair.a->send(1, Pair::envelope(100), memory.data()) == Progress::accepted;
    return came == 1;
  }));
}

// Over networks that register memory the sentence did not say why.
TEST(Fault, RegisteringFreedMemoryTellsThatItWasFreed) {
  Pair pair(Settings{});
  constexpr size_t kBytes = 64 << 10;
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  munmap(memory, kBytes);
  const auto exposed = pair.a->expose(memory, kBytes);
  ASSERT_FALSE(exposed.ok());
  EXPECT_EQ(exposed.status().code(), Code::invalid_usage);
  EXPECT_NE(exposed.status().message().find("freed or unmapped"), std::string::npos)
      << exposed.status().message();
}

TEST(Fault, APeerThatEndsIsLost) {
  Pair pair(Settings{});
  const std::vector<char> payload(1000);
  pair.b.reset();
  for (int i = 0; i < 200'000 && pair.a_sink.losses.empty(); ++i) {
    (void)pair.a->send(1, Pair::envelope(payload.size()), payload.data());
    ASSERT_TRUE(pair.a->poll(pair.a_sink).ok());
  }
  ASSERT_EQ(pair.a_sink.losses.size(), 1u);
  EXPECT_NE(pair.a_sink.losses[0].second.message().find("rank 1"), std::string::npos);
}

}  // namespace
}  // namespace weft::fabric_test
