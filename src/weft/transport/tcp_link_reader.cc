#include "transport/tcp_link_reader.h"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"

namespace weft::transport::tcp {

namespace {

constexpr size_t kScratchBytes = 16 << 10;
constexpr size_t kReadBudget = 1 << 20;  // for each connection in one poll()
constexpr int kEventsAtOnce = 64;
constexpr int kIdleReads = 4000;  // of the expected link, before it is left to epoll
constexpr int kEpollEvery = 4;    // polls, while that link is read first
// Messages come in a stream after kStream reads that each found something within kReadsInAStream reads. Then
// a read that finds nothing is followed by kRestNs without any.
constexpr uint32_t kStream = 16;
constexpr int kReadsInAStream = 8;
constexpr int64_t kRestNs = 3000;
constexpr size_t kLongRead = 32 << 10;  // beside which a look at the other links costs nothing
// A link becomes hot after kHotReads reads that found something with no sleep in between. It stays hot until
// kColdReads consecutive reads found nothing. At most kHotLinks are hot.
constexpr uint32_t kHotReads = 32, kColdReads = 4000;
constexpr size_t kHotLinks = 4;

}  // namespace

LinkReader::LinkReader(PeerTable& peers, Channels& channels, const TcpOptions& options)
    : peers_(peers), channels_(channels), options_(options), scratch_(kScratchBytes) {}

Status LinkReader::open() {
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  return epoll_.valid() ? Status() : fail_errno(errno, "cannot make an epoll instance");
}

bool LinkReader::rests() {
  if (rests_until_ns_ != 0 && now_ns() >= rests_until_ns_) rests_until_ns_ = 0;
  return rests_until_ns_ != 0;
}

Result<int> LinkReader::read(Sink& sink, uint64_t ticket) {
  const bool go_on = !put_off_.empty();
  const LinkId expected = go_on ? LinkId() : expected_;
  const uint64_t read_before = bytes_read_;
  const int expected_events = go_on ? read_put_off(sink) : read_expected(sink, ticket);
  int events = expected_events;
  // A rank of a crowded host that finds nothing gives its core away, and should be sure of it. Nothing should
  // wait for the end of a long stream either, and a lost peer is read to its end before it is reported.
  const bool sure = (options_.crowded && expected_events == 0) || bytes_read_ - read_before >= kLongRead ||
                    !peers_.failing().empty();
  if (expected_.peer < 0 || sure || ++skipped_epolls_ >= kEpollEvery) {
    skipped_epolls_ = 0;
    events += read_hot(sink, expected);
    const Result<int> more = read_watched(sink);
    if (!more.ok()) return more.status();
    events += *more;
  }
  return events;
}

int LinkReader::read_expected(Sink& sink, uint64_t ticket) {
  if (expected_.peer < 0) return 0;
  const int in_vain = idle_reads_;
  const int events = read_link(sink, expected_);
  if (events > 0) {
    idle_reads_ = 0;
    streamed_ = in_vain <= kReadsInAStream && ticket == streamed_since_ ? streamed_ + 1 : 0;
    streamed_since_ = ticket;
    return events;
  }
  // A rank of a crowded host gives its core away instead.
  if (in_vain == 0 && streamed_ >= kStream && !options_.crowded) rests_until_ns_ = now_ns() + kRestNs;
  if (++idle_reads_ > kIdleReads) expected_ = {};
  return events;
}

int LinkReader::read_put_off(Sink& sink) {
  int events = 0;
  resumed_.swap(put_off_);
  for (const LinkId id : resumed_) events += read_link(sink, id);
  resumed_.clear();
  return events;
}

Result<int> LinkReader::read_watched(Sink& sink) {
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
        key == kDoorbellKey ? channels_.take_over_accepted() : serve(sink, link_of(key), ready[i].events);
  }
  return events;
}

/// Reads the hot links, except one that has just been read.
int LinkReader::read_hot(Sink& sink, LinkId but) {
  int events = 0;
  for (size_t i = 0; i < hot_.size(); ++i)
    if (hot_[i] != but) events += read_link(sink, hot_[i]);
  std::erase_if(hot_, [this](LinkId id) {
    Link* const link = peers_.find(id);
    if (link == nullptr) return true;
    if (link->reads < kColdReads || !link->socket.watch_input(true)) return false;
    link->reads = 0;
    return true;
  });
  return events;
}

/// Makes a link hot that has had something often enough. Not on a crowded host: there every poll in vain
/// would read each hot link.
void LinkReader::heat(Link& link, LinkId id) {
  if (options_.crowded) return;
  if (!link.socket.input_watched()) {
    link.reads = 0;
    return;
  }
  if (link.wakes != wakes_) link.reads = 0, link.wakes = wakes_;
  if (++link.reads < kHotReads || asleep_ || hot_.size() >= kHotLinks) return;
  if (!link.socket.watch_input(false)) return;
  link.reads = 0;
  hot_.push_back(id);
}

int LinkReader::serve(Sink& sink, LinkId id, uint32_t epoll_events) {
  if (Link* const link = peers_.find(id); link != nullptr && (epoll_events & EPOLLOUT)) {
    link->socket.room();
    peers_.activate(id.peer);
  }
  return epoll_events & ~static_cast<uint32_t>(EPOLLOUT) ? read_link(sink, id) : 0;
}

int LinkReader::read_link(Sink& sink, LinkId id) {
  Link* const link = peers_.find(id);
  if (link == nullptr) return 0;
  if (std::find(put_off_.begin(), put_off_.end(), id) != put_off_.end()) return 0;  // in this poll
  Peer& peer = peers_[id.peer];
  const Receiver::Outcome outcome =
      link->receiver.read(sink, scratch_, kReadBudget, /*is_last=*/!peer.failure.ok());
  bytes_read_ += outcome.bytes;
  if (outcome.bytes > 0) peer.quiet_since_ns = now_ns();
  if (link->receiver.puts_off()) put_off_.push_back(id);
  if (outcome.events > 0) {
    peer.heard = true;
    if (Link* before = peers_.find(last_)) before->followed_by = id;
    last_ = id;
    expected_ = link->followed_by.peer < 0 ? id : link->followed_by;
    idle_reads_ = 0;
    heat(*link, id);
  } else if (!link->socket.input_watched()) {
    ++link->reads;
  }
  if (outcome.ended.ok()) return outcome.events;
  peers_.fail(id.peer, outcome.ended);
  peer.links[id.index].reset();
  return outcome.events + 1;
}

bool LinkReader::prepare_sleep() {
  if (!put_off_.empty()) return false;
  std::erase_if(hot_, [this](LinkId id) {
    Link* const link = peers_.find(id);
    return link == nullptr || link->socket.watch_input(true);
  });
  ++wakes_;
  pollfd own{epoll_.get(), POLLIN, 0};
  asleep_ = hot_.empty() && ::poll(&own, 1, 0) == 0;
  return asleep_;
}

}  // namespace weft::transport::tcp
