// A TCP connection over loopback, for benchmarks that measure sockets beside transports.
#pragma once

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/fd.h"
#include "base/status.h"

namespace weft::perf {

[[noreturn]] inline void die(const std::string& what) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, what.c_str());
  std::_Exit(1);
}
inline void must(const Status& status) {
  if (!status.ok()) die(status.message());
}

/// Two ends of a TCP connection over loopback.
inline std::pair<UniqueFd, UniqueFd> connection() {
  UniqueFd listener(::socket(AF_INET, SOCK_STREAM, 0)), client(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) < 0 ||
      ::listen(listener.get(), 1) < 0 ||
      ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length) < 0 ||
      ::connect(client.get(), reinterpret_cast<sockaddr*>(&address), length) < 0)
    die("cannot connect over loopback");
  return {std::move(client), UniqueFd(::accept(listener.get(), nullptr, nullptr))};
}

}  // namespace weft::perf
