// Joining a job, and what a rank that has joined can do.
#include "bootstrap/member.h"

#include <algorithm>
#include <chrono>
#include <future>

#include "base/cancellation.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/settings.h"
#include "bootstrap/interfaces.h"
#include "bootstrap/neighbours.h"
#include "bootstrap/rendezvous.h"
#include "bootstrap/root.h"
#include "bootstrap/routes.h"
#include "bootstrap/socket.h"

namespace weft::bootstrap {
namespace {

constexpr std::chrono::milliseconds kTellingTakes{100};

}  // namespace

// ---- ChildGate

void ChildGate::arrive(int rank, UniqueFd connection) {
  const MutexLock lock(mutex_);
  here_.try_emplace(rank, std::move(connection));
  changed_.notify_all();
}

Result<std::map<int, UniqueFd>> ChildGate::await(const std::vector<int>& children, Deadline deadline) {
  MutexLock lock(mutex_);
  while (here_.size() < children.size()) {
    if (Cancellation::ends(deadline)) {
      std::vector<int> absent;
      for (const int child : children)
        if (!here_.contains(child)) absent.push_back(child);
      return fail(Code::timeout, "rank {} did not connect to its parent in the tree before the deadline",
                  rank_list(absent));
    }
    changed_.wait_for(lock, std::chrono::milliseconds(Cancellation::sleep_ms(deadline, 60'000)));
  }
  return std::move(here_);
}

// ---- Joining

Result<std::unique_ptr<Bootstrap>> Bootstrap::join(const UniqueId& id, int rank, int ranks,
                                                   Deadline deadline) {
  Result<Job> job = read_unique_id(id);
  if (!job.ok()) return job.status();
  if (ranks < 1) return fail(Code::invalid_argument, "the number of ranks is {}, must be at least 1", ranks);
  if (ranks > kMostRanks)
    return fail(Code::invalid_argument, "the number of ranks is {}, at most {} are possible", ranks,
                kMostRanks);
  if (rank < 0 || rank >= ranks)
    return fail(Code::invalid_argument, "rank is {}, must be in [0, {})", rank, ranks);
  Result<AgentUse> agent = AgentUse::begin();
  if (!agent.ok()) return agent.status();
  auto member = std::make_unique<Member>(*job, rank, ranks, agent.take());
  if (const Status joined = member->join(deadline); !joined.ok()) {
    return joined.in(fmt::format("rank {} of {} could not join", rank, ranks));
  }
  return std::unique_ptr<Bootstrap>(std::move(member));
}

Member::Member(const Job& job, int rank, int ranks, AgentUse agent)
    : job_(job), rank_(rank), ranks_(ranks), agent_(std::move(agent)), peers_(loop(), job_, rank_, ranks_) {}

Member::~Member() {
  loop().run([this] {
    acceptor_.reset();
    peers_.leave();
  });
}

Status Member::join(Deadline deadline) {
  Result<UniqueFd> listener = listen_everywhere(0);
  if (!listener.ok()) return listener.status();
  Result<SocketAddress> bound = local_address(listener->get());
  if (!bound.ok()) return bound.status();
  loop().post([this, held = std::make_shared<UniqueFd>(listener.take())] {
    acceptor_ = std::make_unique<Acceptor>(loop(), std::move(*held), job_,
                                           [this](AuthenticatedPeer peer) { welcome(std::move(peer)); });
  });
  Result<Meeting> meeting = meet_at_root(job_, rank_, ranks_, bound->port(), deadline);
  if (!meeting.ok()) return meeting.status();
  const MutexLock lock(gathering_);
  WEFT_TRY(grow_tree(meeting->parent, deadline));
  WEFT_TRY(spread_addresses(meeting->rails, deadline));
  WEFT_TRY(link_neighbours(deadline));
  // Nobody may leave before everybody's links stand: one that finds nobody could not tell leaving from dying.
  Result<Gathered> all_linked = tree_.all_gather({}, deadline);
  return all_linked.status();
}

void Member::welcome(AuthenticatedPeer peer) {
  if (peer.purpose != FrameKind::child) return peers_.welcome(std::move(peer));
  const auto rank = FrameReader(peer.hello).u32();
  if (rank != 0 && rank < static_cast<uint32_t>(ranks_) && tree_parent(static_cast<int>(rank)) == rank_) {
    gate_.arrive(static_cast<int>(rank), std::move(peer.connection));
  }
}

Status Member::grow_tree(const SocketAddress& parent, Deadline deadline) {
  UniqueFd up;
  if (rank_ != 0) {
    if (!parent.valid()) return fail(Code::protocol_error, "the root named no parent in the tree");
    auto hello = FrameWriter(FrameKind::child).u32(static_cast<uint32_t>(rank_)).take();
    Result<UniqueFd> connection = visit(parent, job_, std::move(hello), deadline);
    if (!connection.ok()) {
      return connection.status().in(
          fmt::format("the way to rank {}, the parent in the tree", tree_parent(rank_)));
    }
    up = connection.take();
  }
  Result<std::map<int, UniqueFd>> children = gate_.await(tree_children(rank_, ranks_), deadline);
  if (!children.ok()) return children.status();
  tree_ = Tree(rank_, ranks_, std::move(up), children.take());
  return {};
}

Status Member::spread_addresses(const std::vector<SocketAddress>& mine, Deadline deadline) {
  std::string list;
  for (const SocketAddress& rail : mine) {
    if (!list.empty()) list += ' ';
    list += rail.with_scope(0).to_string();
  }
  Result<Gathered> all = tree_.all_gather(std::as_bytes(std::span(list)), deadline);
  if (!all.ok()) return all.status();
  std::vector<SocketAddress> first;
  for (const auto& bytes : all->of_rank) {
    std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    auto& names = rail_names_.emplace_back();
    auto& rails = rails_.emplace_back();
    do {
      const size_t blank = std::min(text.find(' '), text.size());
      Result<SocketAddress> rail = SocketAddress::parse(text.substr(0, blank));
      if (rail.ok())
        rail = as_reached(*rail, mine[std::min(rails.size(), mine.size() - 1)], settings().socket_ifname);
      if (!rail.ok())
        return rail.status().in(fmt::format("what rank {} calls its address", rails_.size() - 1));
      rails.push_back(*rail);
      names.emplace_back(text.substr(0, blank));
      text.remove_prefix(std::min(blank + 1, text.size()));
    } while (!text.empty());
    first.push_back(rails.front());
  }
  leave_out(shared_addresses(rails_));
  // Not awaited: whatever else goes to the agent comes after it, our destructor's farewell included.
  loop().post([this, first = std::move(first)]() mutable { peers_.set_addresses(std::move(first)); });
  return {};
}

/// Of all ranks' rails, so that the numbers of the others stay alike.
void Member::leave_out(const std::set<std::string>& addresses) {
  for (const std::string& address : addresses)
    log::info("several hosts have the address {}: no rail uses it", address);
  for (size_t rank = 0; rank < rails_.size() && !addresses.empty(); ++rank) {
    for (size_t rail = rails_[rank].size(); rail-- > 0;) {
      if (!addresses.contains(rails_[rank][rail].to_string(false))) continue;
      rails_[rank].erase(rails_[rank].begin() + static_cast<ptrdiff_t>(rail));
      rail_names_[rank].erase(rail_names_[rank].begin() + static_cast<ptrdiff_t>(rail));
    }
  }
}

Status Member::link_neighbours(Deadline deadline) {
  struct Progress {
    Mutex mutex;
    std::condition_variable_any changed;
    size_t open WEFT_GUARDED_BY(mutex);
    Status failure WEFT_GUARDED_BY(mutex);
  };
  const std::vector<int> targets = link_targets(rank_, ranks_);
  const auto progress = std::make_shared<Progress>();
  {
    const MutexLock lock(progress->mutex);
    progress->open = targets.size();
  }
  const auto linked = [progress](const Status& status) {
    const MutexLock lock(progress->mutex);
    --progress->open;
    if (progress->failure.ok()) progress->failure = status;
    progress->changed.notify_all();
  };
  loop().post([this, targets, linked, deadline] {
    for (const int target : targets) peers_.link(target, deadline.remaining_ms(3'600'000) / 1e3, linked);
  });
  MutexLock lock(progress->mutex);
  while (progress->open > 0 && progress->failure.ok()) {
    // The links have the same deadline; this one is for an agent that is held up.
    if (Cancellation::ends(deadline))
      return fail(Code::timeout, "links to {} neighbours did not stand before the deadline", progress->open);
    progress->changed.wait_for(lock, std::chrono::milliseconds(Cancellation::sleep_ms(deadline, 60'000)));
  }
  return progress->failure;
}

// ---- Afterwards

Result<std::vector<std::byte>> Member::all_gather(std::span<const std::byte> mine, Deadline deadline) {
  const MutexLock lock(gathering_);
  if (started_) return fail(Code::invalid_usage, "all_gather() was called after start()");
  Result<Gathered> all = tree_.all_gather(mine, deadline);
  if (!all.ok()) return all.status();
  std::vector<std::byte> flat;
  flat.reserve(mine.size() * all->of_rank.size());
  for (size_t rank = 0; rank < all->of_rank.size(); ++rank) {
    const auto& bytes = all->of_rank[rank];
    if (bytes.size() != mine.size()) {
      return fail(Code::mismatch,
                  "all-gather: rank {} gave {} bytes, rank {} gave {}; all must give the same", rank,
                  bytes.size(), rank_, mine.size());
    }
    flat.insert(flat.end(), bytes.begin(), bytes.end());
  }
  return flat;
}

Status Member::start(Callbacks callbacks) {
  const MutexLock lock(gathering_);
  if (started_) return fail(Code::invalid_usage, "start() was called twice");
  started_ = true;
  tree_.close();
  // Awaited: the next act of this rank may make a peer ask about it, and that peer must get the answer of
  // the callbacks.
  loop().run([this, held = std::make_shared<const Callbacks>(std::move(callbacks))] { peers_.start(held); });
  return {};
}

void Member::stop() {
  loop().run([this] { peers_.stop(); });
}

const std::vector<std::string>& Member::addresses(int rank) const {
  static const std::vector<std::string> none;
  return rank < 0 || rank >= ranks_ ? none : rail_names_[static_cast<size_t>(rank)];
}

/// A rail leaves by this rank's interface of the same number. A forwarded address is on no interface.
SocketAddress Member::own_end_of(size_t rail, const SocketAddress& target) const {
  const auto& own = rails_[static_cast<size_t>(rank_)];
  if (rail >= own.size() || target.link_local()) return {};  // whose scope is the interface
  const Result<std::string> interface = interface_with(own[rail]);
  return interface.ok() ? own_end(*interface, own[rail], target) : SocketAddress();
}

Result<UniqueFd> Member::connect(int rank, int rail, uint32_t purpose, Deadline deadline) {
  if (rank < 0 || rank >= ranks_)
    return fail(Code::invalid_argument, "rank is {}, must be in [0, {})", rank, ranks_);
  const auto& rails = rails_[static_cast<size_t>(rank)];
  if (rail < 0 || static_cast<size_t>(rail) >= rails.size()) {
    return fail(Code::invalid_argument, "rail is {}, must be in [0, {}) for rank {}", rail, rails.size(),
                rank);
  }
  const auto explain = [&](const Status& status) {
    switch (peers_.fate(rank)) {
      case Fate::left: return fail(Code::remote_error, "rank {} has left (destroyed its communicator)", rank);
      case Fate::dead: return fail(Code::remote_error, "rank {} is dead", rank);
      case Fate::present: break;
    }
    return status.ok() ? status : status.in(fmt::format("data connection to rank {}", rank));
  };
  WEFT_TRY(explain({}));
  const SocketAddress& target = rails[static_cast<size_t>(rail)];
  Result<UniqueFd> fd = connect_to(target, deadline, own_end_of(static_cast<size_t>(rail), target));
  if (!fd.ok()) return explain(fd.status());
  const auto hello = FrameWriter(FrameKind::data)
                         .u32(static_cast<uint32_t>(rank_))
                         .u32(purpose)
                         .u32(static_cast<uint32_t>(rank))
                         .take();
  if (const Status sent = send_all(fd->get(), greeting(job_.secret, hello), deadline); !sent.ok())
    return explain(sent);
  return fd;
}

std::vector<std::optional<OpReport>> Member::ask(std::span<const int> ranks, uint32_t comm, uint32_t op,
                                                 Deadline deadline) {
  const auto inquiry = std::make_shared<Inquiry>(ranks.size());
  // Inside a callback nothing could answer: the thread that would is the one that asks.
  if (loop().on_this_thread()) return inquiry->wait(Deadline::in_seconds(0));
  loop().post([this, asked = std::vector(ranks.begin(), ranks.end()), comm, op, deadline, inquiry] {
    peers_.questions().ask(asked, comm, op, deadline, inquiry);
  });
  return inquiry->wait(deadline);
}

// A rank's report of its failure is sent before its program learns of the failure, and perhaps ends. The
// exception is a loop thread that is blocked, for instance in a callback that waits for a lock of the
// caller's.
void Member::tell_failed(uint32_t comm, const std::string& why) {
  const auto told = std::make_shared<std::promise<void>>();
  loop().post([this, comm, why, told] {
    peers_.tell_failed(comm, why);
    told->set_value();
  });
  if (!loop().on_this_thread()) (void)told->get_future().wait_for(kTellingTakes);
}

void Member::watch_process(int rank, UniqueFd process) {
  loop().post([this, rank, held = std::make_shared<UniqueFd>(std::move(process))] {
    peers_.watch_process(rank, std::move(*held));
  });
}

}  // namespace weft::bootstrap
