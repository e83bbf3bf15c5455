#include "transport/tcp_channels.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"

namespace weft::transport::tcp {

namespace {

constexpr size_t kLeastShared = 128 << 10;  // of the bytes on their way to one of several peers
// For connecting over a further rail, which puts can do without. The kernel asks a third time after 3 s.
constexpr double kFurtherRailSeconds = 3.5;

}  // namespace

Channels::Channels(int rank, PeerTable& peers, Connector connector, const TcpOptions& options)
    : rank_(rank), peers_(peers), connector_(std::move(connector)), options_(options) {
  for (Peer& peer : peers_) peer.usable_channels = options_.channels();
}

Status Channels::open(int epoll_fd) {
  epoll_fd_ = epoll_fd;
  doorbell_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!doorbell_.valid()) return fail_errno(errno, "cannot make an eventfd");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kDoorbellKey;
  if (::epoll_ctl(epoll_fd, EPOLL_CTL_ADD, doorbell_.get(), &event) < 0)
    return fail_errno(errno, "cannot watch an eventfd");
  return {};
}

// ---- From peers

Status Channels::accept(int peer, uint32_t channel, UniqueFd connection) {
  if (peer < 0 || peer >= peers_.ranks() || peer == rank_)
    return fail(Code::invalid_argument, "a connection came from rank {}, must be another one in [0, {})",
                peer, peers_.ranks());
  if (channel >= options_.channels())
    return fail(Code::protocol_error,
                "rank {} opened channel {}, must be in [0, {}): do all ranks have the same WEFT_RAILS?", peer,
                channel, options_.channels());
  {
    const std::lock_guard lock(inbox_mutex_);
    inbox_.push_back({peer, channel, std::move(connection)});
  }
  const uint64_t one = 1;
  if (::write(doorbell_.get(), &one, sizeof(one)) < 0 && errno != EAGAIN)
    return fail_errno(errno, "cannot announce a connection");
  return {};
}

int Channels::take_over_accepted() {
  uint64_t rings;
  if (::read(doorbell_.get(), &rings, sizeof(rings)) < 0) return 0;
  std::vector<Arrival> arrivals;
  {
    const std::lock_guard lock(inbox_mutex_);
    arrivals.swap(inbox_);
  }
  for (Arrival& arrival : arrivals) take_over(std::move(arrival));
  return static_cast<int>(arrivals.size());
}

void Channels::take_over(Arrival arrival) {
  Peer& peer = peers_[arrival.peer];
  if (peer.reported) return;  // closes it
  peer.heard = true;
  if (find(peer, arrival.channel, false) != nullptr) {
    log::warn("rank {} opened channel {} a second time: refused", arrival.peer, arrival.channel);
    return;
  }
  const Result<Link*> link = adopt(arrival.peer, arrival.channel, false, std::move(arrival.connection));
  if (!link.ok()) return peers_.fail(arrival.peer, link.status());
  if (options_.puts_apart && arrival.channel == 0 && arrival.peer < rank_) share_messages(peer, **link);
}

/// The link of a channel that this rank has opened, or the peer; null if there is none.
Link* Channels::find(const Peer& peer, size_t channel, bool opened_here) {
  for (const auto& link : peer.links)
    if (link && link->channel == channel && link->opened_here == opened_here) return link.get();
  return nullptr;
}

/// Both ranks have opened channel 0 at once: the lower rank's connection serves both.
void Channels::share_messages(Peer& peer, Link& theirs) {
  if (peer.sender == nullptr) return;
  const bool puts = peer.usable_channels == 1;
  if (Link* const ours = find(peer, 0, true); ours != nullptr)
    peer.sender->use(ours->socket, {.messages = false, .puts = false});
  peer.sender->use(theirs.socket, {.messages = true, .puts = puts});
}

