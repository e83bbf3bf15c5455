#include "engine/context/fabric.h"

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "base/log.h"
#include "base/settings.h"
#include "bootstrap/interfaces.h"
#include "engine/context/hello.h"
#include "engine/context/sharing.h"
#include "transport/ofi.h"
#include "transport/ofi_providers.h"
#include "transport/shm.h"
#include "transport/tcp_transport.h"

namespace weft::engine {
namespace {

/// Whether libfabric carries messages between nodes; else TCP does.
bool over_libfabric(bool all_have_efa) {
  const std::string& net = settings().net;
  return net == "ofi" || (net == "auto" && all_have_efa);
}

size_t asked_intra() { return static_cast<size_t>(settings().eager_intra_bytes); }
size_t asked_inter() { return static_cast<size_t>(settings().eager_inter_bytes); }

}  // namespace

Fabric::Fabric(int rank, topology::Layout layout) : rank_(rank), layout_(std::move(layout)) {}
Fabric::~Fabric() = default;

Result<std::unique_ptr<Fabric>> Fabric::over(int rank, topology::Layout layout,
                                             std::unique_ptr<transport::Transport> local,
                                             std::unique_ptr<transport::Transport> network) {
  std::unique_ptr<Fabric> fabric(new Fabric(rank, std::move(layout)));
  const int ranks = fabric->layout_.ranks();
  fabric->traces_.assign(static_cast<size_t>(ranks), false);
  fabric->local_ = std::move(local);
  fabric->network_ = std::move(network);
  fabric->shm_ = dynamic_cast<transport::ShmTransport*>(fabric->local_.get());
  WEFT_TRY(fabric->route_all(ranks));
  return fabric;
}

Result<transport::Net> Fabric::net_here() {
  if (!over_libfabric(settings().net == "auto" && transport::efa_is_usable())) return transport::Net::tcp;
  transport::OfiOptions options;
  options.provider = settings().provider;
  options.domains = settings().ofi_domains;
  const auto rails = transport::ofi::choose_rails(options);
  if (!rails) return rails.status();
  return transport::net_of_provider(rails->front()->fabric_attr->prov_name);
}

Result<std::unique_ptr<Fabric>> Fabric::open(bootstrap::Bootstrap& bootstrap, const std::string& host_id,
                                             int cuda_device, Deadline deadline) {
  auto hellos = exchange_hellos(bootstrap, host_id, deadline);
  if (!hellos) return hellos.status();
  std::unique_ptr<Fabric> fabric(new Fabric(bootstrap.rank(), layout_of(*hellos)));
  fabric->ranks_on_machine_ = count_ranks(*hellos, bootstrap.rank());
  fabric->place_on_machine_ = place_of(*hellos, bootstrap.rank());
  fabric->cpus_on_machine_ = count_cpus(*hellos, bootstrap.rank());
  fabric->one_machine_ = fabric->ranks_on_machine_ == bootstrap.ranks();
  for (const Hello& hello : *hellos) fabric->traces_.push_back(hello.traces);
  fabric->oversubscribed_ = fabric->ranks_on_machine_ > fabric->cpus_on_machine_;

  WEFT_TRY(fabric->open_shared_memory(bootstrap, deadline));
  if (fabric->layout_.nodes() > 1) {
    const bool all_efa =
        std::all_of(hellos->begin(), hellos->end(), [](const Hello& hello) { return hello.efa; });
    if (over_libfabric(all_efa)) {
      WEFT_TRY(fabric->open_ofi(bootstrap, cuda_device, deadline));
    } else {
      WEFT_TRY(fabric->open_tcp(bootstrap));
    }
  }
  WEFT_TRY(fabric->route_all(bootstrap.ranks()));
  log::info("{}: {}", fabric->layout_.to_string(), fabric->describe());
  return fabric;
}

// All ranks exchange addresses, also those that are alone on their node. A rank that the kernel gives no
// shared memory has an empty address, which nobody reaches.
Result<std::vector<transport::ShmAddress>> Fabric::announce(bootstrap::Bootstrap& bootstrap,
                                                            Deadline deadline) {
  const auto& local_ranks = layout_.on_node(layout_.node_of(rank_));
  transport::ShmAddress address{};
  shm_ = nullptr;
  local_.reset();
  if (local_ranks.size() > 1) {
    transport::ShmTransport::Options options;
    options.cma = settings().cma;
    options.eager_bytes = asked_intra();
    auto shm = transport::ShmTransport::create(rank_, bootstrap.ranks(), local_ranks, options);
    if (shm.ok()) {
      shm_ = shm->get();
      local_ = shm.take();
      address = shm_->address();
    } else if (shm.status().code() == Code::out_of_memory || shm.status().code() == Code::invalid_argument) {
      return shm.status();
    } else {
      log::warn("no shared memory with other ranks: {}", shm.status().message());
    }
  }
  return exchange(bootstrap, address, deadline);
}

// Ranks that turn out not to share memory become nodes of their own, and begin anew.
Status Fabric::open_shared_memory(bootstrap::Bootstrap& bootstrap, Deadline deadline) {
  auto addresses = announce(bootstrap, deadline);
  if (!addresses) return addresses.status();
  const size_t most = largest_node(layout_);
  if (most == 1) return {};

  ReachReport mine(most);
  Status lack;
  for (const int peer : layout_.on_node(layout_.node_of(rank_))) {
    if (peer == rank_ || !shm_) continue;
    const auto reach = shm_->probe(peer, (*addresses)[static_cast<size_t>(peer)]);
    if (reach.shares.ok()) mine.add(static_cast<size_t>(layout_.local_index(peer)), reach.reads);
    else if (lack.ok()) lack = reach.shares;
  }
  const auto gathered = bootstrap.all_gather(mine.bytes(), deadline);
  if (!gathered) return gathered.status();
  std::vector<ReachReport> reports;
  const size_t bytes = mine.bytes().size();
  for (size_t at = 0; at < gathered->size(); at += bytes)
    reports.emplace_back(std::span(*gathered).subspan(at, bytes));

  const topology::Layout before = layout_;
  layout_ = split_by_reach(before, reports);
  if (layout_ != before) {
    if (!lack.ok() && is_first_to_lack(before, rank_, reports))
      log::warn("{}; such ranks are treated as nodes of their own", lack.message());
    addresses = announce(bootstrap, deadline);
    if (!addresses) return addresses.status();
  }
  if (!shm_ && layout_.on_node(layout_.node_of(rank_)).size() > 1)
    return fail(Code::system_error,
                "shared memory with the other ranks of this node could not be made a second time");
  if (!shm_) return {};
  WEFT_TRY(shm_->connect(*addresses));
  if (!all_read(layout_, rank_, before, reports)) shm_->stop_reading_peers();
  watch_processes(bootstrap, *addresses);
  return {};
}

// A helper of a rank that holds its sockets (a raw clone() has no handlers) would hide the rank's death.
void Fabric::watch_processes(bootstrap::Bootstrap& bootstrap,
                             const std::vector<transport::ShmAddress>& addresses) const {
  for (const int peer : layout_.on_node(layout_.node_of(rank_))) {
    const pid_t pid = addresses[static_cast<size_t>(peer)].pid;
    if (pid == getpid()) continue;
    // Since Linux 5.3; without it a closed connection is the only sign.
    UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    if (process.valid()) bootstrap.watch_process(peer, std::move(process));
  }
}

Status Fabric::open_ofi(bootstrap::Bootstrap& bootstrap, int cuda_device, Deadline deadline) {
  transport::OfiTransport::Options options;
  options.provider = settings().provider;
  options.domains = settings().ofi_domains;
  options.rails = settings().rails;
  options.local_rank = place_on_machine_;
  options.local_ranks = ranks_on_machine_;
  if (const auto own = bootstrap::SocketAddress::parse(bootstrap.addresses(rank_).front()))
    if (const auto interface = bootstrap::interface_with(*own)) options.met_over = *interface;
  if (settings().gpu_direct != "off") options.cuda_device = cuda_device;
  options.eager_bytes = asked_inter();
  options.message_credit =
      transport::ofi::message_credit(bootstrap.ranks(), static_cast<uint64_t>(settings().early_bytes));
  auto ofi = transport::OfiTransport::create(rank_, bootstrap.ranks(), options);
  if (!ofi) return ofi.status();
  transport::OfiTransport& network = **ofi;
  const std::vector<std::byte> address = network.address();
  auto all = bootstrap.all_gather(address, deadline);
  if (!all) return all.status();
  std::vector<std::vector<std::byte>> by_rank;
  for (auto at = all->begin(); at != all->end(); at += static_cast<std::ptrdiff_t>(address.size()))
    by_rank.emplace_back(at, at + static_cast<std::ptrdiff_t>(address.size()));
  WEFT_TRY(network.connect(std::move(by_rank)));
  if (network.needs_polling()) nap_ms_ = 1;
  net_ = network.net();
  network_ = ofi.take();
  return {};
}

Status Fabric::open_tcp(bootstrap::Bootstrap& bootstrap) {
  transport::TcpTransport::Options options;
  options.rails = static_cast<int>(bootstrap.addresses(rank_).size());
  options.puts_apart = true;
  options.crowded = oversubscribed_;
  options.coalescing.when = transport::tcp::Coalescing::When::in_bursts;
  options.eager_bytes = transport::net_eager_bytes(transport::Net::tcp, asked_inter());
  auto connector = [&bootstrap](int peer, int rail, uint32_t channel, Deadline by) {
    return bootstrap.connect(peer, rail, channel, by);
  };
  auto tcp = transport::TcpTransport::create(rank_, bootstrap.ranks(), connector, options);
  if (!tcp) return tcp.status();
  network_ = tcp.take();
  return {};
}

Status Fabric::route_all(int ranks) {
  epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.valid()) return fail_errno(errno, "epoll_create1");
  for (transport::Transport* t : {local(), between_nodes()}) {
    if (!t) continue;
    transports_.push_back(t);
    WEFT_TRY(t->watch(epoll_.get()));
  }
  for (int peer = 0; peer < ranks; ++peer)
    routes_.push_back(peer == rank_ ? nullptr : is_local(peer) ? local() : between_nodes());
  return {};
}

