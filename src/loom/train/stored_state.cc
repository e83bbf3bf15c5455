// The files of all owners, opened and put together.
#include "train/stored_state.h"

#include <filesystem>

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

struct PutTokenizer {
  std::shared_ptr<const text::Tokenizer> tokenizer;  // what is there; or nullptr
  std::string model;                                 // whose files those are; or ""
};

/// Puts the tokenizer of the run into `folder`: that of its dataset, of its model, which lies beside its
/// checkpoints, or of the model that it began with. Without any of them `folder` keeps one that is the run's,
/// and loses another one.
Result<PutTokenizer> put_tokenizer_of(const format::Json& manifest, const Config& of_run,
                                      const model::ModelSpec& spec, const std::string& checkpoint,
                                      const std::string& folder) {
  const std::string &origin = of_run.model.from, own = model_of_run(checkpoint);
  const auto is_of_run = [&](const text::Tokenizer& tokenizer) {
    return !manifest.contains("tokenizer") || manifest["tokenizer"] == text::tokenizer_key(tokenizer);
  };
  for (const std::string& from : {of_run.data.folder, own, origin}) {
    if (from.empty()) continue;
    auto tokenizer = text::open_tokenizer(from);
    if (tokenizer.status().code() != Code::not_found) LOOM_TRY(tokenizer.status());
    if (!tokenizer.ok() || !is_of_run(**tokenizer)) continue;
    Result<std::string> model = put_tokenizer(**tokenizer, {origin, own}, spec, folder);
    LOOM_TRY(model.status());
    return PutTokenizer{tokenizer.take(), model.take()};
  }
  auto tokenizer = text::open_tokenizer(folder);
  if (tokenizer.ok() && manifest.contains("tokenizer") && is_of_run(**tokenizer))
    return PutTokenizer{tokenizer.take(), ""};
  LOOM_TRY(text::remove_tokenizer(folder));
  return PutTokenizer();
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
  const Result<Config> of_run = config_of(state->manifest);
  LOOM_TRY(of_run.status().in(checkpoint));
  const std::string& from = of_run->model.from;
  if (std::error_code none; !from.empty() && std::filesystem::equivalent(from, folder, none))
    return fail(Code::invalid_argument, "{} is the model that the run began with: name another folder",
                folder);
  LOOM_TRY(make_folders(folder));
  Result<PutTokenizer> put = put_tokenizer_of(state->manifest, *of_run, *spec, checkpoint, folder);
  LOOM_TRY(put.status().in(checkpoint));
  if (put->model.empty()) put->model = is_folder(from) ? from : model_of_run(checkpoint);
  LOOM_TRY(copy_companions(put->model, *spec, folder));
  // Checkpoints of earlier versions have no ids.
  if (put->tokenizer) set_token_ids(format::Json(*config), *put->tokenizer, *config);
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
  LOOM_TRY(format::write_config(folder, *config));  // last: it says what type the tensors have
  const bool lost = !from.empty() && !is_folder(from) && !is_folder(model_of_run(checkpoint));
  return Exported{*step, model::parameter_count(units), put->tokenizer != nullptr, of_run->data.folder,
                  lost ? from : ""};
}

}  // namespace loom::train