Result<Link*> Channels::adopt(int rank, size_t channel, bool opened_here, UniqueFd connection) {
  Peer& peer = peers_[rank];
  auto link =
      std::make_unique<Link>(rank, channel, opened_here, std::move(connection), peer.puts, options_.patient);
  if (const Status status =
          link->socket.open(epoll_fd_, key_of({rank, peer.links.size()}), options_.unsent_bytes);
      !status.ok())
    return status.in(fmt::format("connection with rank {}", rank));
  link->socket.bound_flight(flight_of(channel, peer.flight_bytes));
  peer.links.push_back(std::move(link));
  return peer.links.back().get();
}

// ---- To peers

Status Channels::add(int rank) {
  Peer& peer = peers_[rank];
  const size_t channel = peer.channels;
  const bool for_puts = options_.puts_apart && channel > 0;
  Link* link = for_puts ? nullptr : find(peer, channel, false);
  if (link == nullptr) {
    const size_t rail = for_puts ? channel - 1 : channel;
    const double within_s =
        rail > 0 ? std::min(options_.connect_timeout_s, kFurtherRailSeconds) : options_.connect_timeout_s;
    Result<UniqueFd> connection = connector_(rank, static_cast<int>(rail), static_cast<uint32_t>(channel),
                                             Deadline::in_seconds(within_s));
    if (!connection.ok()) return connection.status();
    const Result<Link*> own = adopt(rank, channel, true, connection.take());
    if (!own.ok()) return own.status();
    link = *own;
  }
  ++peer.channels;
  peer.sender->use(link->socket, {.messages = !for_puts, .puts = for_puts || !options_.puts_apart});
  return {};
}

void Channels::add_further(int rank) {
  Peer& peer = peers_[rank];
  const size_t without_puts = options_.puts_apart ? 1 : 0;
  while (peer.channels < peer.usable_channels &&
         peer.channels - without_puts < peer.sender->useful_connections()) {
    const Status status = add(rank);
    if (status.ok()) continue;
    log::warn("rank {} is reached over {} of {} connections: {}", rank, peer.channels, options_.channels(),
              status.message());
    peer.usable_channels = peer.channels;
    if (peer.channels == without_puts) peer.sender->use_all_for_puts();
    else if (status.code() == Code::timeout) give_up_from(peer.channels);
  }
}

/// A rail swallows what is sent, as on a network that is not connected: no other peer is waited for on it.
void Channels::give_up_from(size_t channel) {
  for (Peer& peer : peers_)
    peer.usable_channels = std::min(peer.usable_channels, std::max(peer.channels, channel));
}

// ---- Flight

void Channels::bound_flight(size_t bytes) {
  flight_bytes_ = bytes;
  for (Peer& peer : peers_) {
    peer.flight_bytes = bytes;
    for (const auto& link : peer.links)
      if (link) link->socket.bound_flight(flight_of(link->channel, bytes));
  }
}

/// Where messages go, two of the longest fit: otherwise the rest of one waits until its beginning has
/// arrived.
size_t Channels::flight_of(size_t channel, size_t for_puts) const {
  const bool messages = channel == 0 || !options_.puts_apart;
  return messages && flight_bytes_ > 0 ? std::max(flight_bytes_, 2 * options_.eager_bytes) : for_puts;
}

/// The bound of a peer's channels for puts while this many peers are put to.
size_t Channels::shared_flight() const {
  if (flight_bytes_ <= kLeastShared || peers_.putting() <= 2) return flight_bytes_;
  return std::max(2 * flight_bytes_ / peers_.putting(), kLeastShared);
}

/// A bound cannot be lifted once it is set. Where the host does not allow the first bound again, the largest
/// that it allows comes closest.
void Channels::share_flight(Peer& peer) {
  const size_t bytes = shared_flight();
  if (bytes == peer.flight_bytes || !options_.puts_apart) return;
  peer.flight_bytes = bytes;
  for (const auto& link : peer.links)
    if (link && link->channel > 0 && link->opened_here)
      link->socket.bound_flight(std::min(bytes, Socket::largest_flight()));
}

}  // namespace weft::transport::tcp
