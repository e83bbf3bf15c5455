// The keys of config.json, after the configuration classes of `transformers` 4.30 to 5.23: those of all
// families here, a family's own in its description (families/family.h). A key is read, or must have one value
// because no other is computed here, or means nothing to a model's result. A key that is in no row is named
// to the user.
//
// Thread safety: pure functions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "format/json_file.h"
#include "model/spec.h"

namespace loom::model {

/// Another name of a key, which `transformers` maps onto the family's own (its attribute_map).
struct KeyAlias {
  const char *alias, *own;
};

/// A key whose other values ask for what is not computed here; `value` is JSON.
struct Required {
  const char *key, *value;
};

/// A family's keys for what every model has (nullptr: it has no such key), and what a key that is left out
/// stands for in `transformers`.
struct FamilyKeys {
  const char *context = nullptr, *width = nullptr, *layers = nullptr, *heads = nullptr;
  const char *feed_forward = nullptr, *activation = nullptr, *epsilon = nullptr;
  const char *embedding_dropout = nullptr, *residual_dropout = nullptr, *attention_dropout = nullptr;
  const char* classes = nullptr;  // prefix of the names of model classes
  /// What the name of the usual task's class ends with; null: as the objective has it.
  const char* usual_class = nullptr;
  std::span<const KeyAlias> aliases = {};
  std::span<const char* const> read = {};  // besides those above
  std::span<const Required> required = {};
  /// Keys for other heads, for training elsewhere, or from older versions.
  std::span<const char* const> without_meaning = {};
  std::span<const char* const> nested = {};  // objects of keys, and those that are read of them
  std::span<const char* const> nested_read = {};
  float missing_dropout = 0;         // of each dropout
  int64_t missing_feed_forward = 0;  // 0: 4 · width
  int64_t missing_context = 0;       // 0: it must be there
  float missing_epsilon = 0;         // 0: that of new models
};

/// The key under which a config has what the family calls `own`: its alias, where that is there and not null,
/// wins as it does in `transformers`.
const char* key_in(const format::Json& config, Family family, const char* own);

/// unsupported, by its name and with what would be right, for a key whose value asks for what is not computed
/// here. `computes` is whether the model itself is asked for, and not only its weights as a beginning.
Status check_required(const format::Json& config, Family family, Task task, bool computes);

/// Keys that the table does not have, in the file's order.
std::vector<std::string> unknown_keys(const format::Json& config, Family family);

}  // namespace loom::model
