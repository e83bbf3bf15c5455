// Which libfabric providers there are, and which of them carry a job: fi_getinfo and the choice of rails.
// Opens nothing.
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
  std::string domains;    // which to choose from (DomainFilter), where `interface` names none
  std::string met_over;   // by default a plain network uses this domain: the interface over which ranks meet
  int rails = 0;          // at most so many, 0 = all up to 4
  int local_rank = 0;     // among the ranks of this host: they spread over EFA's NICs
  int local_ranks = 1;
  size_t eager_bytes = 0;         // payload of a message; 0 = the transport's choice (eager.h)
  size_t stripe_bytes = 0;        // longest single write; 0 = 1 MiB
  bool messages_only = false;     // puts never use RMA, for tests and for fabrics where RMA misbehaves
  bool register_sources = false;  // also where the provider does not ask for it; for tests
  int sequence_bits = 0;          // of the immediate, 0 = all there are; for tests
  uint64_t message_credit = 0;    // messages to this rank wait when those that it has not taken in cost more;
                                  // 0: never. See ofi_protocol.h
  int expected_peers = 0;         // that room for addresses is made for at first; 0 = all ranks
  bool careful = false;           // long copies report that the program's memory is gone, and do not crash
  int cuda_device = -1;           // whose memory rails should reach themselves, if they can; -1 = none
  bool ordered_writes = false;    // is asked of the network (OfiTransport::writes_in_order)
};

/// An offer of libfabric on this host.
struct ProviderInfo {
  std::string name, fabric, domain;
  double gigabits_per_s = 0;  // 0 = not known
  bool usable = false;
  bool automatic = false;   // may be taken without being asked for by name
  bool gpu_memory = false;  // offers GPUDirect (FI_HMEM); whether it does it for a device shows at creation
  std::string why_not;      // if not usable
};
/// WEFT_OFI_DOMAINS: names of domains, or of their devices, in the syntax of topology::InterfaceFilter.
class DomainFilter {
 public:
  explicit DomainFilter(std::string_view text) : filter_(text) {}
  bool takes(std::string_view domain) const;
  bool names() const { return filter_.names(); }
  /// Which of its names means the domain.
  size_t place_of(std::string_view domain) const;

 private:
  topology::InterfaceFilter filter_;
};

/// All providers, those that Weft prefers first; none, with a warning, without libfabric. Takes a few tenths
/// of a second.
std::vector<ProviderInfo> list_providers();

/// Whether libfabric's efa provider is there. Asks libfabric only where there are RDMA devices, as EFA's are:
/// asking loads all its providers.
bool efa_is_usable();

}  // namespace weft::transport

namespace weft::transport::ofi {

struct InfoDeleter {
  void operator()(fi_info* info) const { library().freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, InfoDeleter>;

/// One fi_info a rail, all of one provider. Fails with invalid_setting (a provider or domains that were asked
/// for and are not offered) or unsupported (nothing fits), and says what is offered.
Result<std::vector<Info>> choose_rails(const OfiOptions& options);

/// The same rails, asked for with FI_HMEM. Fails with unsupported, and a sentence, if one is not offered that
/// way.
Result<std::vector<Info>> with_gpu_memory(const std::vector<Info>& rails);

/// Whether writes with immediate data are offered; otherwise puts travel as messages.
bool writes_with_data(const fi_info& info);

}  // namespace weft::transport::ofi
