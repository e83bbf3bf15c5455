// The keys of config.json in one table, family by family, after the configuration classes of
// `transformers` 4.30 to 5.23. A key is read, or must have one value because no other is computed here, or
// means nothing to a model's result. A key that is in no row is named to the user.
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

/// A family's keys for what every model has (nullptr: it has no such key), and what a key that is left out
/// stands for in `transformers`.
struct FamilyKeys {
  const char *context, *width, *layers, *heads, *feed_forward, *activation, *epsilon;
  const char *embedding_dropout, *residual_dropout, *attention_dropout;
  const char* classes;  // prefix of the names of model classes
  std::span<const KeyAlias> aliases;
  float missing_dropout = 0;         // of each dropout
  int64_t missing_feed_forward = 0;  // 0: 4 · width
};

FamilyKeys keys_of(Family family);

/// The key under which a config has what the family calls `own`: its alias, where that is there and not null,
/// wins as it does in `transformers`.
const char* key_in(const format::Json& config, Family family, const char* own);

/// unsupported, by its name and with what would be right, for a key whose value asks for what is not computed
/// here. `computes` is whether the model itself is asked for, and not only its weights as a beginning.
Status check_required(const format::Json& config, Family family, Task task, bool computes);

/// Keys that the table does not have, in the file's order.
std::vector<std::string> unknown_keys(const format::Json& config, Family family);

}  // namespace loom::model
