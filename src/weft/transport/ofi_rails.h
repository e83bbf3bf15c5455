// Rails: the NICs of one rank, with the memory that is registered on them. Host memory is registered for the
// time of its use, GPU memory (GPUDirect) where the rails were opened with FI_HMEM.
//
// Thread safety: none; as the transport's.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "transport/eager.h"
#include "transport/ofi_gpu_registration.h"
#include "transport/ofi_peers.h"
#include "transport/ofi_protocol.h"
#include "transport/ofi_providers.h"
#include "transport/ofi_rail.h"
#include "transport/ofi_registration.h"
#include "transport/transport.h"

namespace weft::transport::ofi {

class Rails {
 public:
  explicit Rails(const OfiOptions& options) : options_(options) {}

  /// Opens a rail on each chosen domain. Errors: see OfiTransport::create.
  Status open(int ranks);
  /// Afterwards no NIC touches memory. Does nothing where registrations have to go before the endpoints.
  void close_endpoints();

  size_t size() const { return rails_.size(); }
  Rail& operator[](size_t rail) { return *rails_[rail]; }
  const std::vector<std::unique_ptr<Rail>>& all() const { return rails_; }
  std::string_view provider() const;
  std::string describe() const;
  Net net() const { return net_; }
  /// Whether ranks greet each other before anything else (ofi_protocol.h).
  bool greets() const { return greets_; }
  /// The payload that every rail takes in a message.
  size_t message_limit() const { return message_limit_; }
  /// Why this rank offers no GPUDirect; ok: it does.
  const Status& why_no_gpu() const { return why_no_gpu_; }
  /// ok if a reader that looks before a peer's write is complete sees each aligned 128 bytes in order.
  /// Otherwise the reason why not.
  Status writes_in_order() const;

  // ---- Memory that peers write. Errors and contract: MemoryAccess, GpuDirect.

  Result<RemoteBuffer> expose(void* address, size_t bytes);
  Result<RemoteBuffer> expose_gpu(void* address, size_t bytes);
  Status takes_dma_bufs() const;
  Result<RemoteBuffer> expose_dma_buf(void* address, size_t bytes, int fd, uint64_t offset);
  void unexpose(const RemoteBuffer& buffer);
  void drop_unexposed_gpu();
  /// Whether peers can reach pages of what is exposed by another exposure, too.
  bool exposed_elsewhere(const RemoteBuffer& buffer) const;

  struct Statistics {
    uint64_t hits = 0, misses = 0, failures = 0;
    size_t live = 0;
  };
  Statistics registrations() const;
  /// The same for GPU memory; zeros where there is no GPUDirect.
  GpuRegistrations::Statistics gpu_registrations() const;

  // ---- Puts

  /// Whether the announcement of a put arrives before its stripes.
  bool announcements_come_first() const { return size() == 1 && rails_.front()->writes_follow_sends(); }
  /// Whether puts reach a peer's buffer by writes; else they travel as messages.
  bool reachable_by_writes(const RemoteBuffer& target) const;
  static uint64_t write_address(const RemoteBuffer& target, uint64_t offset);
  /// The registration of a put's source, where it needs one.
  Result<RegistrationHold> register_source(const std::byte* source, size_t bytes, bool of_gpu);
  Result<fi_addr_t> route(Peer& peer, size_t rail);
  /// How long the stripes of a put over so many rails are.
  size_t stripe_bytes(size_t bytes, size_t rails) const;

 private:
  Status open_all(std::vector<Info> infos, int ranks);
  Status open_for_gpu(const std::vector<Info>& plain, int ranks);
  Status register_a_gpu_block();
  RemoteBuffer hold_exposure(RegistrationOwner& owner, Registration* registration, void* address,
                             size_t bytes);

  const OfiOptions options_;
  bool writes_ = false;  // the provider writes with immediate data
  bool greets_ = false;
  Status why_no_gpu_;
  Net net_ = Net::ofi;
  size_t message_limit_ = SIZE_MAX;
  // Destroyed from the last to the first: exposures let go of registrations, these go before their domains.
  std::vector<std::unique_ptr<Rail>> rails_;
  std::unique_ptr<RegistrationCache> registrations_;
  std::unique_ptr<GpuRegistrations> gpu_registrations_;
  std::unordered_map<uint64_t, RegistrationHold> exposures_;  // by the id in RemoteBuffer
  uint64_t next_exposure_ = 1;
};

}  // namespace weft::transport::ofi
