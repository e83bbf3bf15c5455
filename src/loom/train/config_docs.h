// What each key of a config means: one table, from which `loom train --help` and
// docs/reference/loom-config.md are written. A test compares the table with the keys, the limits and the
// page.
//
// Thread safety: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace loom::train {

/// The least and the greatest number that a key takes.
struct KeyLimits {
  double least = 0, greatest = 0;
};

/// A key of the config, for people.
struct KeyDoc {
  std::string_view key;             // "section.name"
  std::string_view kind;            // text, whole number, number, flag or choice
  std::string_view unit;            // of a number; "" where it counts nothing
  std::optional<KeyLimits> limits;  // of a number
  std::string_view values;          // what a text or a choice takes, where the kind does not say it
  std::string_view otherwise;       // what stands in for a default of null, 0 or ""; "": the default stands
  std::string_view meaning;         // whole sentences
};
/// Of every key, in the order of key_defaults().
const std::vector<KeyDoc>& key_docs();

/// The allowed values: "1 to 4096", or what the choice lists.
std::string values_of(const KeyDoc& doc);
/// The lines of --help: key, default, allowed values and meaning.
std::string config_help();
/// docs/reference/loom-config.md, whole.
std::string config_markdown();

}  // namespace loom::train
