// ConfigReader: keys of config.json, read into places; the first failure stays.
//
// Thread safety: none.
#pragma once

#include "format/json_file.h"

namespace loom::model {

/// Whether a key is there, and not null.
inline bool is_given(const format::Json& json, const char* key) {
  return json.contains(key) && !json[key].is_null();
}

class ConfigReader {
 public:
  explicit ConfigReader(const format::Json& json) : json_(json) {}
  template <typename F, typename T>
  ConfigReader& required(const char* key, T& into) {
    return take(format::required<F>(json_, key), into);
  }
  template <typename F, typename T>
  ConfigReader& optional(const char* key, T& into) {
    if (key == nullptr) return *this;
    return take(format::value_or<F>(json_, key, static_cast<F>(into)), into);
  }
  /// Python takes null for false, which here would be the family's usual choice.
  ConfigReader& flag(const char* key, bool& into) {
    if (status_.ok() && json_.contains(key) && !json_[key].is_boolean())
      status_ = fail(Code::invalid_data, "{} is {}, must be true or false", key, json_[key].dump());
    return optional<bool>(key, into);
  }
  Status status() const { return status_; }

 private:
  template <typename R, typename T>
  ConfigReader& take(R result, T& into) {
    if (!status_.ok()) return *this;
    if (result.ok()) into = static_cast<T>(*result);
    else status_ = result.status();
    return *this;
  }
  const format::Json& json_;
  Status status_;
};

}  // namespace loom::model
