#include "engine/fabric.h"

#include <sched.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>
#include <unordered_map>

#include "base/hash.h"
#include "base/log.h"
#include "base/settings.h"
#include "topology/host.h"
#include "transport/ofi.h"
#include "transport/ofi_providers.h"
#include "transport/shm.h"
#include "transport/tcp_transport.h"

namespace weft::engine {
namespace {

constexpr uint32_t kWireVersion = 6;

// Settings by which ranks choose what they say to each other.
constexpr const char* kSameOnAll[] = {"WEFT_NET",        "WEFT_PROVIDER",          "WEFT_ALGO",
                                      "WEFT_STRICT",     "WEFT_EAGER_INTRA_BYTES", "WEFT_EAGER_INTER_BYTES",
                                      "WEFT_SLICE_BYTES"};

// What every rank tells every other first. Plain bytes; all fields are zeroed before they are set.
struct Hello {
  uint32_t wire_version;
  uint32_t settings[std::size(kSameOnAll)];  // hashes of their values
  uint64_t machine;   // equal for ranks of one machine, whatever node they pretend to be on
  uint64_t host;      // equal for ranks that share memory
  uint64_t cpu_mask;  // hash of the CPUs that this rank may use
  uint32_t cpus;      // how many those are
  uint8_t shm;
  uint8_t efa;  // this rank could use libfabric's efa provider
};

uint64_t machine_hash() {
  std::string boot_id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id") >> std::ws, boot_id);
  return hash_64(boot_id);
}

/// The CPUs that this rank may use: a launcher gives each rank its own, or all the same ones.
void note_cpus(Hello& hello) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) {  // more CPUs than a set of that size holds
    hello.cpus = std::max(std::thread::hardware_concurrency(), 1u);
    return;
  }
  hello.cpus = static_cast<uint32_t>(CPU_COUNT(&set));
  hello.cpu_mask = hash_64({reinterpret_cast<const char*>(&set), sizeof set});
}

/// How many CPUs the ranks of one machine may use: those of every different mask.
int count_cpus(const std::vector<Hello>& hellos, uint64_t machine) {
  std::unordered_map<uint64_t, uint32_t> masks;
  for (const Hello& hello : hellos)
    if (hello.machine == machine) masks[hello.cpu_mask] = hello.cpus;
  uint32_t cpus = 0;
  for (const auto& [mask, count] : masks) cpus += count;
  return static_cast<int>(std::min(cpus, std::max(std::thread::hardware_concurrency(), 1u)));
}

// All ranks' values of a plain struct, in rank order.
template <typename T>
Result<std::vector<T>> exchange(bootstrap::Bootstrap& bootstrap, const T& mine, Deadline deadline) {
  auto bytes = bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)), deadline);
  if (!bytes) return bytes.status();
  std::vector<T> all(bootstrap.ranks());
  std::memcpy(all.data(), bytes->data(), bytes->size());
  return all;
}

Status check_hellos(const std::vector<Hello>& hellos, int rank) {
  const Hello& mine = hellos[rank];
  for (size_t peer = 0; peer < hellos.size(); ++peer) {
    if (hellos[peer].wire_version != mine.wire_version)
      return fail(Code::mismatch,
                  "rank {} speaks version {} of Weft's protocol, rank {} version {}: use one version of "
                  "libweft on all ranks",
                  peer, hellos[peer].wire_version, rank, mine.wire_version);
  }
  return {};
}

/// Names a setting that must have one value and does not, with both values. A collective where one differs:
/// all ranks see the same hashes, so all take part in telling the values.
Status check_settings(bootstrap::Bootstrap& bootstrap, const std::vector<Hello>& hellos, Deadline deadline) {
  for (size_t i = 0; i < std::size(kSameOnAll); ++i) {
    const auto other = std::find_if(hellos.begin(), hellos.end(), [&](const Hello& hello) {
      return hello.settings[i] != hellos.front().settings[i];
    });
    if (other == hellos.end()) continue;
    struct Value {
      char text[120];
    } mine{};
    weft::current_value(kSameOnAll[i]).copy(mine.text, sizeof mine.text - 1);
    const auto values = exchange(bootstrap, mine, deadline);
    if (!values) return values.status();
    const auto rank = static_cast<size_t>(other - hellos.begin());
    const auto said = [&](size_t r) {
      const std::string_view text((*values)[r].text);
      return text.empty() ? std::string("not set") : fmt::format("'{}'", text);
    };
    return fail(Code::mismatch, "{} is {} on rank 0 and {} on rank {}: set it alike on all ranks",
                kSameOnAll[i], said(0), said(rank), rank);
  }
  return {};
}

