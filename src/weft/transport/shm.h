// ShmTransport: shared memory between the ranks of one node, processes or threads of one process. It puts
// together:
//
//   shm_fifo.h     messages
//   shm_segment.h  the memory of FIFOs, and waking
//   shm_memory.h   access to a peer's memory
//   shm_help.h     long reads that the owner helps with
//   shm_revocations.h  memory that its owner withdraws while peers read it
//
// A dead peer blocks nothing here: its FIFO fills up, and sends are answered busy. Calls that need the peer
// itself fail with remote_error. The bootstrap notices the death; this transport never calls Sink::lost.
//
// Thread safety and abort: as transport.h says.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "transport/shm_fifo.h"
#include "transport/shm_help.h"
#include "transport/shm_memory.h"
#include "transport/shm_segment.h"
#include "transport/transport.h"

namespace weft::transport {

class ShmTransport final : public Transport, public PeerMapping {
 public:
  static constexpr size_t kLargestEagerBytes = 1 << 20;

  struct Options {
    /// Use single-copy system calls where the kernel allows them, and let peers use them on us.
    bool cma = true;
    /// At most kLargestEagerBytes, and the same on all ranks of the node. 0: the transport's choice
    /// (eager.h).
    size_t eager_bytes = 0;
  };

  /// For rank `rank` of `ranks`, whose node holds `local_ranks`, itself included, in the same order on all of
  /// them. Errors: invalid_argument that names the wrong one; system_error or out_of_memory if the kernel
  /// refuses memory.
  static Result<std::unique_ptr<ShmTransport>> create(int rank, int ranks, std::span<const int> local_ranks,
                                                      const Options& options);

  /// The address for the peers: plain bytes for the bootstrap to carry.
  ShmAddress address() const { return own_->address(); }

  /// Whether this process can share memory with the rank of that address, and why not; maps nothing.
  struct Reach {
    Status shares;
    bool reads = false;  // also plain memory, by single-copy calls
  };
  Reach probe(int peer, const ShmAddress& address) const;
  /// `by_rank[r]` is rank r's address; entries of other nodes do not matter. Checks that every local peer can
  /// be reached, and names the first that cannot; maps nothing yet. Called once, before anything else.
  Status connect(std::span<const ShmAddress> by_rank);
  /// Some rank of the node cannot read the memory of all others. From now on reads_peers() is false.
  void stop_reading_peers() { reads_peers_ = false; }

  std::string describe() const override { return "shared memory"; }
  size_t eager_bytes() const override { return eager_bytes_; }

  Result<Progress> send(int peer, const Envelope& envelope, const void* payload) override;
  /// send() of a message that fits a slot, made to be inlined. False: nothing was sent, and send() tells why.
  bool send_short(int peer, const Envelope& envelope, const void* payload) {
    Peer* const found = find(peer);
    if (found == nullptr || envelope.bytes > short_bytes_ || !found->fifo.open()) return false;
    if (!found->fifo.send_in_slot(envelope, payload)) return false;
    found->segment->wake();
    ++counters_.messages_sent;
    counters_.payload_bytes_sent += envelope.bytes;
    return true;
  }

  Result<RemoteBuffer> expose(void* address, size_t bytes) override;
  void unexpose(const RemoteBuffer& buffer) override;
  size_t brief_put_bytes() const override { return eager_bytes_; }

  /// Copies before it returns, with two exceptions: a window that cannot be mapped, and plain memory that no
  /// system call may write. Such a put goes through the FIFO piece by piece, one to a peer at a time. The
  /// peer drops pieces for memory that it no longer exposes.
  Result<Progress> put(int peer, const Envelope& envelope, const void* source, size_t bytes,
                       const RemoteBuffer& target, uint64_t offset, Completion* done) override;
  /// A put that is still going through the FIFO ends where it is; its envelope is not delivered.
  void forget(const Completion* first, const Completion* last) override;
  bool reads_forgotten() const override { return false; }

  PeerMapping* peer_mapping() override { return this; }
  MappedBuffer map(int peer, const RemoteBuffer& target) override;
  bool same_process(int peer) const override;
  Status read(int peer, const RemoteBuffer& target, uint64_t offset, void* into, size_t bytes) override;
  /// Whether read() works for plain memory of every local peer; alike on all of them (stop_reading_peers()).
  bool reads_peers() const override { return reads_peers_; }
  /// For plain memory of another process, kHelpedBytes and longer.
  std::unique_ptr<Reading> begin_reading(int peer, const RemoteBuffer& target, uint64_t offset,
                                         uint64_t bytes) override;
  void revoke(const RemoteBuffer& buffer) override;
  bool revoked(int peer, const RemoteBuffer& target) override;

