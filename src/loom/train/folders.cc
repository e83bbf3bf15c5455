// Looks for the files that mark each kind.
#include "train/folders.h"

#include <filesystem>

#include "base/file.h"
#include "format/checkpoints.h"

namespace loom::train {
namespace {

enum class Kind { nothing, file, model, checkpoint, checkpoints, run, dataset, unknown };

bool has_checkpoints(const std::string& folder) {
  const Result<std::vector<std::string>> names = list_folder(folder);
  if (!names.ok()) return false;
  for (const std::string& name : *names)
    if (name.starts_with("step-") && is_folder(join_path(folder, name))) return true;
  return false;
}

bool has_key(const std::string& folder, const char* key) {
  const Result<format::Json> json = format::read_json(join_path(folder, "config.json"));
  return json.ok() && json->is_object() && json->contains(key);
}

/// A config alone makes no run: users have their own where they work.
bool is_run(const std::string& path) {
  const bool ran = is_file(join_path(path, "log.jsonl")) && has_key(path, "run");
  return ran || has_checkpoints(join_path(path, "checkpoints"));
}

Kind folder_kind(const std::string& path) {
  if (is_file(path)) return Kind::file;
  if (!is_folder(path)) return Kind::nothing;
  if (is_file(join_path(path, "manifest.json"))) return Kind::checkpoint;
  if (has_key(path, "model_type")) return Kind::model;
  if (is_file(join_path(path, "dataset.json"))) return Kind::dataset;
  if (is_run(path)) return Kind::run;
  if (has_checkpoints(path)) return Kind::checkpoints;
  return Kind::unknown;
}

/// The model of a run; "" if it has saved none.
std::string model_in(const std::string& run) {
  const std::string model = join_path(run, "model");
  return folder_kind(model) == Kind::model ? model : "";
}

/// The newest complete checkpoint of a run or of a folder of checkpoints; "" if there is none.
std::string checkpoint_in(const std::string& folder, Kind kind) {
  const std::string root = kind == Kind::run ? join_path(folder, "checkpoints") : folder;
  const Result<format::Checkpoints> checkpoints = format::Checkpoints::open(root, 1);
  if (!checkpoints.ok()) return "";
  const Result<std::optional<uint64_t>> latest = checkpoints->latest();
  return latest.ok() && latest->has_value() ? checkpoints->step_folder(**latest) : "";
}

std::string by_export(const std::string& checkpoint) {
  return fmt::format("`loom export {} --out FOLDER` makes a model of it", checkpoint);
}

/// What of a run, or of a folder of checkpoints, would be right.
std::string right_one_in(const std::string& path, Kind kind, Wanted wanted) {
  const std::string checkpoint = checkpoint_in(path, kind);
  const std::string model = kind == Kind::run ? model_in(path) : "";
  if (wanted != Wanted::checkpoint && !model.empty()) {
    if (wanted == Wanted::model || checkpoint.empty()) return fmt::format("its model is {}", model);
    return fmt::format("its model is {}, its newest checkpoint {}", model, checkpoint);
  }
  if (checkpoint.empty()) return "it has no complete checkpoint and no model yet";
  const std::string newest = fmt::format("its newest checkpoint is {}", checkpoint);
  return wanted == Wanted::model ? newest + "; " + by_export(checkpoint) : newest;
}

const char* description(Wanted wanted) {
  switch (wanted) {
    case Wanted::model:
      return "a model is a folder with config.json and safetensors, such as model in run.out";
    case Wanted::checkpoint:
      return "a checkpoint is a folder with manifest.json, such as checkpoints/step-00000100 in run.out";
    case Wanted::stored:
      return "a folder of a model, a checkpoint or a dataset, or a safetensors file, would be right";
    case Wanted::dataset: return "`loom tokenize FILES --out FOLDER` makes the folder of a dataset";
  }
  return "";
}

/// A name of something that Loom knows, and what would be right instead; "" where `kind` is right or unknown.
std::string misuse(const std::string& path, Kind kind, Wanted wanted) {
  const bool lists = wanted != Wanted::dataset;
  switch (kind) {
    case Kind::run:
    case Kind::checkpoints:
      return fmt::format("{} {}: {}", path,
                         kind == Kind::run ? "is the folder of a run" : "is a folder of checkpoints",
                         lists ? right_one_in(path, kind, wanted) : description(wanted));
    case Kind::model:
      if (wanted == Wanted::model || wanted == Wanted::stored) return "";
      if (wanted == Wanted::dataset) return fmt::format("{} is a model: {}", path, description(wanted));
      return fmt::format("{} is a model, no checkpoint: a run begins with it by model.from", path);
    case Kind::checkpoint:
      if (wanted == Wanted::checkpoint || wanted == Wanted::stored) return "";
      return fmt::format("{} is a checkpoint: {}", path,
                         wanted == Wanted::model ? by_export(path) : description(wanted));
    case Kind::dataset:
      if (wanted == Wanted::dataset || wanted == Wanted::stored) return "";
      return fmt::format("{} is a dataset: {}", path, description(wanted));
    case Kind::nothing:
    case Kind::file:
    case Kind::unknown: return "";
  }
  return "";
}

/// For what is not there or is a file: what lies beside it may be meant.
std::string meant_beside(const std::string& path, Wanted wanted) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  const Kind kind = folder_kind(folder);
  const bool right = (kind == Kind::model && wanted == Wanted::model) ||
                     (kind == Kind::checkpoint && wanted == Wanted::checkpoint) ||
                     (kind == Kind::dataset && wanted == Wanted::dataset);
  if (right) return fmt::format("{}, its folder, would be right", folder);
  const bool holds = wanted != Wanted::dataset && (kind == Kind::run || kind == Kind::checkpoints);
  const std::string other = holds ? misuse(folder, kind, wanted) : "";
  return other.empty() ? description(wanted) : other;
}

}  // namespace

Status expect(const std::string& path, Wanted wanted) {
  const Kind kind = folder_kind(path);
  if (kind == Kind::nothing)
    return fail(Code::not_found, "there is no \"{}\": {}", path, meant_beside(path, wanted));
  if (kind == Kind::file && wanted != Wanted::stored)
    return fail(Code::not_found, "{} is a file: {}", path, meant_beside(path, wanted));
  const std::string wrong = misuse(path, kind, wanted);
  return wrong.empty() ? Status() : fail(Code::not_found, "{}", wrong);
}

Status expect_place_for(Made made, const std::string& path) {
  const Kind kind = folder_kind(path);
  const bool has_config = is_file(join_path(path, "config.json"));
  const auto refuse = [&](const char* what) {
    return fail(Code::invalid_argument, "{} {} would replace: name another folder", path, what);
  };
  switch (made) {
    case Made::run:
      if (kind == Kind::model) return refuse("is a model, whose config.json a run");
      // The folder of a dataset may be that of a run, too.
      if (has_config && !is_run(path)) return refuse("has a config.json of no run, which a run");
      return {};
    case Made::model:
      if (kind == Kind::dataset) return refuse("is a dataset, whose tokenizer that of a model");
      if (kind == Kind::run) return refuse("is the folder of a run, whose config.json that of a model");
      if (kind == Kind::checkpoint)
        return fail(Code::invalid_argument,
                    "{} is a checkpoint, and cannot be a model, too: name another folder", path);
      if (kind != Kind::model && has_config)
        return refuse("has a config.json of no model, which that of a model");
      return {};
    case Made::dataset:
      if (kind == Kind::model) return refuse("is a model, whose tokenizer that of a dataset");
      return {};
  }
  return {};
}

}  // namespace loom::train
