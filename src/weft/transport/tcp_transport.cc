#include "transport/tcp_transport.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"

namespace weft::transport {

namespace {

constexpr size_t kScratchBytes = 32 << 10;
constexpr size_t kWriteBudget = 512 << 10;  // for each connection in one poll()
constexpr size_t kReadBudget = 1 << 20;
constexpr int kEventsAtOnce = 64;
constexpr int kIdleReads = 4000;  // of the connection that had something last, before it is left to epoll
constexpr int kEpollEvery = 4;    // polls, while that connection is read first
constexpr int64_t kLossGraceNs = 100'000'000;

// What an epoll event is about: which end, peer and rail.
enum class Watched : uint64_t { doorbell = 1, incoming = 2, outgoing = 3 };
uint64_t key_of(Watched what, int peer = 0, size_t rail = 0) {
  return static_cast<uint64_t>(what) << 56 | static_cast<uint64_t>(rail) << 32 | static_cast<uint32_t>(peer);
}
Watched watched(uint64_t key) { return static_cast<Watched>(key >> 56); }
size_t rail_of(uint64_t key) { return key >> 32 & 0xffffff; }
int peer_of(uint64_t key) { return static_cast<int>(key & 0xffffffff); }

Status check_options(int rank, int ranks, const TcpTransport::Options& o) {
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
  WEFT_TRY(transport->open());
  return transport;
}

TcpTransport::TcpTransport(int rank, int ranks, Connector connector, const Options& options)
    : rank_(rank), connector_(std::move(connector)), options_(options), peers_(static_cast<size_t>(ranks)) {
  for (Peer& peer : peers_) peer.usable_rails = static_cast<size_t>(options.rails);
  scratch_.resize(kScratchBytes);
}

TcpTransport::~TcpTransport() = default;

Status TcpTransport::open() {
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.valid()) return fail_errno(errno, "cannot make an epoll instance");
  doorbell_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!doorbell_.valid()) return fail_errno(errno, "cannot make an eventfd");
  return add_to_epoll(doorbell_.get(), key_of(Watched::doorbell), EPOLLIN);
}

std::string TcpTransport::describe() const {
  return options_.rails == 1 ? "tcp" : fmt::format("tcp, {} rails", options_.rails);
}

// ---- Connections

Status TcpTransport::add_to_epoll(int fd, uint64_t key, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = key;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) < 0)
    return fail_errno(errno, "cannot watch a descriptor");
  return {};
}

Status TcpTransport::accept(int peer, uint32_t rail, UniqueFd connection) {
  if (peer < 0 || peer >= static_cast<int>(peers_.size()) || peer == rank_)
    return fail(Code::invalid_argument, "a connection came from rank {}, must be another one in [0, {})",
                peer, peers_.size());
  if (rail >= static_cast<uint32_t>(options_.rails))
    return fail(Code::protocol_error,
                "rank {} opened rail {}, must be in [0, {}): do all ranks have the same WEFT_RAILS?", peer,
                rail, options_.rails);
  {
    const std::lock_guard lock(inbox_mutex_);
    inbox_.push_back({peer, rail, std::move(connection)});
  }
  const uint64_t one = 1;
  if (::write(doorbell_.get(), &one, sizeof(one)) < 0 && errno != EAGAIN)
    return fail_errno(errno, "cannot announce a connection");
  return {};
}

