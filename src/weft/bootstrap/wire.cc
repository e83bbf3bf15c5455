// Writing and reading frames.
#include "bootstrap/wire.h"

#include <algorithm>
#include <cstring>

#include "bootstrap/socket.h"

namespace weft::bootstrap {

FrameWriter::FrameWriter(FrameKind kind) : out_(kFrameHeaderBytes) {
  std::memcpy(out_.data(), &kind, sizeof kind);
}

FrameWriter& FrameWriter::raw(const void* bytes, size_t count) {
  const auto* first = static_cast<const std::byte*>(bytes);
  out_.insert(out_.end(), first, first + count);
  return *this;
}

FrameWriter& FrameWriter::text(std::string_view text) {
  size_t most = std::min(text.size(), kMostText);
  // Not inside a character of UTF-8, whose first byte is the only one that does not begin with the bits 10.
  for (int back = 0; back < 3 && most < text.size() && (text[most] & 0xc0) == 0x80; ++back) --most;
  const std::string_view kept = text.substr(0, most);
  u32(static_cast<uint32_t>(kept.size()));
  return raw(kept.data(), kept.size());
}

std::vector<std::byte> FrameWriter::take() {
  const auto body = static_cast<uint32_t>(out_.size() - kFrameHeaderBytes);
  std::memcpy(out_.data() + 4, &body, sizeof body);
  return std::move(out_);
}

std::span<const std::byte> FrameReader::bytes(size_t count) {
  if (count > left_.size()) {
    ok_ = false;
    left_ = {};
    return {};
  }
  const auto out = left_.first(count);
  left_ = left_.subspan(count);
  return out;
}

template <typename T>
T FrameReader::number() {
  T value{};
  if (const auto raw = bytes(sizeof value); !raw.empty()) std::memcpy(&value, raw.data(), sizeof value);
  return value;
}
template uint8_t FrameReader::number();
template uint32_t FrameReader::number();
template uint64_t FrameReader::number();

std::string FrameReader::text() {
  const auto raw = bytes(u32());
  return std::string(reinterpret_cast<const char*>(raw.data()), raw.size());
}

FrameHeader read_header(std::span<const std::byte> raw) {
  FrameHeader header;
  std::memcpy(&header.kind, raw.data(), sizeof header.kind);
  std::memcpy(&header.bytes, raw.data() + 4, sizeof header.bytes);
  return header;
}

std::vector<std::byte> greeting(const Secret& secret, std::vector<std::byte> hello) {
  hello.insert(hello.begin(), secret.begin(), secret.end());
  return hello;
}

Status not_weft(const SocketAddress& address, std::span<const std::byte> answer) {
  std::string readable;
  for (const std::byte b : answer) {
    const char c = static_cast<char>(b);
    readable += c >= ' ' && c <= '~' ? c : '.';
  }
  return fail(Code::protocol_error, "{} answers, but not as a rank of this job: its answer begins with '{}'",
              address.to_string(), readable);
}

Result<Frame> recv_frame(int fd, uint32_t max_bytes, Deadline deadline) {
  std::byte raw[kFrameHeaderBytes];
  WEFT_TRY(recv_all(fd, raw, deadline));
  const FrameHeader header = read_header(raw);
  if (header.bytes > max_bytes) {
    return fail(Code::protocol_error, "a frame of {} bytes was announced, {} are the most", header.bytes,
                max_bytes);
  }
  // Grows with what comes, not with what was announced.
  Frame frame{header.kind, {}};
  constexpr size_t kPiece = 1 << 20;
  while (frame.body.size() < header.bytes) {
    const size_t have = frame.body.size();
    frame.body.resize(std::min<size_t>(header.bytes, have + kPiece));
    WEFT_TRY(recv_all(fd, std::span(frame.body).subspan(have), deadline));
  }
  return frame;
}

}  // namespace weft::bootstrap
