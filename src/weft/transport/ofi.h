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

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "transport/ofi_incoming.h"
#include "transport/ofi_messages.h"
#include "transport/ofi_naps.h"
#include "transport/ofi_peers.h"
#include "transport/ofi_providers.h"
#include "transport/ofi_puts.h"
#include "transport/ofi_rails.h"
#include "transport/transport.h"

namespace weft::transport {

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
  bool idle() const;
  bool reads_forgotten() const override { return puts_.reads_forgotten(); }
  /// True if the provider has no descriptor to sleep on, or none that works; that may turn out late.
  bool needs_polling() const { return naps_.needs_polling(); }
  /// Polls until everything accepted so far has left and peers have sent the acknowledgements that they owe,
  /// or fails with timeout. An acknowledgement to a rank that has gone may cost the connection, and with it
  /// other data on its way. It drops messages that arrive meanwhile: it is for the end of a job.
  Status flush(Deadline deadline) override;

  /// Which provider it is.
  Net net() const { return rails_.net(); }

  // The parts. Their headers say what else can be asked of them.
  const ofi::Rails& rails() const { return rails_; }
  const ofi::Puts& puts() const { return puts_; }
  const ofi::Incoming& incoming() const { return incoming_; }

  std::string describe() const override { return rails_.describe(); }
  size_t eager_bytes() const override { return message_limit_; }
  Result<Progress> send(int peer, const Envelope& envelope, const void* payload) override;
  Result<RemoteBuffer> expose(void* address, size_t bytes) override { return rails_.expose(address, bytes); }
  void unexpose(const RemoteBuffer& buffer) override { rails_.unexpose(buffer); }
  size_t brief_put_bytes() const override { return message_limit_; }
  Result<Progress> put(int peer, const Envelope& envelope, const void* source, size_t bytes,
                       const RemoteBuffer& target, uint64_t offset, Completion* done) override;
  void forget(const Completion* first, const Completion* last) override { puts_.forget(first, last); }
  uint64_t ticket() const override { return messages_.last(); }
  bool flushed(uint64_t ticket) override { return messages_.flushed(ticket); }
  Result<int> poll(Sink& sink) override;
  bool prepare_sleep() override;
  void finish_sleep() override;
  Status watch(int epoll_fd) override { return naps_.watch(epoll_fd); }
  Counters counters() const override { return counters_; }

  GpuDirect* gpu_direct() override { return this; }
  Status gpu_direct_with(int peer) const override;
  Result<RemoteBuffer> expose_gpu(void* address, size_t bytes) override {
    return rails_.expose_gpu(address, bytes);
  }
  Status takes_dma_bufs() const override { return rails_.takes_dma_bufs(); }
  Result<RemoteBuffer> expose_dma_buf(void* address, size_t bytes, int fd, uint64_t offset) override {
    return rails_.expose_dma_buf(address, bytes, fd, offset);
  }
  Result<Progress> put_gpu(int peer, const Envelope& envelope, const void* source, size_t bytes,
                           const RemoteBuffer& target, uint64_t offset, Completion* done) override;
  void drop_unexposed_gpu() override { rails_.drop_unexposed_gpu(); }

 private:
  OfiTransport(int rank, int ranks, const Options& options);
  Result<Progress> start_put(int peer, const Envelope& envelope, const void* source, bool of_gpu,
                             size_t bytes, const RemoteBuffer& target, uint64_t offset, Completion* done);
  Result<int> reap();
  void settle(ofi::Rail& rail, ofi::Event& event);

  const int rank_, ranks_;
  const uint32_t token_;
  const uint64_t message_credit_;    // of this rank
  size_t message_limit_ = SIZE_MAX;  // payload that every rail takes, of all ranks once connected
  // Destroyed from the last to the first: puts let go of registrations before these go.
  ofi::Rails rails_;
  ofi::Peers peers_;
  ofi::Messages messages_;
  ofi::Puts puts_;
  ofi::Incoming incoming_;
  ofi::Naps naps_;
  std::vector<ofi::Event> events_;
  Counters counters_;
};

}  // namespace weft::transport
