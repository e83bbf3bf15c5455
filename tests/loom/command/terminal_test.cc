// What a user sees on a terminal: the command runs on a pseudo-terminal, and what it writes is put on a
// screen.
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include "command/processes.h"

namespace loom::testing {
namespace {

/// Runs a command on a terminal of its own, wide enough for no line to wrap.
Outcome on_terminal(const std::string& command) {
  winsize size{};
  size.ws_row = 50;
  size.ws_col = 400;
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, &size);
  if (child == 0) {
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  Outcome outcome{-1, ""};
  std::array<char, 4096> buffer;
  for (ssize_t n; child > 0 && (n = ::read(terminal, buffer.data(), buffer.size())) > 0;)
    outcome.text.append(buffer.data(), static_cast<size_t>(n));  // ends with EIO when nobody has it open
  int status = 0;
  if (child > 0 && ::waitpid(child, &status, 0) == child && WIFEXITED(status))
    outcome.code = WEXITSTATUS(status);
  if (terminal >= 0) ::close(terminal);
  return outcome;
}

/// The lines that stand on the screen after `text`, which moves the cursor by \r and \n and erases by ESC [K.
std::vector<std::string> screen(const std::string& text) {
  std::vector<std::string> lines(1);
  size_t column = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    std::string& line = lines.back();
    if (text[i] == '\r') column = 0;
    else if (text[i] == '\n') lines.emplace_back();  // the column stays: the terminal's own \r comes before
    else if (text.compare(i, 3, "\x1b[K") == 0) line.resize(std::min(line.size(), column)), i += 2;
    else {
      line.resize(std::max(line.size(), column + 1), ' ');
      line[column++] = text[i];
    }
  }
  return lines;
}

using Terminal = Command;

TEST_F(Terminal, LinesOfStepsStandAboveTheBar) {
  const Outcome trained = on_terminal(train());
  ASSERT_EQ(trained.code, 0) << trained.text;
  EXPECT_NE(trained.text.find("[######"), std::string::npos) << "no bar was shown";
  int steps = 0, bars = 0;
  for (const std::string& line : screen(trained.text)) {
    if (line.starts_with("step ") && line.find("  loss ") != std::string::npos) ++steps;
    if (line.find("% ") == std::string::npos && line.starts_with("[###")) ++bars;
    EXPECT_FALSE(line.starts_with("[") && line.find("loss") != std::string::npos) << line;
    EXPECT_FALSE(line.starts_with("step ") && line.find("[#") != std::string::npos) << line;
  }
  EXPECT_EQ(steps, 6);
  EXPECT_EQ(bars, 1) << "only the last one stays: " << trained.text;
}

TEST_F(Terminal, AnErrorTakesTheBarAway) {
  const Outcome ended =
      on_terminal(train("--run.steps=100 --optimizer.learning_rate=1e6 --optimizer.clip_norm=0"));
  EXPECT_EQ(ended.code, 1) << ended.text;
  const std::vector<std::string> lines = screen(ended.text);
  EXPECT_NE(ended.text.find("[..."), std::string::npos) << "no bar was shown";
  int told = 0;
  for (const std::string& line : lines) {
    EXPECT_FALSE(line.starts_with("[")) << "a bar is left: " << line;
    if (line.starts_with("loom: ")) ++told;
  }
  EXPECT_EQ(told, 1) << ended.text;
}

}  // namespace
}  // namespace loom::testing
