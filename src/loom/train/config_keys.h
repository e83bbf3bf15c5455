// The keys of a config, for those who list them; config.h has the config itself.
#pragma once

#include <string>
#include <vector>

namespace loom::train {

/// A key, and what it is where it is left out, as JSON.
struct KeyDefault {
  std::string key, value;
};
/// Of every key, in the order of the sections.
std::vector<KeyDefault> key_defaults();

}  // namespace loom::train
