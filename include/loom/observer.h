// Observers: a run calls their functions as it proceeds. `loom train` prints by console() and writes its
// files by run_files(). A program may use these, and observers of its own.
//
// Thread safety: a run calls its observers on its own thread.
#pragma once

#include <loom/status.h>

#include <memory>
#include <string>

namespace loom {

class Training;
struct StepRecord;

/// These functions do nothing. Each rank calls its own observers; most act on rank 0 only. A function may
/// read `run`, and must not train it.
class LOOM_API Observer {
 public:
  virtual ~Observer();
  /// The run is open. Its next step is the first that this observer gets.
  virtual Status begin(const Training& run);
  /// A sentence of Training::notes(), once each.
  virtual void note(const Training& run, const std::string& sentence);
  /// A step is done, with its evaluation, if any. Its checkpoint follows.
  virtual void step(const Training& run, const StepRecord& record);
  /// Training::complete() has ended: after the last step, early because a rank was to stop, or by a failure.
  virtual Status end(const Training& run, const Status& ended);
};

/// Prints to standard output on rank 0: the config, the job, each note, a line for each step, and at the end
/// predictions and measurements. If standard error is a terminal, a bar there shows the progress.
LOOM_API std::unique_ptr<Observer> console();

/// Writes into run.out on rank 0: config.json, log.jsonl with each step and note, and report.html with
/// charts, at each checkpoint and at the end. If a log or an early report cannot be written, the run goes on,
/// with a warning on standard error. Errors of begin() and end(): system_error, not_found, disk_full.
LOOM_API std::unique_ptr<Observer> run_files();

}  // namespace loom
