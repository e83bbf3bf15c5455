// The registration cache on a real domain.
#include "transport/ofi_registration.h"

#include <sys/mman.h>

#include "transport/ofi_ranks.h"

namespace weft::transport::ofi {
namespace {

constexpr size_t kPage = 4096;

class OfiRegistration : public ::testing::Test {
 protected:
  void SetUp() override {
    auto infos = choose_rails(ofi_test::named("tcp"));
    if (!infos) GTEST_SKIP() << infos.status().message();
    auto rail = Rail::open(std::move(infos->front()), 1, 4096, 1 << 16);
    ASSERT_TRUE(rail.ok()) << rail.status().message();
    rail_ = rail.take();
    cache_ = std::make_unique<RegistrationCache>(std::vector{rail_->registration_domain()});
    auto memory = Mapping::make(64 * kPage);
    ASSERT_TRUE(memory.ok());
    memory_ = memory.take();
  }
  Registration* acquire(size_t offset, size_t bytes) {
    auto registration = cache_->acquire(memory_.data() + offset, bytes);
    EXPECT_TRUE(registration.ok());
    return *registration;
  }

  std::unique_ptr<Rail> rail_;
  std::unique_ptr<RegistrationCache> cache_;
  Mapping memory_;
};

TEST_F(OfiRegistration, SharesWhatCovers) {
  Registration* all = acquire(0, 32 * kPage);
  EXPECT_EQ(acquire(5, 10), all);
  EXPECT_EQ(acquire(31 * kPage, kPage), all);
  EXPECT_NE(acquire(31 * kPage, kPage + 1), all) << "one byte beyond";
  EXPECT_EQ(cache_->statistics().hits, 2u);
  EXPECT_EQ(cache_->statistics().misses, 2u);
  EXPECT_NE(all->key(0), FI_KEY_NOTAVAIL);
}

TEST_F(OfiRegistration, FindsALongOneBehindShortOnes) {
  Registration* all = acquire(0, 64 * kPage);
  for (size_t page = 1; page < 8; ++page) EXPECT_EQ(acquire(page * kPage, 1), all);
  cache_->release(acquire(60 * kPage, 3));
  EXPECT_EQ(acquire(20 * kPage, 40 * kPage), all);
}

TEST_F(OfiRegistration, GoesWithItsLastUser) {
  Registration* first = acquire(0, kPage);
  EXPECT_EQ(acquire(0, kPage), first);
  cache_->release(first);
  EXPECT_EQ(cache_->live(), 1u);
  cache_->release(first);
  EXPECT_EQ(cache_->live(), 0u) << "freed pages must not be reachable through a stale key";
  acquire(0, kPage);
  EXPECT_EQ(cache_->statistics().misses, 2u);
}

TEST_F(OfiRegistration, ReleasesTheRightOneOfTwoThatStartTogether) {
  Registration* shorter = acquire(0, kPage);
  Registration* longer = acquire(0, 4 * kPage);
  EXPECT_NE(shorter, longer);
  cache_->release(shorter);
  EXPECT_EQ(acquire(0, 4 * kPage), longer);
}

TEST_F(OfiRegistration, AHoldReleases) {
  {
    RegistrationHold hold(*cache_, acquire(0, kPage));
    RegistrationHold moved = std::move(hold);
    EXPECT_FALSE(hold);
    EXPECT_TRUE(moved);
  }
  EXPECT_EQ(cache_->live(), 0u);
}

}  // namespace
}  // namespace weft::transport::ofi