int TcpTransport::take_over_accepted() {
  uint64_t rings;
  if (::read(doorbell_.get(), &rings, sizeof(rings)) < 0) return 0;
  std::vector<Arrival> arrivals;
  {
    const std::lock_guard lock(inbox_mutex_);
    arrivals.swap(inbox_);
  }
  for (Arrival& arrival : arrivals) {
    Peer& peer = peers_[static_cast<size_t>(arrival.peer)];
    if (!peer.failure.ok()) continue;  // closes it
    if (peer.receivers.size() <= arrival.rail) peer.receivers.resize(arrival.rail + 1);
    if (peer.receivers[arrival.rail] != nullptr) {
      log::warn("rank {} opened rail {} a second time: refused", arrival.peer, arrival.rail);
      continue;
    }
    const int fd = arrival.connection.get();
    Status status = tcp::prepare_socket(fd, 0);
    if (status.ok())
      status = add_to_epoll(fd, key_of(Watched::incoming, arrival.peer, arrival.rail), EPOLLIN);
    if (!status.ok()) {
      fail_peer(arrival.peer, status.in(fmt::format("connection from rank {}", arrival.peer)));
      continue;
    }
    peer.receivers[arrival.rail] =
        std::make_unique<tcp::Receiver>(arrival.peer, std::move(arrival.connection), peer.puts);
  }
  return static_cast<int>(arrivals.size());
}

Status TcpTransport::connect(int peer, size_t rail) {
  Result<UniqueFd> connection =
      connector_(peer, static_cast<int>(rail), Deadline::in_seconds(options_.connect_timeout_s));
  if (!connection.ok()) return connection.status();
  WEFT_TRY(tcp::prepare_socket(connection->get(), options_.unsent_bytes));
  // Edge-triggered: the kernel tells of new room only after it has refused some, so nothing is to be switched
  // on and off.
  WEFT_TRY(add_to_epoll(connection->get(), key_of(Watched::outgoing, peer, rail),
                        EPOLLIN | EPOLLRDHUP | EPOLLOUT | EPOLLET));
  peers_[static_cast<size_t>(peer)].sender->add(connection.take());
  return {};
}

Result<tcp::Sender*> TcpTransport::sender_to(int rank) {
  if (rank < 0 || rank >= static_cast<int>(peers_.size()) || rank == rank_)
    return fail(Code::invalid_argument, "peer is {}, must be another rank than {} in [0, {})", rank, rank_,
                peers_.size());
  Peer& peer = peers_[static_cast<size_t>(rank)];
  if (!peer.failure.ok()) return peer.failure;
  if (peer.sender != nullptr) return peer.sender.get();
  peer.sender =
      std::make_unique<tcp::Sender>(rank, tcp::Sender::Limits{options_.queue_bytes, options_.segment_bytes});
  if (Status status = connect(rank, 0); !status.ok()) {
    fail_peer(rank, fail(Code::remote_error, "cannot connect to rank {}: {}", rank, status.message()));
    return peer.failure;
  }
  return peer.sender.get();
}

void TcpTransport::connect_further_rails(int rank) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  while (peer.sender->connections() < peer.usable_rails &&
         peer.sender->connections() < peer.sender->useful_connections()) {
    const size_t rail = peer.sender->connections();
    if (const Status status = connect(rank, rail); !status.ok()) {
      log::warn("rank {} is reached over {} of {} rails: {}", rank, rail, options_.rails, status.message());
      peer.usable_rails = rail;
    }
  }
}

// ---- Sending

Result<Progress> TcpTransport::send(int peer, const Envelope& envelope, const void* payload) {
  if (envelope.bytes > options_.eager_bytes)
    return fail(Code::invalid_argument, "a message has {} bytes, must have at most {}", envelope.bytes,
                options_.eager_bytes);
  const Result<tcp::Sender*> sender = sender_to(peer);
  if (!sender.ok()) return sender.status();
  Result<Progress> progress = (*sender)->send(envelope, payload);
  if (!progress.ok()) {
    fail_peer(peer, progress.status());
  } else if (*progress == Progress::accepted) {
    ++counters_.messages_sent;
    counters_.payload_bytes_sent += envelope.bytes;
    activate(peer);
  }
  return progress;
}

Result<RemoteBuffer> TcpTransport::expose(void* address, size_t bytes) {
  RemoteBuffer buffer;
  buffer.address = reinterpret_cast<uint64_t>(address);
  buffer.bytes = bytes;
  return buffer;
}

