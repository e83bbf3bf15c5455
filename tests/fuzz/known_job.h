// What the targets of the bootstrap share: a job whose secret is known, and connections that are written
// before they are read.
#pragma once

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <span>
#include <vector>

#include "base/fd.h"
#include "bootstrap/unique_id.h"

namespace fuzz {

inline const weft::bootstrap::Job& known_job() {
  using namespace weft::bootstrap;
  static const Job job = *read_unique_id(
      write_unique_id(*SocketAddress::parse("127.0.0.1:4711"), derive_secret("a secret of the fuzzers")));
  return job;
}

/// A descriptor that an event loop may watch, of which nothing is ever read.
inline weft::UniqueFd idle_descriptor() { return weft::UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)); }

/// Two connected sockets that do not block.
class Wire {
 public:
  Wire() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) std::abort();
    own_.reset(ends[0]);
    other_.reset(ends[1]);
  }
  /// What the kernel has no room for is dropped.
  void write(std::span<const std::byte> bytes) {
    sent_.insert(sent_.end(), bytes.begin(), bytes.end());
    (void)!::send(own_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  /// Nothing more is written; what the other end writes is still taken.
  void end() { (void)::shutdown(own_.get(), SHUT_WR); }
  weft::UniqueFd take_other() { return std::move(other_); }
  const std::vector<std::byte>& sent() const { return sent_; }

 private:
  weft::UniqueFd own_, other_;
  std::vector<std::byte> sent_;
};

}  // namespace fuzz