// Ranks that share memory get one label; a rank without shared memory is a node of its own.
topology::Layout layout_of(const std::vector<Hello>& hellos) {
  std::unordered_map<uint64_t, int> label_of_host;
  std::vector<int> labels;
  int next_label = 0;
  for (const Hello& hello : hellos) {
    if (!hello.shm) {
      labels.push_back(next_label++);
      continue;
    }
    auto [it, is_new] = label_of_host.try_emplace(hello.host, next_label);
    if (is_new) ++next_label;
    labels.push_back(it->second);
  }
  return topology::Layout(labels);
}

}  // namespace

Fabric::~Fabric() = default;

Result<std::unique_ptr<Fabric>> Fabric::open(bootstrap::Bootstrap& bootstrap, const std::string& host_id,
                                             int cuda_device, Deadline deadline) {
  const Settings& settings = weft::settings();
  std::unique_ptr<Fabric> fabric(new Fabric);
  fabric->rank_ = bootstrap.rank();
  fabric->epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  if (!fabric->epoll_.valid()) return fail_errno(errno, "epoll_create1");

  Hello mine;
  std::memset(&mine, 0, sizeof mine);
  mine.wire_version = kWireVersion;
  for (size_t i = 0; i < std::size(kSameOnAll); ++i)
    mine.settings[i] = static_cast<uint32_t>(hash_64(weft::current_value(kSameOnAll[i])));
  mine.machine = machine_hash();
  mine.host = hash_64(host_id.empty() ? topology::host_id() : host_id);
  mine.shm = settings.shm;
  note_cpus(mine);
  mine.efa = settings.net == "auto" && bootstrap.ranks() > 1 && transport::efa_is_usable();
  auto hellos = exchange(bootstrap, mine, deadline);
  if (!hellos) return hellos.status();
  WEFT_TRY(check_hellos(*hellos, bootstrap.rank()));
  WEFT_TRY(check_settings(bootstrap, *hellos, deadline));
  fabric->layout_ = layout_of(*hellos);

  bool all_efa = true;
  fabric->ranks_on_machine_ = 0;
  for (const Hello& hello : *hellos) {
    fabric->ranks_on_machine_ += hello.machine == mine.machine;
    all_efa = all_efa && hello.efa;
  }
  fabric->one_machine_ = fabric->ranks_on_machine_ == bootstrap.ranks();
  fabric->cpus_on_machine_ = count_cpus(*hellos, mine.machine);
  fabric->oversubscribed_ = fabric->ranks_on_machine_ > fabric->cpus_on_machine_;

  const auto& layout = fabric->layout_;
  const auto& local_ranks = layout.on_node(layout.node_of(bootstrap.rank()));
  transport::ShmAddress shm_address{};
  if (local_ranks.size() > 1) {
    transport::ShmTransport::Options options;
    options.cma = settings.cma;
    if (settings.eager_intra_bytes > 0) options.eager_bytes = static_cast<size_t>(settings.eager_intra_bytes);
    auto shm = transport::ShmTransport::create(bootstrap.rank(), bootstrap.ranks(), local_ranks, options);
    if (!shm) return shm.status();
    fabric->shm_ = shm.take();
    shm_address = fabric->shm_->address();
  }
  auto shm_addresses = exchange(bootstrap, shm_address, deadline);
  if (!shm_addresses) return shm_addresses.status();

  if (layout.nodes() > 1) {
    const bool use_ofi = settings.net == "ofi" || (settings.net == "auto" && all_efa);
    if (use_ofi) {
      transport::OfiTransport::Options options;
      options.provider = settings.provider;
      options.rails = settings.rails;
      if (settings.gpu_direct != "off") options.cuda_device = cuda_device;
      if (settings.eager_inter_bytes > 0)
        options.eager_bytes = static_cast<size_t>(settings.eager_inter_bytes);
      auto ofi = transport::OfiTransport::create(bootstrap.rank(), bootstrap.ranks(), options);
      if (!ofi) return ofi.status();
      fabric->ofi_ = ofi.take();
      std::vector<std::byte> address = fabric->ofi_->address();
      auto all = bootstrap.all_gather(address, deadline);
      if (!all) return all.status();
      std::vector<std::vector<std::byte>> by_rank;
      for (int peer = 0; peer < bootstrap.ranks(); ++peer)
        by_rank.emplace_back(all->begin() + peer * address.size(),
                             all->begin() + (peer + 1) * address.size());
      WEFT_TRY(fabric->ofi_->connect(std::move(by_rank)));
      if (fabric->ofi_->needs_polling()) fabric->nap_ms_ = 1;
    } else {
      transport::TcpTransport::Options options;
      options.rails = static_cast<int>(bootstrap.addresses(bootstrap.rank()).size());
      options.crowded = fabric->oversubscribed_;
      if (settings.eager_inter_bytes > 0)
        options.eager_bytes = static_cast<size_t>(settings.eager_inter_bytes);
      auto connector = [&bootstrap](int peer, int rail, Deadline by) {
        return bootstrap.connect(peer, rail, static_cast<uint32_t>(rail), by);
      };
      auto tcp = transport::TcpTransport::create(bootstrap.rank(), bootstrap.ranks(), connector, options);
      if (!tcp) return tcp.status();
      fabric->tcp_ = tcp.take();
    }
  }
  if (fabric->shm_) WEFT_TRY(fabric->shm_->connect(*shm_addresses));

  for (transport::Transport* t : {static_cast<transport::Transport*>(fabric->shm_.get()),
                                  static_cast<transport::Transport*>(fabric->tcp_.get()),
                                  static_cast<transport::Transport*>(fabric->ofi_.get())}) {
    if (!t) continue;
    fabric->transports_.push_back(t);
    WEFT_TRY(t->watch(fabric->epoll_.get()));
  }
  for (int peer = 0; peer < bootstrap.ranks(); ++peer)
    fabric->routes_.push_back(peer == bootstrap.rank() ? nullptr
                              : fabric->is_local(peer) ? fabric->local()
                                                       : fabric->between_nodes());

  log::info("{}: {}", layout.to_string(), fabric->describe());
  return fabric;
}