  // An accepted message lies in the peer's memory already.
  uint64_t ticket() const override { return 0; }
  bool flushed(uint64_t) override { return true; }
  Status flush(Deadline) override { return {}; }

  Result<int> poll(Sink& sink) override;
  /// poll() of at most one message from each peer that takes(peer) allows, made to be inlined. It calls
  /// deliver(peer, envelope, payload) in place of Sink::arrived().
  template <typename Takes, typename Deliver>
  int poll_next(Takes&& takes, Deliver&& deliver) {
    if (own_->announced() != announced_) [[unlikely]]
      open_inboxes();
    int events = 0;
    for (Inbox& inbox : inboxes_) {
      if (!takes(inbox.peer->rank)) continue;
      events += inbox.note(inbox.fifo.receive_next(receiver(inbox, deliver)));
    }
    return has_aside() ? events + do_aside() : events;
  }

  bool prepare_sleep() override;
  void finish_sleep() override { own_->get_up(); }
  Status watch(int epoll_fd) override;

  Counters counters() const override { return counters_; }

 private:
  /// A put that goes through the FIFO.
  struct Relay {
    Envelope envelope;
    const std::byte* source;
    size_t bytes;       // left
    uint64_t target;    // address in the peer
    uint64_t exposure;  // the peer's
    Completion* done;
  };

  /// One rank of the node, as seen from here. The members that send() uses come first.
  struct Peer {
    shm::FifoSender fifo;
    std::shared_ptr<shm::ControlSegment> segment;  // null until we have something to say
    int rank;
    int local;  // its position in local_ranks
    ShmAddress address;
    shm::PeerMemory memory;
    std::optional<Relay> relay;
    shm::HelpRings rings;
    int own_local;  // this rank's position

    Status map_segment();
    Status open_fifo();
    /// Wakes the peer, which has `bytes` more.
    Result<Progress> accepted(size_t bytes, Counters& counters) const {
      segment->wake();
      counters.payload_bytes_sent += bytes;
      return Progress::accepted;
    }
    /// Sends pieces of the relay while there is room; it is gone when all are out. Returns how many went.
    int continue_relay(size_t piece_bytes);
    /// Wakes the peer: it may have found its FIFO full and gone to sleep.
    void tell_of_room() {
      if (map_segment().ok()) segment->wake();  // if it is gone, nobody waits
    }
  };

  struct Inbox {
    shm::FifoReceiver fifo;
    Peer* peer;

    /// Returns how many messages that were.
    int note(const shm::FifoReceiver::Received& received) const {
      if (received.made_room) [[unlikely]]
        peer->tell_of_room();
      return received.messages;
    }
  };

  ShmTransport(int rank, int ranks, std::span<const int> local_ranks, size_t eager_bytes,
               std::shared_ptr<shm::ControlSegment> own);

  /// Null for ranks of other nodes, for ourselves, and for what is no rank.
  Peer* find(int rank) const {
    return static_cast<size_t>(rank) < by_rank_.size() ? by_rank_[static_cast<size_t>(rank)] : nullptr;
  }
  Result<Progress> start_relay(Peer& peer, const Envelope& envelope, const void* source, size_t bytes,
                               const RemoteBuffer& target, uint64_t offset, Completion* done);
  /// The function that a FIFO calls with a message: it passes the message on, unless that is the transport's
  /// own.
  template <typename Deliver>
  auto receiver(Inbox& inbox, Deliver& deliver) {
    return [&](const Envelope& envelope, shm::Payload where, const std::byte* payload) {
      if (where == shm::Payload::for_transport) [[unlikely]]
        told(*inbox.peer, envelope, payload);
      else deliver(inbox.peer->rank, envelope, payload);
    };
  }
  /// Whether there is more to do than messages: relays, and help for readers.
  bool has_aside() const { return relays_ > 0 || !helper_.idle(); }
  int do_aside();
  void told(Peer& peer, const Envelope& envelope, const std::byte* payload);
  void open_inboxes();

  int rank_;
  size_t eager_bytes_;
  size_t short_bytes_;  // of payload: fits a slot, and is eager
  bool cma_ = false;
  bool reads_peers_ = false;
  std::shared_ptr<shm::ControlSegment> own_;
  std::vector<std::unique_ptr<Peer>> peers_;  // of this node, in the order of local_ranks; null for ourselves
  std::vector<Peer*> by_rank_;                // null for ourselves and for ranks of other nodes
  std::vector<Inbox> inboxes_;                // of the peers that have announced themselves
  uint32_t announced_ = 0;                    // how many those are
  int relays_ = 0;                            // under way
  shm::Helper helper_;
  Counters counters_;
};

}  // namespace weft::transport
