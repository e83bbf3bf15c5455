// Peers: what one rank knows of the others once the job has met, on the agent. It keeps the links to its
// neighbours, takes a link that closes without a goodbye for a death, passes news on (each item once), and
// calls back.
//
// Thread safety: fate() from any thread, all else from the agent's thread.
// Invariants: on_dead is called once for each rank; what happens before start() is reported by start().
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

  /// Where everybody listens; before the first link.
  void set_addresses(std::vector<SocketAddress> first_rail) { addresses_ = std::move(first_rail); }
  /// Opens the link to a neighbour; `linked` is told when it stands, or why it does not.
  void link(int rank, double within_s, std::function<void(const Status&)> linked);
  /// Somebody came to this rank's listener, for a link, questions or data.
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
  void on_dead_news(int from, FrameReader reader);
  void on_failed_news(int from, FrameReader reader);
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
  std::map<int, Process> processes_;   // of neighbours on this host
  std::map<int, uint64_t> news_seen_;  // by origin: the number of its last failure that came here
  uint64_t news_told_ = 0;
  Questions questions_;

  Phase phase_ = Phase::waiting;
  std::shared_ptr<const Callbacks> callbacks_;
  std::vector<Report> unreported_;
};

}  // namespace weft::bootstrap
