// The libfabric transport: opening and closing, addresses, exposed memory, sleeping. ofi_outgoing.cc sends,
// ofi_incoming.cc receives.
#include "transport/ofi.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string_view>

#include "base/log.h"

namespace weft::transport {

using namespace ofi;

namespace {

constexpr size_t kPoolBytes = 2 << 20;  // of send buffers and of receive buffers, each, on a rail
constexpr int64_t kShortestNapNs = 50'000;
constexpr int64_t kLongestNapNs = 1'000'000;    // where nothing else wakes
constexpr int64_t kLongestDozeNs = 10'000'000;  // where almost everything does
constexpr uint32_t kAddressMagic = 0x57656633;  // "Wef3"

/// Appends plain values to an address, and takes them off again.
class AddressWriter {
 public:
  void number(uint32_t value) { bytes(std::as_bytes(std::span(&value, 1))); }
  void field(std::span<const std::byte> value) { number(static_cast<uint32_t>(value.size())), bytes(value); }
  std::vector<std::byte> take() { return std::move(out_); }

 private:
  void bytes(std::span<const std::byte> value) { out_.insert(out_.end(), value.begin(), value.end()); }
  std::vector<std::byte> out_;
};

class AddressReader {
 public:
  explicit AddressReader(std::span<const std::byte> in) : in_(in) {}
  bool number(uint32_t& value) {
    if (in_.size() < sizeof(value)) return false;
    std::memcpy(&value, in_.data(), sizeof(value));
    in_ = in_.subspan(sizeof(value));
    return true;
  }
  bool field(std::vector<std::byte>& value) {
    uint32_t size = 0;
    if (!number(size) || in_.size() < size) return false;
    value.assign(in_.begin(), in_.begin() + size);
    in_ = in_.subspan(size);
    return true;
  }

