// loom report: several runs on one page.
#include "train/report.h"

#include "base/file.h"
#include "loom/commands.h"

namespace loom::command {

Status report(const ReportOptions& options) {
  std::vector<train::LoggedRun> runs;
  for (const std::string& folder : options.runs) {
    Result<train::LoggedRun> run = train::read_log(folder);
    LOOM_TRY(run.status());
    runs.push_back(run.take());
  }
  LOOM_TRY(write_file(options.out, train::html_of(runs)));
  fmt::print("report of {} in {}\n", counted(static_cast<int64_t>(runs.size()), "run"), options.out);
  return {};
}

}  // namespace loom::command
