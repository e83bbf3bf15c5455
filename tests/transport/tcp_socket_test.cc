// A socket by itself, at the end of its connection.
#include "transport/tcp_socket.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

namespace weft::transport::tcp {
namespace {

std::pair<UniqueFd, UniqueFd> loopback_connection() {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(0, ::bind(listener.get(), raw, length));
  EXPECT_EQ(0, ::listen(listener.get(), 1));
  EXPECT_EQ(0, ::getsockname(listener.get(), raw, &length));
  UniqueFd near(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(0, ::connect(near.get(), raw, length));
  return {std::move(near), UniqueFd(::accept(listener.get(), nullptr, nullptr))};
}

// A rank that left after a peer's death waited five seconds for what nobody was there to acknowledge.
TEST(TcpSocket, NothingIsUnacknowledgedOnceThePeerHasResetTheConnection) {
  auto [near, far] = loopback_connection();
  const std::vector<std::byte> piece(64 << 10);
  while (::send(near.get(), piece.data(), piece.size(), MSG_DONTWAIT) > 0) continue;
  const Socket socket(std::move(near));
  EXPECT_GT(socket.unacknowledged(), 0u) << "nobody reads";
  far = UniqueFd();  // with bytes unread, as a process that is killed
  for (int nap = 0; nap < 1000 && socket.unacknowledged() > 0; ++nap)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(socket.unacknowledged(), 0u);
}

// Firewalls that track connections forget those on which nothing has gone for minutes.
TEST(TcpSocket, GivesASignOfLifeOnAnIdleConnection) {
  auto [near, far] = loopback_connection();
  const UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  Socket socket(std::move(near));
  ASSERT_TRUE(socket.open(epoll.get(), 1, 0).ok());
  const auto option = [&](int level, int name) {
    int value = 0;
    socklen_t bytes = sizeof value;
    EXPECT_EQ(::getsockopt(socket.fd(), level, name, &value, &bytes), 0);
    return value;
  };
  EXPECT_EQ(option(SOL_SOCKET, SO_KEEPALIVE), 1);
  EXPECT_LE(option(IPPROTO_TCP, TCP_KEEPIDLE), 60);
}

}  // namespace
}  // namespace weft::transport::tcp
