// Frames: what is written is read, also where it has to be cut.
#include "bootstrap/wire.h"

#include <gtest/gtest.h>

#include <string>

namespace weft::bootstrap {
namespace {

std::string passed_on(const std::string& text) {
  const auto frame = FrameWriter(FrameKind::dead).text(text).take();
  FrameReader reader(std::span<const std::byte>(frame).subspan(kFrameHeaderBytes));
  std::string read = reader.text();
  EXPECT_TRUE(reader.ok() && reader.at_end());
  return read;
}

TEST(Frames, ALongTextIsCutAtTheEndOfACharacter) {
  EXPECT_EQ(passed_on(""), "");
  EXPECT_EQ(passed_on(std::string(kMostText, 'a')), std::string(kMostText, 'a'));
  EXPECT_EQ(passed_on(std::string(kMostText + 9, 'a')), std::string(kMostText, 'a'));
  for (const std::string character : {"\u00e9", "\u20ac", "\U0001f9f5"})
    for (size_t inside = 0; inside < character.size(); ++inside) {
      const std::string before(kMostText - inside, 'a');
      EXPECT_EQ(passed_on(before + character + "b"), before) << inside << " bytes of " << character;
    }
  EXPECT_EQ(passed_on(std::string(kMostText + 9, '\x80')).size(), kMostText - 3) << "no UTF-8 at all";
}

}  // namespace
}  // namespace weft::bootstrap
