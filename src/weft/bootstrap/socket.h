// Sockets: listening, connecting and whole transfers, each with a deadline. Every socket is non-blocking and
// close-on-exec, and forked children give it up (base/fork.h). None has BBR for its congestion control. A
// process that reaches its soft limit of descriptors raises it to the hard one.
#pragma once

#include <cstddef>
#include <span>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "bootstrap/address.h"

namespace weft::bootstrap {

/// Listens on exactly `address`; port 0 picks one.
Result<UniqueFd> listen_on(const SocketAddress& address);
/// Listens on every address of the host, IPv6 and IPv4 where there is IPv6.
Result<UniqueFd> listen_everywhere(uint16_t port);
/// Whether an interface of this host has the address, as far as the kernel tells; a forwarded one it has not.
bool is_of_this_host(const SocketAddress& address);
/// As accept4(): an invalid descriptor with *error set (EAGAIN: nobody is waiting).
UniqueFd accept_from(int listener, int* error);
/// Whether such an error says that the process or the host has no descriptor or memory left.
bool is_exhausted(int error);

/// Starts connecting; writable when done, see connect_outcome(). `from`: the address of this host that the
/// socket gets; without one the kernel chooses.
Result<UniqueFd> begin_connect(const SocketAddress& address, const SocketAddress& from = {});
/// Once writable: 0, or the errno that connecting failed with. ECONNREFUSED for a socket that is connected to
/// itself.
int connect_outcome(int fd);
/// Connects, with TCP_NODELAY. `from`: as begin_connect(). Errors: timeout, or remote_error with the address
/// and the kernel's reason.
Result<UniqueFd> connect_to(const SocketAddress& address, Deadline deadline, const SocketAddress& from = {});

Result<SocketAddress> local_address(int fd);
Result<SocketAddress> peer_address(int fd);
void send_at_once(int fd);  // TCP_NODELAY
/// Makes the kernel notice within about 5 s that the other host is gone; a process that ends is noticed at
/// once anyway.
void notice_dead_host(int fd);

/// Waits for poll() events; false when the deadline passed first.
bool wait_for(int fd, short events, Deadline deadline);
/// Whole buffers. Errors: timeout; remote_error when the other side closed.
Status send_all(int fd, std::span<const std::byte> bytes, Deadline deadline);
Status recv_all(int fd, std::span<std::byte> bytes, Deadline deadline);

/// Raises the soft limit of open descriptors to the hard one; false if it was there already.
bool raise_descriptor_limit();

}  // namespace weft::bootstrap
