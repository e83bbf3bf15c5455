// Whether a transport that relies on what EFA does not give is noticed over the provider of these tests: the
// program of breaks/scenario.cc is run with each break of breaks/breaks.py, and has to fail. Without a break
// it has to pass with the same seeds.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <ostream>
#include <string>
#include <vector>

#include "fabric/fake_efa.h"

namespace weft::fabric_test {
namespace {

struct Break {
  int number;
  const char* relies_on;  // in words that fit a test's name
  const char* caught_by;  // a test of breaks/scenario.cc
  bool passes_in_order;   // over a network that keeps order and is never busy
};

void PrintTo(const Break& what, std::ostream* out) { *out << what.relies_on; }

constexpr Break kBreaks[] = {
    {1, "PutsThatAreWholeOnceAnnounced", "Scenario.MessagesAndPuts", false},
    {2, "AnnouncementsBeforeStripes", "Scenario.MessagesAndPuts", true},
    {3, "StripesInTheOrderOfTheirPuts", "Scenario.MessagesAndPuts", true},
    {4, "SegmentsInOrder", "Scenario.PutsInMessages", true},
    {5, "TheLastSegmentLast", "Scenario.PutsInMessages", true},
    {6, "SourcesThatAreFreeOncePosted", "Scenario.MessagesAndPuts", false},
    {7, "SendsThatAreOverOncePosted", "Scenario.MessagesAndPuts", false},
    {8, "RegistrationsThatMayEndOncePosted", "Scenario.MessagesAndPuts", false},
    {9, "WithdrawalsAfterAnnouncements", "Scenario.PutsThatAreForgotten", true},
    {10, "WritesThatAreOverInOrder", "Scenario.PutsThatAreForgotten", true},
    {11, "AcknowledgementsOfPutsInOrder", "Scenario.PutsNowAndThen", true},
    {12, "AcknowledgementsOfMessagesInOrder", "Scenario.FewMessagesUnderWay", true},
    {13, "RoomForEverything", "Scenario.MessagesAndPuts", false},
    {14, "LocalMemoryThatNeedsNoRegistration", "Scenario.MessagesAndPuts", false},
    {15, "KeysOfTheProgramsChoice", "Scenario.MessagesAndPuts", false},
    {16, "AddressesThatCountFromARegistration", "Scenario.MessagesAndPuts", false},
    {17, "ReceiversThatFollowAnyNumberOfPuts", "Scenario.FewPutsUnderWay", false},
    {18, "ThatWhatIsPostedHasLeft", "LastMessages.HaveLeftWhenATransportIsIdle", false},
    {19, "SendsThatAreOverInOrder", "LastMessages.HaveLeftWhenTheirTicketIsFlushed", true},
};
// How many networks all must pass, and among how many one must catch a break. One seed does not always give
// the same run, so a break may need several.
constexpr int kSeeds = 3, kMostSeeds = 40;

struct Outcome {
  bool passed = false;
  std::string output;
};

Outcome run(int number, const std::string& environment, const std::string& filter) {
  use_fake_efa();
  const std::string command =
      fmt::format("BREAK={} FAKE_EFA_HOLD_US=0 {} '{}' --gtest_brief=1 --gtest_filter='{}' 2>&1", number,
                  environment, WEFT_BROKEN, filter);
  Outcome outcome;
  FILE* pipe = popen(command.c_str(), "r");
  std::array<char, 4096> part{};
  for (size_t bytes; pipe && (bytes = fread(part.data(), 1, part.size(), pipe)) > 0;)
    outcome.output.append(part.data(), bytes);
  outcome.passed = pipe && pclose(pipe) == 0;
  return outcome;
}

class Breaks : public ::testing::TestWithParam<Break> {};

TEST_P(Breaks, AreCaught) {
  const Break& what = GetParam();
  const std::string filter = what.caught_by;
  bool caught = false;
  for (int seed = 1; !caught && seed <= kMostSeeds; ++seed)
    caught = !run(what.number, fmt::format("FAKE_EFA_SEED={}", seed), filter).passed;
  EXPECT_TRUE(caught);
  if (!what.passes_in_order) return;
  const Outcome in_order = run(what.number, "FAKE_EFA_IN_ORDER=1", filter);
  EXPECT_TRUE(in_order.passed) << "it is not the lack of order that catches this: " << in_order.output;
}

INSTANTIATE_TEST_SUITE_P(Efa, Breaks, ::testing::ValuesIn(kBreaks),
                         [](const auto& info) { return info.param.relies_on; });

class WithoutABreak : public ::testing::TestWithParam<int> {};

TEST_P(WithoutABreak, EverythingPasses) {
  const Outcome outcome = run(0, fmt::format("FAKE_EFA_SEED={}", GetParam()), "Scenario.*:LastMessages.*");
  EXPECT_TRUE(outcome.passed) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(Seeds, WithoutABreak, ::testing::Range(1, kSeeds + 1));

}  // namespace
}  // namespace weft::fabric_test
