// Bootstrap: how ranks find each other before there is any transport, and notice that one is gone afterwards.
//
// A unique id holds the address of a root listener and a random secret. Every rank registers with the root,
// learns its parent in a tree over ranks, and all-gathers run up and down that tree. Afterwards each rank
// keeps connections to a few neighbours; a connection that closes without a goodbye is a dead rank, and the
// news floods to all. The same listening socket hands over connections for data and answers questions about
// this rank's progress.
//
// The secret: the first bytes on every accepted connection must be it, or the connection is closed before
// anything else is read. Thread safety: every method may be called from any thread.
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

/// 128 bytes that one rank makes and every rank gets by some other way: magic and version, the root's
/// address, the secret, a checksum.
struct UniqueId {
  std::array<std::byte, 128> bytes{};
};

/// Starts a root listener in this process, and returns the id that names it. The listener ends by itself when
/// its job has met, or when a rank that has come waits no longer. Listens on `host` ("" = the interface that
/// WEFT_SOCKET_IFNAME names, or the first that is up and not loopback, or loopback) and `port` (0 = any).
Result<UniqueId> create_unique_id(const std::string& host = "", int port = 0);
/// The id for a root at a known address with a secret derived from `shared_secret`: what launchers without a
/// channel of their own use (every rank computes the same id; rank 0 calls serve_unique_id too).
Result<UniqueId> unique_id_for(const std::string& host, int port, std::string_view shared_secret);
/// As create_unique_id(), but this listener also ends if no rank comes within WEFT_INIT_TIMEOUT_S.
Status serve_unique_id(const UniqueId& id);
/// ok, or what is wrong with it (magic, version, checksum, address).
Status check_unique_id(const UniqueId& id);

/// A rank in the air: what its peers may be told when they ask.
struct OpReport {
  bool known = false;         // false: this rank has no such communicator (any more)
  bool ended = false;         // the rank has ended it, without the operation asked for
  uint32_t last_started = 0;  // number of the last collective that it has called on it; 0 = none
  std::string call;           // of the operation asked for, if started: "AllReduce of 1024 float (sum)"
  std::string algorithm;      // that does it
};

/// What Bootstrap asks of its user; called on the bootstrap's own thread, never under its locks.
struct Callbacks {
  /// A rank is known to be dead; once for each rank.
  std::function<void(int rank, const Status& why)> on_dead;
  /// A peer says that an operation of a communicator has failed (tell() on its side).
  std::function<void(int from, uint32_t comm, const std::string& why)> on_failed;
  /// A peer wants to send data: the connection, authenticated, non-blocking, and the 32-bit `purpose` that it
  /// named.
  std::function<void(int from, uint32_t purpose, UniqueFd connection)> on_data_connection;
  /// Rank `from` asks what this rank has started.
  std::function<OpReport(int from, uint32_t comm, uint32_t op)> on_question;
};

class Bootstrap {
 public:
  /// Joins the job: blocks until all `ranks` have, or the deadline passes (the error then says how many
  /// came).
  static Result<std::unique_ptr<Bootstrap>> join(const UniqueId& id, int rank, int ranks, Deadline deadline);
  virtual ~Bootstrap() = default;  // says goodbye to neighbours

  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  /// Every rank gives `mine` (the same length everywhere) and gets all of them, in rank order. A collective:
  /// all ranks call it in the same order.
  virtual Result<std::vector<std::byte>> all_gather(std::span<const std::byte> mine, Deadline deadline) = 0;

  /// Starts watching neighbours and calling back; when this returns, questions are answered. Once, after the
  /// last all_gather.
  virtual Status start(Callbacks callbacks) = 0;
  /// Stops calling back: when this returns no callback runs and none will. Idempotent.
  virtual void stop() = 0;

  /// The addresses that a rank listens on, "10.0.0.1:4711", one for each rail.
  virtual const std::vector<std::string>& addresses(int rank) const = 0;
  /// Opens a data connection to a rank's listener, over rail `rail`; its on_data_connection gets the other
  /// end. Blocks for a round trip at most.
  virtual Result<UniqueFd> connect(int rank, int rail, uint32_t purpose, Deadline deadline) = 0;
  /// Asks ranks about an operation: one answer per rank asked, missing where none came in time.
  virtual std::vector<std::optional<OpReport>> ask(std::span<const int> ranks, uint32_t comm, uint32_t op,
                                                   Deadline deadline) = 0;
  /// Whether a rank has left in order and said so here: to its neighbours.
  virtual bool has_left(int rank) const = 0;
  /// Tells all ranks that an operation of `comm` failed here; blocks until its links have taken what they
  /// take at once, or for a tenth of a second.
  virtual void tell_failed(uint32_t comm, const std::string& why) = 0;
  /// The end of this process (a pidfd) is the death of rank `rank`, too: something that the rank has started
  /// may hold its connections open. Ranks that are no neighbours leave that to others.
  virtual void watch_process(int rank, UniqueFd process) = 0;
};

}  // namespace weft::bootstrap
