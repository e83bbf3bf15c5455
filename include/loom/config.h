// Config: the configuration of a run. docs/reference/loom-config.md lists the keys.
//
// Thread safety: a value that never changes; copies share it.
#pragma once

#include <loom/status.h>

#include <memory>
#include <string>
#include <vector>

namespace loom {

namespace train {
struct Config;
}

class LOOM_API Config {
 public:
  /// `json` is the text of an object of sections: {"data": {"folder": "data"}, "run": {"steps": 100}}.
  /// `overrides` are "section.key=value". Errors (invalid_argument, invalid_data): bad JSON; an unknown key,
  /// with the nearest right one; a value of another type or out of range.
  static Result<Config> parse(std::string_view json, const std::vector<std::string>& overrides = {});
  /// The same from a file, which errors name. Errors also: not_found.
  static Result<Config> read(const std::string& path, const std::vector<std::string>& overrides = {});

  /// JSON with every key, including those that were left out. A value that the dataset or model.from will
  /// give is 0, empty or null. parse() of it gives the same config.
  std::string to_json() const;

  /// For Loom's own use.
  explicit Config(const train::Config& values);
  const train::Config& values() const { return *values_; }

 private:
  std::shared_ptr<const train::Config> values_;
};

}  // namespace loom
