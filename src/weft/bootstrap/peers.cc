// Liveness, and reports of deaths and failures.
#include "bootstrap/peers.h"

#include <sys/epoll.h>

#include "base/log.h"

namespace weft::bootstrap {
namespace {

// How long the link of a process that has ended stays open: its last frames may say why it ended.
constexpr double kLastWords_s = 0.05;

}  // namespace

Peers::Peers(EventLoop& loop, const Job& job, int rank, int ranks)
    : loop_(loop),
      job_(job),
      rank_(rank),
      ranks_(ranks),
      fates_(static_cast<size_t>(ranks)),
      questions_(
          loop, job, rank,
          {.link_to =
               [this](int to) {
                 const auto found = links_.find(to);
                 return found == links_.end() ? nullptr : found->second;
               },
           .address_of = [this](int to) { return addresses_[static_cast<size_t>(to)]; },
           .gone = [this](int to) { return to < 0 || to >= ranks_ || fate(to) != Fate::present; },
           .answer = [this](int from, uint32_t comm, uint32_t op) { return answer(from, comm, op); }}) {}

bool Peers::is_peer(uint32_t rank) const {
  return rank < static_cast<uint32_t>(ranks_) && rank != static_cast<uint32_t>(rank_);
}

// ---- Links

void Peers::link(int rank, double within_s, std::function<void(const Status&)> linked) {
  Connection::Events events = link_events(rank);
  // Until the link is open, its failure is no death: the thread that joins the job reports it.
  const auto stands = std::make_shared<bool>(false);
  events.on_open = [linked, stands] {
    *stands = true;
    linked({});
  };
  events.on_close = [this, rank, linked, stands](const Status& why) {
    if (*stands) return on_link_closed(rank, why);
    links_.erase(rank);
    linked(why.in(fmt::format("linking with rank {}", rank)));
  };
  auto hello = FrameWriter(FrameKind::link).u32(static_cast<uint32_t>(rank_)).take();
  auto opened = Connection::open(loop_, addresses_[static_cast<size_t>(rank)], job_, std::move(hello),
                                 within_s, std::move(events));
  if (!opened.ok()) return linked(opened.status().in(fmt::format("linking with rank {}", rank)));
  links_[rank] = opened.take();
}

Connection::Events Peers::link_events(int rank) {
  Connection::Events events;
  events.on_frame = [this, rank](const Frame& frame) { on_frame(rank, frame); };
  events.on_close = [this, rank](const Status& why) { on_link_closed(rank, why); };
  return events;
}

void Peers::welcome(AuthenticatedPeer peer) {
  FrameReader hello(peer.hello);
  const uint32_t from = hello.u32();
  const bool data = peer.purpose == FrameKind::data;
  const uint32_t purpose = data ? hello.u32() : 0;
  const uint32_t target = data ? hello.u32() : static_cast<uint32_t>(rank_);
  if (!hello.ok() || from >= static_cast<uint32_t>(ranks_) || (!data && !is_peer(from))) return;
  if (target != static_cast<uint32_t>(rank_))
    return log::warn(
        "rank {} has reached rank {} where rank {} should be: hosts have the same address, so name the "
        "interfaces to use in WEFT_SOCKET_IFNAME",
        from, rank_, target);
  const int rank = static_cast<int>(from);
  if (data) {
    // A report must be copyable, a descriptor is not.
    const auto held = std::make_shared<UniqueFd>(std::move(peer.connection));
    report([rank, purpose, held](const Callbacks& callbacks) {
      if (callbacks.on_data_connection) callbacks.on_data_connection(rank, purpose, std::move(*held));
    });
  } else if (peer.purpose == FrameKind::link && !links_.contains(rank) && fate(rank) == Fate::present) {
    links_[rank] = Connection::adopt(loop_, std::move(peer.connection), link_events(rank));
  } else if (peer.purpose == FrameKind::questions) {
    questions_.welcome(std::move(peer.connection));
  }
}

void Peers::watch_process(int rank, UniqueFd process) {
  if (!links_.contains(rank) || processes_.contains(rank)) return;
  Process& watched = processes_[rank];
  watched.fd = std::move(process);
  watched.watch = loop_.watch(watched.fd.get(), EPOLLIN, [this, rank](uint32_t) {
    Process& ended = processes_.at(rank);
    loop_.unwatch(ended.watch);
    ended.timer = loop_.at(Deadline::in_seconds(kLastWords_s), [this, rank] {
      bury(rank, fmt::format("rank {} is dead: its process has ended (noticed by rank {})", rank, rank_), -1);
    });
  });
}

void Peers::forget_process(int rank) {
  const auto found = processes_.find(rank);
  if (found == processes_.end()) return;
  loop_.unwatch(found->second.watch);
  loop_.cancel(found->second.timer);
  processes_.erase(found);
}

void Peers::drop_link(int rank) {
  forget_process(rank);
  const auto found = links_.find(rank);
  if (found == links_.end()) return;
  const auto link = std::move(found->second);  // its own callback may be running: let go of it last
  links_.erase(found);
  link->close();
}

void Peers::leave() {
  while (!processes_.empty()) forget_process(processes_.begin()->first);
  const auto goodbye = FrameWriter(FrameKind::goodbye).take();
  pass_on(goodbye, -1);
  auto links = std::move(links_);
  links_.clear();
  for (auto& [rank, link] : links) link->close();
  questions_.close();
  stop();
}

// ---- Reports

void Peers::on_frame(int from, const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::goodbye:
      fates_[static_cast<size_t>(from)] = Fate::left;
      drop_link(from);
      questions_.give_up(from);
      return;
    case FrameKind::dead: return on_dead_frame(from, FrameReader(frame.body));
    case FrameKind::failed: return on_failed_frame(from, FrameReader(frame.body));
    case FrameKind::question:
    case FrameKind::answer:
      if (const auto link = links_.find(from); link != links_.end()) {
        const auto held = link->second;
        questions_.on_frame(held, frame);
      }
      return;
    default: log::warn("rank {} sent a frame of unknown kind {}", from, static_cast<int>(frame.kind));
  }
}

