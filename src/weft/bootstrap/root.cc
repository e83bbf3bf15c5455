// The root's side of the rendezvous, and the making of unique ids.
#include "bootstrap/root.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>

#include "base/log.h"
#include "base/settings.h"
#include "bootstrap/interfaces.h"
#include "bootstrap/socket.h"
#include "bootstrap/tree.h"

namespace weft::bootstrap {
namespace {

// A rank is told what is missing a little before it gives up by itself.
constexpr double kMargin_s = 0.5, kMarginShare = 0.1;
constexpr double kLinger_s = 10;

void refuse(int fd, const Status& why) {
  const auto frame =
      FrameWriter(FrameKind::refused).u32(static_cast<uint32_t>(why.code())).text(why.message()).take();
  [[maybe_unused]] const ssize_t sent = ::send(fd, frame.data(), frame.size(), MSG_NOSIGNAL);
}

}  // namespace

std::string rank_list(const std::vector<int>& ranks, size_t most) {
  std::string text;
  size_t ranges = 0, at = 0;
  for (; at < ranks.size() && ranges < most; ++ranges) {
    size_t end = at + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    text += ranges == 0 ? "" : ", ";
    text += end - at == 1 ? fmt::format("{}", ranks[at]) : fmt::format("{}-{}", ranks[at], ranks[end - 1]);
    at = end;
  }
  return at == ranks.size() ? text : fmt::format("{} and {} more", text, ranks.size() - at);
}

Status Root::serve(UniqueFd listener, const Job& job, Deadline deadline, double linger_s) {
  Result<AgentUse> agent = AgentUse::begin();
  if (!agent.ok()) return agent.status();
  EventLoop& loop = agent->loop();
  const std::shared_ptr<Root> root(new Root(agent.take(), linger_s));
  loop.run([&] { root->begin(std::move(listener), job, deadline); });
  return {};
}

void Root::begin(UniqueFd listener, const Job& job, Deadline deadline) {
  expect_by(deadline);
  acceptor_ = std::make_unique<Acceptor>(
      agent_.loop(), std::move(listener), job, [this](AuthenticatedPeer peer) { welcome(std::move(peer)); },
      [this](int fd, const std::string& why) { note_refusal(fd, why); });
}

void Root::welcome(AuthenticatedPeer peer) {
  FrameReader hello(peer.hello);
  const uint32_t rank = hello.u32(), ranks = hello.u32(), wait_ms = hello.u32();
  const std::string address = hello.text();
  if (peer.purpose != FrameKind::join || !hello.ok() || met_) return;
  if (!failure_.ok()) return refuse(peer.connection.get(), failure_);
  if (const Status wrong = check(rank, ranks); !wrong.ok()) {
    refuse(peer.connection.get(), wrong);
    note_refusal(peer.connection.get(), wrong.message());
    // Ranks that disagree on the size cannot meet any more; a rank too many does not keep the others from it.
    if (wrong.code() == Code::mismatch) refuse_all(wrong);
    return;
  }
  if (registered_.empty()) ranks_ = static_cast<int>(ranks), first_rank_ = static_cast<int>(rank);
  Registration& registration = registered_[static_cast<int>(rank)];
  registration.connection = std::move(peer.connection);
  registration.address = address;
  watch(static_cast<int>(rank), registration);
  if (registered_.size() == 1) deadline_ = Deadline::never();  // from now on that of ranks counts
  const double wait_s = wait_ms / 1e3;
  expect_by(Deadline::in_seconds(wait_s - std::min(kMargin_s, wait_s * kMarginShare)));
  if (registered_.size() == static_cast<size_t>(ranks_)) release_all();
}

Status Root::check(uint32_t rank, uint32_t ranks) const {
  if (ranks > kMostRanks)
    return fail(Code::invalid_argument, "the number of ranks is {}, at most {} are possible", ranks,
                kMostRanks);
  if (rank >= ranks) return fail(Code::invalid_argument, "rank is {}, must be in [0, {})", rank, ranks);
  if (ranks_ != 0 && ranks != static_cast<uint32_t>(ranks_)) {
    return fail(Code::mismatch,
                "the ranks disagree on the size of the job: rank {} says {} ranks, rank {} says {}",
                first_rank_, ranks_, rank, ranks);
  }
  if (registered_.contains(static_cast<int>(rank))) {
    return fail(Code::invalid_usage, "rank {} has come already: two processes or threads use the same rank",
                rank);
  }
  return {};
}

/// A registered rank has nothing more to say: whatever makes its connection readable is its end.
void Root::watch(int rank, Registration& registration) {
  const int fd = registration.connection.get();
  notice_dead_host(fd);
  registration.watch = agent_.loop().watch(fd, EPOLLIN | EPOLLRDHUP, [this, rank](uint32_t) {
    if (failure_.ok() && !met_) {
      refuse_all(fail(Code::remote_error,
                      "rank {} went away while the job was meeting ({} of {} ranks had come)", rank,
                      registered_.size(), ranks_));
    }
  });
}

/// Sets the time by which all must have come, unless it is earlier already.
void Root::expect_by(Deadline deadline) {
  if (timer_ != 0 && deadline.at_ns() >= deadline_.at_ns()) return;
  const auto self = shared_from_this();
  agent_.loop().cancel(timer_);
  deadline_ = deadline;
  timer_ = agent_.loop().at(deadline, [self] { self->refuse_all(self->missing()); });
}

void Root::release_all() {
  met_ = true;
  for (auto& [rank, registration] : registered_) {
    const int parent = tree_parent(rank);
    const auto frame =
        FrameWriter(FrameKind::met).text(parent < 0 ? "" : registered_.at(parent).address).take();
    [[maybe_unused]] const ssize_t sent =
        ::send(registration.connection.get(), frame.data(), frame.size(), MSG_NOSIGNAL);
  }
  end_after(0);
}

void Root::refuse_all(const Status& why) {
  failure_ = why;
  log::info("the job's root gives up: {}", why.message());
  for (auto& [rank, registration] : registered_) {
    refuse(registration.connection.get(), why);
    agent_.loop().unwatch(registration.watch);
  }
  const bool anybody = !registered_.empty();
  registered_.clear();
  end_after(anybody ? linger_s_ : 0);
}

/// Not at once: the acceptor, or a watch, may be what is calling.
void Root::end_after(double seconds) {
  const auto self = shared_from_this();
  agent_.loop().cancel(timer_);
  timer_ = agent_.loop().at(Deadline::in_seconds(seconds), [self] {
    for (auto& [rank, registration] : self->registered_) self->agent_.loop().unwatch(registration.watch);
    self->registered_.clear();
    self->acceptor_.reset();
  });
}

void Root::note_refusal(int fd, const std::string& why) {
  const Result<SocketAddress> from = peer_address(fd);
  const std::string text =
      fmt::format("{}: {}", from.ok() ? from->to_string(false) : "an unknown address", why);
  if (++refused_ == 1 && !met_)
    log::warn("the job's root refused a connection from {}; it goes on to wait for its ranks", text);
  last_refusal_ = text;
}

Status Root::missing() const {
  const std::string refusals =
      refused_ == 0 ? ""
      : refused_ == 1
          ? fmt::format("; one connection was refused, from {}", last_refusal_)
          : fmt::format("; {} connections were refused, the last from {}", refused_, last_refusal_);
  if (ranks_ == 0) return fail(Code::timeout, "no rank came before the root's deadline{}", refusals);
  std::vector<int> absent;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (!registered_.contains(rank)) absent.push_back(rank);
  }
  return fail(Code::timeout, "only {} of {} ranks came before the deadline; missing: {}{}",
              registered_.size(), ranks_, rank_list(absent), refusals);
}

