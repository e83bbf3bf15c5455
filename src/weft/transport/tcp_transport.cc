#include "transport/tcp_transport.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include "base/log.h"
#include "base/mutex.h"
#include "transport/tcp_rows.h"

namespace weft::transport {

namespace {

constexpr size_t kScratchBytes = 16 << 10;
constexpr size_t kWriteBudget = 1 << 20;  // for each connection in one poll()
constexpr size_t kReadBudget = 1 << 20;
constexpr int kEventsAtOnce = 64;
constexpr int kIdleReads = 4000;  // of the connection that had something last, before it is left to epoll
constexpr int kEpollEvery = 4;    // polls, while that connection is read first
// Messages come in a stream after so many reads with news that each came within so many looks; how long
// nobody looks then after a look in vain.
constexpr uint32_t kStream = 16;
constexpr int kLooksInAStream = 8;
constexpr int64_t kRestNs = 3000;
constexpr size_t kLeastShared = 128 << 10;  // of what is on its way to one of several peers
constexpr size_t kLongRead = 32 << 10;      // beside which looking at the others costs nothing
// A link is not watched any more after so many reads with news and no sleep in between, until so many in a
// row were in vain; and how many links may be so.
constexpr uint32_t kHotReads = 32, kColdReads = 4000;
constexpr size_t kHotLinks = 4;
// After the end of one connection with a peer, how long its others are read; and how long one is waited for
// that it may have opened, sent its only message over, and left, before anybody here has seen it.
constexpr int64_t kLossGraceNs = 100'000'000, kUnheardGraceNs = 1'000'000'000;

// The key of an epoll event: which peer, and which of its links.
constexpr uint64_t kDoorbell = UINT64_MAX;
uint64_t key_of(int peer, size_t link) { return uint64_t{link} << 32 | static_cast<uint32_t>(peer); }
size_t link_of(uint64_t key) { return key >> 32; }
int peer_of(uint64_t key) { return static_cast<int>(key & 0xffffffff); }

Status check_options(int rank, int ranks, const TcpTransport::Options& o) {
  if (ranks < 1 || rank < 0 || rank >= ranks)
    return fail(Code::invalid_argument, "rank is {}, must be in [0, {})", rank, ranks);
  if (o.rails < 1 || o.rails > 255)
    return fail(Code::invalid_argument, "rails is {}, must be in [1, 255]", o.rails);
  if (o.eager_bytes > tcp::kMaxMessageBytes)
    return fail(Code::invalid_argument, "eager_bytes is {}, must be at most {}", o.eager_bytes,
                tcp::kMaxMessageBytes);
  if (o.gathers_rows && o.gather_ns > 0)
    return fail(Code::invalid_argument, "gathers_rows and gather_ns cannot both be asked for");
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
    : rank_(rank),
      connector_(std::move(connector)),
      options_(options),
      peers_(static_cast<size_t>(ranks)),
      gathers_rows_(options.gathers_rows) {
  for (Peer& peer : peers_) peer.usable_lines = lines();
  scratch_.resize(kScratchBytes);
}

TcpTransport::~TcpTransport() = default;

Status TcpTransport::open() {
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.valid()) return fail_errno(errno, "cannot make an epoll instance");
  doorbell_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!doorbell_.valid()) return fail_errno(errno, "cannot make an eventfd");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kDoorbell;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, doorbell_.get(), &event) < 0)
    return fail_errno(errno, "cannot watch an eventfd");
  return {};
}

std::string TcpTransport::describe() const {
  return options_.rails == 1 ? "tcp" : fmt::format("tcp, {} rails", options_.rails);
}

// ---- Connections

Status TcpTransport::accept(int peer, uint32_t line, UniqueFd connection) {
  if (peer < 0 || peer >= static_cast<int>(peers_.size()) || peer == rank_)
    return fail(Code::invalid_argument, "a connection came from rank {}, must be another one in [0, {})",
                peer, peers_.size());
  if (line >= lines())
    return fail(Code::protocol_error,
                "rank {} opened line {}, must be in [0, {}): do all ranks have the same WEFT_RAILS?", peer,
                line, lines());
  {
    const MutexLock lock(inbox_mutex_);
    inbox_.push_back({peer, line, std::move(connection)});
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
    const MutexLock lock(inbox_mutex_);
    arrivals.swap(inbox_);
  }
  for (Arrival& arrival : arrivals) take_over(std::move(arrival));
  return static_cast<int>(arrivals.size());
}

