// The keys of a RemoteBuffer: which structs they can be, and where these lie among the 64 bytes that travel.
#include <gtest/gtest.h>

#include <array>
#include <bit>

#include "transport/memory_access.h"
#include "transport/ofi_protocol.h"
#include "transport/shm_memory.h"

namespace weft::transport {
namespace {

using Words = std::array<uint64_t, 8>;

struct TooShort {
  uint64_t words[5];
};
struct Padded {
  uint64_t words[5];
  uint32_t last;
};
struct NotPlain {
  NotPlain(const NotPlain&) {}
  uint64_t words[6];
};

static_assert(KeysOfTransport<shm::Keys> && KeysOfTransport<ofi::Keys>);
static_assert(!KeysOfTransport<TooShort> && !KeysOfTransport<Padded> && !KeysOfTransport<NotPlain>);
static_assert(!std::is_constructible_v<TransportKeys, TooShort>);

TEST(TransportKeys, OfSharedMemoryTravelInTheOrderOfTheStruct) {
  const shm::Keys keys{.serial = 3, .fd = 4, .offset = 5, .segment_bytes = 6, .inode = 7, .exposure = 8};
  const RemoteBuffer buffer{1, 2, TransportKeys(keys)};
  EXPECT_EQ(std::bit_cast<Words>(buffer), (Words{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(buffer.keys.as<shm::Keys>().inode, 7u);
  EXPECT_EQ(buffer.keys.as<shm::Keys>().exposure, 8u);
}

TEST(TransportKeys, OfLibfabricTravelByRailsThenBaseThenExposure) {
  const ofi::Keys keys{.rails = {3, 4, 5, 6}, .base = 7, .exposure = 8};
  const RemoteBuffer buffer{1, 2, TransportKeys(keys)};
  EXPECT_EQ(std::bit_cast<Words>(buffer), (Words{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(buffer.keys.as<ofi::Keys>().rails[3], 6u);
  EXPECT_EQ(buffer.keys.as<ofi::Keys>().base, 7u);
}

TEST(TransportKeys, AreZeroUnlessATransportSetsThem) {
  const RemoteBuffer buffer{.address = 1, .bytes = 2};
  EXPECT_EQ(std::bit_cast<Words>(buffer), (Words{1, 2}));
  EXPECT_FALSE(shm::is_window(buffer));
}

}  // namespace
}  // namespace weft::transport