 private:
  std::span<const std::byte> in_;
};

std::string_view provider_of(const Rail& rail) { return rail.info().fabric_attr->prov_name; }

}  // namespace

OfiTransport::OfiTransport(int rank, int ranks, const Options& options)
    : rank_(rank),
      ranks_(ranks),
      options_(options),
      immediate_(ranks, options.sequence_bits),
      token_(std::random_device{}()),
      peers_(static_cast<size_t>(ranks)),
      next_messages_rail_(static_cast<size_t>(rank)),
      next_puts_rail_(static_cast<size_t>(rank)) {}

// No endpoint that could touch memory may be left when the registrations go. Only registrations that are
// bound to an endpoint go before it.
OfiTransport::~OfiTransport() {
  const bool bound = !rails_.empty() && rails_.front()->registration_domain().endpoint;
  if (bound) return;
  for (auto& rail : rails_) rail->close_endpoint();
}

Result<std::unique_ptr<OfiTransport>> OfiTransport::create(int rank, int ranks, const Options& options) {
  if (ranks < 1 || rank < 0 || rank >= ranks)
    return fail(Code::invalid_argument, "rank is {}, must be in [0, {})", rank, ranks);
  if (options.local_ranks < 1 || options.local_rank < 0 || options.local_rank >= options.local_ranks)
    return fail(Code::invalid_argument, "local rank is {}, must be in [0, {})", options.local_rank,
                options.local_ranks);
  std::unique_ptr<OfiTransport> transport(new OfiTransport(rank, ranks, options));
  WEFT_TRY(transport->open_rails());
  if (const size_t bytes = transport->address().size(); bytes > kAddressBytes)
    return fail(Code::unsupported, "{} has addresses of {} bytes, Weft takes {}", transport->describe(),
                bytes, kAddressBytes);
  WEFT_TRY(transport->open_wakeups());
  return transport;
}

Status OfiTransport::open_rails() {
  Result<std::vector<Info>> infos = choose_rails(options_);
  if (!infos) return infos.status();
  if (options_.cuda_device < 0) {
    why_no_gpu_ = fail(Code::unsupported, "libfabric was not asked for it");
    return open_rails(infos.take());
  }
  why_no_gpu_ = open_rails_for_gpu(*infos);
  return why_no_gpu_.ok() ? Status() : open_rails(infos.take());
}

Status OfiTransport::open_rails(std::vector<Info> infos) {
  net_ = net_of_provider(infos.front()->fabric_attr->prov_name);
  const size_t message_bytes = net_eager_bytes(net_, options_.eager_bytes) + sizeof(Header);
  const std::string_view provider = infos.front()->fabric_attr->prov_name;
  greets_ = provider == "net" || provider.starts_with("tcp");
  rma_ = !options_.messages_only;
  message_limit_ = SIZE_MAX;
  std::vector<RegistrationDomain> domains;
  for (Info& info : infos) {
    rma_ = rma_ && writes_with_data(*info);
    Result<std::unique_ptr<Rail>> rail =
        Rail::open(std::move(info), options_.expected_peers ? options_.expected_peers : ranks_, message_bytes,
                   kPoolBytes, options_.ordered_writes);
    if (!rail) return rail.status();
    if ((*rail)->message_bytes() <= sizeof(Header))
      return fail(Code::unsupported, "libfabric {} takes messages of only {} bytes", provider_of(**rail),
                  (*rail)->message_bytes());
    message_limit_ = std::min(message_limit_, (*rail)->message_bytes() - sizeof(Header));
    rails_.push_back(rail.take());
    domains.push_back(rails_.back()->registration_domain());
  }
  registrations_ = std::make_unique<RegistrationCache>(std::move(domains));
  return {};
}

std::vector<std::byte> OfiTransport::address() const {
  AddressWriter out;
  out.number(kAddressMagic);
  out.number(token_);
  out.number(static_cast<uint32_t>(message_limit_));
  out.number(why_no_gpu_.ok());
  out.number(static_cast<uint32_t>(std::min<uint64_t>(options_.message_credit, UINT32_MAX)));
  out.field(std::as_bytes(std::span(provider_of(*rails_.front()))));
  out.number(static_cast<uint32_t>(rails_.size()));
  for (const auto& rail : rails_) out.field(rail->name());
  std::vector<std::byte> bytes = out.take();
  bytes.resize(std::max(bytes.size(), kAddressBytes));
  return bytes;
}

Status OfiTransport::connect(std::vector<std::vector<std::byte>> by_rank) {
  if (by_rank.size() != peers_.size())
    return fail(Code::invalid_argument, "{} addresses were given for {} ranks", by_rank.size(), ranks_);
  for (size_t rank = 0; rank < by_rank.size(); ++rank)
    WEFT_TRY(introduce(static_cast<int>(rank), by_rank[rank], static_cast<uint32_t>(rank_)));
  return {};
}

Status OfiTransport::introduce(int rank, std::span<const std::byte> address, uint32_t known_as) {
  if (rank < 0 || rank >= ranks_)
    return fail(Code::invalid_argument, "peer is {}, must be in [0, {})", rank, ranks_);
  AddressReader in(address);
  Peer& peer = peers_[static_cast<size_t>(rank)];
  uint32_t magic = 0, limit = 0, takes_gpu = 0, credit = 0, rails = 0;
  std::vector<std::byte> theirs;
  bool good = in.number(magic) && magic == kAddressMagic && in.number(peer.token) && in.number(limit) &&
              limit > 0 && in.number(takes_gpu) && in.number(credit) && in.field(theirs) &&
              in.number(rails) && rails >= 1 && rails <= kMaxRails;
  peer.names.resize(good ? rails : 0);
  for (auto& name : peer.names) good = good && in.field(name);
  if (!good) return fail(Code::protocol_error, "what rank {} sent is no libfabric address of Weft", rank);
  const std::string_view provider = provider_of(*rails_.front());
  const std::string_view their_provider(reinterpret_cast<const char*>(theirs.data()), theirs.size());
  if (their_provider != provider)
    return fail(Code::protocol_error, "rank {} uses libfabric provider {}, rank {} uses {}: set one for all",
                rank, their_provider, rank_, provider);
  message_limit_ = std::min(message_limit_, size_t{limit});
  peer.known_as = known_as;
  peer.takes_gpu = takes_gpu != 0;
  peer.message_credit = credit > 0 ? credit : UINT64_MAX;
  peer.names.resize(std::min(peer.names.size(), rails_.size()));
  peer.routes.assign(peer.names.size(), FI_ADDR_UNSPEC);
  peer.met = greets_ ? 0 : peer.all_rails();
  return {};
}

std::string OfiTransport::describe() const {
  const Rail& first = *rails_.front();
  if (rails_.size() == 1)
    return fmt::format("libfabric {} over {}", provider_of(first), first.info().domain_attr->name);
  return fmt::format("libfabric {}, {} rails", provider_of(first), rails_.size());
}

Status OfiTransport::check_peer(int peer) const {
  if (peer < 0 || peer >= ranks_ || peer == rank_)
    return fail(Code::invalid_argument, "peer is {}, must be another rank than {} in [0, {})", peer, rank_,
                ranks_);
  const Peer& to = peers_[static_cast<size_t>(peer)];
  if (to.routes.empty())
    return fail(Code::invalid_usage, "the address of rank {} is not known: connect() first", peer);
  return to.lost;
}

Result<RemoteBuffer> OfiTransport::expose(void* address, size_t bytes) {
  if (bytes == 0 || !rma_)
    return RemoteBuffer{.address = reinterpret_cast<uint64_t>(address), .bytes = bytes};
  Result<Registration*> registration = registrations_->acquire(address, bytes);
  if (!registration) return registration.status();
  return hold_exposure(*registrations_, *registration, address, bytes);
}

RemoteBuffer OfiTransport::hold_exposure(RegistrationOwner& owner, Registration* registration, void* address,
                                         size_t bytes) {
  Keys keys;
  for (size_t rail = 0; rail < rails_.size(); ++rail) keys.rails[rail] = registration->key(rail);
  keys.base = rails_.front()->virtual_addresses() ? 0 : registration->base();
  keys.exposure = next_exposure_++;
  exposures_.emplace(keys.exposure, RegistrationHold(owner, registration));
  return {reinterpret_cast<uint64_t>(address), bytes, TransportKeys(keys)};
}

void OfiTransport::unexpose(const RemoteBuffer& buffer) { exposures_.erase(buffer.keys.as<Keys>().exposure); }

bool OfiTransport::exposed_elsewhere(const RemoteBuffer& buffer) const {
  const auto exposure = exposures_.find(buffer.keys.as<Keys>().exposure);
  return exposure != exposures_.end() && exposure->second->users() > 1;
}

Status OfiTransport::writes_in_order() const {
  for (const auto& rail : rails_) WEFT_TRY(Status(rail->writes_in_order()));
  return {};
}

bool OfiTransport::reachable_by_writes(const RemoteBuffer& target) const {
  return rma_ && target.keys.as<Keys>().exposure != 0;
}

uint64_t OfiTransport::write_address(const RemoteBuffer& target, uint64_t offset) {
  return target.address + offset - target.keys.as<Keys>().base;
}

OfiTransport::RegistrationStatistics OfiTransport::registrations() const {
  const RegistrationCache::Statistics& counts = registrations_->statistics();
  return {counts.hits, counts.misses, counts.failures, registrations_->live()};
}

Counters OfiTransport::counters() const { return counters_; }

// Sleeping.

namespace {

Status control_epoll(int epoll, int operation, int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  return epoll_ctl(epoll, operation, fd, &event) == 0 ? Status() : fail_errno(errno, "epoll_ctl");
}

}  // namespace

Status OfiTransport::open_wakeups() {
  wakeups_.reset(epoll_create1(EPOLL_CLOEXEC));
  if (!wakeups_.valid()) return fail_errno(errno, "epoll_create1");
  nap_timer_.reset(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!nap_timer_.valid()) return fail_errno(errno, "timerfd_create");
  for (const auto& rail : rails_)
    if (rail->descriptor() >= 0)
      WEFT_TRY(control_epoll(wakeups_.get(), EPOLL_CTL_ADD, rail->descriptor(), EPOLLIN));
  return control_epoll(wakeups_.get(), EPOLL_CTL_ADD, nap_timer_.get(), EPOLLIN);
}

Status OfiTransport::watch(int epoll_fd) {
  return control_epoll(epoll_fd, EPOLL_CTL_ADD, wakeups_.get(), EPOLLIN);
}

bool OfiTransport::needs_polling() const {
  return std::ranges::any_of(
      rails_, [](const auto& rail) { return rail->descriptor() < 0 || rail->descriptor_stuck(); });
}

// A descriptor that stays readable still reports new events by its edges. Edges may miss bytes that a
// provider has left in a socket, so the timer ends sleeps as well.
void OfiTransport::distrust_descriptor(Rail& rail) {
  log::info("{}: the descriptor of {} stays readable while nothing happens; sleeping in naps", describe(),
            rail.info().domain_attr->name);
  (void)control_epoll(wakeups_.get(), EPOLL_CTL_MOD, rail.descriptor(), EPOLLIN | EPOLLET);
}

bool OfiTransport::prepare_sleep() {
  if (!inbox_.empty() || !losses_.empty()) return false;
  for (const auto& rail : rails_) {
    const bool trusted = !rail->descriptor_stuck();
    if (!rail->may_sleep()) return false;
    if (trusted && rail->descriptor_stuck()) distrust_descriptor(*rail);
  }
  const bool waits_for_room =
      refused_ || !unposted_.empty() || !acknowledgements_.empty() ||
      std::ranges::any_of(rails_, [](const auto& rail) { return rail->waits_for_room(); });
  if (!waits_for_room && !needs_polling()) return true;
  const bool blind = std::ranges::any_of(rails_, [](const auto& rail) { return rail->descriptor() < 0; });
  nap_ns_ = std::clamp(2 * nap_ns_, kShortestNapNs, waits_for_room || blind ? kLongestNapNs : kLongestDozeNs);
  const itimerspec nap{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_nsec = nap_ns_}};
  napping_ = timerfd_settime(nap_timer_.get(), 0, &nap, nullptr) == 0;
  return napping_;
}

void OfiTransport::finish_sleep() {
  refused_ = false;
  if (!napping_) return;
  const itimerspec disarmed{};  // also takes back an expiry that was not read
  timerfd_settime(nap_timer_.get(), 0, &disarmed, nullptr);
  epoll_event edges[ofi::kMaxRails + 1];  // those seen so far are spent; poll() comes next
  (void)epoll_wait(wakeups_.get(), edges, std::size(edges), 0);
  napping_ = false;
}

}  // namespace weft::transport