// Peers never see the address used: the Sink of this rank says where a put goes, and may stop doing so at any
// time.
void TcpTransport::unexpose(const RemoteBuffer&) {}

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
  connect_further_rails(peer);
  // The first segment goes out at once; the rest takes turns with other peers' in poll().
  int events = 0;
  WEFT_TRY(pump(peer, &events));
  return Progress::accepted;
}

void TcpTransport::forget(const Completion* first, const Completion* last) {
  for (size_t peer = 0; peer < peers_.size(); ++peer) {
    if (peers_[peer].sender == nullptr) continue;
    peers_[peer].sender->forget(first, last);
    activate(static_cast<int>(peer));
  }
}

void TcpTransport::activate(int rank) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  if (peer.active || peer.sender == nullptr || !peer.sender->ready()) return;
  peer.active = true;
  active_.push_back(rank);
}

Status TcpTransport::pump(int rank, int* events) {
  const Result<int> writes = peers_[static_cast<size_t>(rank)].sender->pump(kWriteBudget);
  if (!writes.ok()) {
    fail_peer(rank, writes.status());
    return writes.status();
  }
  *events += *writes;
  activate(rank);
  return {};
}

int TcpTransport::write_all() {
  int events = 0;
  for (size_t turns = active_.size(); turns > 0; --turns) {
    const int rank = active_.front();
    active_.pop_front();
    Peer& peer = peers_[static_cast<size_t>(rank)];
    peer.active = false;
    if (peer.sender == nullptr) continue;
    if (!pump(rank, &events).ok()) ++events;
  }
  return events;
}

bool TcpTransport::writes_left() const {
  return std::any_of(peers_.begin(), peers_.end(),
                     [](const Peer& p) { return p.sender && p.sender->pending(); });
}

Status TcpTransport::flush(Deadline deadline) {
  const size_t failed_before = failing_.size();
  while (writes_left()) {
    write_all();
    if (!active_.empty()) continue;
    std::vector<pollfd> full;
    int waiting_for = -1;
    for (size_t rank = 0; rank < peers_.size(); ++rank) {
      const tcp::Sender* sender = peers_[rank].sender.get();
      if (sender == nullptr || !sender->pending()) continue;
      waiting_for = static_cast<int>(rank);
      for (size_t rail = 0; rail < sender->connections(); ++rail)
        full.push_back({sender->fd(rail), POLLOUT, 0});
    }
    if (waiting_for < 0) break;
    if (deadline.passed())
      return fail(Code::timeout, "rank {} does not take the data sent to it", waiting_for);
    if (::poll(full.data(), full.size(), deadline.remaining_ms(1000)) < 0 && errno != EINTR)
      return fail_errno(errno, "cannot wait for connections");
    for (size_t rank = 0; rank < peers_.size(); ++rank) {
      tcp::Sender* sender = peers_[rank].sender.get();
      for (size_t rail = 0; sender != nullptr && rail < sender->connections(); ++rail) sender->unblock(rail);
      activate(static_cast<int>(rank));
    }
  }
  if (failing_.size() > failed_before) return peers_[static_cast<size_t>(failing_[failed_before])].failure;
  return {};
}

// ---- Progress

Result<int> TcpTransport::poll(Sink& sink) {
  int events = write_all();
  events += read_last(sink);
  if (events == 0 || ++skipped_epolls_ >= kEpollEvery) {
    skipped_epolls_ = 0;
    const Result<int> more = read_all(sink);
    if (!more.ok()) return more.status();
    events += *more;
  }
  if (!failing_.empty()) events += report_lost(sink);
  return events;
}

int TcpTransport::read_last(Sink& sink) {
  if (last_peer_ < 0) return 0;
  const int events = read(sink, last_peer_, last_rail_);
  if (events > 0) idle_reads_ = 0;
  else if (++idle_reads_ > kIdleReads) last_peer_ = -1;
  return events;
}

