// Member: one rank's Bootstrap over TCP. It puts the parts together: a listener of its own, the rendezvous at
// the root, the tree for all-gathers, and, on the agent, its Acceptor and its Peers.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "bootstrap/acceptor.h"
#include "bootstrap/agent.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/peers.h"
#include "bootstrap/tree.h"

namespace weft::bootstrap {

/// Where the agent leaves the connections of children in the tree, and the joining thread picks them up.
class ChildGate {
 public:
  void arrive(int rank, UniqueFd connection);
  /// Waits for all of `children`. Errors: timeout, naming those that did not come.
  Result<std::map<int, UniqueFd>> await(const std::vector<int>& children, Deadline deadline);

 private:
  Mutex mutex_;
  std::condition_variable_any changed_;
  std::map<int, UniqueFd> here_ WEFT_GUARDED_BY(mutex_);
};

class Member final : public Bootstrap {
 public:
  Member(const Job& job, int rank, int ranks, AgentUse agent);
  ~Member() override;
  /// Everything that Bootstrap::join() promises; once.
  Status join(Deadline deadline);

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  Result<std::vector<std::byte>> all_gather(std::span<const std::byte> mine, Deadline deadline) override;
  Status start(Callbacks callbacks) override;
  void stop() override;
  const std::vector<std::string>& addresses(int rank) const override;
  Result<UniqueFd> connect(int rank, int rail, uint32_t purpose, Deadline deadline) override;
  std::vector<std::optional<OpReport>> ask(std::span<const int> ranks, uint32_t comm, uint32_t op,
                                           Deadline deadline) override;
  bool has_left(int rank) const override { return peers_.fate(rank) == Fate::left; }
  void tell_failed(uint32_t comm, const std::string& why) override;
  void watch_process(int rank, UniqueFd process) override;

 private:
  void welcome(AuthenticatedPeer peer);
  Status grow_tree(const SocketAddress& parent, Deadline deadline) WEFT_REQUIRES(gathering_);
  Status spread_addresses(const std::vector<SocketAddress>& mine, Deadline deadline)
      WEFT_REQUIRES(gathering_);
  void leave_out(const std::set<std::string>& addresses);
  Status link_neighbours(Deadline deadline);
  SocketAddress own_end_of(size_t rail, const SocketAddress& target) const;
  EventLoop& loop() const { return agent_.loop(); }

  const Job job_;
  const int rank_, ranks_;
  AgentUse agent_;
  ChildGate gate_;
  Peers peers_;                                       // of the agent's thread
  std::unique_ptr<Acceptor> acceptor_;                // of the agent's thread
  std::vector<std::vector<SocketAddress>> rails_;     // by rank
  std::vector<std::vector<std::string>> rail_names_;  // the same, as text

  Mutex gathering_;
  Tree tree_ WEFT_GUARDED_BY(gathering_);
  bool started_ WEFT_GUARDED_BY(gathering_) = false;
};

}  // namespace weft::bootstrap
