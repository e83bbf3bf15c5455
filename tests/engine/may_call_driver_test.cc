#include "engine/gpu/may_call_driver.h"

#include <gtest/gtest.h>

namespace weft::engine {
namespace {

using plan::Collective;

TEST(MayCallDriver, AnAllocationIsNewOnce) {
  MayCallDriver uses;
  EXPECT_TRUE(uses.note(Collective::all_gather, 100, {1, 2}));
  EXPECT_FALSE(uses.note(Collective::all_gather, 100, {1, 2}));
  EXPECT_FALSE(uses.note(Collective::all_gather, 100, {2, 1}));
  EXPECT_TRUE(uses.note(Collective::all_gather, 100, {2, 3}));
  EXPECT_FALSE(uses.note(Collective::all_gather, 100, {0, 0})) << "nothing that peers map";
}

TEST(MayCallDriver, BlocksOfAnotherSizeClassHaveToBeAskedFor) {
  MayCallDriver uses;
  EXPECT_TRUE(uses.note(Collective::all_reduce, 100, {1, 2}));
  EXPECT_FALSE(uses.note(Collective::all_reduce, 127, {1, 2}));
  EXPECT_TRUE(uses.note(Collective::all_reduce, 50, {1, 2})) << "shorter ones, too";
  EXPECT_TRUE(uses.note(Collective::all_reduce, 128, {1, 2}));
  EXPECT_FALSE(uses.note(Collective::all_reduce, 64, {1, 2}));
  EXPECT_TRUE(uses.note(Collective::reduce_scatter, 100, {1, 2}));
}

}  // namespace
}  // namespace weft::engine
