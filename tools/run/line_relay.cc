#include "run/line_relay.h"

#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace weft::run {
namespace {

// A longer line is cut here, so that a rank that prints no newlines cannot fill our memory.
constexpr size_t kLongestLine = 1 << 20;
constexpr int kReads = 4;  // in a row
// A pipe that takes anything takes so much without a wait.
constexpr size_t kWrite = PIPE_BUF;

}  // namespace

LineRelay::LineRelay(UniqueFd source, int sink, std::string label, std::function<bool(int sink)> await_room)
    : source_(std::move(source)), sink_(sink), label_(std::move(label)), await_room_(std::move(await_room)) {
  fcntl(source_.get(), F_SETFL, fcntl(source_.get(), F_GETFL) | O_NONBLOCK);
}

void LineRelay::pump() {
  std::array<char, 64 << 10> chunk;
  for (int reads = 0; reads < kReads && !done(); ++reads) {
    const ssize_t n = read(source_.get(), chunk.data(), chunk.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) return finish();
    pending_.append(chunk.data(), static_cast<size_t>(n));
    if (pending_.size() > kLongestLine && pending_.find('\n') == std::string::npos) pending_ += '\n';
    if (!emit_lines()) {
      pending_.clear();
      source_.reset();
    }
  }
}

void LineRelay::finish() {
  if (!pending_.empty()) {
    pending_ += '\n';
    emit_lines();
    pending_.clear();
  }
  source_.reset();
}

/// Writes every complete line of pending_, all with one write. False when the sink is gone.
bool LineRelay::emit_lines() {
  const size_t end = pending_.rfind('\n');
  if (end == std::string::npos) return true;
  std::string text;
  for (size_t begin = 0; begin <= end;) {
    const size_t next = pending_.find('\n', begin) + 1;
    text += label_;
    text.append(pending_, begin, next - begin);
    begin = next;
  }
  pending_.erase(0, end + 1);
  return write_all(text);
}

bool LineRelay::write_all(std::string_view text) {
  while (!text.empty()) {
    if (!await_room_(sink_)) return false;
    const ssize_t n = write(sink_, text.data(), std::min(text.size(), kWrite));
    if (n >= 0) text.remove_prefix(static_cast<size_t>(n));
    else if (errno != EAGAIN && errno != EINTR) return false;  // EAGAIN: our terminal is non-blocking
  }
  return true;
}

}  // namespace weft::run
