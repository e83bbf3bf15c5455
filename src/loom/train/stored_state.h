// Checkpoints from outside a run: the state that they hold, and a whole model made of it.
//
// Thread safety: functions; safe from any thread, for different folders.
#pragma once

#include <string>

#include "engine/engine.h"
#include "format/json_file.h"

namespace loom::train {

/// A complete checkpoint of any layout.
struct StoredState {
  format::Json manifest;
  engine::StateReaders readers;
};

/// `folder` is that of a step. Errors: as format::read_manifest(); invalid_data (no state in its manifest).
Result<StoredState> open_state(const std::string& folder);

/// What export_model() found.
struct Exported {
  int64_t step = 0;
  int64_t parameters = 0;
  bool tokenizer = false;  // whether the run's stands beside the model
  std::string dataset;     // as the run's config names it
  std::string lost;        // the model that the run began with, where it is gone with what lies beside it
};

/// The model of a checkpoint in Hugging Face's form, in a folder that is made if it is not there; a unit at a
/// time is in memory. `dtype` is a setting of model_dtype(); "auto" is what the run saves models in. Errors:
/// as open_state(); invalid_data (a file has not the hash that the manifest says); invalid_argument,
/// unsupported, disk_full, system_error.
Result<Exported> export_model(const std::string& checkpoint, const std::string& folder,
                              const std::string& dtype = "auto");

}  // namespace loom::train
