// Sender and Receiver over a socket whose room ends at every possible byte of a frame.
#include "transport/tcp_sender.h"

#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <utility>

#include "transport/tcp_cluster.h"

namespace weft::transport::tcp {
namespace {

std::pair<UniqueFd, UniqueFd> local_connection() {
  int fds[2];
  EXPECT_EQ(0, ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

// A local stream socket with the smallest buffer takes the same number of bytes every time, so the size of
// the put says where the kernel cuts: in the payload, in the frame that ends it, or after that.
void send_through_a_narrow_socket(size_t bytes, bool forget) {
  auto [near, far] = local_connection();
  const int least = 1;
  ASSERT_EQ(0, ::setsockopt(near.get(), SOL_SOCKET, SO_SNDBUF, &least, sizeof(least)));
  Socket out(std::move(near)), in(std::move(far));
  Coalescer coalescer({});
  Sender sender(1, {1 << 20, 1 << 20}, coalescer);
  sender.use(out, {});
  PutAssembly puts;
  Receiver receiver(0, in, puts);

  const auto source = pattern(bytes, bytes);
  Completion done;
  sender.put(envelope(kPut, 1, bytes), source.data(), bytes, &done);
  ASSERT_TRUE(sender.pump(1 << 20).ok());
  ASSERT_EQ(Progress::accepted, *sender.send(envelope(kMessage, 2, 4), "abc"));
  const bool forgotten = forget && !done.done;
  if (forget) sender.forget(&done, &done + 1);

  RecordingSink sink;
  sink.window.resize(bytes);
  std::vector<std::byte> scratch(64 << 10);
  for (int turn = 0; turn < 1000 && (sender.pending() || turn < 100); ++turn) {
    ASSERT_TRUE(receiver.read(sink, scratch, 1 << 20).ended.ok()) << bytes;
    if (out.blocked()) out.room();
    ASSERT_TRUE(sender.pump(1 << 20).ok());
  }
  ASSERT_EQ(0u, puts.under_way()) << bytes;
  ASSERT_EQ(forgotten ? 1u : 2u, sink.arrivals.size()) << bytes;
  EXPECT_TRUE(forgotten || source == sink.window) << bytes;
  EXPECT_EQ(!forgotten, done.done);
}

TEST(TcpSender, AFrameMayBeCutAnywhere) {
  for (size_t bytes = 1; bytes < 12000; bytes += 7) {
    send_through_a_narrow_socket(bytes, false);
    if (HasFatalFailure()) return;
  }
}

TEST(TcpSender, AFrameMayBeCutAnywhereAndForgotten) {
  for (size_t bytes = 1; bytes < 12000; bytes += 7) {
    send_through_a_narrow_socket(bytes, true);
    if (HasFatalFailure()) return;
  }
}

// Three puts go out in one write, which may end in any of their frames; the middle one is forgotten or not.
void send_three_through_a_narrow_socket(size_t bytes, bool forget) {
  auto [near, far] = local_connection();
  const int least = 1;
  ASSERT_EQ(0, ::setsockopt(near.get(), SOL_SOCKET, SO_SNDBUF, &least, sizeof(least)));
  Socket out(std::move(near)), in(std::move(far));
  Coalescer coalescer({});
  Sender sender(1, {1 << 20, 1 << 20}, coalescer);
  sender.use(out, {});
  PutAssembly puts;
  Receiver receiver(0, in, puts);

  const auto source = pattern(3 * bytes, bytes);
  Completion done[3];
  for (uint32_t op = 0; op < 3; ++op)
    sender.put(envelope(kPut, op, bytes, op * bytes), source.data() + op * bytes, bytes, &done[op]);
  ASSERT_TRUE(sender.pump(1 << 20).ok());
  const bool forgotten = forget && !done[1].done;
  if (forget) sender.forget(&done[1], &done[2]);

  RecordingSink sink;
  sink.window.resize(3 * bytes);
  std::vector<std::byte> scratch(64 << 10);
  for (int turn = 0; turn < 1000 && (sender.pending() || turn < 100); ++turn) {
    ASSERT_TRUE(receiver.read(sink, scratch, 1 << 20).ended.ok()) << bytes;
    if (out.blocked()) out.room();
    ASSERT_TRUE(sender.pump(1 << 20).ok());
  }
  ASSERT_EQ(0u, puts.under_way()) << bytes;
  ASSERT_EQ(forgotten ? 2u : 3u, sink.arrivals.size()) << bytes;
  for (size_t op = 0; op < 3; ++op) {
    const bool gone = forgotten && op == 1;
    EXPECT_EQ(!gone, done[op].done) << bytes;
    EXPECT_TRUE(gone || std::equal(source.data() + op * bytes, source.data() + (op + 1) * bytes,
                                   sink.window.data() + op * bytes))
        << op << " of " << bytes;
  }
}

TEST(TcpSender, AWriteOfSeveralPutsMayBeCutAnywhere) {
  for (size_t bytes = 1; bytes < 6000; bytes += 7) {
    send_three_through_a_narrow_socket(bytes, false);
    send_three_through_a_narrow_socket(bytes, true);
    if (HasFatalFailure()) return;
  }
}

/// How many bytes of a long put a local stream socket takes at once, its frame's header included.
size_t room_of_a_local_socket() {
  auto [near, far] = local_connection();
  Socket out(std::move(near));
  Coalescer coalescer({});
  Sender sender(1, {1 << 20, 16 << 20}, coalescer);
  sender.use(out, {});
  const std::vector<std::byte> source(16 << 20);
  Completion done;
  sender.put(envelope(kPut, 0, source.size()), source.data(), source.size(), &done);
  EXPECT_TRUE(sender.pump(1).ok());
  int bytes = 0;
  EXPECT_EQ(0, ::ioctl(far.get(), FIONREAD, &bytes));
  EXPECT_FALSE(done.done);
  return static_cast<size_t>(bytes);
}

// The rest of a put that is half out goes over its connection; those behind it go over the other one.
TEST(TcpSender, AConnectionThatIsNoLongerForPutsFinishesItsSegmentAndTakesNoPutAlong) {
  auto [old_near, old_far] = local_connection();
  auto [new_near, new_far] = local_connection();
  Socket old_out(std::move(old_near)), old_in(std::move(old_far));
  Socket new_out(std::move(new_near)), new_in(std::move(new_far));
  PutAssembly puts;
  Receiver old_receiver(0, old_in, puts), new_receiver(0, new_in, puts);
  Coalescer coalescer({});
  Sender sender(1, {1 << 20, 16 << 20}, coalescer);
  sender.use(old_out, {});

  const size_t short_bytes = 1000,
               long_bytes = room_of_a_local_socket() + short_bytes;  // of which the rest fits in at once
  const auto source = pattern(long_bytes + 2 * short_bytes, 1);
  Completion done[3];
  sender.put(envelope(kPut, 0, long_bytes), source.data(), long_bytes, &done[0]);
  ASSERT_TRUE(sender.pump(1 << 20).ok());
  ASSERT_FALSE(done[0].done);
  for (uint32_t i = 1; i < 3; ++i) {
    const size_t at = long_bytes + (i - 1) * short_bytes;
    sender.put(envelope(kPut, i, short_bytes, at), source.data() + at, short_bytes, &done[i]);
  }
  sender.use(old_out, {.messages = false, .puts = false});
  sender.use(new_out, {});

  RecordingSink sink;
  sink.window.resize(source.size());
  std::vector<std::byte> scratch(64 << 10);
  ASSERT_TRUE(old_receiver.read(sink, scratch, 16 << 20).ended.ok());
  if (old_out.blocked()) old_out.room();
  ASSERT_TRUE(sender.pump(1 << 20).ok());
  ASSERT_TRUE(old_receiver.read(sink, scratch, 16 << 20).ended.ok());
  ASSERT_EQ(1u, sink.arrivals.size()) << "only the long one came over the old connection";
  EXPECT_EQ(0u, sink.arrivals[0].envelope.op);
  ASSERT_TRUE(new_receiver.read(sink, scratch, 1 << 20).ended.ok());
  EXPECT_EQ(3u, sink.arrivals.size());
  EXPECT_EQ(source, sink.window);
  EXPECT_TRUE(done[0].done && done[1].done && done[2].done);
}

}  // namespace
}  // namespace weft::transport::tcp