size_t Fabric::eager_intra_bytes() const {
  return local_ ? local_->eager_bytes() : transport::shm_eager_bytes(asked_intra());
}

size_t Fabric::eager_inter_bytes() const {
  return network_ ? network_->eager_bytes() : transport::net_eager_bytes(net_, asked_inter());
}

Result<int> Fabric::poll(transport::Sink& sink, bool network) {
  int events = 0;
  for (transport::Transport* t : transports_) {
    if (!network && t != local_.get()) continue;
    Result<int> polled = t->poll(sink);
    if (!polled) return polled;
    events += *polled;
  }
  return events;
}

bool Fabric::unsent() { return network_ && !network_->flushed(network_->ticket()); }

bool Fabric::reads_forgotten() const { return network_ && network_->reads_forgotten(); }

bool Fabric::prepare_sleep() {
  for (size_t i = 0; i < transports_.size(); ++i) {
    if (transports_[i]->prepare_sleep()) continue;
    for (size_t undo = 0; undo <= i; ++undo) transports_[undo]->finish_sleep();
    return false;
  }
  return true;
}

void Fabric::finish_sleep() {
  for (transport::Transport* t : transports_) t->finish_sleep();
}

void Fabric::accept(int from, uint32_t purpose, UniqueFd connection) {
  transport::ConnectionControl* const control = network_ ? network_->connection_control() : nullptr;
  if (!control) return;
  if (Status accepted = control->accept(from, purpose, std::move(connection)); !accepted)
    log::warn("data connection from rank {}: {}", from, accepted.message());
}

Status Fabric::flush(Deadline deadline) {
  for (transport::Transport* t : transports_) WEFT_TRY(t->flush(deadline));
  return {};
}

std::string Fabric::describe() const {
  if (transports_.empty()) return "no transport needed";
  std::string text;
  for (transport::Transport* t : transports_) text += (text.empty() ? "" : " + ") + t->describe();
  return text;
}

}  // namespace weft::engine
