#include "train/companions.h"

#include <filesystem>

#include "base/file.h"
#include "format/json_file.h"
#include "model/objectives/objective.h"
#include "text/replace_tokenizer.h"
#include "text/same_tokenizer.h"

namespace loom::train {
namespace {

constexpr char kConfig[] = "tokenizer_config.json", kTemplate[] = "chat_template";
constexpr char kPieces[] =
    "tokenizer.model";  // SentencePiece's form of a tokenizer, for programs that read it

/// One of another tokenizer would be read in place of tokenizer.json.
Status remove_pieces(const std::string& folder) {
  std::error_code error;
  std::filesystem::remove(join_path(folder, kPieces), error);
  return error ? fail_errno(error.value(), fmt::format("cannot remove the old {} of {}", kPieces, folder))
               : Status();
}

/// What is not there is left out.
Status copy_if_there(const std::string& from, const std::string& folder, const char* name) {
  return is_file(join_path(from, name)) ? copy_file(join_path(from, name), join_path(folder, name))
                                        : Status();
}

bool has_tokenizer_like(const text::Tokenizer& tokenizer, const std::string& model) {
  if (model.empty() || !is_file(join_path(model, "tokenizer.json"))) return false;
  const auto own = text::open_tokenizer(model);
  return own.ok() && text::are_alike(**own, tokenizer);
}

/// `transformers` cuts texts to the model's context if it is asked to. Nothing bounds texts of a model with
/// ALiBi.
Status complete_config(const std::string& from, const model::ModelSpec& spec, const std::string& folder) {
  const std::string path = join_path(folder, kConfig);
  if (!is_file(path)) return {};
  Result<format::Json> config = format::read_json(path);
  LOOM_TRY(config.status());
  if (spec.position != model::Position::alibi) (*config)["model_max_length"] = spec.context;
  if (!from.empty() && is_file(join_path(from, kConfig))) {
    const Result<format::Json> origin = format::read_json(join_path(from, kConfig));
    LOOM_TRY(origin.status());
    if (origin->is_object() && origin->contains(kTemplate)) (*config)[kTemplate] = (*origin)[kTemplate];
  }
  return format::write_json(path, *config);
}

}  // namespace

Result<std::string> put_tokenizer(const text::Tokenizer& tokenizer, std::initializer_list<std::string> models,
                                  const model::ModelSpec& spec, const std::string& folder) {
  for (const std::string& model : models) {
    if (!has_tokenizer_like(tokenizer, model)) continue;
    LOOM_TRY(text::copy_tokenizer(model, folder));
    if (!is_file(join_path(model, kPieces))) LOOM_TRY(remove_pieces(folder));
    LOOM_TRY(copy_if_there(model, folder, kPieces));
    return model;
  }
  LOOM_TRY(remove_pieces(folder));
  LOOM_TRY(text::replace_tokenizer(tokenizer, folder));
  LOOM_TRY(complete_config(*models.begin(), spec, folder));
  return std::string();
}

Status copy_companions(const std::string& from, const model::ModelSpec& spec, const std::string& folder) {
  if (from.empty() || !spec.objective().continues_texts) return {};
  for (const char* name : {"generation_config.json", "chat_template.jinja"})
    LOOM_TRY(copy_if_there(from, folder, name));
  return {};
}

}  // namespace loom::train
