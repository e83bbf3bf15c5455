// The file behind offloaded activations.
#include "engine/tier.h"

#include <cstring>
#include <vector>

#include "support.h"

namespace loom::testing {
namespace {

using engine::Tier;

constexpr const char* kFolder = "/var/tmp";  // on a disk, where /tmp may not be

std::vector<std::byte> pattern(size_t bytes, int seed) {
  std::vector<std::byte> values(bytes);
  for (size_t i = 0; i < bytes; ++i) values[i] = static_cast<std::byte>((i * 31 + seed * 7) % 251);
  return values;
}

TEST(Tier, GivesBackWhatWasStored) {
  constexpr size_t kBytes = 10000;
  constexpr int kPieces = 300;  // more than may be open at once
  Result<std::unique_ptr<Tier>> tier = Tier::create(kFolder, kBytes * kPieces);
  LOOM_ASSERT_OK(tier);
  std::vector<std::vector<std::byte>> pieces, loaded(kPieces, std::vector<std::byte>(kBytes));
  for (int i = 0; i < kPieces; ++i) pieces.push_back(pattern(kBytes, i));
  uint64_t last = 0;
  for (int i = 0; i < kPieces; ++i)
    (*tier)->store(i * static_cast<int64_t>(kBytes), pieces[i].data(), kBytes);
  for (int i = kPieces; i-- > 0;)
    last = (*tier)->load(i * static_cast<int64_t>(kBytes), loaded[i].data(), kBytes);
  LOOM_ASSERT_OK((*tier)->wait(last));
  EXPECT_EQ(loaded, pieces);
  EXPECT_EQ(last, 2u * kPieces);
}

TEST(Tier, WaitsForWhatIsOpenBeforeItEnds) {
  const std::vector<std::byte> piece = pattern(1 << 20, 1);
  for (int round = 0; round < 20; ++round) {
    Result<std::unique_ptr<Tier>> tier = Tier::create(kFolder, 1 << 20);
    LOOM_ASSERT_OK(tier);
    for (int i = 0; i < round; ++i) (*tier)->store(0, piece.data(), 1 << 20);
  }
}

TEST(Tier, SaysWhatIsWrong) {
  EXPECT_TRUE(fails_with(Tier::create("/var/tmp/loom-nowhere", 100), Code::not_found, "nowhere"));
  EXPECT_TRUE(fails_with(Tier::create(kFolder, int64_t{1} << 60), Code::disk_full, "cannot reserve"));
  const char* const temporary = std::getenv("TMPDIR");
  const std::string kept = temporary != nullptr ? temporary : "";
  ASSERT_EQ(::setenv("TMPDIR", "", 1), 0);  // as good as none, and not the root of all folders
  EXPECT_TRUE(fails_with(Tier::create("", int64_t{1} << 60), Code::disk_full, "activations in /var/tmp"));
  temporary != nullptr ? ::setenv("TMPDIR", kept.c_str(), 1) : ::unsetenv("TMPDIR");
  if (std::filesystem::exists("/dev/shm")) {
    EXPECT_TRUE(fails_with(Tier::create("/dev/shm", 100), Code::invalid_argument,
                           "parallel.offload_folder must be on a disk"));
  }
  Result<std::unique_ptr<Tier>> tier = Tier::create(kFolder, 4096);
  LOOM_ASSERT_OK(tier);
  std::vector<std::byte> memory(8192);
  EXPECT_TRUE(fails_with((*tier)->wait((*tier)->load(0, memory.data(), 8192)), Code::system_error,
                         "offloaded activations cannot be written or read"));
}

}  // namespace
}  // namespace loom::testing
