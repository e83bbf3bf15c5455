// TcpTransport: messages and puts over TCP connections, made when there is something to send. It puts
// together:
//
//   tcp_frame.h        what travels
//   tcp_channels.h     connections, and the bound of bytes on their way
//   tcp_sender.h       how frames get out;  tcp_coalescer.h  which of them share a write
//   tcp_link_reader.h  which connections are read when;  tcp_receiver.h  how frames come in
//   tcp_peers.h        the state of each peer, and which peers are lost
//
// It asks more of the engine's Sink than message_transport.h does. It asks place() before every single write
// of a payload that does not come in one piece, with the envelope of the whole message or put. It uses the
// answer at once and does not keep it. So memory may be taken away between any two calls: from then on
// place() answers null, and the transport throws the rest of a put away. It still calls arrived() then, with
// a null payload. `payload` of arrived() has no alignment.
//
// Rails: a put is cut into segments, and every rail takes the next one when it has room. Further channels are
// connected when there are segments for them.
//
// Completions of puts to a lost peer stay as they are; the transport does not read the memory any more.
//
// Thread safety: as Transport; accept() may be called from any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "transport/tcp_channels.h"
#include "transport/tcp_coalescer.h"
#include "transport/tcp_link_reader.h"
#include "transport/tcp_options.h"
#include "transport/tcp_peers.h"
#include "transport/transport.h"

namespace weft::transport {

class TcpTransport final : public Transport, public ConnectionControl {
 public:
  using Options = TcpOptions;

  /// Errors: invalid_argument for an option out of range, system_error where the kernel refuses descriptors.
  static Result<std::unique_ptr<TcpTransport>> create(int rank, int ranks, Connector connector,
                                                      const Options& options);
  /// Closes all connections at once; data that flush() has not brought out may be cut off.
  ~TcpTransport() override;

  std::string describe() const override;
  size_t eager_bytes() const override { return options_.eager_bytes; }
  Result<Progress> send(int peer, const Envelope& envelope, const void* payload) override;
  uint64_t ticket() const override { return counters_.messages_sent + counters_.puts; }
  bool flushed(uint64_t ticket) override;
  /// Returns when the peers' kernels have everything that was handed over, puts included: destroying the
  /// transport then loses nothing, even with unread input. It receives nothing in the meantime.
  Status flush(Deadline deadline) override;
  Result<int> poll(Sink& sink) override;
  int64_t due_ns() const override { return coalescer_.due_ns(); }
  bool prepare_sleep() override;
  void finish_sleep() override { reader_.finish_sleep(); }
  Status watch(int epoll_fd) override;
  Counters counters() const override { return counters_; }

  Result<RemoteBuffer> expose(void* address, size_t bytes) override;
  /// Peers never see the address used: the Sink of this rank says where a put goes, and may stop at any time.
  void unexpose(const RemoteBuffer&) override {}
  size_t brief_put_bytes() const override { return std::min(options_.eager_bytes, kBriefPut); }
  Result<Progress> put(int peer, const Envelope& envelope, const void* source, size_t bytes,
                       const RemoteBuffer& target, uint64_t offset, Completion* done) override;
  void forget(const Completion* first, const Completion* last) override;
  /// Zeros are sent in place of what is left of a forgotten put.
  bool reads_forgotten() const override { return false; }

  ConnectionControl* connection_control() override { return this; }
  Status accept(int peer, uint32_t channel, UniqueFd connection) override {
    return channels_.accept(peer, channel, std::move(connection));
  }
  void bound_flight(size_t bytes) override { channels_.bound_flight(bytes); }
  void share_writes(bool shares) override { coalescer_.share_writes(shares); }

 private:
  TcpTransport(int rank, int ranks, Connector connector, const Options& options);

  /// A longer put does not pass through a queue of messages, and stays out of their way where puts have
  /// channels of their own. It is the size of an AlltoAll's blocks that are sent without asking
  /// (plan/exchange.cc).
  static constexpr size_t kBriefPut = 16 << 10;

  Result<tcp::Sender*> sender_to(int peer);
  void end_burst_message(const tcp::Peer& peer);
  Status pump(int peer, int* events);
  int write_all();

  const int rank_;
  const Options options_;
  Counters counters_;
  uint64_t polls_ = 0;
  uint64_t flushed_ = 0;  // every message and put up to this ticket is with the kernel
  tcp::Coalescer coalescer_;
  tcp::PeerTable peers_;
  tcp::Channels channels_;
  tcp::LinkReader reader_;
};

}  // namespace weft::transport
