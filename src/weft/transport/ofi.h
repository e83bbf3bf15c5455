// OfiTransport: messages and puts over libfabric's reliable datagrams: EFA, verbs, and TCP through libfabric.
// It needs no order between messages (EFA has none), no tags and no atomics. Puts are RMA writes with 32-bit
// immediate data, cut into stripes over the rails (NICs). Without such writes puts are cut into messages. See
// ofi_protocol.h. It works between ranks of one node too, but is not meant for them. It does not notice that
// a peer dies while nothing is being sent to it: the bootstrap does.
//
// Contract beyond Transport's:
//   progress   poll() and flush() alone make it, also for puts that peers write here.
//   send       It is busy, too, until the peer has taken in earlier messages (Options::message_credit), which
//              happens in the peer's poll().
//   put        `envelope.bytes` is envelope_bytes() of its size. A put that goes in messages has at most
//              2^32 - 1 bytes. A put to a peer that gets lost never sets `done`.
//   forget     Stripes that the NIC has go on, and may still read the source; others are withdrawn. A caller
//              that frees the source destroys the transport first, or waits until reads_forgotten() is false.
//   unexpose   It withdraws the keys once the last user of the pages is gone. A write that comes later is an
//              error at the peer that wrote. A write that has begun may go on; over `net` of libfabric 1.17
//              it does so to its end, in later polls (may_be_writing()).
//   sleeping   A thread sleeps on the completion queues' descriptors, if the provider has them and clears
//              them. `net` of libfabric 1.17 does not. Then (needs_polling()), and while something waits for
//              room that no event announces, a timer among the watched descriptors ends the sleep. It does
//              so after 50 us at first, 1 ms at most; 10 ms where events wake and the timer is for safety.
//   GPU memory A put of it avoids the host where the rails were opened with FI_HMEM (Options::cuda_device)
//              and a block of the device could be registered. Each end learns that from the other's address.
//   fork       create() comes after fork(): libfabric's endpoints do not survive it.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "transport/eager.h"
#include "transport/ofi_gpu_registration.h"
#include "transport/ofi_protocol.h"
#include "transport/ofi_providers.h"
#include "transport/ofi_rail.h"
#include "transport/ofi_registration.h"
#include "transport/transport.h"

namespace weft::transport {

namespace ofi {

/// A put from its acceptance until the last of its bytes has left.
struct OutgoingPut {
  enum class Way : uint8_t { writes, messages };

  int peer = -1;
  Way way = Way::writes;
  bool of_gpu = false;  // the source is GPU memory
  Envelope envelope;
  uint64_t sequence = 0;
  const std::byte* source = nullptr;
  size_t bytes = 0;
  size_t posted_bytes = 0;
  size_t piece_bytes = 0;  // of a stripe or a segment; the last may be shorter
  size_t first_rail = 0;   // of the first stripe, before wrapping; each next one takes the next
  uint32_t posted = 0;     // stripes or segments
  uint32_t in_flight = 0;  // stripes whose completion is outstanding
  uint64_t address = 0;    // of the first byte, as the target's provider counts
  std::array<uint64_t, kMaxRails> keys{};  // the target's, by rail
  RegistrationHold registration;
  Completion* done = nullptr;  // null once forgotten
  bool withdrawn = false;      // forgotten before all was posted: what remains is to tell the peer
  std::list<OutgoingPut>::iterator self;

  bool all_posted() const { return posted_bytes == bytes; }
};

/// This rank's knowledge of another.
struct Peer {
  uint32_t token = 0;
  uint32_t known_as = 0;                      // this rank's number among the peer's peers
  std::vector<std::vector<std::byte>> names;  // by rail; as many rails as both have
  std::vector<fi_addr_t> routes;              // by rail, FI_ADDR_UNSPEC until first used
  uint32_t met = 0;                           // rails over which it has answered a greeting, a bit each
  Greetings greetings[kMaxRails];             // over the others
  uint64_t puts_started = 0;
  uint64_t puts_received = 0;   // by the peer, all before this number
  uint64_t message_credit = 0;  // the peer's; UINT64_MAX: it has no bound
  uint64_t messages_sent = 0;   // what they cost
  uint64_t messages_taken = 0;  // of these, by the peer, as far as it has said
  IncomingPuts incoming;
  uint64_t messages_here = 0;          // what those that have come from it cost
  uint64_t acknowledged = 0;           // of `incoming`
  uint64_t acknowledged_messages = 0;  // of `messages_here`
  bool acknowledgement_due = false;    // it is among those of acknowledge_due()
  bool takes_gpu = false;              // it offers GPUDirect
  Status lost;                         // ok while it is not

  uint32_t all_rails() const { return (1u << routes.size()) - 1; }
  bool met_on_all() const { return met == all_rails(); }
};

/// A completion that waits for the Sink.
struct Arrival {
  Rail* rail = nullptr;
  Operation* message = nullptr;  // null: a stripe with `immediate`
  size_t bytes = 0;
  uint32_t immediate = 0;
};

}  // namespace ofi

class OfiTransport final : public Transport, public GpuDirect {
 public:
  using Options = OfiOptions;

