// What headers pass, when a put is complete, and bytes in a queue.
#include "transport/tcp_frame.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "transport/tcp_receiver.h"
#include "transport/tcp_sender.h"

namespace weft::transport::tcp {
namespace {

FrameHeader segment(uint32_t id, uint64_t put_bytes, uint64_t offset, uint32_t bytes) {
  FrameHeader h;
  h.set_kind(FrameKind::segment);
  h.put_id = id;
  h.put_bytes = put_bytes;
  h.put_offset = offset;
  h.bytes = bytes;
  h.envelope.bytes = envelope_bytes(put_bytes);
  return h;
}
FrameHeader ending(FrameKind kind, uint32_t id, uint64_t put_bytes) {
  FrameHeader h;
  h.set_kind(kind);
  h.put_id = id;
  h.put_bytes = put_bytes;
  return h;
}

TEST(TcpFrame, AcceptsWhatSendersWrite) {
  FrameHeader message;
  message.envelope.bytes = 100;
  EXPECT_TRUE(check(message).ok());
  EXPECT_TRUE(check(segment(1, 100, 0, 100)).ok());
  EXPECT_TRUE(check(segment(1, uint64_t{5} << 32, uint64_t{4} << 32, 1 << 20)).ok());
  EXPECT_TRUE(check(ending(FrameKind::end, 1, 100)).ok());
  EXPECT_TRUE(check(ending(FrameKind::cancel, 1, 100)).ok());
}

TEST(TcpFrame, NamesWhatIsImpossible) {
  FrameHeader words;
  std::memcpy(&words, "GET / HTTP/1.1\r\nHost: example.com\r\nUser-Agent: somebody", sizeof words);
  FrameHeader swapped;  // of a machine with the other byte order
  swapped.envelope.reserved = static_cast<uint16_t>(mark_of(FrameKind::message) << 8 | kMark >> 8);
  FrameHeader kind;
  kind.set_kind(FrameKind{9});
  FrameHeader huge;
  huge.envelope.bytes = kMaxMessageBytes + 1;
  FrameHeader wide = segment(1, 100, 0, 100);
  wide.envelope.bytes = 99;
  FrameHeader end = ending(FrameKind::end, 1, 100);
  end.bytes = 1;
  const std::pair<FrameHeader, const char*> cases[] = {
      {words, "begins with 0x20544547"},
      {swapped, "marked 0xe177, must be 0x77e0"},
      {kind, "kind 9"},
      {huge, "at most"},
      {segment(1, 100, 0, 0), "segment announces 0"},
      {segment(1, 100, 60, 41), "leaves its put of 100"},
      {segment(1, 100, UINT64_MAX - 10, 41), "leaves its put"},
      {segment(1, uint64_t{1} << 40, 0, kMaxSegmentBytes + 1), "segment announces"},
      {wide, "announces 100 bytes, but its envelope 99"},
      {end, "end of a put announces 1"},
  };
  for (const auto& [header, words] : cases) {
    const Status status = check(header);
    EXPECT_EQ(Code::protocol_error, status.code()) << words;
    EXPECT_NE(std::string::npos, status.message().find(words)) << status.message();
  }
}

TEST(TcpFrame, AMessageHasAnEnvelopeForAHeader) {
  FrameHeader header;
  EXPECT_EQ(32u, header.length());
  header.set_kind(FrameKind::end);
  EXPECT_EQ(sizeof(FrameHeader), header.length());
  Envelope envelope;
  envelope.op = 7;
  header.envelope = message_header(envelope);
  EXPECT_TRUE(header.is_marked());
  EXPECT_EQ(FrameKind::message, header.kind());
  EXPECT_EQ(7u, header.envelope.op);
}

TEST(PutAssembly, IsCompleteAfterAllBytesAndTheEndInAnyOrder) {
  PutAssembly puts;
  EXPECT_FALSE(*puts.add(segment(7, 100, 60, 40)));
  EXPECT_FALSE(*puts.add(ending(FrameKind::end, 7, 100)));
  EXPECT_FALSE(*puts.add(segment(8, 10, 0, 10)));
  EXPECT_TRUE(*puts.add(segment(7, 100, 0, 60)));
  EXPECT_TRUE(*puts.add(ending(FrameKind::end, 8, 10)));
  EXPECT_EQ(0u, puts.under_way());
}

TEST(PutAssembly, ForgetsACancelledPutWithoutDeliveringIt) {
  PutAssembly puts;
  EXPECT_FALSE(*puts.add(segment(7, 100, 0, 30)));
  EXPECT_FALSE(*puts.add(ending(FrameKind::cancel, 7, 50)));
  EXPECT_EQ(1u, puts.under_way()) << "20 bytes are still to come on another rail";
  EXPECT_FALSE(*puts.add(segment(7, 100, 30, 20)));
  EXPECT_EQ(0u, puts.under_way());
}

TEST(PutAssembly, RefusesMoreThanWasAnnounced) {
  PutAssembly puts;
  EXPECT_TRUE(puts.add(segment(7, 100, 0, 60)).ok());
  EXPECT_EQ(Code::protocol_error, puts.add(segment(7, 100, 0, 60)).status().code());
}

TEST(ByteQueue, KeepsOrder) {
  ByteQueue queue;
  queue.append("cdef", 4);
  queue.prepend("ab", 2);
  queue.consume(4);
  queue.prepend("xy", 2);
  queue.append("g", 1);
  ASSERT_EQ(5u, queue.size());
  EXPECT_EQ(0, std::memcmp(queue.data(), "xyefg", 5));
  queue.consume(5);
  EXPECT_TRUE(queue.empty());
}

}  // namespace
}  // namespace weft::transport::tcp