void TcpTransport::take_over(Arrival arrival) {
  Peer& peer = peers_[static_cast<size_t>(arrival.peer)];
  if (peer.reported) return;  // closes it
  peer.heard = true;
  if (find_line(peer, arrival.line, false) != nullptr) {
    log::warn("rank {} opened line {} a second time: refused", arrival.peer, arrival.line);
    return;
  }
  const Result<Link*> link = adopt(arrival.peer, arrival.line, false, std::move(arrival.connection));
  if (!link.ok()) return fail_peer(arrival.peer, link.status());
  if (options_.puts_apart && arrival.line == 0 && arrival.peer < rank_) settle(peer, **link);
}

/// The line that this rank has opened, or the peer; null if there is none.
TcpTransport::Link* TcpTransport::find_line(const Peer& peer, size_t line, bool opened_here) {
  for (const auto& link : peer.links)
    if (link && link->line == line && link->opened_here == opened_here) return link.get();
  return nullptr;
}

/// Both ranks have opened a line for messages at once: the lower rank's serves both.
void TcpTransport::settle(Peer& peer, Link& theirs) {
  if (peer.sender == nullptr) return;
  const bool puts = peer.usable_lines == 1;
  if (Link* const ours = find_line(peer, 0, true); ours != nullptr)
    peer.sender->use(ours->socket, {.messages = false, .puts = false});
  peer.sender->use(theirs.socket, {.messages = true, .puts = puts});
}

Result<TcpTransport::Link*> TcpTransport::adopt(int rank, size_t line, bool opened_here,
                                                UniqueFd connection) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  auto link =
      std::make_unique<Link>(rank, line, opened_here, std::move(connection), peer.puts, options_.patient);
  if (const Status status =
          link->socket.open(epoll_.get(), key_of(rank, peer.links.size()), options_.unsent_bytes);
      !status.ok())
    return status.in(fmt::format("connection with rank {}", rank));
  link->socket.bound_flight(flight_of(line, peer.flight_bytes));
  peer.links.push_back(std::move(link));
  return peer.links.back().get();
}

void TcpTransport::bound_flight(size_t bytes) {
  flight_bytes_ = bytes;
  for (Peer& peer : peers_) {
    peer.flight_bytes = bytes;
    for (const auto& link : peer.links)
      if (link) link->socket.bound_flight(flight_of(link->line, bytes));
  }
}

/// Where messages go, two of the longest fit: else the rest of one waits until its beginning has arrived.
size_t TcpTransport::flight_of(size_t line, size_t for_puts) const {
  const bool messages = line == 0 || !options_.puts_apart;
  return messages && flight_bytes_ > 0 ? std::max(flight_bytes_, 2 * options_.eager_bytes) : for_puts;
}

/// What a peer's lines for puts may have on its way while so many peers are put to.
size_t TcpTransport::shared_flight() const {
  if (flight_bytes_ <= kLeastShared || putting_peers_ <= 2) return flight_bytes_;
  return std::max(2 * flight_bytes_ / putting_peers_, kLeastShared);
}

/// A bound that was set once cannot be lifted: where the host does not allow what there was before, the
/// largest that it does comes closest.
void TcpTransport::share_flight(Peer& peer) {
  const size_t bytes = shared_flight();
  if (bytes == peer.flight_bytes || !options_.puts_apart) return;
  peer.flight_bytes = bytes;
  for (const auto& link : peer.links)
    if (link && link->line > 0 && link->opened_here)
      link->socket.bound_flight(std::min(bytes, tcp::Socket::largest_flight()));
}

/// Gives the peer's sender its next line: one that the peer has opened, unless that is for the peer's puts,
/// or else one of our own.
Status TcpTransport::add_line(int rank) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  const size_t line = peer.lines;
  const bool for_puts = options_.puts_apart && line > 0;
  Link* link = for_puts ? nullptr : find_line(peer, line, false);
  if (link == nullptr) {
    const size_t rail = for_puts ? line - 1 : line;
    Result<UniqueFd> connection = connector_(rank, static_cast<int>(rail), static_cast<uint32_t>(line),
                                             Deadline::in_seconds(options_.connect_timeout_s));
    if (!connection.ok()) return connection.status();
    const Result<Link*> own = adopt(rank, line, true, connection.take());
    if (!own.ok()) return own.status();
    link = *own;
  }
  ++peer.lines;
  peer.sender->use(link->socket, {.messages = !for_puts, .puts = for_puts || !options_.puts_apart});
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
      std::make_unique<tcp::Sender>(rank, tcp::Sender::Limits{options_.queue_bytes, options_.segment_bytes,
                                                              options_.gather_ns, options_.gather_put_bytes});
  if (Status status = add_line(rank); !status.ok()) {
    fail_peer(rank, fail(Code::remote_error, "cannot connect to rank {}: {}", rank, status.message()));
    return peer.failure;
  }
  return peer.sender.get();
}

