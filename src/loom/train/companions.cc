#include "train/companions.h"

#include "base/file.h"
#include "format/json_file.h"
#include "model/objectives/objective.h"
#include "text/replace_tokenizer.h"

namespace loom::train {
namespace {

/// What `transformers` cuts texts to if it is asked to. Nothing bounds the texts of a model with ALiBi.
Status set_longest_text(const model::ModelSpec& spec, const std::string& folder) {
  const std::string path = join_path(folder, "tokenizer_config.json");
  if (spec.position == model::Position::alibi || !is_file(path)) return {};
  Result<format::Json> config = format::read_json(path);
  LOOM_TRY(config.status());
  (*config)["model_max_length"] = spec.context;
  return format::write_json(path, *config);
}

}  // namespace

Status put_tokenizer(const text::Tokenizer& tokenizer, const std::string& from, const model::ModelSpec& spec,
                     const std::string& folder) {
  if (!from.empty()) {
    const auto of_model = text::open_tokenizer(from);
    if (of_model.ok() && (*of_model)->hash() == tokenizer.hash()) return text::copy_tokenizer(from, folder);
  }
  LOOM_TRY(text::replace_tokenizer(tokenizer, folder));
  return set_longest_text(spec, folder);
}

Status copy_companions(const std::string& from, const model::ModelSpec& spec, const std::string& folder) {
  if (from.empty() || !spec.objective().continues_texts) return {};
  for (const char* name : {"generation_config.json", "chat_template.jinja"})
    if (is_file(join_path(from, name))) LOOM_TRY(copy_file(join_path(from, name), join_path(folder, name)));
  return {};
}

}  // namespace loom::train
