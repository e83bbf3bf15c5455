// Bootstrap: how ranks find each other before any transport is open, and how they notice later that a rank is
// gone.
//
// A unique id holds the address of a root listener and a random secret. Every rank registers with the root,
// and learns its parent in a tree over the ranks. All-gathers run up and down that tree. Afterwards each rank
// keeps connections to a few neighbours. A connection that closes without a goodbye means that its rank is
// dead, and the report floods to all ranks. The same listening socket accepts data connections, and questions
// about this rank's progress.
//
// Every accepted connection must begin with the secret. Otherwise it is closed before anything else is read.
// Thread safety: every method may be called from any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"

namespace weft::bootstrap {

/// 128 bytes: magic and version, the root's address, the secret, a checksum. One rank makes them, and the
/// program or the launcher sends them to the others.
struct UniqueId {
  std::array<std::byte, 128> bytes{};
};

/// Starts a root listener in this process, and returns the id that names it. The listener ends by itself when
/// all ranks have registered, or when a registered rank gives up. It listens on `port` (0 = any) of
/// `host` ("" = the interface that WEFT_SOCKET_IFNAME names, else the first that is up and not loopback, else
/// loopback).
Result<UniqueId> create_unique_id(const std::string& host = "", int port = 0);
/// The id for a root at a known address, with a secret derived from `shared_secret`. It is for launchers that
/// cannot send an id: every rank computes the same one, and rank 0 also calls serve_unique_id().
Result<UniqueId> unique_id_for(const std::string& host, int port, std::string_view shared_secret);
/// Starts a listener as create_unique_id() does. This one also ends if no rank registers within
/// WEFT_INIT_TIMEOUT_S.
Status serve_unique_id(const UniqueId& id);
/// Returns ok, or what is wrong with the id (magic, version, checksum, address).
Status check_unique_id(const UniqueId& id);

/// What a rank answers when a peer asks about an operation.
struct OpReport {
  bool known = false;         // false: this rank has no such communicator (any more)
  bool ended = false;         // the rank has ended it, without the operation asked for
  uint32_t last_started = 0;  // number of the rank's last collective on the communicator; 0 = none
  std::string call;           // of the operation asked for, if started: "AllReduce of 1024 float (sum)"
  std::string algorithm;      // of that operation
};

/// The user's callbacks. The bootstrap's own thread calls them, under none of its locks.
struct Callbacks {
  /// A rank is dead. Called once for each rank.
  std::function<void(int rank, const Status& why)> on_dead;
  /// A peer says that an operation of a communicator has failed (tell_failed() there).
  std::function<void(int from, uint32_t comm, const std::string& why)> on_failed;
  /// A peer has opened a data connection, which is authenticated and non-blocking. `purpose` is the peer's.
  std::function<void(int from, uint32_t purpose, UniqueFd connection)> on_data_connection;
  /// Rank `from` asks what this rank has started.
  std::function<OpReport(int from, uint32_t comm, uint32_t op)> on_question;
};

class Bootstrap {
 public:
  /// Joins the job. Blocks until all `ranks` have joined, or the deadline passes. The error then says how
  /// many ranks have joined.
  static Result<std::unique_ptr<Bootstrap>> join(const UniqueId& id, int rank, int ranks, Deadline deadline);
  virtual ~Bootstrap() = default;  // says goodbye to neighbours

  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  /// Every rank gives `mine`, of the same length, and gets those of all ranks, in rank order. This is a
  /// collective: all ranks call it in the same order.
  virtual Result<std::vector<std::byte>> all_gather(std::span<const std::byte> mine, Deadline deadline) = 0;

  /// Starts to watch neighbours and to call back. When this returns, questions are answered. Call it once,
  /// after the last all_gather().
  virtual Status start(Callbacks callbacks) = 0;
  /// Stops calling back. When this returns, no callback runs and none will. Idempotent.
  virtual void stop() = 0;

  /// The addresses that a rank listens on, "10.0.0.1:4711", one for each rail.
  virtual const std::vector<std::string>& addresses(int rank) const = 0;
  /// Opens a data connection to a rank's listener, over rail `rail`. That rank's on_data_connection gets the
  /// other end. Blocks for a round trip at most.
  virtual Result<UniqueFd> connect(int rank, int rail, uint32_t purpose, Deadline deadline) = 0;
  /// Asks ranks about an operation. Returns one answer for each; nullopt if none came before the deadline.
  virtual std::vector<std::optional<OpReport>> ask(std::span<const int> ranks, uint32_t comm, uint32_t op,
                                                   Deadline deadline) = 0;
  /// Whether a rank has left in order. Only neighbours of that rank know this, by its goodbye.
  virtual bool has_left(int rank) const = 0;
  /// Tells all ranks that an operation of `comm` has failed here. Blocks until this rank's links have taken
  /// what they take at once, or for 0.1 s.
  virtual void tell_failed(uint32_t comm, const std::string& why) = 0;
  /// Reports rank `rank` as dead when `process` (a pidfd) ends, too: a child of the rank may hold its
  /// connections open. Does nothing if that rank is no neighbour.
  virtual void watch_process(int rank, UniqueFd process) = 0;
};

}  // namespace weft::bootstrap