transport::Transport* Fabric::local() const { return shm_.get(); }

transport::Transport* Fabric::between_nodes() const {
  if (ofi_) return ofi_.get();
  return tcp_.get();
}

size_t Fabric::eager_intra_bytes() const {
  if (shm_) return shm_->eager_bytes();
  return settings().eager_intra_bytes > 0 ? static_cast<size_t>(settings().eager_intra_bytes)
                                          : transport::ShmTransport::kDefaultEagerBytes;
}

Result<int> Fabric::poll(transport::Sink& sink, bool network) {
  int events = 0;
  for (transport::Transport* t : transports_) {
    if (!network && t != shm_.get()) continue;
    Result<int> polled = t->poll(sink);
    if (!polled) return polled;
    events += *polled;
  }
  return events;
}

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
  if (!tcp_) return;
  if (Status accepted = tcp_->accept(from, purpose, std::move(connection)); !accepted)
    log::warn("data connection from rank {}: {}", from, accepted.message());
}

Status Fabric::flush(Deadline deadline) {
  if (tcp_) WEFT_TRY(tcp_->flush(deadline));
  if (ofi_) WEFT_TRY(ofi_->flush(deadline));
  return {};
}

std::string Fabric::describe() const {
  if (transports_.empty()) return "no transport needed";
  std::string text;
  for (transport::Transport* t : transports_) text += (text.empty() ? "" : " + ") + t->describe();
  return text;
}

}  // namespace weft::engine
