// Configs, read and checked.
#include "loom/config.h"

#include "train/config.h"

namespace loom {

Config::Config(const train::Config& values) : values_(std::make_shared<const train::Config>(values)) {}

Result<Config> Config::parse(std::string_view json, const std::vector<std::string>& overrides) {
  const Result<format::Json> parsed = format::parse_json(json);
  LOOM_TRY(parsed.status());
  const Result<train::Config> values = train::parse_config(*parsed, overrides);
  LOOM_TRY(values.status());
  return Config(*values);
}

Result<Config> Config::read(const std::string& path, const std::vector<std::string>& overrides) {
  const Result<format::Json> json = format::read_json(path);
  LOOM_TRY(json.status());
  const Result<train::Config> values = train::parse_config(*json, overrides);
  LOOM_TRY(values.status().in(path));
  return Config(*values);
}

std::string Config::to_json() const { return train::to_json(*values_).dump(2); }

}  // namespace loom
