// The data on the bootstrap's connections: the secret, then a hello frame, then frames. A frame is an 8-byte
// header (kind, length) and a body, little-endian. A reader checks every length before it uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "bootstrap/unique_id.h"

namespace weft::bootstrap {

enum class FrameKind : uint16_t {
  // Hellos: the first frame of a connection says what it is for. All begin with the sender's rank (u32).
  join = 1,   // to the root: ranks u32, milliseconds that the sender will wait u32, address text
  child,      // to the parent in the tree
  link,       // to a neighbour: liveness and floods
  questions,  // to a rank that is no neighbour
  data,  // purpose u32, the rank that it is for u32; the stream then belongs to the user, and the acceptor
         // sends no proof on it
  // From the root.
  met = 32,  // parent's address text, empty for rank 0
  refused,   // code u32, sentence text
  // In the tree.
  gather = 48,  // up: sequence u32, then the subtree's entries; down: everybody's
  // Between ranks.
  goodbye = 64,  // the sender leaves in order
  dead,          // rank u32, why text
  failed,        // origin u32, number u64, communicator u32, why text
  question,      // number u64, asking rank u32, communicator u32, operation u32
  answer,        // number u64, known u8, last started u32, call text, algorithm text
};

inline constexpr size_t kFrameHeaderBytes = 8;
inline constexpr uint32_t kMaxHelloBytes = 4096;
inline constexpr size_t kMostText = 4000;             // bytes of a text in a frame
inline constexpr uint32_t kMaxFrameBytes = 64 << 10;  // of everything but gathers
inline constexpr uint32_t kMaxGatherBytes = 1u << 30;

/// Builds one frame, header included.
class FrameWriter {
 public:
  explicit FrameWriter(FrameKind kind);
  FrameWriter& u8(uint8_t value) { return raw(&value, sizeof value); }
  FrameWriter& u32(uint32_t value) { return raw(&value, sizeof value); }
  FrameWriter& u64(uint64_t value) { return raw(&value, sizeof value); }
  FrameWriter& bytes(std::span<const std::byte> bytes) { return raw(bytes.data(), bytes.size()); }
  /// Length and characters; what is beyond kMostText bytes is cut off, at the end of a character.
  FrameWriter& text(std::string_view text);
  std::vector<std::byte> take();

 private:
  FrameWriter& raw(const void* bytes, size_t count);
  std::vector<std::byte> out_;
};

/// Reads a frame's body. Past its end everything is zero and ok() false; callers read all, then ask once.
class FrameReader {
 public:
  explicit FrameReader(std::span<const std::byte> body) : left_(body) {}
  uint8_t u8() { return number<uint8_t>(); }
  uint32_t u32() { return number<uint32_t>(); }
  uint64_t u64() { return number<uint64_t>(); }
  std::span<const std::byte> bytes(size_t count);
  std::string text();
  bool ok() const { return ok_; }
  bool at_end() const { return left_.empty(); }

 private:
  template <typename T>
  T number();
  std::span<const std::byte> left_;
  bool ok_ = true;
};

struct FrameHeader {
  FrameKind kind{};
  uint32_t bytes = 0;
};
FrameHeader read_header(std::span<const std::byte> raw);

struct Frame {
  FrameKind kind{};
  std::vector<std::byte> body;
};

/// The secret and a hello frame: what a connecting side sends first.
std::vector<std::byte> greeting(const Secret& secret, std::vector<std::byte> hello);
/// A sentence about an answer that is not the proof, with its first bytes made readable.
Status not_weft(const SocketAddress& address, std::span<const std::byte> answer);

/// Receives a whole frame, blocking. Errors: those of recv_all; protocol_error for a body longer than
/// `max_bytes`.
Result<Frame> recv_frame(int fd, uint32_t max_bytes, Deadline deadline);

}  // namespace weft::bootstrap