// ---- Unique ids

Result<UniqueId> create_unique_id(const std::string& host, int port) {
  if (port < 0 || port > 65535)
    return fail(Code::invalid_argument, "port is {}, must be in [0, 65535]", port);
  Result<SocketAddress> address =
      host.empty() ? host_address(settings().socket_ifname) : SocketAddress::resolve(host, 0);
  if (!address.ok()) return address.status();
  Result<Secret> secret = random_secret();
  if (!secret.ok()) return secret.status();
  Result<UniqueFd> listener = listen_on(address->with_port(static_cast<uint16_t>(port)));
  if (!listener.ok()) return listener.status();
  Result<SocketAddress> bound = local_address(listener->get());
  if (!bound.ok()) return bound.status();
  const UniqueId id = write_unique_id(bound->with_scope(0), *secret);
  // Programs make an id first, and load their data for minutes: the first rank that comes begins the waiting.
  WEFT_TRY(Root::serve(listener.take(), *read_unique_id(id), Deadline::never(), kLinger_s));
  return id;
}

Result<UniqueId> unique_id_for(const std::string& host, int port, std::string_view shared_secret) {
  if (port < 1 || port > 65535)
    return fail(Code::invalid_argument, "port is {}, must be in [1, 65535]", port);
  Result<SocketAddress> address = SocketAddress::resolve(host, static_cast<uint16_t>(port));
  if (!address.ok()) return address.status();
  return write_unique_id(*address, derive_secret(shared_secret));
}

Status serve_unique_id(const UniqueId& id) {
  Result<Job> job = read_unique_id(id);
  if (!job.ok()) return job.status();
  // On all addresses: what this host calls its own name is often a loopback address, which is not what others
  // reach.
  Result<UniqueFd> listener = listen_everywhere(job->root.port());
  if (!listener.ok()) return listener.status().in("the job's root");
  // No lingering, and no waiting for a job that does not begin: the next one may want the same port.
  return Root::serve(listener.take(), *job, Deadline::in_seconds(settings().init_timeout_s), 0);
}

}  // namespace weft::bootstrap
