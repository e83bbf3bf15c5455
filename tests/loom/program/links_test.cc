// Flows on links: equal shares, queues, and no work that is lost.
#include "program/links.h"

#include <gtest/gtest.h>

namespace loom::testing {
namespace {

using program::Links;

void run(Links& links) {
  while (links.next_us() != Links::kNever) links.advance();
}

TEST(Links, AFlowAloneTakesItsLatencyAndItsWork) {
  Links links;
  links.add(5, 0, 2, 10, 0);
  run(links);
  EXPECT_EQ(links.begin_us(0), 5);
  EXPECT_EQ(links.end_us(0), 17);
}

TEST(Links, FlowsOfALinkShareIt) {
  Links links;
  links.add(0, 0, 0, 10, 0);
  links.add(0, 1, 0, 4, 0);
  links.add(0, 2, 0, 7, 1);
  run(links);
  EXPECT_DOUBLE_EQ(links.end_us(1), 8);
  EXPECT_DOUBLE_EQ(links.end_us(0), 14) << "half the rate for 8, then all of it";
  EXPECT_DOUBLE_EQ(links.end_us(2), 7) << "of another link";
}

/// Cores that ranks share: three ranks on two cores, of which one ends early.
TEST(Links, FlowsAskForSharesOfALink) {
  Links links;
  links.add(0, 0, 0, 10, 0, Links::kNone, 0.5);
  links.add(0, 1, 0, 10, 0, Links::kNone, 0.5);
  run(links);
  EXPECT_DOUBLE_EQ(links.end_us(0), 10) << "together they ask for no more than there is";
  EXPECT_DOUBLE_EQ(links.end_us(1), 10);
  Links crowded;
  crowded.add(0, 0, 0, 10, 0, Links::kNone, 1);
  crowded.add(0, 1, 0, 3, 0, Links::kNone, 0.5);
  run(crowded);
  EXPECT_DOUBLE_EQ(crowded.end_us(1), 4.5);
  EXPECT_DOUBLE_EQ(crowded.end_us(0), 4.5 + 7);
}

TEST(Links, FlowsOfAQueueFollowEachOther) {
  Links links;
  links.add(0, 3, 1, 10, 0);
  links.add(0, 3, 1, 10, 0);
  run(links);
  EXPECT_EQ(links.begin_us(1), 11);
  EXPECT_EQ(links.end_us(1), 22);
}

TEST(Links, TheLinkThatMostShareSetsAFlowsRate) {
  Links links;
  links.add(0, 0, 0, 6, 0, 1);
  links.add(0, 1, 0, 6, 1);
  links.add(0, 2, 0, 6, 1);
  run(links);
  EXPECT_DOUBLE_EQ(links.end_us(0), 18);
}

TEST(Links, ALatencyIsOnNoLink) {
  Links links;
  links.add(0, 0, 100, 1, 0);
  links.add(0, 1, 0, 50, 0);
  run(links);
  EXPECT_DOUBLE_EQ(links.end_us(1), 50);
  EXPECT_DOUBLE_EQ(links.end_us(0), 101);
}

}  // namespace
}  // namespace loom::testing
