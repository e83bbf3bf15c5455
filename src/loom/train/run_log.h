// RunLog: log.jsonl of a run, a JSON object a line, written as the run goes; and what a run that goes on
// finds in it of the steps before.
//
// Thread safety: one thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "loom/training.h"

namespace loom::train {

class RunLog {
 public:
  /// For a run whose next step is `next_step`: 0 begins a new file, others go on with the one that is there,
  /// if any. Errors: system_error, not_found, disk_full, naming the file.
  static Result<RunLog> open(const std::string& path, int64_t next_step);

  /// Steps before `next_step`, ascending, as the file has them; of one that was done twice the later. Lines
  /// that are none, such as one that a crash has cut short, are passed over.
  const std::vector<StepRecord>& earlier() const { return earlier_; }

  /// Appends a line. Of failures in a row the first is told, and the others are not: the next line is tried
  /// all the same. Errors: disk_full, system_error.
  Status line(std::string_view text);

 private:
  RunLog(UniqueFd file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}
  void read_earlier(int64_t next_step);

  UniqueFd file_;
  std::string path_;
  std::vector<StepRecord> earlier_;
  bool cut_short_ = false;  // the file does not end with the end of a line
  bool failing_ = false;
};

}  // namespace loom::train
