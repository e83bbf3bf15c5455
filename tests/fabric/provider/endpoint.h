// Endpoint: reliable datagrams without order (FI_EP_RDM), over a rail. It makes progress when its completion
// queue is read, and sometimes when something is posted.
//
// Thread safety: as its domain's.
#pragma once

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>

#include <memory>
#include <optional>
#include <vector>

#include "incoming.h"
#include "outgoing.h"

namespace weft::fake_efa {

/// An address vector.
struct AddressVector : fid_av {
  explicit AddressVector(Domain& its_domain) : fid_av{}, domain(its_domain) {}
  Domain& domain;
  std::vector<Address> addresses;
};
int open_addresses(fid_domain* domain, fi_av_attr* attributes, fid_av** made, void* context);

class Endpoint : public fid_ep {
 public:
  Endpoint(Domain& domain, const fi_info& info);
  ~Endpoint();

  Domain& domain() { return domain_; }
  void bind(AddressVector& addresses) { addresses_ = &addresses; }
  void bind(CompletionQueue& queue);
  /// 0, or a negative error of libfabric's.
  int enable();
  const Address& address() const { return address_; }

  ssize_t receive(const Receive& receive, const void* descriptor);
  /// A message, or a write whose header is filled in as far as the caller knows it.
  ssize_t post(const void* source, size_t bytes, const void* descriptor, fi_addr_t to,
               const PacketHeader& header, void* context);
  void progress();

 private:
  Path* path_to(fi_addr_t to);
  bool begins(const Fault& fault, int which) const;
  bool stopped() const { return begins(settings().stopped_endpoint, number_); }
  void lose_rail();

  Domain& domain_;
  const int number_;  // in this process
  Chance chance_;
  const size_t most_transfers_, most_receives_;
  AddressVector* addresses_ = nullptr;
  CompletionQueue* queue_ = nullptr;
  Address address_;
  std::vector<std::unique_ptr<Path>> paths_;  // by address
  std::optional<Outgoing> outgoing_;          // once enabled
  std::optional<Incoming> incoming_;
  uint64_t posted_ = 0;
  bool lost_ = false;
};

/// fi_endpoint.
int open_endpoint(fid_domain* domain, fi_info* info, fid_ep** endpoint, void* context);

}  // namespace weft::fake_efa
