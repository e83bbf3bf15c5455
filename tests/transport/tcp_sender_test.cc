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
  sender.add(out);
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

}  // namespace
}  // namespace weft::transport::tcp