/// For the puts that wait.
void TcpTransport::add_further_lines(int rank) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  const size_t without_puts = options_.puts_apart ? 1 : 0;
  while (peer.lines < peer.usable_lines && peer.lines - without_puts < peer.sender->useful_connections()) {
    const Status status = add_line(rank);
    if (status.ok()) continue;
    log::warn("rank {} is reached over {} of {} connections: {}", rank, peer.lines, lines(),
              status.message());
    peer.usable_lines = peer.lines;
    if (peer.lines == without_puts) peer.sender->use_all_for_puts();
  }
}

// ---- Sending

Result<Progress> TcpTransport::send(int peer, const Envelope& envelope, const void* payload) {
  if (envelope.bytes > options_.eager_bytes)
    return fail(Code::invalid_argument, "a message has {} bytes, must have at most {}", envelope.bytes,
                options_.eager_bytes);
  const Result<tcp::Sender*> sender = sender_to(peer);
  if (!sender.ok()) return sender.status();
  Peer& to = peers_[static_cast<size_t>(peer)];
  // Who sleeps looks at nothing, and others are not woken for what waits.
  const int64_t row_now = gathers_rows_ && !may_sleep_ && to.row.add(looks_) ? now_ns() : 0;
  Result<Progress> progress = (*sender)->send(envelope, payload, row_now < row_until_ns_ && row_now > 0);
  if (!progress.ok()) {
    fail_peer(peer, progress.status());
  } else if (*progress == Progress::accepted) {
    ++counters_.messages_sent;
    counters_.payload_bytes_sent += envelope.bytes;
    activate(peer);
    if (row_now > 0) gather_row(to, row_now);
  }
  return progress;
}

/// A message of a row is sent, or waits. When one goes, all go that wait, so that their times end together.
void TcpTransport::gather_row(const Peer& peer, int64_t now) {
  if (peer.sender->gathers()) {
    if (waits_since() == 0) waits_since_ns_.store(now, std::memory_order_relaxed);
    return;
  }
  if (peer.sender->pending()) return;  // behind what its kernel does not take: nothing has gone
  if (waits_since() != 0) write_all();
  row_until_ns_ = now_ns() + tcp::kRowWaitNs;
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
  add_further_lines(peer);
  // The first segment goes out at once, unless it may wait for others; the rest takes turns with other peers'
  // in poll().
  int events = 0;
  WEFT_TRY(pump(peer, &events));
  if (waits_since() != 0) write_all();  // what waited for this peer has gone
  return Progress::accepted;
}

void TcpTransport::forget(const Completion* first, const Completion* last) {
  for (size_t peer = 0; peer < peers_.size(); ++peer) {
    if (peers_[peer].sender == nullptr) continue;
    peers_[peer].sender->forget(first, last);
    activate(static_cast<int>(peer));
  }
}

// Connections do not tell how far each message is, only whether all of them are out.
bool TcpTransport::flushed(uint64_t asked) {
  if (pending_peers_ == 0) flushed_ = ticket();
  return asked <= flushed_;
}

void TcpTransport::count_pending(Peer& peer) {
  const bool pending = peer.sender != nullptr && peer.sender->pending();
  const bool putting = pending && peer.sender->puts();
  if (putting != peer.putting) putting ? ++putting_peers_ : --putting_peers_;
  peer.putting = putting;
  if (pending == peer.pending) return;
  peer.pending = pending;
  pending ? ++pending_peers_ : --pending_peers_;
}

/// To be called whenever something has changed about what waits for a peer.
void TcpTransport::activate(int rank) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  count_pending(peer);
  if (peer.active || peer.sender == nullptr || !peer.sender->ready()) return;
  peer.active = true;
  active_.push_back(rank);
}

