// Fabric: the transports of one rank and which of them reaches which peer: shared memory inside the node, TCP
// or libfabric between nodes. Opened once for a context; it is the only place that knows which transports
// exist.
//
// Thread safety: under the context's lock, except accept() (the bootstrap's thread).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "bootstrap/bootstrap.h"
#include "topology/layout.h"
#include "transport/eager.h"
#include "transport/transport.h"

namespace weft::transport {
class ShmTransport;
struct ShmAddress;
}  // namespace weft::transport

namespace weft::engine {

class Fabric {
 public:
  /// `host_id` overrides topology::host_id() if not empty. Meets all ranks over `bootstrap` (a collective)
  /// and opens what is needed to reach them. Peers may not be ready yet when it returns: the ranks have to
  /// meet once more before anybody sends. `cuda_device`: whose memory the network should reach itself, if it
  /// can; -1 = none.
  static Result<std::unique_ptr<Fabric>> open(bootstrap::Bootstrap& bootstrap, const std::string& host_id,
                                              int cuda_device, Deadline deadline);
  /// A fabric of transports that are open already: `local` inside the node of `rank`, `network` between
  /// nodes. Null: there is none. Nobody is met, and nobody traces.
  static Result<std::unique_ptr<Fabric>> over(int rank, topology::Layout layout,
                                              std::unique_ptr<transport::Transport> local,
                                              std::unique_ptr<transport::Transport> network);
  ~Fabric();

  /// The network between nodes that are like this one, by WEFT_NET and WEFT_PROVIDER, or by what libfabric
  /// offers. Asks libfabric only if the settings do not decide. Errors: those of opening it.
  static Result<transport::Net> net_here();

  /// Which ranks share memory: WEFT_HOSTID and WEFT_SHM are in it.
  const topology::Layout& layout() const { return layout_; }
  /// More ranks on this machine than they may use CPUs, whatever nodes they pretend to be.
  bool oversubscribed() const { return oversubscribed_; }
  /// Ranks on this rank's machine, whatever nodes they pretend to be.
  int ranks_on_machine() const { return ranks_on_machine_; }
  /// CPUs that they may use, all together.
  int cpus_on_machine() const { return cpus_on_machine_; }
  /// Whether a rank writes a trace (WEFT_TRACE).
  bool traces(int rank) const { return traces_[rank]; }
  /// All nodes are pretended ones of one machine.
  bool one_machine() const { return one_machine_; }

  transport::Transport* route(int rank) const { return routes_[rank]; }
  /// By rank; null for oneself.
  const std::vector<transport::Transport*>& routes() const { return routes_; }
  bool is_local(int rank) const { return layout_.same_node(rank, rank_); }
  /// The same-node transport, or null if this rank is alone on its node.
  transport::Transport* local() const { return local_.get(); }
  /// The same by its own type; null where it is of another.
  transport::ShmTransport* shm() const { return shm_; }
  bool has_network() const { return network_ != nullptr; }
  transport::Transport* between_nodes() const { return network_.get(); }

  /// tcp where all ranks are on one node.
  transport::Net net() const { return net_; }
  /// Largest message inside a node, and between nodes: the same on every rank, also on one that has no such
  /// peer, since all ranks must choose the same plans.
  size_t eager_intra_bytes() const;
  size_t eager_inter_bytes() const;

  /// Polls shared memory, and the network if `network`.
  Result<int> poll(transport::Sink& sink, bool network);
  /// Whether something that the network has accepted needs further polls to get out.
  bool unsent();
  /// When the network next needs a poll although no descriptor tells of it (MessageTransport::due_ns()); 0:
  /// at no time. From any thread.
  int64_t due_ns() const { return network_ ? network_->due_ns() : 0; }
  /// Whether the network may still read the source of a put that was forgotten.
  bool reads_forgotten() const;

  /// See Transport: sleep on epoll_fd() only after prepare_sleep() said true; then finish_sleep().
  bool prepare_sleep();
  void finish_sleep();
  int epoll_fd() const { return epoll_.get(); }
  /// Longest sleep that is safe, for a provider that cannot wake us; -1 = any.
  int nap_ms() const { return nap_ms_; }

  /// A data connection that the bootstrap has accepted.
  void accept(int from, uint32_t purpose, UniqueFd connection);
  /// Waits until what has been handed over is out.
  Status flush(Deadline deadline);
  /// "shared memory (single copy) + tcp, 2 rails".
  std::string describe() const;

 private:
  Fabric(int rank, topology::Layout layout);
  Status open_shared_memory(bootstrap::Bootstrap& bootstrap, Deadline deadline);
  Result<std::vector<transport::ShmAddress>> announce(bootstrap::Bootstrap& bootstrap, Deadline deadline);
  void watch_processes(bootstrap::Bootstrap& bootstrap,
                       const std::vector<transport::ShmAddress>& addresses) const;
  Status open_ofi(bootstrap::Bootstrap& bootstrap, int cuda_device, Deadline deadline);
  Status open_tcp(bootstrap::Bootstrap& bootstrap);
  /// Says which transport reaches whom, once all are open.
  Status route_all(int ranks);

  const int rank_;
  topology::Layout layout_;
  std::vector<bool> traces_;  // by rank
  bool oversubscribed_ = false;
  int ranks_on_machine_ = 1, place_on_machine_ = 0, cpus_on_machine_ = 1;
  bool one_machine_ = true;
  int nap_ms_ = -1;
  UniqueFd epoll_;
  std::unique_ptr<transport::Transport> local_, network_;
  transport::ShmTransport* shm_ = nullptr;  // `local_` by its own type; null: another one, or none
  transport::Net net_ = transport::Net::tcp;
  std::vector<transport::Transport*> transports_;
  std::vector<transport::Transport*> routes_;
};

}  // namespace weft::engine
