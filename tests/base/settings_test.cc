// The table of settings: defaults, parsing, refusals, and that docs/reference/settings.md is what the table
// says.
#include "base/settings.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

namespace weft {
namespace {

std::string refusal(const std::string& entry) {
  const Result<Settings> parsed = parse_settings({entry});
  if (parsed.ok()) return "accepted";
  EXPECT_EQ(parsed.status().code(), Code::invalid_setting);
  return parsed.status().message();
}

bool mentions(const std::string& text, std::initializer_list<const char*> words) {
  for (const char* word : words) {
    if (text.find(word) == std::string::npos)
      return ADD_FAILURE() << "'" << text << "' lacks '" << word << "'", false;
  }
  return true;
}

TEST(Settings, NothingSetLeavesTheDefaults) {
  const Result<Settings> parsed = parse_settings({"PATH=/bin", "HOME=/", "WEFTED=1"});
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->net, "auto");
  EXPECT_TRUE(parsed->shm);
  EXPECT_EQ(parsed->timeout_s, 600);
  EXPECT_EQ(parsed->rank, -1);
}

TEST(Settings, EveryKindIsRead) {
  const Result<Settings> parsed = parse_settings(
      {"WEFT_HOSTID=a=b", "WEFT_INIT_TIMEOUT_S=2.5", "WEFT_SHM=off", "WEFT_RAILS=4", "WEFT_NET=ofi",
       "WEFT_SLICE_BYTES=256K", "WEFT_SPIN_US=0", "WEFT_RANK=3", "WEFT_JOB_SECRET=s"});
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->hostid, "a=b");
  EXPECT_EQ(parsed->init_timeout_s, 2.5);
  EXPECT_FALSE(parsed->shm);
  EXPECT_EQ(parsed->rails, 4);
  EXPECT_EQ(parsed->net, "ofi");
  EXPECT_EQ(parsed->slice_bytes, 256 << 10);
  EXPECT_EQ(parsed->spin_us, 0);
  EXPECT_EQ(parsed->rank, 3);
  EXPECT_EQ(parsed->job_secret, "s");
}

TEST(Settings, FlagsTakeEightWordsInAnyCase) {
  for (const char* word : {"1", "true", "on", "yes", "ON", "True"}) {
    EXPECT_TRUE(parse_settings({std::string("WEFT_STRICT=") + word})->strict) << word;
  }
  for (const char* word : {"0", "false", "off", "no", "No"}) {
    EXPECT_FALSE(parse_settings({std::string("WEFT_SHM=") + word})->shm) << word;
  }
  EXPECT_TRUE(mentions(refusal("WEFT_SHM=maybe"), {"WEFT_SHM", "'maybe'", "on", "off"}));
}

TEST(Settings, BytesTakeSuffixes) {
  const auto slice = [](const std::string& text) {
    return parse_settings({"WEFT_SLICE_BYTES=" + text})->slice_bytes;
  };
  EXPECT_EQ(slice("65536"), 65536);
  EXPECT_EQ(slice("64k"), 64 << 10);
  EXPECT_EQ(slice("3M"), 3 << 20);
  EXPECT_EQ(slice("1G"), 1 << 30);
  EXPECT_EQ(slice("0"), 0);
  for (const char* wrong : {"64Q", "K", "-4K", "1.5M", "4K ", "99999999999999G", "1", "2G"}) {
    EXPECT_TRUE(mentions(refusal(std::string("WEFT_SLICE_BYTES=") + wrong),
                         {"WEFT_SLICE_BYTES", wrong, "0, or 4K to 1G"}));
  }
}

