#include "transport/tcp_receiver.h"

#include <algorithm>
#include <cstring>

#include "base/checked_copy.h"
#include "base/memory_watch.h"
#include "transport/lost_memory.h"

namespace weft::transport::tcp {

namespace {

// A read for the payload of a long frame reads this much beyond it: the next headers and small messages. It
// is too little of a next long payload for its copy to matter.
constexpr size_t kReadAheadBytes = 2 << 10;
// A patient receiver reads only headers beyond a long payload, and after a long frame: the end of a put and
// the next frame's.
constexpr size_t kHeadersAhead = 2;
constexpr size_t kLongFrameBytes = 8 << 10;  // up to here a copy costs less than another read
constexpr size_t kKeptHeldBytes = 64 << 10;  // of memory for what the Sink has no place for, between such

}  // namespace

Result<bool> PutAssembly::add(const FrameHeader& frame) {
  auto put = std::find_if(puts_.begin(), puts_.end(), [&](const Put& p) { return p.id == frame.put_id; });
  if (put == puts_.end()) put = puts_.insert(put, Put{frame.put_id, false, false, frame.put_bytes, 0});
  if (frame.kind() == FrameKind::segment) {
    put->received += frame.bytes;
  } else {
    put->ended = true;
    put->cancelled = frame.kind() == FrameKind::cancel;
    put->expected = frame.put_bytes;
  }
  if (put->received > put->expected)
    return fail(Code::protocol_error, "{} bytes came of put {}, which has {}", put->received, put->id,
                put->expected);
  if (!put->ended || put->received < put->expected) return false;
  const bool deliver = !put->cancelled;
  puts_.erase(put);
  return deliver;
}

Receiver::Outcome Receiver::read(Sink& sink, std::span<std::byte> scratch, size_t budget, bool is_last) {
  events_ = 0;
  if (puts_off()) {
    if (const Status status = go_on(sink); !status.ok()) return {events_, status};
    if (puts_off()) return {events_, {}};
  }
  size_t total = 0;
  while (total < budget && (is_last || sink.takes_early(peer_))) {
    if (may_wait(sink)) break;
    std::byte* const into = left_ > 0 ? target(sink) : nullptr;
    const size_t direct = into != nullptr ? left_ : 0;
    iovec parts[2] = {{into, direct}, {scratch.data(), read_ahead(direct > 0, scratch.size())}};
    const Io io = direct > 0 ? socket_.read(parts, 2) : socket_.read(parts + 1, 1);
    if (io.outcome == Io::Outcome::blocked) break;
    if (io.over()) return {events_, connection_lost(peer_, io), total};
    ++events_;
    total += io.bytes;
    const size_t placed = std::min(io.bytes, direct);
    Status status = placed > 0 ? advance(sink, placed) : Status();
    const Result<size_t> used =
        status.ok() ? consume(sink, scratch.data(), io.bytes - placed, patient_) : status;
    if (!used.ok()) return {events_, used.status(), total};
    put_off_.assign(scratch.data() + *used, scratch.data() + (io.bytes - placed));
    put_off_at_ = 0;
    if (puts_off() || io.bytes < direct + parts[1].iov_len) break;  // the kernel has no more
  }
  return {events_, {}, total};
}

/// Takes the messages that were put off, up to an unexpected one. If the first is unexpected again, takes
/// all: one delay is enough.
Status Receiver::go_on(Sink& sink) {
  const std::byte* const data = put_off_.data() + put_off_at_;
  const size_t bytes = put_off_.size() - put_off_at_;
  const Result<size_t> used = consume(sink, data, bytes, !unexpected(sink, data, bytes));
  if (used.ok()) put_off_at_ += *used;
  return used.status();
}

/// Whether a message begins at `data` that the Sink does not expect.
bool Receiver::unexpected(Sink& sink, const std::byte* data, size_t bytes) const {
  FrameHeader next;
  if (left_ > 0 || header_filled_ > 0 || bytes < kMessageHeader) return false;
  std::memcpy(&next.envelope, data, kMessageHeader);
  return next.kind() == FrameKind::message && !sink.expects(peer_, next.envelope);
}

/// Whether the next frame is left to a later read(), which may spare a copy: a short frame once some were
/// delivered, and a long one that there is no place for yet.
bool Receiver::may_wait(Sink& sink) const {
  if (!patient_ || events_ == 0) return false;
  if (left_ > 0) return !holds_ && !sink.expects(peer_, header_.envelope);
  return header_filled_ == 0 && !long_frames_;
}

/// How much to read into scratch memory, behind the bytes that go where they belong.
size_t Receiver::read_ahead(bool direct, size_t scratch_bytes) const {
  if (!patient_) return direct ? std::min(kReadAheadBytes, scratch_bytes) : scratch_bytes;
  if (direct) return kHeadersAhead * sizeof(FrameHeader);
  return long_frames_ && left_ == 0 ? sizeof(FrameHeader) - header_filled_ : scratch_bytes;
}

/// Where the next byte of payload belongs, or null if the receiver throws it away.
std::byte* Receiver::target(Sink& sink) {
  const uint64_t position = header_.bytes - left_;
  if (holds_) return held_.data() + position;
  auto* const base = static_cast<std::byte*>(sink.place(peer_, header_.envelope));
  return base != nullptr ? base + header_.put_offset + position : nullptr;
}

/// Takes in frames and pieces of them; if `patient`, up to an unexpected message. Returns the number of
/// bytes.
Result<size_t> Receiver::consume(Sink& sink, const std::byte* data, size_t bytes, bool patient) {
  const std::byte* const begin = data;
  while (bytes > 0 && !(patient && unexpected(sink, data, bytes))) {
    size_t used = 0;
    if (left_ > 0) {
      used = std::min(bytes, left_);
      if (std::byte* const into = target(sink)) WEFT_TRY(copy(into, data, used));
      WEFT_TRY(advance(sink, used));
    } else {
      const size_t known = header_filled_ < kMessageHeader ? kMessageHeader : header_.length();
      used = std::min(bytes, known - header_filled_);
      std::memcpy(reinterpret_cast<std::byte*>(&header_) + header_filled_, data, used);
      header_filled_ += used;
      if (header_filled_ >= kMessageHeader && header_filled_ >= header_.length()) {
        const Result<size_t> payload = begin_frame(sink, data + used, bytes - used);
        if (!payload.ok()) return payload.status();
        used += *payload;
      }
    }
    data += used;
    bytes -= used;
  }
  return static_cast<size_t>(data - begin);
}

/// The header is complete, and `bytes` behind it are at `data`. Returns how many of those it used.
Result<size_t> Receiver::begin_frame(Sink& sink, const std::byte* data, size_t bytes) {
  header_filled_ = 0;
  const bool message = header_.kind() == FrameKind::message;
  if (message) header_.bytes = header_.envelope.bytes, header_.put_offset = 0;
  WEFT_TRY(garbage(check(header_)));
  if (header_.bytes > 0) long_frames_ = header_.bytes > kLongFrameBytes;
  if (header_.bytes == 0 || (message && header_.bytes <= bytes)) {
    WEFT_TRY(finish_frame(sink, header_.bytes > 0 ? data : nullptr));
    return size_t{header_.bytes};
  }
  left_ = header_.bytes;
  holds_ = message && sink.place(peer_, header_.envelope) == nullptr;
  if (holds_ && held_.size() < header_.bytes) held_.resize(header_.bytes);
  return size_t{0};
}

/// Copies a piece of a frame's payload that was read into scratch memory. A patient receiver serves programs
/// that may unmap their memory at any time. It reads few pieces of long frames this way, so it can check the
/// copies.
Status Receiver::copy(std::byte* into, const std::byte* data, size_t bytes) const {
  if (patient_ && header_.bytes > kLongFrameBytes)
    return copy_checked(into, data, bytes) ? Status() : memory_is_gone(peer_);
  std::memcpy(into, data, bytes);
  return patient_ && MemoryWatch::lost(into, bytes) ? memory_is_gone(peer_) : Status();
}

/// Names the rank that sent a wrong frame.
Status Receiver::garbage(const Status& why) const {
  return why.ok() ? why : why.in(fmt::format("rank {} sent garbage", peer_));
}

/// `bytes` of payload are where they belong, or were thrown away.
Status Receiver::advance(Sink& sink, size_t bytes) {
  left_ -= bytes;
  return left_ > 0 ? Status() : finish_frame(sink, holds_ ? held_.data() : nullptr);
}

Status Receiver::finish_frame(Sink& sink, const std::byte* payload) {
  ++events_;
  if (header_.kind() == FrameKind::message) {
    sink.arrived(peer_, header_.envelope, payload);
    holds_ = false;
    if (held_.size() > kKeptHeldBytes) held_ = {};
    return {};
  }
  const Result<bool> complete = puts_.add(header_);
  if (complete.ok() && *complete) sink.arrived(peer_, header_.envelope, nullptr);
  return garbage(complete.status());
}

}  // namespace weft::transport::tcp