  /// Opens a rail on each chosen domain. Fails with invalid_setting or unsupported if no provider fits (the
  /// text says what there is), system_error if opening fails.
  static Result<std::unique_ptr<OfiTransport>> create(int rank, int ranks, const Options& options);
  ~OfiTransport() override;

  /// The address by which peers reach this rank on all rails: kAddressBytes, padded.
  std::vector<std::byte> address() const;
  static constexpr size_t kAddressBytes = 512;
  /// Takes the addresses of all ranks; connects to none until it is first used. Fails with protocol_error if
  /// one is not an address of the same provider.
  Status connect(std::vector<std::vector<std::byte>> by_rank);
  /// Takes the address of one peer, for endpoints that meet one by one and number each other as they meet.
  /// Here the peer is `peer`; there this rank is `known_as`. Both may be the same endpoint, under any number
  /// but its own. Fails as connect() does.
  Status introduce(int peer, std::span<const std::byte> address, uint32_t known_as);

  /// Whether nothing accepted so far needs another poll(): messages have left, puts are written, and no peer
  /// waits for an acknowledgement.
  bool idle() const { return nothing_under_way(); }
  /// Whether libfabric has stripes of a forgotten put, and may read its source.
  bool reads_forgotten() const override;
  /// The same, of puts to one peer.
  bool reads_forgotten(int peer) const;
  /// Whether the put that will set `done` is under way. A put to a lost peer is not.
  bool carries(const Completion& done) const;

  /// Whether the peer may be in the middle of writing a put of `comm` that it began before the last poll().
  /// The caller knows that the peer begins no other.
  bool may_be_writing(int peer, uint32_t comm) const;
  /// Whether the peer certainly is. With several rails false says nothing.
  bool is_writing(int peer, uint32_t comm) const;
  /// Whether peers can reach pages of what is exposed by another exposure, too.
  bool exposed_elsewhere(const RemoteBuffer& buffer) const;

  /// ok if a reader that looks before a peer's write is complete sees each aligned 128 bytes in order.
  /// Otherwise the reason why not.
  Status writes_in_order() const;

  /// True if the provider has no descriptor to sleep on, or none that works; that may turn out late.
  bool needs_polling() const;
  /// Polls until everything accepted so far has left and peers have sent the acknowledgements that they owe,
  /// or fails with timeout. An acknowledgement to a rank that has gone may cost the connection, and with it
  /// other data on its way. It drops messages that arrive meanwhile: it is for the end of a job.
  Status flush(Deadline deadline) override;

  struct RegistrationStatistics {
    uint64_t hits = 0, misses = 0, failures = 0;
    size_t live = 0;
  };
  RegistrationStatistics registrations() const;
  /// The same for GPU memory; zeros where there is no GPUDirect.
  ofi::GpuRegistrations::Statistics gpu_registrations() const;

  /// Which provider it is.
  Net net() const { return net_; }

  std::string describe() const override;
  size_t eager_bytes() const override { return message_limit_; }
  Result<Progress> send(int peer, const Envelope& envelope, const void* payload) override;
  Result<RemoteBuffer> expose(void* address, size_t bytes) override;
  void unexpose(const RemoteBuffer& buffer) override;
  size_t brief_put_bytes() const override { return message_limit_; }
  Result<Progress> put(int peer, const Envelope& envelope, const void* source, size_t bytes,
                       const RemoteBuffer& target, uint64_t offset, Completion* done) override;
  void forget(const Completion* first, const Completion* last) override;
  uint64_t ticket() const override { return last_message_; }
  bool flushed(uint64_t ticket) override;
  Result<int> poll(Sink& sink) override;
  bool prepare_sleep() override;
  void finish_sleep() override;
  Status watch(int epoll_fd) override;
  Counters counters() const override;

  // GPUDirect (ofi_gpu.cc).
  GpuDirect* gpu_direct() override { return this; }
  Status gpu_direct_with(int peer) const override;
  Result<RemoteBuffer> expose_gpu(void* address, size_t bytes) override;
  Status takes_dma_bufs() const override;
  Result<RemoteBuffer> expose_dma_buf(void* address, size_t bytes, int fd, uint64_t offset) override;
  Result<Progress> put_gpu(int peer, const Envelope& envelope, const void* source, size_t bytes,
                           const RemoteBuffer& target, uint64_t offset, Completion* done) override;
  void drop_unexposed_gpu() override;

