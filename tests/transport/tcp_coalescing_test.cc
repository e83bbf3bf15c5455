// Messages and puts that share a write, and receivers that leave in the kernel what there is no place for
// yet. What time does is taken out: either it never passes, or what happens does not depend on it.
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "transport/tcp_cluster.h"
#include "transport/tcp_sender.h"

namespace weft::transport::tcp {
namespace {

constexpr int64_t kForEver_ns = int64_t{3600} * 1'000'000'000;

struct Wire {
  Wire() {
    int fds[2];
    EXPECT_EQ(0, ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
    out = std::make_unique<Socket>(UniqueFd(fds[0]));
    in = std::make_unique<Socket>(UniqueFd(fds[1]));
  }
  /// Bytes that were written and not read.
  size_t waiting() const {
    int bytes = 0;
    EXPECT_EQ(0, ::ioctl(in->fd(), FIONREAD, &bytes));
    return static_cast<size_t>(bytes);
  }
  std::unique_ptr<Socket> out, in;
};

constexpr Sender::Limits kLimits{1 << 20, 1 << 20};

/// Frames wait after writes for ever.
Coalescer after_writes(size_t put_bytes = 0) {
  return Coalescer({Coalescing::When::after_writes, kForEver_ns, put_bytes});
}

constexpr size_t kFrame = kMessageHeader + 4;

void send_four_bytes(Sender& sender, uint32_t op) {
  ASSERT_EQ(Progress::accepted, *sender.send(envelope(kMessage, op, 4), "abc"));
}

TEST(TcpCoalescing, MessagesInARowShareAWrite) {
  Wire wire;
  Coalescer coalescer = after_writes();
  Sender sender(1, kLimits, coalescer);
  sender.use(*wire.out, {});
  send_four_bytes(sender, 0);
  EXPECT_EQ(kFrame, wire.waiting()) << "the first one has nothing to wait for";
  for (uint32_t op = 1; op < 5; ++op) send_four_bytes(sender, op);
  EXPECT_EQ(0, *sender.pump(1 << 20));
  EXPECT_EQ(kFrame, wire.waiting());
  EXPECT_TRUE(sender.pending()) << "what waits has not flushed";
  EXPECT_TRUE(sender.ready()) << "and is not to be slept over";

  // Something long goes at once, and takes along what waits, in one write.
  const auto source = pattern(10'000, 1);
  Completion done;
  sender.put(envelope(kPut, 5, source.size()), source.data(), source.size(), &done);
  EXPECT_EQ(2, *sender.pump(1 << 20));
  EXPECT_EQ(5 * kFrame + 2 * sizeof(FrameHeader) + source.size(), wire.waiting());
  EXPECT_FALSE(sender.pending());

  PutAssembly puts;
  Receiver receiver(0, *wire.in, puts);
  RecordingSink sink;
  sink.window.resize(source.size());
  std::vector<std::byte> scratch(64 << 10);
  ASSERT_TRUE(receiver.read(sink, scratch, 1 << 20).ended.ok());
  ASSERT_EQ(6u, sink.arrivals.size());
  for (uint32_t op = 0; op < 6; ++op) EXPECT_EQ(op, sink.arrivals[op].envelope.op);
  EXPECT_EQ(source, sink.window);
}

TEST(TcpCoalescing, AFullQueueDoesNotWait) {
  Wire wire;
  Coalescer coalescer = after_writes();
  Sender sender(1, kLimits, coalescer);
  sender.use(*wire.out, {});
  send_four_bytes(sender, 0);
  const auto payload = pattern(4096, 2);
  for (uint32_t op = 1; op < 5; ++op)
    ASSERT_EQ(Progress::accepted, *sender.send(envelope(kMessage, op, payload.size()), payload.data()));
  EXPECT_EQ(kFrame + 4 * (kMessageHeader + payload.size()), wire.waiting());
  EXPECT_FALSE(sender.pending());
}

TEST(TcpCoalescing, AWaitWithoutCompanySparesTheNextOnes) {
  Wire wire;
  Coalescer coalescer = after_writes();
  Sender sender(1, kLimits, coalescer);
  sender.use(*wire.out, {});
  send_four_bytes(sender, 0);
  send_four_bytes(sender, 1);  // alone
  const std::byte end_of_wait{};
  Completion done;
  sender.put(envelope(kPut, 2, 1), &end_of_wait, 1, &done);
  ASSERT_TRUE(sender.pump(1 << 20).ok());
  for (uint32_t op = 3; op < 10; ++op) {
    const size_t before = wire.waiting();
    send_four_bytes(sender, op);
    EXPECT_EQ(before + kFrame, wire.waiting()) << "message " << op << " waits again";
  }
}

constexpr size_t kPutBytes = 10'000, kPutFrames = kPutBytes + 2 * sizeof(FrameHeader);

struct Puts {
  void put(Sender& sender, uint32_t op, size_t bytes = kPutBytes) {
    sender.put(envelope(kPut, op, bytes, op * kPutBytes), source.data() + op * kPutBytes, bytes, &done[op]);
  }
  /// Ops of what arrives, after what was put has been compared.
  std::vector<uint32_t> read(Wire& wire) {
    PutAssembly assembly;
    Receiver receiver(0, *wire.in, assembly);
    RecordingSink sink;
    sink.window.resize(source.size());
    std::vector<std::byte> scratch(64 << 10);
    EXPECT_TRUE(receiver.read(sink, scratch, 1 << 20).ended.ok());
    std::vector<uint32_t> ops;
    for (const auto& arrival : sink.arrivals) {
      const Envelope& e = arrival.envelope;
      ops.push_back(e.op);
      if (e.kind != kPut) continue;
      EXPECT_EQ(0, std::memcmp(source.data() + e.offset, sink.window.data() + e.offset, e.bytes)) << e.op;
    }
    return ops;
  }
  std::vector<std::byte> source = pattern(8 * kPutBytes, 6);
  Completion done[8];
};

TEST(TcpCoalescing, PutsInARowShareAWrite) {
  Wire wire;
  Coalescer coalescer = after_writes(4 * kPutBytes);
  Sender sender(1, kLimits, coalescer);
  sender.use(*wire.out, {});
  Puts puts;
  puts.put(sender, 0);
  EXPECT_EQ(1, *sender.pump(1 << 20));
  EXPECT_EQ(kPutFrames, wire.waiting()) << "the first one has nothing to wait for";
  for (uint32_t op = 1; op < 4; ++op) {
    puts.put(sender, op);
    EXPECT_EQ(0, *sender.pump(1 << 20));
  }
  EXPECT_EQ(kPutFrames, wire.waiting());
  EXPECT_TRUE(sender.pending()) << "what waits has not flushed";
  EXPECT_TRUE(sender.ready()) << "and is not to be slept over";
  EXPECT_FALSE(puts.done[1].done) << "its memory is read yet";
  puts.put(sender, 4);
  EXPECT_EQ(1, *sender.pump(1 << 20)) << "that is enough for a write";
  EXPECT_EQ(5 * kPutFrames, wire.waiting());
  EXPECT_FALSE(sender.pending());
  EXPECT_TRUE(puts.done[1].done && puts.done[4].done);
  EXPECT_EQ((std::vector<uint32_t>{0, 1, 2, 3, 4}), puts.read(wire));
}

TEST(TcpCoalescing, ALongPutTakesAlongThoseThatWait) {
  Wire wire;
  Coalescer coalescer = after_writes(2 * kPutBytes);
  Sender sender(1, kLimits, coalescer);
  sender.use(*wire.out, {});
  Puts puts;
  puts.put(sender, 0);
  ASSERT_TRUE(sender.pump(1 << 20).ok());
  puts.put(sender, 1);
  EXPECT_EQ(0, *sender.pump(1 << 20));
  puts.put(sender, 2, 2 * kPutBytes);
  EXPECT_EQ(1, *sender.pump(1 << 20));
  EXPECT_FALSE(sender.pending());
  EXPECT_EQ((std::vector<uint32_t>{0, 1, 2}), puts.read(wire));
}

TEST(TcpCoalescing, APutThatIsForgottenWhileItWaitsDoesNotGo) {
  Wire wire;
  Coalescer coalescer = after_writes(3 * kPutBytes);
  Sender sender(1, kLimits, coalescer);
  sender.use(*wire.out, {});
  Puts puts;
  puts.put(sender, 0);
  ASSERT_TRUE(sender.pump(1 << 20).ok());
  puts.put(sender, 1);
  puts.put(sender, 2);
  sender.forget(&puts.done[1], &puts.done[2]);
  puts.put(sender, 3, 1000);
  EXPECT_EQ(0, *sender.pump(1 << 20)) << "what was forgotten does not count";
  puts.put(sender, 4, 3 * kPutBytes);
  EXPECT_EQ(1, *sender.pump(1 << 20));
  EXPECT_FALSE(puts.done[1].done);
  EXPECT_EQ((std::vector<uint32_t>{0, 2, 3, 4}), puts.read(wire));
}

TEST(TcpCoalescing, AMessageDoesNotWaitForPuts) {
  Wire wire;
  Coalescer coalescer = after_writes(3 * kPutBytes);
  Sender sender(1, kLimits, coalescer);
  sender.use(*wire.out, {});
  Puts puts;
  puts.put(sender, 0);
  ASSERT_TRUE(sender.pump(1 << 20).ok());
  puts.put(sender, 1);
  send_four_bytes(sender, 2);
  EXPECT_EQ(kPutFrames + kFrame, wire.waiting());
  EXPECT_EQ(1, *sender.pump(1 << 20)) << "after that write nothing waits for the end of a time that is over";
  EXPECT_EQ((std::vector<uint32_t>{0, 2, 1}), puts.read(wire));
}

// A put's header is longer than a message's, which its receiver learns from the first part of it.
TEST(TcpCoalescing, EveryByteOfAPutAndOfMessagesAroundItMayComeAlone) {
  for (const bool patient : {false, true}) {
    Wire there, here;
    Coalescer coalescer({});
    Sender sender(1, kLimits, coalescer);
    sender.use(*there.out, {});
    const auto source = pattern(300, 3);
    Completion done;
    send_four_bytes(sender, 0);
    sender.put(envelope(kPut, 1, source.size()), source.data(), source.size(), &done);
    ASSERT_TRUE(sender.pump(1 << 20).ok());
    send_four_bytes(sender, 2);
    std::vector<std::byte> frames(there.waiting());
    ASSERT_EQ(2 * kFrame + 2 * sizeof(FrameHeader) + source.size(), frames.size());
    ASSERT_EQ(static_cast<ssize_t>(frames.size()), ::read(there.in->fd(), frames.data(), frames.size()));
    PutAssembly puts;
    Receiver receiver(0, *here.in, puts, patient);
    RecordingSink sink;
    sink.window.resize(source.size());
    std::vector<std::byte> scratch(1024);
    for (const std::byte byte : frames) {
      ASSERT_EQ(1, ::write(here.out->fd(), &byte, 1));
      ASSERT_TRUE(receiver.read(sink, scratch, 1 << 20).ended.ok());
    }
    ASSERT_EQ(3u, sink.arrivals.size()) << patient;
    for (uint32_t op = 0; op < 3; ++op) EXPECT_EQ(op, sink.arrivals[op].envelope.op);
    EXPECT_EQ(source, sink.window);
  }
}

/// A Sink that expects some of what comes only later.
struct PickySink : RecordingSink {
  uint32_t expected_below = 0;
  bool expects(int, const Envelope& e) const override { return e.op < expected_below; }
};

TEST(TcpPatience, WhatHasNoPlaceYetStaysInTheKernelForOneRead) {
  constexpr size_t kBytes = 20'000;
  Wire wire;
  Coalescer coalescer({});
  Sender sender(1, kLimits, coalescer);
  sender.use(*wire.out, {});
  const auto source = pattern(kBytes, 3);
  Completion done[3];
  for (uint32_t op = 0; op < 3; ++op) {
    sender.put(envelope(kPut, op, kBytes, op * kBytes), source.data(), kBytes, &done[op]);
    ASSERT_TRUE(sender.pump(1 << 20).ok());
  }
  PutAssembly puts;
  Receiver receiver(0, *wire.in, puts, true);
  PickySink sink;
  sink.window.resize(3 * kBytes);
  std::vector<std::byte> scratch(1024);
  sink.expected_below = 2;
  ASSERT_TRUE(receiver.read(sink, scratch, 1 << 20).ended.ok());
  EXPECT_EQ(2u, sink.arrivals.size());
  EXPECT_EQ(kBytes + sizeof(FrameHeader), wire.waiting()) << "of the third only its header was read";
  ASSERT_TRUE(receiver.read(sink, scratch, 1 << 20).ended.ok());
  EXPECT_EQ(3u, sink.arrivals.size()) << "no longer: nothing else may be coming";
  EXPECT_EQ(0u, wire.waiting());
  for (size_t op = 0; op < 3; ++op)
    EXPECT_EQ(0, std::memcmp(source.data(), sink.window.data() + op * kBytes, kBytes)) << op;
}

TEST(TcpPatience, ShortOnesThatAreNotExpectedArePutOffForOneRead) {
  Wire wire;
  Coalescer coalescer({});
  Sender sender(1, kLimits, coalescer);
  sender.use(*wire.out, {});
  for (uint32_t op = 0; op < 10; ++op) send_four_bytes(sender, op);
  PutAssembly puts;
  Receiver receiver(0, *wire.in, puts, true);
  PickySink sink;
  std::vector<std::byte> scratch(16 << 10);
  const auto read = [&](uint32_t expected_below) {
    sink.expected_below = expected_below;
    EXPECT_TRUE(receiver.read(sink, scratch, 1 << 20).ended.ok());
    std::fill(scratch.begin(), scratch.end(), std::byte{0xee});  // others use it, too
    return sink.arrivals.size();
  };
  EXPECT_EQ(0u, read(0)) << "the first one, too, may be expected in a moment";
  EXPECT_EQ(0u, wire.waiting());
  EXPECT_EQ(4u, read(4));
  EXPECT_TRUE(receiver.puts_off());
  EXPECT_EQ(7u, read(7));
  EXPECT_EQ(10u, read(7)) << "no longer: what others expect may be behind them";
  EXPECT_FALSE(receiver.puts_off());
  for (uint32_t op = 0; op < 10; ++op) {
    EXPECT_EQ(op, sink.arrivals[op].envelope.op);
    EXPECT_EQ(0, std::memcmp("abc", sink.arrivals[op].payload.data(), 4));
  }
}

TEST(TcpPatience, WhatIsPutOffIsPolledForAndNotSleptOver) {
  auto [near, far] = loopback_connection();
  const auto no_connector = [](int, int, uint32_t, Deadline) -> Result<UniqueFd> {
    return fail(Code::internal_error, "the connection is there already");
  };
  TcpTransport::Options options;
  options.patient = true;
  auto from = TcpTransport::create(0, 2, no_connector, options).take();
  auto to = TcpTransport::create(1, 2, no_connector, options).take();
  ASSERT_TRUE(from->accept(1, 0, std::move(near)).ok());
  ASSERT_TRUE(to->accept(0, 0, std::move(far)).ok());
  PickySink sink;
  ASSERT_TRUE(from->poll(sink).ok());
  ASSERT_TRUE(to->poll(sink).ok());
  ASSERT_EQ(Progress::accepted, *from->send(1, envelope(kMessage, 0, 4), "abc"));
  const Deadline deadline = Deadline::in_seconds(30);
  while (to->prepare_sleep() && !deadline.passed()) to->finish_sleep();
  ASSERT_EQ(1, *to->poll(sink)) << "it is read";
  EXPECT_EQ(0u, sink.arrivals.size());
  EXPECT_FALSE(to->prepare_sleep());
  EXPECT_GT(*to->poll(sink), 0);
  EXPECT_EQ(1u, sink.arrivals.size());
  EXPECT_TRUE(to->prepare_sleep());
}

TEST(TcpPatience, ShortOnesBeyondWhatWasReadWait) {
  Wire wire;
  Coalescer coalescer({});
  Sender sender(1, kLimits, coalescer);
  sender.use(*wire.out, {});
  for (uint32_t op = 0; op < 100; ++op) send_four_bytes(sender, op);
  PutAssembly puts;
  Receiver receiver(0, *wire.in, puts, true);
  RecordingSink sink;
  std::vector<std::byte> scratch(10 * kFrame);
  for (size_t reads = 1; reads <= 10; ++reads) {
    ASSERT_TRUE(receiver.read(sink, scratch, 1 << 20).ended.ok());
    EXPECT_EQ(10 * reads, sink.arrivals.size());
  }
}

}  // namespace
}  // namespace weft::transport::tcp
