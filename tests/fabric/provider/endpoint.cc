#include "endpoint.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <atomic>
#include <utility>

namespace weft::fake_efa {
namespace {

std::atomic<int> endpoints{0};

/// The first rail is the fastest.
int slowness_of(const Domain& domain) { return 1 + 2 * domain.rail; }
int packets_a_turn(const Domain& domain) { return 32 / slowness_of(domain); }

}  // namespace

Endpoint::Endpoint(Domain& domain, const fi_info& info)
    : fid_ep{},
      domain_(domain),
      number_(endpoints++),
      chance_(static_cast<uint64_t>(number_)),
      most_transfers_(info.tx_attr->size),
      most_receives_(info.rx_attr->size) {}

Endpoint::~Endpoint() {
  if (incoming_) incoming_->close();
  if (!queue_) return;
  queue_->endpoint = nullptr;
  queue_->late.clear();
}

void Endpoint::bind(CompletionQueue& queue) {
  queue_ = &queue;
  queue.endpoint = this;
}

int Endpoint::enable() {
  if (!addresses_ || !queue_) return -FI_ENOCQ;
  std::random_device random;  // another run may go on at the same time
  for (uint64_t& part : address_.id) part = uint64_t{random()} << 32 | random();
  const int slowness = slowness_of(domain_);
  outgoing_.emplace(domain_, chance_, *queue_, slowness);
  incoming_.emplace(domain_, chance_, *queue_, slowness);
  int failed = outgoing_->open();
  if (failed == 0) failed = incoming_->open(address_);
  return -failed;
}

Path* Endpoint::path_to(fi_addr_t to) {
  if (to >= addresses_->addresses.size()) return nullptr;
  if (to >= paths_.size()) paths_.resize(to + 1);
  if (!paths_[to]) paths_[to] = std::make_unique<Path>(addresses_->addresses[to]);
  return paths_[to].get();
}

ssize_t Endpoint::receive(const Receive& receive, const void* descriptor) {
  if (domain_.check_local(descriptor, receive.buffer, receive.bytes) == 0) return -FI_EINVAL;
  if (incoming_->receives() >= most_receives_ || chance_.happens(settings().busy_percent)) return -FI_EAGAIN;
  incoming_->post(receive);
  return 0;
}

ssize_t Endpoint::post(const void* source, size_t bytes, const void* descriptor, fi_addr_t to,
                       const PacketHeader& header, void* context) {
  Transfer transfer;
  transfer.registration = domain_.check_local(descriptor, source, bytes);
  if (bytes > 0 && transfer.registration == 0) return -FI_EINVAL;
  transfer.path = path_to(to);
  if (!transfer.path) return -FI_EINVAL;
  if (outgoing_->size() >= most_transfers_ || chance_.happens(settings().busy_percent)) return -FI_EAGAIN;
  transfer.source = static_cast<const std::byte*>(source);
  transfer.bytes = bytes;
  transfer.header = header;
  transfer.context = context;
  if (!outgoing_->add(std::move(transfer), address_)) return -FI_EAGAIN;
  ++posted_;
  if (lost_) outgoing_->fail_all(FI_ENETDOWN);
  else if (!stopped() && (settings().in_order || chance_.happens(50)))
    outgoing_->progress(packets_a_turn(domain_));
  return 0;
}

bool Endpoint::begins(const Fault& fault, int which) const {
  return fault.which == which && posted_ >= fault.after;
}

void Endpoint::lose_rail() {
  lost_ = true;
  incoming_->close();
  outgoing_->fail_all(FI_ENETDOWN);
}

void Endpoint::progress() {
  if (!outgoing_ || stopped()) return;
  if (!lost_ && begins(settings().lost_rail, domain_.rail)) lose_rail();
  if (!lost_) {
    incoming_->progress();
    outgoing_->progress(packets_a_turn(domain_));
  }
  queue_->late.turn(chance_, [this](const Completion& completion) {
    queue_->ready.push_back(completion);
    return true;
  });
}

}  // namespace weft::fake_efa
