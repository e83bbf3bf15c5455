// Observers: whoever is told what a run does while it goes. `loom train` prints by console() and writes its
// files by run_files(); a program may have these, and others of its own.
//
// Thread safety: an observer is called on the thread that runs.
#pragma once

#include <loom/status.h>

#include <memory>
#include <string>

namespace loom {

class Training;
struct StepRecord;

/// All functions do nothing here. Each rank calls its own observers; most have something to say on rank 0
/// only. A function may ask `run` for its facts and must not train it.
class LOOM_API Observer {
 public:
  virtual ~Observer();
  /// The run is open, and its next step is the first that this observer will be told of.
  virtual Status begin(const Training& run);
  /// A sentence of Training::notes(); each is told once.
  virtual void note(const Training& run, const std::string& sentence);
  /// A step is done, and its evaluation, if any. Its checkpoint comes afterwards.
  virtual void step(const Training& run, const StepRecord& record);
  /// Training::complete() is over: by the last step, since a rank was asked to stop, or by a failure.
  virtual Status end(const Training& run, const Status& ended);
};

/// Prints to standard output on rank 0: the config, the job, each note, a line for each step, and, at the
/// end, what was predicted and measured. A bar on standard error shows how far the run is where that is a
/// terminal.
LOOM_API std::unique_ptr<Observer> console();

/// Writes into run.out on rank 0: config.json, log.jsonl with each step and note, and report.html with
/// charts, at each checkpoint and at the end. A log or an early report that cannot be written ends no run: a
/// warning goes to standard error. Errors of begin() and end(): system_error, not_found, disk_full.
LOOM_API std::unique_ptr<Observer> run_files();

}  // namespace loom