void Peers::on_link_closed(int rank, const Status& why) {
  links_.erase(rank);
  bury(rank,
       fmt::format("rank {} is dead: {} without a goodbye (noticed by rank {})", rank, why.message(), rank_),
       -1);
}

void Peers::on_dead_frame(int from, FrameReader reader) {
  const uint32_t rank = reader.u32();
  const std::string why = reader.text();
  if (!reader.ok()) return;
  if (is_peer(rank)) return bury(static_cast<int>(rank), why, from);
  if (rank == static_cast<uint32_t>(rank_)) log::warn("rank {} takes this rank for dead: {}", from, why);
}

void Peers::bury(int rank, const std::string& why, int heard_from) {
  if (fate(rank) != Fate::present) return;
  fates_[static_cast<size_t>(rank)] = Fate::dead;
  log::info("{}", why);
  drop_link(rank);
  questions_.give_up(rank);
  pass_on(FrameWriter(FrameKind::dead).u32(static_cast<uint32_t>(rank)).text(why).take(), heard_from);
  report([rank, status = Status(Code::remote_error, why)](const Callbacks& callbacks) {
    if (callbacks.on_dead) callbacks.on_dead(rank, status);
  });
}

void Peers::tell_failed(uint32_t comm, const std::string& why) {
  pass_on(FrameWriter(FrameKind::failed)
              .u32(static_cast<uint32_t>(rank_))
              .u64(++failures_told_)
              .u32(comm)
              .text(why)
              .take(),
          -1);
}

void Peers::on_failed_frame(int from, FrameReader reader) {
  const uint32_t origin = reader.u32();
  const uint64_t number = reader.u64();
  const uint32_t comm = reader.u32();
  const std::string why = reader.text();
  if (!reader.ok() || !is_peer(origin)) return;
  // Links keep order, and every rank forwards in order. So the first copies of an origin's reports arrive in
  // order on every path.
  uint64_t& seen = failures_seen_[static_cast<int>(origin)];
  if (number <= seen) return;
  seen = number;
  pass_on(FrameWriter(FrameKind::failed).u32(origin).u64(number).u32(comm).text(why).take(), from);
  report([origin, comm, why](const Callbacks& callbacks) {
    if (callbacks.on_failed) callbacks.on_failed(static_cast<int>(origin), comm, why);
  });
}

void Peers::pass_on(std::span<const std::byte> frame, int except) {
  for (auto& [rank, link] : links_) {
    if (rank != except) link->send(frame);
  }
}

// ---- Calling back

void Peers::start(std::shared_ptr<const Callbacks> callbacks) {
  callbacks_ = std::move(callbacks);
  phase_ = Phase::started;
  const auto reports = std::move(unreported_);
  unreported_.clear();
  for (const Report& each : reports) report(each);
}

void Peers::stop() {
  phase_ = Phase::stopped;
  callbacks_.reset();
  unreported_.clear();
}

void Peers::report(Report report) {
  if (phase_ == Phase::waiting) {
    unreported_.push_back(std::move(report));
  } else if (phase_ == Phase::started) {
    const auto held = callbacks_;  // a callback may call stop()
    report(*held);
  }
}

OpReport Peers::answer(int from, uint32_t comm, uint32_t op) const {
  const auto held = callbacks_;
  return held && held->on_question ? held->on_question(from, comm, op) : OpReport{};
}

}  // namespace weft::bootstrap