TEST(Settings, NumbersOutOfRangeNameTheRange) {
  EXPECT_TRUE(mentions(refusal("WEFT_RAILS=65"), {"WEFT_RAILS", "'65'", "0 to 64"}));
  EXPECT_TRUE(mentions(refusal("WEFT_RAILS=4x"), {"'4x'", "an integer"}));
  EXPECT_TRUE(mentions(refusal("WEFT_RAILS=99999999999"), {"'99999999999'", "0 to 64"}));
  EXPECT_TRUE(mentions(refusal("WEFT_TIMEOUT_S=0"), {"'0'", "seconds", "0.1 to"}));
  EXPECT_TRUE(mentions(refusal("WEFT_TIMEOUT_S=nan"), {"'nan'"}));
  EXPECT_TRUE(mentions(refusal("WEFT_TIMEOUT_S=inf"), {"'inf'"}));
  EXPECT_TRUE(mentions(refusal("WEFT_NET=udp"), {"'udp'", "auto, tcp, ofi"}));
  EXPECT_TRUE(mentions(refusal("WEFT_NET=au"), {"'au'"}));
  EXPECT_TRUE(mentions(refusal("WEFT_RANK=-2"), {"'-2'", "-1 or more"}));
}

TEST(Settings, AnUnknownNameIsRefusedWithTheNearest) {
  EXPECT_TRUE(mentions(refusal("WEFT_TIMOUT_S=1"), {"WEFT_TIMOUT_S ", "nearest is WEFT_TIMEOUT_S "}));
  EXPECT_TRUE(mentions(refusal("WEFT_SLICE=1"), {"nearest is WEFT_SLICE_BYTES "}));
  EXPECT_TRUE(mentions(refusal("WEFT_LOGFILE=x"), {"nearest is WEFT_LOG_FILE "}));
  EXPECT_TRUE(mentions(refusal("WEFT_PROJECT=x"), {"WEFT_PROJECT is no setting", "begin with WEFT_"}));
}

TEST(Settings, AnEmptyValueIsNone) {
  EXPECT_EQ(parse_settings({"WEFT_RAILS=", "WEFT_NET=", "WEFT_SHM="})->net, "auto");
}

TEST(Settings, EveryDefaultIsARightValue) {
  for (const SettingDoc& doc : setting_docs()) {
    EXPECT_TRUE(parse_settings({doc.name + "=" + doc.default_value}).ok())
        << doc.name << " " << doc.default_value;
  }
}

TEST(Settings, RowsAreDocumentedAndUnique) {
  std::set<std::string> names;
  for (const SettingDoc& doc : setting_docs()) {
    EXPECT_TRUE(names.insert(doc.name).second) << doc.name;
    EXPECT_TRUE(doc.meaning.ends_with('.')) << doc.name;
    EXPECT_FALSE(doc.kind.empty() || doc.group.empty()) << doc.name;
    EXPECT_TRUE(doc.kind == "text" || !doc.bounds.empty()) << doc.name;
  }
}

// What asks for settings() itself runs in a process of its own, since they are read once.

TEST(Settings, CurrentValuesAreSpelledAsVariables) {
  EXPECT_EXIT(
      {
        setenv("WEFT_SLICE_BYTES", "131072", 1);
        setenv("WEFT_PIN", "0", 1);
        const bool right =
            current_value("WEFT_SLICE_BYTES") == "128K" && current_value("WEFT_PIN") == "off" &&
            current_value("WEFT_RECORDER_OPS") == "256" && current_value("WEFT_NO_SUCH").empty();
        std::exit(right ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(Settings, TheSecretIsNeverPrinted) {
  EXPECT_EXIT(
      {
        setenv("WEFT_JOB_SECRET", "swordfish", 1);
        const bool kept = settings().job_secret == "swordfish" && current_value("WEFT_JOB_SECRET") == "(set)";
        std::exit(kept ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(Settings, AWrongEnvironmentIsReportedAndLeavesDefaults) {
  EXPECT_EXIT(
      {
        setenv("WEFT_RAILS", "many", 1);
        setenv("WEFT_SPIN_US", "7", 1);
        const bool right = settings().rails == 0 && settings().spin_us == 7 &&
                           settings_status().code() == Code::invalid_setting;
        std::exit(right ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

// With WRITE_DOCS in the environment the page is written anew, as `make docs` does.
TEST(Settings, TheDocumentIsTheTable) {
  const std::string page = WEFT_SOURCE_DIR "/docs/reference/settings.md", right = settings_markdown();
  if (std::getenv("WRITE_DOCS")) std::ofstream(page) << right;
  std::stringstream text;
  text << std::ifstream(page).rdbuf();
  EXPECT_TRUE(text.str() == right) << page << " differs from the table of settings: make docs writes it";
}

}  // namespace
}  // namespace weft