Status TcpTransport::pump(int rank, int* events) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  count_pending(peer);
  share_flight(peer);
  const Result<int> writes = peer.sender->pump(kWriteBudget);
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
  waits_since_ns_.store(0, std::memory_order_relaxed);
  writing_.swap(active_);
  for (const int rank : writing_) {
    Peer& peer = peers_[static_cast<size_t>(rank)];
    peer.active = false;
    if (peer.sender == nullptr) continue;
    if (!pump(rank, &events).ok()) ++events;
  }
  writing_.clear();
  return events;
}

/// The first rank whose kernel does not have everything yet, or -1.
int TcpTransport::unflushed_peer() const {
  for (size_t rank = 0; rank < peers_.size(); ++rank) {
    const Peer& peer = peers_[rank];
    if (peer.sender == nullptr) continue;
    if (peer.sender->pending() || std::any_of(peer.links.begin(), peer.links.end(), [](const auto& link) {
          return link && link->socket.unacknowledged() > 0;
        }))
      return static_cast<int>(rank);
  }
  return -1;
}

Status TcpTransport::flush(Deadline deadline) {
  const size_t failed_before = failing_.size();
  for (int waiting_for; (waiting_for = unflushed_peer()) >= 0;) {
    if (deadline.passed())
      return fail(Code::timeout, "rank {} does not take the data sent to it", waiting_for);
    if (write_all() > 0) continue;
    // Nothing tells of an acknowledgement; short naps do for the little that there is to wait at an orderly
    // end.
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    for (size_t rank = 0; rank < peers_.size(); ++rank) {
      for (const auto& link : peers_[rank].links)
        if (link && link->socket.blocked()) link->socket.room();
      activate(static_cast<int>(rank));
    }
  }
  if (failing_.size() > failed_before) return peers_[static_cast<size_t>(failing_[failed_before])].failure;
  return {};
}

// ---- Progress

Result<int> TcpTransport::poll(Sink& sink) {
  ++looks_;
  int events = write_all();
  if (rests()) return events;
  const bool go_on = !put_off_.empty();
  const LinkId expected = go_on ? LinkId() : expected_;
  const uint64_t read_before = bytes_read_;
  const int expected_events = go_on ? read_put_off(sink) : read_expected(sink);
  events += expected_events;
  // Whoever finds nothing on a crowded host gives its core away, and should be sure of it; and nothing should
  // wait for the end of a long stream.
  const bool sure = (options_.crowded && expected_events == 0) || bytes_read_ - read_before >= kLongRead;
  if (expected_.peer < 0 || sure || ++skipped_epolls_ >= kEpollEvery) {
    skipped_epolls_ = 0;
    events += read_hot(sink, expected);
    const Result<int> more = read_all(sink);
    if (!more.ok()) return more.status();
    events += *more;
  }
  if (!failing_.empty()) events += report_lost(sink);
  return events;
}

bool TcpTransport::rests() {
  if (rests_until_ns_ != 0 && now_ns() >= rests_until_ns_) rests_until_ns_ = 0;
  return rests_until_ns_ != 0;
}

int TcpTransport::read_expected(Sink& sink) {
  if (expected_.peer < 0) return 0;
  const int in_vain = idle_reads_;
  const int events = read_link(sink, expected_);
  if (events > 0) {
    idle_reads_ = 0;
    streamed_ = in_vain <= kLooksInAStream && ticket() == streamed_since_ ? streamed_ + 1 : 0;
    streamed_since_ = ticket();
    return events;
  }
  // A crowded host's ranks give their core away instead.
  if (in_vain == 0 && streamed_ >= kStream && !options_.crowded) rests_until_ns_ = now_ns() + kRestNs;
  if (++idle_reads_ > kIdleReads) expected_ = {};
  return events;
}

int TcpTransport::read_put_off(Sink& sink) {
  int events = 0;
  resumed_.swap(put_off_);
  for (const LinkId id : resumed_) events += read_link(sink, id);
  resumed_.clear();
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
    events +=
        key == kDoorbell ? take_over_accepted() : serve(sink, peer_of(key), link_of(key), ready[i].events);
  }
  return events;
}

/// Reads the links that are not watched, but for one that has just been read.
int TcpTransport::read_hot(Sink& sink, LinkId but) {
  int events = 0;
  for (size_t i = 0; i < hot_.size(); ++i)
    if (hot_[i] != but) events += read_link(sink, hot_[i]);
  std::erase_if(hot_, [this](LinkId id) {
    Link* const link = find(id);
    if (link == nullptr) return true;
    if (link->reads < kColdReads || !link->socket.watch_news(true)) return false;
    link->reads = 0;
    return true;
  });
  return events;
}

