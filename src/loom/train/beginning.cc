// How a run begins: with which data, and with which checkpoint, if any.
#include <algorithm>
#include <set>
#include <string_view>

#include "base/file.h"
#include "model/hugging_face.h"
#include "model/model_file.h"
#include "model/same_model.h"
#include "text/same_tokenizer.h"
#include "text/tokenizer.h"
#include "train/classes.h"
#include "train/token_ids.h"
#include "train/trainer.h"

namespace loom::train {
namespace {

/// A classifier that goes on with classes of its own must number them as the dataset does, or its head would
/// be trained for others. A dataset of their numbers takes their names. Returns a note on a classifier of
/// other classes; "": it is of these, or of none, or does not say of which.
Result<std::string> take_classes(const Config& config, const model::ModelSpec& spec,
                                 std::vector<std::string>& labels) {
  const std::string& from = config.model.from;
  if (labels.empty() || from.empty() || spec.new_head) return std::string();
  const Result<format::Json> json = format::read_config(from);
  LOOM_TRY(json.status());
  const Result<text::ModelClasses> own = classes_of(*json, from);
  LOOM_TRY(own.status());
  const std::vector<std::string>& classes = own->names;
  if (!spec.new_classes) {
    const bool named = classes != text::unnamed_classes(static_cast<int64_t>(classes.size()));
    if (text::are_classes(labels, classes)) {
      if (named) labels = classes;
      return std::string();
    }
    const std::set<std::string_view> known(classes.begin(), classes.end());
    if (std::any_of(labels.begin(), labels.end(), [&](const auto& label) { return known.contains(label); }))
      LOOM_TRY(check_classes(labels, config.data.folder, *own));
    if (!named) return std::string();
  }
  return fmt::format(
      "model.from, {}, classifies other texts than the dataset has: {}, where the labels here are {}; {}",
      from, text::listed(classes), text::listed(labels),
      spec.new_classes ? "the last layer of its head begins at random"
                       : "its head begins with the weights of those, by their numbers");
}

/// That class by class a checkpoint's model has the dataset's names, where both have any. A dataset of their
/// numbers takes the checkpoint's.
Status take_classes(const format::Json& stored, std::vector<std::string>& labels) {
  const Result<std::vector<std::string>> own = model::label_names(stored);
  LOOM_TRY(own.status());
  if (labels.empty() || own->empty()) return {};
  if (labels.size() == own->size() && text::are_classes(labels, *own)) {
    labels = *own;
    return {};
  }
  for (size_t label = 0; label < std::min(own->size(), labels.size()); ++label)
    if ((*own)[label] != labels[label])
      return fail(Code::invalid_argument,
                  "class {} is \"{}\" in the checkpoint and \"{}\" in the dataset, must be the same in both: "
                  "give it data with the labels that it was trained on, or name another run.out",
                  label, (*own)[label], labels[label]);
  return {};
}

}  // namespace

/// What a rank can find wrong by itself: a folder that is not there on its node, for one.
Result<model::ModelSpec> Trainer::open() {
  Result<Data> data = open_data(config_);
  LOOM_TRY(data.status());
  data_ = data.take();
  Result<model::ModelSpec> spec = spec_of(config_, data_);
  LOOM_TRY(spec.status());
  Result<std::string> other_classes = take_classes(config_, *spec, data_.labels);
  LOOM_TRY(other_classes.status());
  other_classes_ = other_classes.take();
  const std::string& from = config_.model.from;
  if (!from.empty()) {
    const Result<format::Json> json = format::read_config(from);
    LOOM_TRY(json.status());
    take_token_ids(*json, origin_);
  }
  if (!from.empty() && spec->vocabulary > data_.vocabulary &&
      text::open_tokenizer(from).status().code() == Code::not_found)
    notes_.push_back(
        fmt::format("model.from, {}, has a vocabulary of {} tokens and no tokenizer beside it, the dataset's "
                    "tokenizer has "
                    "{}: nothing tells whether its tokens are those that the model was trained on",
                    from, spec->vocabulary, data_.vocabulary));
  return spec;
}

/// From rank 0, which alone writes what lies in run.out itself.
Status Trainer::lock_folder() {
  if (groups_->rank() != 0) return {};
  LOOM_TRY(make_folders(config_.run.out));
  Result<FolderLock> lock = FolderLock::take(config_.run.out);
  LOOM_TRY(lock.status().in("run.out"));
  lock_.emplace(lock.take());
  if (!lock_->note().empty()) notes_.push_back(lock_->note());
  return {};
}

/// This run's newest, so that it goes on where it was interrupted, or else the one that the config names; "":
/// there is none. Damaged ones are passed over where a whole one is left; where none is, beginning anew would
/// lose what may be mended. One that was never finished holds nobody up.
Result<std::string> Trainer::checkpoint_to_begin_with() {
  const std::string checkpoints = join_path(config_.run.out, "checkpoints");
  const Result<format::FoundCheckpoints> found = checkpoints_->find();
  if (!found.ok())
    return fail(found.status().code(),
                "{}; a run that went on without it would lose it: mend that, or remove it from {}, or name "
                "another run.out",
                found.status().message(), checkpoints);
  if (!config_.run.resume) {
    LOOM_TRY(begins_alone(*found));
    return config_.run.resume_from;
  }
  const auto passed_over = [&](const std::string& what, const std::string& instead) {
    notes_.push_back(fmt::format("a checkpoint is passed over: {}; {}", what, instead));
  };
  if (!found->newest && found->damaged.empty()) {
    const std::string& from = config_.run.resume_from;
    for (const std::string& what : found->unfinished)
      passed_over(what, from.empty() ? "there is none before it: the run begins anew"
                                     : fmt::format("there is none before it: the run begins with {}", from));
    return from;
  }
  if (!found->newest)
    return fail(Code::invalid_data,
                "{}; no other checkpoint in {} is complete: put back what is missing, remove that folder to "
                "begin anew, or name another run.out",
                found->damaged.front(), checkpoints);
  for (const auto* each : {&found->unfinished, &found->damaged})
    for (const std::string& what : *each)
      passed_over(what, fmt::format("goes on from step {}", *found->newest));
  return checkpoints_->step_folder(*found->newest);
}

/// Checkpoints are told apart by their steps: among those of an earlier run the new ones would be the oldest,
/// and the first to be removed, and whoever resumed would go on with the earlier run.
Status Trainer::begins_alone(const format::FoundCheckpoints& found) const {
  if (!found.newest && found.damaged.empty()) return {};
  return fail(
      Code::invalid_argument,
      "{} has checkpoints of an earlier run, among which a run with run.resume=false would lose its own: "
      "remove that folder, name another run.out, or let the run resume",
      join_path(config_.run.out, "checkpoints"));
}

/// Of a checkpoint of this run that cannot be read, what could be used instead.
Status Trainer::with_one_before(const Status& status) const {
  if (status.code() != Code::invalid_data || !is_own()) return status;
  std::optional<uint64_t> before;
  const Result<std::vector<uint64_t>> steps = checkpoints_->complete_steps();
  if (steps.ok())
    for (const uint64_t step : *steps)
      if (static_cast<int64_t>(step) < beginning_.step) before = step;
  if (before)
    return fail(Code::invalid_data,
                "{}; the checkpoint before it is of step {}: without the folder {} the run "
                "goes on from that",
                status.message(), *before, beginning_.checkpoint);
  return fail(
      Code::invalid_data,
      "{}; there is no complete checkpoint before it: put back what is damaged, remove that folder to "
      "begin anew, or name another run.out",
      status.message());
}

/// That a checkpoint is of this model and of tokens that mean the same: as many elements prove neither.
Status Trainer::check_goes_on(const format::Json& manifest) const {
  const std::string key = text::tokenizer_key(*data_.tokenizer);
  if (manifest.contains("tokenizer") && manifest["tokenizer"] != key)
    return fail(
        Code::invalid_argument,
        "the checkpoint was trained on tokens of another tokenizer than those of {} ({}): give it data "
        "that `loom tokenize --tokenizer` has made with the tokenizer of that run's model, or name "
        "another run.out",
        config_.data.folder, data_.tokenizer->description());
  if (!manifest.contains("model")) return {};
  const Result<model::ModelSpec> stored = model::spec_from_config(manifest["model"]);
  LOOM_TRY(stored.status());
  // Through config.json as well, which does not have everything.
  const Result<model::ModelSpec> own = model::spec_from_config(model_config());
  LOOM_TRY(own.status());
  const std::string difference = model::difference(*stored, *own);
  if (difference.empty()) return {};
  return fail(
      Code::invalid_data,
      "the checkpoint is of another model: it has {}; give the config the checkpoint's, or name another "
      "run.out",
      difference);
}

Status Trainer::place_in_data(const format::Json& manifest, int64_t step, bool own_run) {
  const Result<Position> stored = position_of(manifest, step);
  LOOM_TRY(stored.status());
  const Result<Continuation> next = continuation(*stored, config_, dataset_key(*data_.train), own_run);
  LOOM_TRY(next.status());
  if (!next->note.empty()) notes_.push_back(next->note);
  from_step_ = step;
  from_sequence_ = next->sequence;
  data_.train->go_on(static_cast<uint64_t>(step), static_cast<uint64_t>(next->sequence));
  return {};
}

/// The checkpoint that the run begins with, opened, and where it lies; nothing where there is none.
Result<std::optional<StoredState>> Trainer::state_to_begin_with() {
  const Result<std::string> folder = checkpoint_to_begin_with();
  LOOM_TRY(folder.status());
  if (folder->empty()) return std::optional<StoredState>();
  Result<StoredState> state = open_state(*folder);
  LOOM_TRY(*folder == config_.run.resume_from ? state.status().in("run.resume_from") : state.status());
  const Result<int64_t> step = format::required<int64_t>(state->manifest, "step");
  LOOM_TRY(step.status().in(*folder));
  LOOM_TRY(check_goes_on(state->manifest).in(*folder));
  if (state->manifest.contains("model"))
    LOOM_TRY(take_classes(state->manifest["model"], data_.labels).in(*folder));
  beginning_ = {*step, *folder, state->manifest.dump()};
  return std::optional(state.take());
}

}  // namespace loom::train
