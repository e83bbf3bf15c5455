#include "transport/tcp_frame.h"

namespace weft::transport::tcp {

namespace {

Status check_message(const FrameHeader& h) {
  if (h.envelope.bytes > kMaxMessageBytes)
    return fail(Code::protocol_error, "a message announces {} bytes, at most {} are possible",
                h.envelope.bytes, kMaxMessageBytes);
  return {};
}

Status check_segment(const FrameHeader& h) {
  if (h.bytes == 0 || h.bytes > kMaxSegmentBytes)
    return fail(Code::protocol_error, "a put segment announces {} bytes, must be in [1, {}]", h.bytes,
                kMaxSegmentBytes);
  if (h.put_offset > h.put_bytes || h.bytes > h.put_bytes - h.put_offset)
    return fail(Code::protocol_error, "a put segment of {} bytes at {} leaves its put of {} bytes", h.bytes,
                h.put_offset, h.put_bytes);
  if (h.envelope.bytes != envelope_bytes(h.put_bytes))
    return fail(Code::protocol_error, "a put announces {} bytes, but its envelope {}", h.put_bytes,
                h.envelope.bytes);
  return {};
}

}  // namespace

Status check(const FrameHeader& h) {
  if (!h.is_marked())
    return fail(Code::protocol_error, "a frame that begins with {:#010x} is marked {:#06x}, must be {:#06x}",
                h.envelope.comm, h.envelope.reserved, kMark);
  switch (h.kind()) {
    case FrameKind::message: return check_message(h);
    case FrameKind::segment: return check_segment(h);
    case FrameKind::end:
    case FrameKind::cancel:
      if (h.bytes != 0)
        return fail(Code::protocol_error, "the end of a put announces {} bytes, must be 0", h.bytes);
      return {};
  }
  return fail(Code::protocol_error, "a frame is of kind {}, must be 1 to 4", static_cast<uint32_t>(h.kind()));
}

}  // namespace weft::transport::tcp
