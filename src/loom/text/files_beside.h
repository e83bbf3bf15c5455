// FilesBeside: what lies beside a vocabulary or a tokenizer.json and changes the tokens, as `save_pretrained`
// of any version of `transformers` leaves it: tokenizer_config.json, special_tokens_map.json and
// added_tokens.json.
//
// Thread safety: never changes after it is made.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "format/json_file.h"
#include "text/added_tokens.h"

namespace loom::text {

class FilesBeside {
 public:
  /// Files that are not there say nothing. Errors: invalid_data; invalid_argument where two of them name
  /// different tokens for the same; unsupported for a setting that Loom does not have, naming file and key.
  static Result<FilesBeside> read(const std::string& folder);

  /// "GPT2Tokenizer", without "Fast": of tokenizer_config.json, or else of config.json. Empty where neither
  /// says.
  const std::string& tokenizer_class() const { return class_; }
  /// The class that a family's tokenizers mostly are of, by "model_type" of config.json. Any other may be
  /// there.
  const std::string& usual_class() const { return usual_class_; }
  /// The token of a role: "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token" or
  /// "mask_token". Nothing where no file has the key; an empty text where it is null.
  std::optional<std::string> role(const std::string& name) const;
  /// "cls_token" and "sep_token" begin and end a sequence. Without the first, "bos_token" begins it, unless
  /// that is "eos_token", too.
  SpecialNames names() const;
  /// Gives a role its token where no file has the key, as the tokenizer's class would.
  void set_default(const std::string& role, const AddedToken& token);
  /// Whether a setting of tokenizer_config.json is on; nothing where it is not there, or null. Errors:
  /// invalid_data.
  Result<std::optional<bool>> flag(const char* key) const;
  /// Refuses a setting that contradicts what tokenizer.json does. Errors: unsupported, naming both.
  Status check_same(const char* key, bool in_tokenizer_json) const;
  /// Refuses a list of tokenizer_config.json that is not empty. Errors: unsupported.
  Status check_empty(const char* key) const;
  const std::string& config_path() const { return config_path_; }

  /// Adds the tokens of these files to those of tokenizer.json: those with a number, and the tokens of all
  /// roles, which `transformers` finds in texts, too. A token that the vocabulary has
  /// keeps its number, `number_of`. Any other gets the next one, from `next` on. Errors:
  /// invalid_data for a token with another number than that.
  Status add_to(std::vector<AddedToken>& added,
                const std::function<std::optional<int64_t>(const std::string&)>& number_of,
                int64_t next) const;

 private:
  struct Named {
    AddedToken token;
    std::string source;      // for a sentence
    bool described = false;  // the file has more than its text
    bool fallback = false;   // of the class; taken only where the vocabulary has it
  };
  Status read_added(const format::Json& tokens, const std::string& path);
  Status read_numbered(const format::Json& tokens, const std::string& path);
  Status read_roles(const format::Json& json, const std::string& path);
  Status add_role(const std::string& role, const format::Json& json, const std::string& path);
  void read_class(const std::string& folder);
  const Named* described(const std::string& content) const;

  format::Json config_ = format::Json::object();
  std::string config_path_, class_, usual_class_;
  std::map<int64_t, Named> numbered_;
  std::map<std::string, Named> roles_;
  std::vector<Named> more_;  // special tokens without a role
};

}  // namespace loom::text
