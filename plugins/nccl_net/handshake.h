// The handshake: creates a Sender and a Receiver. The connecting side opens a socket for the handshake, and
// over TCP one more for each rail, and sends a greeting on each. The listening side first checks the secret.
// It waits for all sockets, and answers on the first. That one stays open and shows when a peer dies; the
// others carry the data. No function blocks.
//
// Thread safety: a Dialer and a Listener are used by one thread at a time.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/fork.h"
#include "handle.h"
#include "receiver.h"
#include "sender.h"

namespace weft::nccl_net {

/// The connecting side, until it is connected.
class Dialer {
 public:
  /// `endpoint`: the device's over libfabric, null over TCP. `traffic_class`: of the connection's packets,
  /// negative for none; what cannot be honoured is said once. Errors: mismatch for a handle of the other way.
  static Result<std::unique_ptr<Dialer>> start(const Device& device, std::shared_ptr<Endpoint> endpoint,
                                               const Handle& handle, int traffic_class);
  /// The sender once there is one, null before. Errors: remote_error if nobody listens (any more),
  /// protocol_error, mismatch, or what the listener says.
  Result<std::unique_ptr<Sender>> advance();

 private:
  struct Socket {
    UniqueFd fd;
    Greeting greeting;
    size_t sent = 0;
    bool connected = false;
  };

  Dialer(const Device& device, std::shared_ptr<Endpoint> endpoint, const Handle& handle)
      : device_(device), endpoint_(std::move(endpoint)), handle_(handle) {}
  Status open(size_t rails, int traffic_class);
  Status connect_socket(const Greeting& greeting, size_t rail);
  bootstrap::SocketAddress own_end(size_t rail, const bootstrap::SocketAddress& target) const;
  Result<bool> greet(Socket& socket);
  Result<bool> hear_answer();
  Result<std::unique_ptr<Sender>> finish();

  const Device& device_;
  std::shared_ptr<Endpoint> endpoint_;
  const Handle handle_;
  std::unique_ptr<Sender> sender_;  // over libfabric from the start: the answer may be overtaken by a clear
  int peer_ = -1;
  std::vector<Socket> sockets_;  // the first is the handshake's
  Answer answer_;
  size_t heard_ = 0;
};

/// The listening side. Serves any number of connections, one after the other.
class Listener {
 public:
  static Result<std::unique_ptr<Listener>> open(const Device& device, std::shared_ptr<Endpoint> endpoint);
  const Handle& handle() const { return handle_; }
  const Ownership& ownership() const { return ownership_; }
  /// A receiver, once somebody has connected, null before. Guests who do not know the secret, or are of
  /// another version, are sent away and logged. Errors: system_error (no descriptor or memory is left), or
  /// what opening an endpoint says.
  Result<std::unique_ptr<Receiver>> accept();

 private:
  struct Guest {
    UniqueFd socket;
    std::string name;
    Greeting greeting;
    size_t heard = 0;
    Deadline deadline;
  };

  Listener(std::shared_ptr<Endpoint> endpoint, UniqueFd socket, const Handle& handle)
      : endpoint_(std::move(endpoint)), socket_(std::move(socket)), handle_(handle) {}
  Status let_in();
  /// False: the guest is to go.
  bool hear(Guest& guest);
  std::vector<Guest> complete_party();
  Result<std::unique_ptr<Receiver>> welcome(std::vector<Guest> party);

  const Ownership ownership_;
  const std::shared_ptr<Endpoint> endpoint_;  // null over TCP
  const UniqueFd socket_;
  const Handle handle_;
  std::vector<Guest> guests_;
};

}  // namespace weft::nccl_net