 private:
  OfiTransport(int rank, int ranks, const Options& options);
  Status open_rails();
  Status open_rails(std::vector<ofi::Info> infos);
  Status open_rails_for_gpu(const std::vector<ofi::Info>& plain);
  Status register_a_gpu_block();
  RemoteBuffer hold_exposure(ofi::RegistrationOwner& owner, ofi::Registration* registration, void* address,
                             size_t bytes);
  Status open_wakeups();
  void distrust_descriptor(ofi::Rail& rail);
  Status check_peer(int peer) const;
  void message_left(uint64_t number);
  bool reachable_by_writes(const RemoteBuffer& target) const;
  static uint64_t write_address(const RemoteBuffer& target, uint64_t offset);
  size_t stripe_bytes(size_t bytes, size_t rails) const;

  // Sending (ofi_outgoing.cc).
  Result<fi_addr_t> route(int peer, size_t rail);
  Result<Progress> post_message(int peer, const ofi::Header& header, const void* payload, size_t bytes);
  Status copy(int peer, void* to, const void* from, size_t bytes) const;
  Result<Progress> post_message_now(int peer, const ofi::Header& header, const void* payload, size_t bytes);
  Result<Progress> post_over(size_t rail, int peer, ofi::Header header, const void* payload, size_t bytes);
  Result<Progress> post_short(ofi::MessageKind kind, int peer, size_t rail);
  Status meet(int peer);
  Result<Progress> start_put(int peer, const Envelope& envelope, const void* source, bool of_gpu,
                             size_t bytes, const RemoteBuffer& target, uint64_t offset, Completion* done);
  Status register_source(ofi::OutgoingPut& put);
  Result<Progress> post_stripe(ofi::OutgoingPut& put);
  Result<Progress> post_segment(ofi::OutgoingPut& put);
  Result<Progress> post_withdrawal(ofi::OutgoingPut& put);
  Result<Progress> announce(ofi::OutgoingPut& put, const RemoteBuffer& target, uint64_t offset);
  void advance(ofi::OutgoingPut& put);
  void advance_all();
  void finish(ofi::OutgoingPut& put);
  void stripe_over(ofi::OutgoingPut& put);
  template <typename Test>
  bool any_outgoing(Test test) const;  // for ofi_outgoing.cc alone
  bool owes_puts(const ofi::Peer& peer) const;
  bool owes_messages(const ofi::Peer& peer) const;
  void acknowledge_later(int rank);
  void acknowledge_due(Sink& sink);
  bool awaits_acknowledgement() const;
  void lose(int peer, const Status& why);
  bool nothing_under_way() const;

  // Receiving (ofi_incoming.cc).
  Result<int> reap();
  void settle(ofi::Rail& rail, ofi::Event& event);
  void cut_off(const ofi::Event& event);
  Status deliver(Sink& sink, const ofi::Arrival& arrival);
  void deliver_message(Sink& sink, const std::byte* message, size_t bytes);
  void deliver_stripe(Sink& sink, uint32_t immediate);
  void file_segment(Sink& sink, int from, ofi::IncomingPut& put, const ofi::Header& header,
                    const std::byte* payload, size_t bytes);
  void arrived_whole(Sink& sink, int from, ofi::IncomingPut& put);
  void finished(int from, ofi::IncomingPut& put);

  const int rank_, ranks_;
  const Options options_;
  const ofi::Immediate immediate_;
  const uint32_t token_;
  bool rma_ = false;
  bool greets_ = false;  // see ofi_protocol.h
  Status why_no_gpu_;    // ok: this rank offers GPUDirect
  Net net_ = Net::ofi;
  size_t message_limit_ = SIZE_MAX;  // payload that every rail takes, of all ranks once connected
  // Destroyed from the last to the first: puts and exposures let go of registrations, these go before their
  // domains.
  std::vector<std::unique_ptr<ofi::Rail>> rails_;
  std::unique_ptr<ofi::RegistrationCache> registrations_;
  std::unique_ptr<ofi::GpuRegistrations> gpu_registrations_;
  std::unordered_map<uint64_t, ofi::RegistrationHold> exposures_;  // by the id in RemoteBuffer
  uint64_t next_exposure_ = 1;
  std::vector<ofi::Peer> peers_;
  std::list<ofi::OutgoingPut> unposted_, posted_, spare_;
  // Both begin elsewhere for each rank, so that those of a node do not all take the same. Apart, since every
  // put is announced by a message: its stripe would always take the rail after that one's.
  size_t next_messages_rail_, next_puts_rail_;
  std::vector<ofi::Event> events_;
  std::deque<ofi::Arrival> inbox_;
  std::vector<int> losses_;            // to be reported
  std::vector<int> acknowledgements_;  // peers to which one is due
  Counters counters_;
  uint64_t last_message_ = 0;      // number of the last one posted
  std::deque<bool> messages_out_;  // whether a message has left, from the oldest that has not on
  UniqueFd wakeups_;               // an epoll instance: the rails' descriptors and the timer
  UniqueFd nap_timer_;
  int64_t nap_ns_ = 0;
  bool napping_ = false;
  bool refused_ = false;  // something since the last sleep: it may be worth trying again soon
};

}  // namespace weft::transport
