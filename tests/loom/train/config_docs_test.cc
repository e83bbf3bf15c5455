// The table of the config's keys: complete, with the limits that parsing has, and the page that is written
// from it.
#include "train/config_docs.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "train/config.h"
#include "train/config_keys.h"

namespace loom::train {
namespace {

TEST(ConfigDocs, EveryKeyIsThereOnceAndInOrder) {
  std::vector<std::string> keys, told;
  for (const KeyDefault& each : key_defaults()) keys.push_back(each.key);
  for (const KeyDoc& doc : key_docs()) {
    told.emplace_back(doc.key);
    EXPECT_TRUE(doc.meaning.ends_with('.')) << doc.key;
  }
  EXPECT_EQ(told, keys);
}

Status parsed(std::string_view key, double value, std::string_view kind) {
  const std::string text = kind == "whole number" ? fmt::format("{}={}", key, std::llround(value))
                                                  : fmt::format("{}={:.9g}", key, value);
  const std::vector<std::string> overrides = {text};
  return parse_config(format::Json::object(), overrides).status();
}

/// Whether parsing refuses the value by its limits, and not for another key's sake.
bool out_of_limits(std::string_view key, double value, std::string_view kind) {
  const Status status = parsed(key, value, kind);
  return !status.ok() && status.message().starts_with(fmt::format("{} is ", key)) &&
         status.message().find("must be from") != std::string::npos;
}

TEST(ConfigDocs, LimitsAreThoseOfParsing) {
  for (const KeyDoc& doc : key_docs()) {
    if (!doc.limits) continue;
    const auto& [least, greatest] = *doc.limits;
    const bool whole = doc.kind == "whole number";
    EXPECT_FALSE(out_of_limits(doc.key, least, doc.kind)) << doc.key;
    EXPECT_FALSE(out_of_limits(doc.key, greatest, doc.kind)) << doc.key;
    EXPECT_TRUE(out_of_limits(doc.key, whole ? least - 1 : least - 1e-3 * std::abs(least) - 1e-31, doc.kind))
        << doc.key << " below " << least;
    EXPECT_TRUE(out_of_limits(doc.key, whole ? greatest + 1 : greatest * 1.0001, doc.kind))
        << doc.key << " above " << greatest;
  }
}

TEST(ConfigDocs, EveryChoiceOfATextIsTaken) {
  for (const KeyDoc& doc : key_docs()) {
    if (doc.kind != "choice" || doc.key == "model.family" || doc.key == "model.task") continue;
    std::stringstream values{std::string(doc.values)};
    for (std::string value; std::getline(values, value, ',');) {
      value.erase(0, value.find_first_not_of(' '));
      if (value.find(' ') != std::string::npos || std::isdigit(value[0])) {
        if (value != "1f1b") continue;  // what is told in words
      }
      if (const size_t k = value.find("_K"); k != std::string::npos) value.replace(k, 2, "_2");
      const std::vector<std::string> overrides = {fmt::format("{}={}", doc.key, value)};
      EXPECT_TRUE(parse_config(format::Json::object(), overrides).ok()) << overrides[0];
    }
  }
}

// With WRITE_DOCS in the environment the page is written anew, as `make docs` does.
TEST(ConfigDocs, ThePageIsTheTable) {
  const std::string page = LOOM_FIXTURES "/../../../docs/reference/loom-config.md", right = config_markdown();
  if (std::getenv("WRITE_DOCS")) std::ofstream(page) << right;
  std::stringstream text;
  text << std::ifstream(page).rdbuf();
  EXPECT_TRUE(text.str() == right) << page << " differs from the table of keys: make docs writes it";
}

}  // namespace
}  // namespace loom::train
