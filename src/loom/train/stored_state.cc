// The files of all owners, opened and put together.
#include "train/stored_state.h"

#include "base/file.h"
#include "format/checkpoints.h"
#include "model/hugging_face.h"
#include "text/replace_tokenizer.h"
#include "text/same_tokenizer.h"
#include "train/companions.h"
#include "train/config.h"
#include "train/folders.h"
#include "train/model_dtype.h"
#include "train/token_ids.h"

namespace loom::train {
namespace {

Result<format::Json> object_of(const format::Json& manifest, const char* key) {
  if (!manifest.contains(key) || !manifest[key].is_object())
    return fail(Code::invalid_data, "its manifest has no object \"{}\"", key);
  return manifest[key];
}

Result<Config> config_of(const format::Json& manifest) {
  const Result<format::Json> section = object_of(manifest, "config");
  LOOM_TRY(section.status());
  return stored_config(*section);
}

std::string model_of_run(const std::string& checkpoint) { return join_path(checkpoint, "../../model"); }

/// Puts the tokenizer of the run into `folder`: that of its dataset, or of its model, which lies beside its
/// checkpoints; with the files of `origin` if it is the same. Without either `folder` keeps one that is the
/// run's, and loses another one. Returns what is there then, or nullptr.
Result<std::shared_ptr<const text::Tokenizer>> put_tokenizer_of(
    const format::Json& manifest, const std::string& dataset, const std::string& origin,
    const model::ModelSpec& spec, const std::string& checkpoint, const std::string& folder) {
  const auto is_of_run = [&](const text::Tokenizer& tokenizer) {
    return !manifest.contains("tokenizer") || manifest["tokenizer"] == text::tokenizer_key(tokenizer);
  };
  for (const std::string& from : {dataset, model_of_run(checkpoint)}) {
    const auto tokenizer = text::open_tokenizer(from);
    if (tokenizer.status().code() != Code::not_found) LOOM_TRY(tokenizer.status());
    if (!tokenizer.ok() || !is_of_run(**tokenizer)) continue;
    LOOM_TRY(put_tokenizer(**tokenizer, origin, spec, folder));
    return tokenizer;
  }
  const auto tokenizer = text::open_tokenizer(folder);
  if (tokenizer.ok() && manifest.contains("tokenizer") && is_of_run(**tokenizer)) return tokenizer;
  LOOM_TRY(text::remove_tokenizer(folder));
  return std::shared_ptr<const text::Tokenizer>();
}

}  // namespace

Result<StoredState> open_state(const std::string& folder) {
  LOOM_TRY(expect(folder, Wanted::checkpoint));
  Result<format::Json> manifest = format::read_manifest(folder);
  LOOM_TRY(manifest.status());
  StoredState state;
  for (int stage = 0; manifest->contains(engine::state_name(stage, 0)); ++stage) {
    state.readers.emplace_back();
    for (int tensor = 0; manifest->contains(engine::state_name(stage, tensor)); ++tensor) {
      const std::string name = engine::state_name(stage, tensor);
      Result<format::FlatLayout> layout = format::FlatLayout::from_json(name, (*manifest)[name]);
      LOOM_TRY(layout.status().in(folder));
      state.readers.back().push_back(std::make_unique<format::FlatReader>(folder, layout.take()));
    }
  }
  if (state.readers.empty()) return fail(Code::invalid_data, "{}: no state in its manifest", folder);
  state.manifest = manifest.take();
  return state;
}

Result<Exported> export_model(const std::string& checkpoint, const std::string& folder,
                              const std::string& dtype) {
  LOOM_TRY(expect_place_for(Made::model, folder));
  const Result<StoredState> state = open_state(checkpoint);
  LOOM_TRY(state.status());
  LOOM_TRY(format::check_hashes(state->manifest, checkpoint));  // before anything is made
  Result<format::Json> config = object_of(state->manifest, "model");
  LOOM_TRY(config.status().in(checkpoint));
  const Result<format::DType> stored_as = model_dtype(dtype, *config);
  LOOM_TRY(stored_as.status());
  set_dtype(*stored_as, *config);
  const Result<model::ModelSpec> spec = model::spec_from_config(*config);
  LOOM_TRY(spec.status().in(checkpoint));
  const Result<int64_t> step = format::required<int64_t>(state->manifest, "step");
  LOOM_TRY(step.status().in(checkpoint));
  const std::vector<model::Unit> units = model::units_of(*spec);
  LOOM_TRY(make_folders(folder));
  const Result<Config> of_run = config_of(state->manifest);
  LOOM_TRY(of_run.status().in(checkpoint));
  // What the run began with, or, where that is gone, its own model, which has its files.
  const std::string origin = is_folder(of_run->model.from) ? of_run->model.from : model_of_run(checkpoint);
  const auto tokenizer =
      put_tokenizer_of(state->manifest, of_run->data.folder, origin, *spec, checkpoint, folder);
  LOOM_TRY(tokenizer.status().in(checkpoint));
  LOOM_TRY(copy_companions(origin, *spec, folder));
  // Checkpoints of earlier versions have no ids.
  if (*tokenizer != nullptr) set_token_ids(format::Json(*config), **tokenizer, *config);
  LOOM_TRY(format::write_config(folder, *config));
  Result<format::ModelWriter> writer =
      format::ModelWriter::create(folder, model::tensor_specs(units, *stored_as));
  LOOM_TRY(writer.status());
  for (const model::Unit& unit : units) {
    const Result<model::StoredShares> parameters = engine::stored_part(state->readers, unit, engine::kMaster);
    LOOM_TRY(parameters.status().in(checkpoint));
    LOOM_TRY(model::write_parameters(&*writer, unit, [&](int64_t begin, std::span<float> into) {
      return parameters->read(begin, into).in(checkpoint);
    }));
  }
  LOOM_TRY(writer->finish());
  return Exported{*step, model::parameter_count(units), *tokenizer != nullptr, of_run->data.folder};
}

}  // namespace loom::train
