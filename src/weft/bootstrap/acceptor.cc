// Letting connections in.
#include "bootstrap/acceptor.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "bootstrap/socket.h"

namespace weft::bootstrap {
namespace {

constexpr double kSecretWithin_s = 2, kHelloWithin_s = 5, kPause_s = 0.1;
constexpr size_t kMostGuests = 1024;  // beyond it the one that has been silent longest goes
constexpr int kAcceptsATurn = 64;     // so that a flood leaves time for everything else

constexpr char kOtherSecret[] =
    "it gave another secret: of another job, or WEFT_JOB_SECRET, WEFT_ROOT or the number of ranks differ "
    "there";
constexpr char kNoSecret[] = "it did not give the job's secret in time";
constexpr char kNoHello[] = "it knew the secret, but did not say what it wants in time";
constexpr char kTooLong[] = "it knew the secret, but what it says is no greeting";

}  // namespace

Acceptor::Acceptor(EventLoop& loop, UniqueFd listener, const Job& job, OnPeer on_peer, OnRefused on_refused)
    : loop_(loop),
      listener_(std::move(listener)),
      job_(job),
      on_peer_(std::move(on_peer)),
      on_refused_(std::move(on_refused)) {
  watch_ = loop_.watch(listener_.get(), EPOLLIN, [this](uint32_t) { accept_waiting(); });
}

Acceptor::~Acceptor() {
  loop_.unwatch(watch_);
  loop_.cancel(pause_);
  while (!guests_.empty()) dismiss(guests_.begin()->first);
}

void Acceptor::accept_waiting() {
  for (int i = 0; i < kAcceptsATurn; ++i) {
    int error;
    UniqueFd fd = accept_from(listener_.get(), &error);
    if (fd.valid()) {
      admit(std::move(fd));
    } else if (is_exhausted(error)) {
      // The waiting connection would wake us again and again: look away for a while.
      log::warn("cannot accept connections for the moment: {}", std::strerror(error));
      loop_.change(watch_, 0);
      pause_ = loop_.at(Deadline::in_seconds(kPause_s), [this] { loop_.change(watch_, EPOLLIN); });
      return;
    } else if (error != EINTR && error != ECONNABORTED) {
      return;
    }
  }
}

void Acceptor::admit(UniqueFd fd) {
  if (guests_.size() >= kMostGuests) dismiss(guests_.begin()->first);
  const uint64_t number = ++last_number_;
  Guest& guest = guests_[number];
  guest.fd = std::move(fd);
  guest.need = job_.secret.size();
  guest.watch = loop_.watch(guest.fd.get(), EPOLLIN, [this, number](uint32_t) { read(number); });
  limit(number, kSecretWithin_s);
  read(number);  // mostly the greeting is there already
}

void Acceptor::read(uint64_t number) {
  const auto found = guests_.find(number);
  if (found == guests_.end()) return;
  Guest& guest = found->second;
  for (;;) {
    const size_t have = guest.have.size();
    guest.have.resize(guest.need);
    const ssize_t got = ::recv(guest.fd.get(), guest.have.data() + have, guest.need - have, 0);
    guest.have.resize(have + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got <= 0) return dismiss(number);
    if (guest.have.size() < guest.need) continue;
    const bool was_trusted = guest.trusted;
    switch (advance(guest)) {
      case Step::close: return refuse(number, guest.trusted ? kTooLong : kOtherSecret);
      case Step::enter: return enter(number);
      case Step::wait: break;
    }
    if (!was_trusted) limit(number, kHelloWithin_s);
  }
}

/// What the bytes that were needed say: the secret, a header, or a whole hello.
Acceptor::Step Acceptor::advance(Guest& guest) {
  if (!guest.trusted) {
    Secret secret;
    std::copy(guest.have.begin(), guest.have.end(), secret.begin());
    if (!equal_secrets(secret, job_.secret)) return Step::close;
    guest.trusted = true;
    guest.have.clear();
    guest.need = kFrameHeaderBytes;
    return Step::wait;
  }
  const FrameHeader header = read_header(guest.have);
  if (header.bytes > kMaxHelloBytes) return Step::close;
  guest.need = kFrameHeaderBytes + header.bytes;
  return guest.have.size() == guest.need ? Step::enter : Step::wait;
}

void Acceptor::enter(uint64_t number) {
  Guest guest = std::move(guests_.at(number));
  guests_.erase(number);
  loop_.unwatch(guest.watch);
  loop_.cancel(guest.timer);
  AuthenticatedPeer peer{std::move(guest.fd), read_header(guest.have).kind, {}};
  peer.hello.assign(guest.have.begin() + kFrameHeaderBytes, guest.have.end());
  send_at_once(peer.connection.get());
  // 16 bytes into a fresh connection: they fit, or there is no connection any more.
  const bool proven = peer.purpose == FrameKind::data ||
                      ::send(peer.connection.get(), job_.proof.data(), job_.proof.size(), MSG_NOSIGNAL) ==
                          static_cast<ssize_t>(job_.proof.size());
  if (proven) on_peer_(std::move(peer));
}

void Acceptor::refuse(uint64_t number, const char* why) {
  if (on_refused_) on_refused_(guests_.at(number).fd.get(), why);
  dismiss(number);
}

void Acceptor::dismiss(uint64_t number) {
  const auto found = guests_.find(number);
  if (found == guests_.end()) return;
  loop_.unwatch(found->second.watch);
  loop_.cancel(found->second.timer);
  guests_.erase(found);
}

void Acceptor::limit(uint64_t number, double seconds) {
  Guest& guest = guests_.at(number);
  loop_.cancel(guest.timer);
  guest.timer = loop_.at(Deadline::in_seconds(seconds), [this, number, trusted = guest.trusted] {
    read(number);  // where we are the slow ones, what should have come is here
    const auto found = guests_.find(number);
    if (found != guests_.end() && found->second.trusted == trusted)
      refuse(number, trusted ? kNoHello : kNoSecret);
  });
}

}  // namespace weft::bootstrap
