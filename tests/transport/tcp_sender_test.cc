// Sender and Receiver over a socket whose room ends at every possible byte of a frame.
#include "transport/tcp_sender.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "transport/tcp_cluster.h"

namespace weft::transport::tcp {
namespace {

// A local stream socket with the smallest buffer takes the same number of bytes every time, so the size of
// the put says where the kernel cuts: in the payload, in the frame that ends it, or after that.
void send_through_a_narrow_socket(size_t bytes, bool forget) {
  int fds[2];
  ASSERT_EQ(0, ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
  const int least = 1;
  ASSERT_EQ(0, ::setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &least, sizeof(least)));
  Socket out{UniqueFd(fds[0])}, in{UniqueFd(fds[1])};
  Sender sender(1, {1 << 20, 1 << 20});
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
  int fds[2];
  ASSERT_EQ(0, ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
  const int least = 1;
  ASSERT_EQ(0, ::setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &least, sizeof(least)));
  Socket out{UniqueFd(fds[0])}, in{UniqueFd(fds[1])};
  Sender sender(1, {1 << 20, 1 << 20});
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

}  // namespace
}  // namespace weft::transport::tcp
