#include "train/companions.h"

#include "base/file.h"
#include "format/json_file.h"
#include "model/objectives/objective.h"

namespace loom::train {
namespace {

using format::Json;

constexpr char kGeneration[] = "generation_config.json", kTemplate[] = "chat_template.jinja";
constexpr char kTokenizer[] = "tokenizer_config.json", kTemplateKey[] = "chat_template";

Status copy_file(const std::string& from, const std::string& folder, const char* name) {
  if (!is_file(join_path(from, name))) return {};
  const Result<std::string> content = read_file(join_path(from, name));
  LOOM_TRY(content.status());
  return write_file(join_path(folder, name), *content);
}

/// Versions of `transformers` keep the template in a file of its own, or as a key.
Status copy_template(const std::string& from, const std::string& folder) {
  const std::string path = join_path(from, kTokenizer), beside = join_path(folder, kTokenizer);
  if (!is_file(path) || !is_file(beside)) return {};
  const Result<Json> origin = format::read_json(path);
  LOOM_TRY(origin.status());
  if (!origin->is_object() || !origin->contains(kTemplateKey)) return {};
  Result<Json> saved = format::read_json(beside);
  LOOM_TRY(saved.status());
  (*saved)[kTemplateKey] = (*origin)[kTemplateKey];
  return format::write_json(beside, *saved);
}

}  // namespace

Status copy_companions(const std::string& from, const model::ModelSpec& spec, const std::string& folder) {
  if (from.empty() || !spec.objective().continues_texts) return {};
  for (const char* name : {kGeneration, kTemplate}) LOOM_TRY(copy_file(from, folder, name));
  return copy_template(from, folder);
}

}  // namespace loom::train
