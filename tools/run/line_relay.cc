#include "run/line_relay.h"

#include <fcntl.h>
#include <poll.h>

#include <array>
#include <cerrno>

namespace weft::run {
namespace {

// A longer line is cut here, so that a rank that prints no newlines cannot fill our memory.
constexpr size_t kLongestLine = 1 << 20;

}  // namespace

LineRelay::LineRelay(UniqueFd source, int sink, std::string label)
    : source_(std::move(source)), sink_(sink), label_(std::move(label)) {
  fcntl(source_.get(), F_SETFL, fcntl(source_.get(), F_GETFL) | O_NONBLOCK);
}

void LineRelay::pump() {
  std::array<char, 64 << 10> chunk;
  while (!done()) {
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
    const ssize_t n = write(sink_, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {  // somebody else made our terminal non-blocking
      pollfd wait{sink_, POLLOUT, 0};
      poll(&wait, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace weft::run