/// After news from a link. Not on a crowded host: there every look in vain would be one at each hot link.
void TcpTransport::heat(Link& link, LinkId id) {
  if (options_.crowded) return;
  if (!link.socket.news_watched()) {
    link.reads = 0;
    return;
  }
  if (link.wakes != wakes_) link.reads = 0, link.wakes = wakes_;
  if (++link.reads < kHotReads || may_sleep_ || hot_.size() >= kHotLinks) return;
  if (!link.socket.watch_news(false)) return;
  link.reads = 0;
  hot_.push_back(id);
}

int TcpTransport::serve(Sink& sink, int rank, size_t index, uint32_t epoll_events) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  if (index < peer.links.size() && peer.links[index] && (epoll_events & EPOLLOUT)) {
    peer.links[index]->socket.room();
    activate(rank);
  }
  return epoll_events & ~static_cast<uint32_t>(EPOLLOUT) ? read_link(sink, {rank, index}) : 0;
}

int TcpTransport::read_link(Sink& sink, LinkId id) {
  Peer& peer = peers_[static_cast<size_t>(id.peer)];
  if (id.index >= peer.links.size() || peer.links[id.index] == nullptr) return 0;
  Link& link = *peer.links[id.index];
  if (std::find(put_off_.begin(), put_off_.end(), id) != put_off_.end()) return 0;  // in this poll
  const tcp::Receiver::Outcome outcome =
      link.receiver.read(sink, scratch_, kReadBudget, /*is_last=*/!peer.failure.ok());
  bytes_read_ += outcome.bytes;
  if (link.receiver.puts_off()) put_off_.push_back(id);
  if (outcome.events > 0) {
    peer.heard = true;
    if (Link* before = find(last_)) before->followed_by = id;
    last_ = id;
    expected_ = link.followed_by.peer < 0 ? id : link.followed_by;
    idle_reads_ = 0;
    heat(link, id);
  } else if (!link.socket.news_watched()) {
    ++link.reads;
  }
  if (outcome.ended.ok()) return outcome.events;
  fail_peer(id.peer, outcome.ended);
  peer.links[id.index].reset();
  return outcome.events + 1;
}

TcpTransport::Link* TcpTransport::find(LinkId id) {
  if (id.peer < 0) return nullptr;
  const auto& links = peers_[static_cast<size_t>(id.peer)].links;
  return id.index < links.size() ? links[id.index].get() : nullptr;
}

// ---- Loss

/// Ends all sending to a peer, for the first reason that came up; what it has sent can still be read.
void TcpTransport::fail_peer(int rank, Status why) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  if (!peer.failure.ok()) return;
  peer.failure = std::move(why);
  peer.failed_at_ns = now_ns();
  peer.sender.reset();
  count_pending(peer);
  failing_.push_back(rank);
}

int TcpTransport::report_lost(Sink& sink) {
  int events = 0;
  for (size_t i = 0; i < failing_.size();) {
    Peer& peer = peers_[static_cast<size_t>(failing_[i])];
    const bool unread =
        std::any_of(peer.links.begin(), peer.links.end(), [](const auto& link) { return link != nullptr; });
    const int64_t grace_ns = !peer.heard ? kUnheardGraceNs : unread ? kLossGraceNs : 0;
    if (now_ns() - peer.failed_at_ns < grace_ns) {
      ++i;
      continue;
    }
    const int rank = failing_[i];
    failing_.erase(failing_.begin() + static_cast<ptrdiff_t>(i));
    peer.links.clear();
    peer.reported = true;
    sink.lost(rank, peer.failure);
    ++events;
  }
  return events;
}

// ---- Sleeping

bool TcpTransport::prepare_sleep() {
  if (!active_.empty() || !failing_.empty() || !put_off_.empty()) return false;
  for (const LinkId id : std::exchange(hot_, {})) {
    Link* const link = find(id);
    if (link != nullptr && !link->socket.watch_news(true)) hot_.push_back(id);
  }
  ++wakes_;
  pollfd own{epoll_.get(), POLLIN, 0};
  may_sleep_ = hot_.empty() && ::poll(&own, 1, 0) == 0;
  return may_sleep_;
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