Result<int> TcpTransport::read_all(Sink& sink) {
  epoll_event ready[kEventsAtOnce];
  const int count = ::epoll_wait(epoll_.get(), ready, kEventsAtOnce, 0);
  if (count < 0) {
    if (errno == EINTR) return 0;
    return fail_errno(errno, "cannot look after connections");
  }
  int events = 0;
  for (int i = 0; i < count; ++i) {
    const uint64_t key = ready[i].data.u64;
    switch (watched(key)) {
      case Watched::doorbell: events += take_over_accepted(); break;
      case Watched::incoming: events += read(sink, peer_of(key), rail_of(key)); break;
      case Watched::outgoing: events += check_outgoing(peer_of(key), rail_of(key), ready[i].events); break;
    }
  }
  return events;
}

int TcpTransport::read(Sink& sink, int rank, size_t rail) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  if (rail >= peer.receivers.size() || peer.receivers[rail] == nullptr) return 0;
  const tcp::Receiver::Outcome outcome = peer.receivers[rail]->read(sink, scratch_, kReadBudget);
  if (outcome.events > 0 && (rank != last_peer_ || rail != last_rail_)) {
    last_peer_ = rank;
    last_rail_ = rail;
    idle_reads_ = 0;
  }
  if (outcome.ended.ok()) return outcome.events;
  peer.receivers[rail].reset();
  fail_peer(rank, outcome.ended);
  return outcome.events + 1;
}

int TcpTransport::check_outgoing(int rank, size_t rail, uint32_t epoll_events) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  if (peer.sender == nullptr || rail >= peer.sender->connections()) return 0;
  if (epoll_events & EPOLLOUT) {
    peer.sender->unblock(rail);
    activate(rank);
  }
  if (!(epoll_events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))) return 0;
  std::byte unexpected;
  iovec part{&unexpected, 1};
  const tcp::Io io = tcp::read_some(peer.sender->fd(rail), &part, 1);
  if (io.outcome == tcp::Io::Outcome::blocked) return 0;
  fail_peer(rank, io.outcome == tcp::Io::Outcome::moved
                      ? fail(Code::protocol_error, "rank {} answered on a one-way connection", rank)
                      : tcp::connection_lost(rank, io));
  return 1;
}

// ---- Loss

/// Ends all sending to a peer, for the first reason that came up; what it has sent can still be read.
void TcpTransport::fail_peer(int rank, Status why) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  if (!peer.failure.ok()) return;
  peer.failure = std::move(why);
  peer.failed_at_ns = now_ns();
  peer.sender.reset();
  failing_.push_back(rank);
}

int TcpTransport::report_lost(Sink& sink) {
  int events = 0;
  for (size_t i = 0; i < failing_.size();) {
    Peer& peer = peers_[static_cast<size_t>(failing_[i])];
    const bool unread =
        std::any_of(peer.receivers.begin(), peer.receivers.end(), [](auto& r) { return r != nullptr; });
    if (unread && now_ns() - peer.failed_at_ns < kLossGraceNs) {
      ++i;
      continue;
    }
    const int rank = failing_[i];
    failing_.erase(failing_.begin() + static_cast<ptrdiff_t>(i));
    peer.receivers.clear();
    sink.lost(rank, peer.failure);
    ++events;
  }
  return events;
}

// ---- Sleeping

bool TcpTransport::prepare_sleep() {
  if (!active_.empty() || !failing_.empty()) return false;
  pollfd own{epoll_.get(), POLLIN, 0};
  return ::poll(&own, 1, 0) == 0;
}

Status TcpTransport::watch(int epoll_fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = epoll_.get();
  if (::epoll_ctl(epoll_fd, EPOLL_CTL_ADD, epoll_.get(), &event) < 0)
    return fail_errno(errno, "cannot watch the connections of the tcp transport");
  return {};
}

}  // namespace weft::transport
