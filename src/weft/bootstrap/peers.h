// Peers: which ranks of the job are present, have left, or are dead. It works after the rendezvous, on the
// bootstrap's thread. It keeps the links to this rank's neighbours. A link that closes without a goodbye
// means that the neighbour is dead. Peers forwards each report of a death or a failure once, and calls the
// callbacks.
//
// Thread safety: fate() from any thread; all other methods from the bootstrap's thread.
// Invariants: on_dead is called once for each rank. start() makes the callbacks that were due before it.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/acceptor.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/connection.h"
#include "bootstrap/questions.h"

namespace weft::bootstrap {

enum class Fate : uint8_t { present, left, dead };

class Peers {
 public:
  Peers(EventLoop& loop, const Job& job, int rank, int ranks);

  /// Sets the address on which each rank listens. Call it before the first link().
  void set_addresses(std::vector<SocketAddress> first_rail) { addresses_ = std::move(first_rail); }
  /// Opens the link to a neighbour. `linked` gets ok when the link is open, otherwise the reason.
  void link(int rank, double within_s, std::function<void(const Status&)> linked);
  /// Takes a connection to this rank's listener: for a link, questions or data.
  void welcome(AuthenticatedPeer peer);

  void start(std::shared_ptr<const Callbacks> callbacks);
  void stop();
  /// Says goodbye and closes everything.
  void leave();

  void tell_failed(uint32_t comm, const std::string& why);
  /// See Bootstrap.
  void watch_process(int rank, UniqueFd process);
  Questions& questions() { return questions_; }
  Fate fate(int rank) const { return fates_[static_cast<size_t>(rank)].load(std::memory_order_relaxed); }

 private:
  using Report = std::function<void(const Callbacks&)>;
  enum class Phase { waiting, started, stopped };

  bool is_peer(uint32_t rank) const;
  Connection::Events link_events(int rank);
  void on_frame(int from, const Frame& frame);
  void on_dead_frame(int from, FrameReader reader);
  void on_failed_frame(int from, FrameReader reader);
  void on_link_closed(int rank, const Status& why);
  void bury(int rank, const std::string& why, int heard_from);
  void pass_on(std::span<const std::byte> frame, int except);
  void drop_link(int rank);
  void forget_process(int rank);
  void report(Report report);
  OpReport answer(int from, uint32_t comm, uint32_t op) const;

  EventLoop& loop_;
  const Job job_;
  const int rank_, ranks_;
  std::vector<SocketAddress> addresses_;
  std::vector<std::atomic<Fate>> fates_;
  std::map<int, std::shared_ptr<Connection>> links_;
  struct Process {
    UniqueFd fd;
    EventLoop::Id watch = 0, timer = 0;
  };
  std::map<int, Process> processes_;       // of neighbours on this host
  std::map<int, uint64_t> failures_seen_;  // by origin: the number of its last failure report
  uint64_t failures_told_ = 0;             // the number of this rank's last failure report
  Questions questions_;

  Phase phase_ = Phase::waiting;
  std::shared_ptr<const Callbacks> callbacks_;
  std::vector<Report> unreported_;
};

}  // namespace weft::bootstrap
