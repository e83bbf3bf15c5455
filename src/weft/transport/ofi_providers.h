// Lists libfabric's providers, and chooses the rails of a job: one provider, and its domains. Calls
// fi_getinfo, and opens no domain.
//
// Thread safety: all functions.
#pragma once

#include <rdma/fabric.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "topology/interface_rules.h"
#include "transport/ofi_library.h"

namespace weft::transport {

struct OfiOptions {
  std::string provider;   // libfabric's name; "tcp" is "tcp;ofi_rxm" too; "" = efa, verbs, net, tcp
  std::string interface;  // domains to use, separated by commas, one rail for each; "" = the provider's best
  std::string domains;    // the domains to choose from (DomainFilter), if `interface` names none
  std::string met_over;   // the interface of the rendezvous: the domain that a plain network uses by default
  int rails = 0;          // at most so many, 0 = all up to 4
  int local_rank = 0;     // among the ranks of this host, which begin with different NICs of EFA
  int local_ranks = 1;
  size_t eager_bytes = 0;         // payload of a message; 0 = the transport's choice (eager.h)
  size_t stripe_bytes = 0;        // longest single write; 0 = 1 MiB
  bool messages_only = false;     // puts never use RMA, for tests and for fabrics where RMA misbehaves
  bool register_sources = false;  // even if the provider does not need it; for tests
  int sequence_bits = 0;          // of the immediate data; 0 = all; for tests
  uint64_t message_credit = 0;    // the cost of unread messages at which senders to this rank wait; 0 = no
                                  // limit. See ofi_protocol.h
  int expected_peers = 0;         // initial room for addresses; 0 = all ranks
  bool careful = false;           // long copies report that the program's memory is gone, and do not crash
  int cuda_device = -1;           // the device whose memory the rails should access, if they can; -1 = none
  bool ordered_writes = false;    // ask the network for ordered writes (OfiTransport::writes_in_order)
};

/// An offer of libfabric on this host.
struct ProviderInfo {
  std::string name, fabric, domain;
  double gigabits_per_s = 0;  // 0 = not known
  bool usable = false;
  bool automatic = false;   // Weft may choose it although no setting names it
  bool gpu_memory = false;  // offers FI_HMEM; whether that works for a device shows when rails are opened
  std::string why_not;      // if not usable
};
/// WEFT_OFI_DOMAINS: names of domains, or of their devices, in the syntax of topology::InterfaceFilter.
class DomainFilter {
 public:
  explicit DomainFilter(std::string_view text) : filter_(text) {}
  bool takes(std::string_view domain) const;
  bool names() const { return filter_.names(); }
  /// The position, in the setting, of the name that matches the domain.
  size_t place_of(std::string_view domain) const;

 private:
  topology::InterfaceFilter filter_;
};

/// All providers, in the order in which Weft prefers them. Without libfabric: none, and a warning. Takes a
/// few tenths of a second.
std::vector<ProviderInfo> list_providers();

/// Whether libfabric's efa provider is usable. Asks libfabric only if the host has RDMA devices, because
/// asking loads all providers.
bool efa_is_usable();

}  // namespace weft::transport

namespace weft::transport::ofi {

struct InfoDeleter {
  void operator()(fi_info* info) const { library().freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, InfoDeleter>;

/// One fi_info for each rail, all of one provider. Errors, which list what is offered: invalid_setting if the
/// provider or domains of a setting are not offered; unsupported if nothing fits.
Result<std::vector<Info>> choose_rails(const OfiOptions& options);

/// The same rails, requested with FI_HMEM. Errors: unsupported if a rail is not offered with it.
Result<std::vector<Info>> with_gpu_memory(const std::vector<Info>& rails);

/// Whether writes with immediate data are offered; otherwise puts travel as messages.
bool writes_with_data(const fi_info& info);

}  // namespace weft::transport::ofi
