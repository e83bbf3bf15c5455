#include "transport/tcp_transport.h"

#include <sys/epoll.h>

#include <cerrno>
#include <chrono>
#include <thread>

namespace weft::transport {

namespace {

constexpr size_t kWriteBudget = 1 << 20;  // for each connection in one poll()

Status check_options(int rank, int ranks, const TcpOptions& o) {
  if (ranks < 1 || rank < 0 || rank >= ranks)
    return fail(Code::invalid_argument, "rank is {}, must be in [0, {})", rank, ranks);
  if (o.rails < 1 || o.rails > 255)
    return fail(Code::invalid_argument, "rails is {}, must be in [1, 255]", o.rails);
  if (o.eager_bytes > tcp::kMaxMessageBytes)
    return fail(Code::invalid_argument, "eager_bytes is {}, must be at most {}", o.eager_bytes,
                tcp::kMaxMessageBytes);
  if (o.segment_bytes < 1 || o.segment_bytes > tcp::kMaxSegmentBytes)
    return fail(Code::invalid_argument, "segment_bytes is {}, must be in [1, {}]", o.segment_bytes,
                tcp::kMaxSegmentBytes);
  return {};
}

}  // namespace

Result<std::unique_ptr<TcpTransport>> TcpTransport::create(int rank, int ranks, Connector connector,
                                                           const Options& options) {
  WEFT_TRY(check_options(rank, ranks, options));
  std::unique_ptr<TcpTransport> transport(new TcpTransport(rank, ranks, std::move(connector), options));
  WEFT_TRY(transport->reader_.open());
  WEFT_TRY(transport->channels_.open(transport->reader_.epoll_fd()));
  return transport;
}

TcpTransport::TcpTransport(int rank, int ranks, Connector connector, const Options& options)
    : rank_(rank),
      options_(options),
      coalescer_(options.coalescing),
      peers_(ranks),
      channels_(rank, peers_, std::move(connector), options_),
      reader_(peers_, channels_, options_) {}

TcpTransport::~TcpTransport() = default;

std::string TcpTransport::describe() const {
  return options_.rails == 1 ? "tcp" : fmt::format("tcp, {} rails", options_.rails);
}

// ---- Sending

Result<tcp::Sender*> TcpTransport::sender_to(int rank) {
  if (rank < 0 || rank >= peers_.ranks() || rank == rank_)
    return fail(Code::invalid_argument, "peer is {}, must be another rank than {} in [0, {})", rank, rank_,
                peers_.ranks());
  tcp::Peer& peer = peers_[rank];
  if (!peer.failure.ok()) return peer.failure;
  if (peer.sender != nullptr) return peer.sender.get();
  peer.sender = std::make_unique<tcp::Sender>(
      rank, tcp::Sender::Limits{options_.queue_bytes, options_.segment_bytes}, coalescer_);
  if (Status status = channels_.add(rank); !status.ok()) {
    peers_.fail(rank, fail(Code::remote_error, "cannot connect to rank {}: {}", rank, status.message()));
    return peer.failure;
  }
  return peer.sender.get();
}

Result<Progress> TcpTransport::send(int peer, const Envelope& envelope, const void* payload) {
  if (envelope.bytes > options_.eager_bytes)
    return fail(Code::invalid_argument, "a message has {} bytes, must have at most {}", envelope.bytes,
                options_.eager_bytes);
  const Result<tcp::Sender*> sender = sender_to(peer);
  if (!sender.ok()) return sender.status();
  tcp::Peer& to = peers_[peer];
  const bool may_wait = coalescer_.begin_message(to.burst, polls_, reader_.asleep());
  Result<Progress> progress = (*sender)->send(envelope, payload, may_wait);
  if (!progress.ok()) {
    peers_.fail(peer, progress.status());
  } else if (*progress == Progress::accepted) {
    ++counters_.messages_sent;
    counters_.payload_bytes_sent += envelope.bytes;
    peers_.activate(peer);
    if (coalescer_.in_burst()) end_burst_message(to);
  }
  return progress;
}

/// A message of a burst has left, or waits. When one leaves, all leave that wait, so that their waits end
/// together.
void TcpTransport::end_burst_message(const tcp::Peer& peer) {
  if (peer.sender->waits()) return coalescer_.message_waits();
  if (peer.sender->pending()) return;  // behind what its kernel does not take: nothing has left
  if (coalescer_.due_ns() != 0) write_all();
  coalescer_.message_left();
}

Result<RemoteBuffer> TcpTransport::expose(void* address, size_t bytes) {
  return RemoteBuffer{.address = reinterpret_cast<uint64_t>(address), .bytes = bytes};
}

Result<Progress> TcpTransport::put(int peer, const Envelope& envelope, const void* source, size_t bytes,
                                   const RemoteBuffer& target, uint64_t offset, Completion* done) {
  if (offset > target.bytes || bytes > target.bytes - offset)
    return fail(Code::invalid_argument, "a put of {} bytes at {} leaves rank {}'s buffer of {} bytes", bytes,
                offset, peer, target.bytes);
  const Result<tcp::Sender*> sender = sender_to(peer);
  if (!sender.ok()) return sender.status();
  if (bytes == 0) {  // a put of nothing is a message of nothing
    Envelope empty = envelope;
    empty.bytes = 0;
    Result<Progress> progress = send(peer, empty, nullptr);
    if (progress.ok() && *progress == Progress::accepted) done->done = true;
    return progress;
  }
  (*sender)->put(envelope, source, bytes, done);
  ++counters_.puts;
  counters_.payload_bytes_sent += bytes;
  channels_.add_further(peer);
  // The first segment leaves at once, unless it may wait for others; in poll() the rest takes turns with puts
  // to other peers.
  int events = 0;
  WEFT_TRY(pump(peer, &events));
  if (coalescer_.due_ns() != 0) write_all();  // the messages that waited for this peer have left
  return Progress::accepted;
}

void TcpTransport::forget(const Completion* first, const Completion* last) {
  for (int rank = 0; rank < peers_.ranks(); ++rank) {
    if (peers_[rank].sender == nullptr) continue;
    peers_[rank].sender->forget(first, last);
    peers_.activate(rank);
  }
}

// Connections do not tell how far each message is, only whether all of them have left.
bool TcpTransport::flushed(uint64_t asked) {
  if (peers_.pending() == 0) flushed_ = ticket();
  return asked <= flushed_;
}

Status TcpTransport::pump(int rank, int* events) {
  tcp::Peer& peer = peers_[rank];
  peers_.count(peer);
  channels_.share_flight(peer);
  const Result<int> writes = peer.sender->pump(kWriteBudget);
  if (!writes.ok()) {
    peers_.fail(rank, writes.status());
    return writes.status();
  }
  *events += *writes;
  peers_.activate(rank);
  return {};
}

int TcpTransport::write_all() {
  int events = 0;
  coalescer_.writes_all();
  peers_.each_active([&](int rank) {
    if (!pump(rank, &events).ok()) ++events;
  });
  return events;
}

Status TcpTransport::flush(Deadline deadline) {
  const size_t failed_before = peers_.failing().size();
  for (int waiting_for; (waiting_for = peers_.unflushed()) >= 0;) {
    if (deadline.passed())
      return fail(Code::timeout, "rank {} does not take the data sent to it", waiting_for);
    if (write_all() > 0) continue;
    // No event reports an acknowledgement. Short sleeps are enough, since little is left at an orderly end.
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    for (int rank = 0; rank < peers_.ranks(); ++rank) {
      for (const auto& link : peers_[rank].links)
        if (link && link->socket.blocked()) link->socket.room();
      peers_.activate(rank);
    }
  }
  if (peers_.failing().size() > failed_before) return peers_[peers_.failing()[failed_before]].failure;
  return {};
}

// ---- Progress

Result<int> TcpTransport::poll(Sink& sink) {
  ++polls_;
  int events = write_all();
  if (reader_.rests()) return events;
  const Result<int> read = reader_.read(sink, ticket());
  if (!read.ok()) return read.status();
  events += *read;
  if (!peers_.failing().empty()) events += peers_.report_lost(sink);
  return events;
}

bool TcpTransport::prepare_sleep() {
  return !peers_.any_active() && peers_.failing().empty() && reader_.prepare_sleep();
}

Status TcpTransport::watch(int epoll_fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = reader_.epoll_fd();
  if (::epoll_ctl(epoll_fd, EPOLL_CTL_ADD, reader_.epoll_fd(), &event) < 0)
    return fail_errno(errno, "cannot watch the connections of the tcp transport");
  return {};
}

}  // namespace weft::transport
