// Lines in, lines out.
#include "train/run_log.h"

#include <fcntl.h>

#include <cerrno>
#include <fstream>
#include <map>

#include "train/report.h"

namespace loom::train {

Result<RunLog> RunLog::open(const std::string& path, int64_t next_step) {
  const int anew = next_step == 0 ? O_TRUNC : 0;
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | anew, 0644));
  if (!file.valid()) return fail_errno(errno, fmt::format("cannot write the log of the run, {}", path));
  RunLog log(std::move(file), path);
  if (next_step > 0) log.read_earlier(next_step);
  return log;
}

void RunLog::read_earlier(int64_t next_step) {
  std::map<int64_t, StepRecord> steps;
  std::ifstream lines(path_, std::ios::binary);
  for (std::string line; std::getline(lines, line);) {
    cut_short_ = lines.eof();
    const std::optional<StepRecord> record = record_of_line(line);
    if (record && record->step < next_step) steps[record->step] = *record;
  }
  for (const auto& [step, record] : steps) earlier_.push_back(record);
}

Status RunLog::line(std::string_view text) {
  std::string whole = fmt::format("{}{}\n", cut_short_ ? "\n" : "", text);
  for (std::string_view left = whole; !left.empty();) {
    const ssize_t wrote = ::write(file_.get(), left.data(), left.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) {
      const Status status = fail_errno(errno, fmt::format("cannot write the log of the run, {}", path_));
      cut_short_ = cut_short_ || left.size() < whole.size();
      return std::exchange(failing_, true) ? Status() : status;
    }
    left.remove_prefix(static_cast<size_t>(wrote));
  }
  cut_short_ = failing_ = false;
  return {};
}

}  // namespace loom::train
