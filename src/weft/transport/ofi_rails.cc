#include "transport/ofi_rails.h"

#include <algorithm>

#include "device/cuda/deferred_free.h"
#include "device/cuda/device.h"
#include "transport/eager.h"

namespace weft::transport::ofi {

namespace cuda = device::cuda;

namespace {

constexpr size_t kPoolBytes = 2 << 20;         // of send buffers and of receive buffers, each, on a rail
constexpr size_t kStripeBytes = 1 << 20;       // of one write, unless the user says otherwise
constexpr size_t kShortestStripe = 128 << 10;  // below, a second rail costs more than it brings
constexpr size_t kStripeAlignment = 128;       // NICs write so many bytes in one piece

std::string_view provider_of(const Rail& rail) { return rail.info().fabric_attr->prov_name; }

}  // namespace

// ---- Opening and closing

Status Rails::open(int ranks) {
  Result<std::vector<Info>> infos = choose_rails(options_);
  if (!infos) return infos.status();
  if (options_.cuda_device < 0) {
    why_no_gpu_ = fail(Code::unsupported, "libfabric was not asked for it");
    return open_all(infos.take(), ranks);
  }
  why_no_gpu_ = open_for_gpu(*infos, ranks);
  return why_no_gpu_.ok() ? Status() : open_all(infos.take(), ranks);
}

Status Rails::open_all(std::vector<Info> infos, int ranks) {
  net_ = net_of_provider(infos.front()->fabric_attr->prov_name);
  const size_t message_bytes = net_eager_bytes(net_, options_.eager_bytes) + sizeof(Header);
  const std::string_view provider = infos.front()->fabric_attr->prov_name;
  greets_ = provider == "net" || provider.starts_with("tcp");
  writes_ = !options_.messages_only;
  message_limit_ = SIZE_MAX;
  std::vector<RegistrationDomain> domains;
  for (Info& info : infos) {
    writes_ = writes_ && writes_with_data(*info);
    Result<std::unique_ptr<Rail>> rail =
        Rail::open(std::move(info), options_.expected_peers ? options_.expected_peers : ranks, message_bytes,
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

/// Opens the rails with FI_HMEM, or leaves none open and says why.
Status Rails::open_for_gpu(const std::vector<Info>& plain, int ranks) {
  if (options_.messages_only) return fail(Code::unsupported, "puts travel as messages");
  auto device = cuda::Device::open(options_.cuda_device);
  if (!device) return device.status();
  WEFT_TRY((*device)->orders_network_writes());
  Result<std::vector<Info>> infos = with_gpu_memory(plain);
  if (!infos) return infos.status();
  Status opened = open_all(infos.take(), ranks);
  if (opened.ok()) opened = register_a_gpu_block();
  if (opened.ok()) return {};
  gpu_registrations_.reset();
  registrations_.reset();
  rails_.clear();
  return opened;
}

/// Providers offer FI_HMEM for any kind of device, also where there is no CUDA device: only a trial shows.
Status Rails::register_a_gpu_block() {
  constexpr size_t kBytes = 64 << 10;
  std::vector<RegistrationDomain> domains;
  for (const auto& rail : rails_) domains.push_back(rail->registration_domain());
  gpu_registrations_ = std::make_unique<GpuRegistrations>(std::move(domains));
  const cuda::Scope scope(**cuda::Device::open(options_.cuda_device));
  const cuda::Driver& d = **cuda::driver();
  cuda::DevicePointer block = 0;
  WEFT_TRY(cuda::check(d.mem_alloc(&block, kBytes), "GPU memory to try GPUDirect with (cuMemAlloc)"));
  auto registration = gpu_registrations_->acquire(reinterpret_cast<const void*>(block), kBytes);
  if (registration) gpu_registrations_->release(*registration);
  gpu_registrations_->drop_idle();  // before its memory
  cuda::DeferredFree::instance().add_block(**cuda::Device::open(options_.cuda_device),
                                           cuda::BlockKind::device, reinterpret_cast<std::byte*>(block),
                                           kBytes);
  return registration.status();
}

// Only registrations that are bound to an endpoint go before it.
void Rails::close_endpoints() {
  if (rails_.empty() || rails_.front()->registration_domain().endpoint) return;
  for (auto& rail : rails_) rail->close_endpoint();
}

std::string_view Rails::provider() const { return provider_of(*rails_.front()); }

// ---- Memory

std::string Rails::describe() const {
  const Rail& first = *rails_.front();
  if (rails_.size() == 1)
    return fmt::format("libfabric {} over {}", provider_of(first), first.info().domain_attr->name);
  return fmt::format("libfabric {}, {} rails", provider_of(first), rails_.size());
}

Result<RemoteBuffer> Rails::expose(void* address, size_t bytes) {
  if (bytes == 0 || !writes_)
    return RemoteBuffer{.address = reinterpret_cast<uint64_t>(address), .bytes = bytes};
  Result<Registration*> registration = registrations_->acquire(address, bytes);
  if (!registration) return registration.status();
  return hold_exposure(*registrations_, *registration, address, bytes);
}

Result<RemoteBuffer> Rails::expose_gpu(void* address, size_t bytes) {
  WEFT_TRY(Status(why_no_gpu_));
  if (bytes == 0) return RemoteBuffer{.address = reinterpret_cast<uint64_t>(address)};
  Result<Registration*> registration = gpu_registrations_->acquire(address, bytes);
  if (!registration) return registration.status();
  return hold_exposure(*gpu_registrations_, *registration, address, bytes);
}

Status Rails::takes_dma_bufs() const {
  WEFT_TRY(Status(why_no_gpu_));
  return takes_files_of_gpu_memory();
}

Result<RemoteBuffer> Rails::expose_dma_buf(void* address, size_t bytes, int fd, uint64_t offset) {
  WEFT_TRY(takes_dma_bufs());
  if (bytes == 0) return RemoteBuffer{.address = reinterpret_cast<uint64_t>(address)};
  Result<Registration*> registration = gpu_registrations_->acquire_file(address, bytes, {fd, offset});
  if (!registration) return registration.status();
  return hold_exposure(*gpu_registrations_, *registration, address, bytes);
}

RemoteBuffer Rails::hold_exposure(RegistrationOwner& owner, Registration* registration, void* address,
                                  size_t bytes) {
  Keys keys;
  for (size_t rail = 0; rail < rails_.size(); ++rail) keys.rails[rail] = registration->key(rail);
  keys.base = rails_.front()->virtual_addresses() ? 0 : registration->base();
  keys.exposure = next_exposure_++;
  exposures_.emplace(keys.exposure, RegistrationHold(owner, registration));
  return {reinterpret_cast<uint64_t>(address), bytes, TransportKeys(keys)};
}

void Rails::unexpose(const RemoteBuffer& buffer) { exposures_.erase(buffer.keys.as<Keys>().exposure); }

bool Rails::exposed_elsewhere(const RemoteBuffer& buffer) const {
  const auto exposure = exposures_.find(buffer.keys.as<Keys>().exposure);
  return exposure != exposures_.end() && exposure->second->users() > 1;
}

Status Rails::writes_in_order() const {
  for (const auto& rail : rails_) WEFT_TRY(Status(rail->writes_in_order()));
  return {};
}

bool Rails::reachable_by_writes(const RemoteBuffer& target) const {
  return writes_ && target.keys.as<Keys>().exposure != 0;
}

uint64_t Rails::write_address(const RemoteBuffer& target, uint64_t offset) {
  return target.address + offset - target.keys.as<Keys>().base;
}

Rails::Statistics Rails::registrations() const {
  const RegistrationCache::Statistics& counts = registrations_->statistics();
  return {counts.hits, counts.misses, counts.failures, registrations_->live()};
}

void Rails::drop_unexposed_gpu() {
  if (gpu_registrations_) gpu_registrations_->drop_idle();
}

GpuRegistrations::Statistics Rails::gpu_registrations() const {
  return gpu_registrations_ ? gpu_registrations_->statistics() : GpuRegistrations::Statistics();
}

Result<RegistrationHold> Rails::register_source(const std::byte* source, size_t bytes, bool of_gpu) {
  const bool needed = of_gpu || options_.register_sources || rails_.front()->needs_local_registration();
  if (!needed || bytes == 0) return RegistrationHold();
  Result<Registration*> registration =
      of_gpu ? gpu_registrations_->acquire(source, bytes) : registrations_->acquire(source, bytes);
  if (!registration) return registration.status();
  RegistrationOwner& owner = of_gpu ? static_cast<RegistrationOwner&>(*gpu_registrations_) : *registrations_;
  return RegistrationHold(owner, *registration);
}

// ---- Puts

Result<fi_addr_t> Rails::route(Peer& peer, size_t rail) {
  fi_addr_t& known = peer.routes[rail];
  if (known == FI_ADDR_UNSPEC) {
    Result<fi_addr_t> inserted = rails_[rail]->insert(peer.names[rail]);
    if (!inserted) return inserted;
    known = *inserted;
  }
  return known;
}

/// Stripes are as long as allowed on one rail; over several, short enough for all to share the work.
size_t Rails::stripe_bytes(size_t bytes, size_t rails) const {
  size_t longest = options_.stripe_bytes ? options_.stripe_bytes : kStripeBytes;
  for (size_t rail = 0; rail < rails; ++rail) longest = std::min(longest, rails_[rail]->longest_write());
  size_t stripe = longest;
  if (rails > 1) stripe = std::min(longest, std::max(kShortestStripe, (bytes + rails - 1) / rails));
  if (stripe > kStripeAlignment)
    stripe = (stripe + kStripeAlignment - 1) / kStripeAlignment * kStripeAlignment;
  return stripe > longest ? stripe - kStripeAlignment : stripe;
}

}  // namespace weft::transport::ofi
