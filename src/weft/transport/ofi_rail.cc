// A rail: opening its libfabric objects, posting operations, reading the completion queue.
#include "transport/ofi_rail.h"

#include <poll.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "transport/ofi_write_order.h"

namespace weft::transport::ofi {

namespace {

constexpr size_t kFewestBuffers = 16, kMostBuffers = 128;
constexpr size_t kMostOperations = 256;        // of one direction, under way on a rail
constexpr size_t kRoomForRemoteWrites = 1024;  // in the completion queue, beside our own operations
constexpr int kEntriesPerReap = 256;           // then the caller goes on
constexpr uint64_t kKeyOfBuffers = 0;          // local use only

Status failed(std::string_view what, const fi_info& info, ssize_t error) {
  return fail(Code::system_error, "libfabric {} ({}): {} failed: {}", info.fabric_attr->prov_name,
              info.domain_attr->name, what, library().strerror(static_cast<int>(-error)));
}

Result<Progress> progress_of(ssize_t outcome, std::string_view what, const fi_info& info) {
  if (outcome == 0) return Progress::accepted;
  if (outcome == -FI_EAGAIN) return Progress::busy;
  return failed(what, info, outcome);
}

/// Forbids the provider to copy GPU memory by calls of CUDA. Such a call would wait, inside poll(), for
/// kernels that may wait for the caller. A provider that does not know these options makes no such copies.
int forbid_copies_by_cuda(fid_ep* endpoint) {
  int direct = FI_HMEM_P2P_REQUIRED;
  int error = fi_setopt(&endpoint->fid, FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, &direct, sizeof direct);
  if (error != 0 && error != -FI_ENOPROTOOPT) return error;
#if FI_VERSION_GE(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(1, 18))
  bool permitted = false;
  error = fi_setopt(&endpoint->fid, FI_OPT_ENDPOINT, FI_OPT_CUDA_API_PERMITTED, &permitted, sizeof permitted);
#endif
  return error == -FI_ENOPROTOOPT ? 0 : error;
}

/// Whether a completion belongs to a peer's write, whose context means nothing here. Only writes carry data
/// in this transport, but some providers (sockets) set FI_REMOTE_CQ_DATA on the writer's side as well.
bool is_from_peer(uint64_t flags) {
  return (flags & FI_REMOTE_WRITE) || ((flags & FI_REMOTE_CQ_DATA) && !(flags & (FI_WRITE | FI_SEND)));
}

}  // namespace

Result<Mapping> Mapping::make(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return fail(Code::out_of_memory, "cannot map {} bytes of network buffers", bytes);
  Mapping mapping;
  mapping.memory_ = static_cast<std::byte*>(memory);
  mapping.bytes_ = bytes;
  return mapping;
}

Mapping::~Mapping() {
  if (memory_) munmap(memory_, bytes_);
}

Rail::~Rail() {
  if (registration_domain().endpoint) region_.reset();  // bound to the endpoint, so it goes before
}

Result<std::unique_ptr<Rail>> Rail::open(Info info, int peers, size_t message_bytes, size_t pool_bytes,
                                         bool ordered_writes) {
  std::unique_ptr<Rail> rail(new Rail);
  rail->info_ = std::move(info);
  // Real NICs reserve memory for all operations that the program asks for.
  rail->info_->tx_attr->size = std::min(rail->info_->tx_attr->size, kMostOperations);
  rail->info_->rx_attr->size = std::min(rail->info_->rx_attr->size, kMostOperations);
  rail->message_bytes_ = std::min(message_bytes, rail->info_->ep_attr->max_msg_size);
  WEFT_TRY(rail->open_objects(peers, ordered_writes));
  WEFT_TRY(rail->make_pools(pool_bytes));
  WEFT_TRY(rail->post_unposted());
  return rail;
}

RegistrationDomain Rail::registration_domain() const {
  const fi_domain_attr& domain = *info_->domain_attr;
  return {domain_.get(), domain.mr_mode & FI_MR_ENDPOINT ? endpoint_.get() : nullptr,
          (domain.mr_mode & FI_MR_PROV_KEY) != 0, domain.mr_key_size};
}

Status Rail::open_objects(int peers, bool ordered_writes) {
  fid_fabric* fabric = nullptr;
  if (int error = library().fabric(info_->fabric_attr, &fabric, nullptr))
    return failed("fi_fabric", *info_, error);
  fabric_.reset(fabric);
  fid_domain* domain = nullptr;
  if (int error = fi_domain(fabric, info_.get(), &domain, nullptr)) return failed("fi_domain", *info_, error);
  domain_.reset(domain);
  fi_av_attr attributes{};
  attributes.type = FI_AV_UNSPEC;
  attributes.count = static_cast<size_t>(peers);
  fid_av* addresses = nullptr;
  if (int error = fi_av_open(domain, &attributes, &addresses, nullptr))
    return failed("fi_av_open", *info_, error);
  addresses_.reset(addresses);
  WEFT_TRY(open_queue());
  return open_endpoint(ordered_writes);
}

Status Rail::open_queue() {
  fi_cq_attr attributes{};
  attributes.size = info_->tx_attr->size + info_->rx_attr->size + kRoomForRemoteWrites;
  attributes.format = FI_CQ_FORMAT_DATA;
  attributes.wait_obj = FI_WAIT_FD;
  fid_cq* queue = nullptr;
  int error = fi_cq_open(domain_.get(), &attributes, &queue, nullptr);
  if (error) {
    attributes.wait_obj = FI_WAIT_NONE;
    error = fi_cq_open(domain_.get(), &attributes, &queue, nullptr);
  }
  if (error) return failed("fi_cq_open", *info_, error);
  queue_.reset(queue);
  if (attributes.wait_obj == FI_WAIT_FD && fi_control(&queue->fid, FI_GETWAIT, &descriptor_) != 0)
    descriptor_ = -1;
  return {};
}

Status Rail::open_endpoint(bool ordered_writes) {
  fid_ep* endpoint = nullptr;
  if (int error = fi_endpoint(domain_.get(), info_.get(), &endpoint, nullptr))
    return failed("fi_endpoint", *info_, error);
  endpoint_.reset(endpoint);
  int error = info_->caps & FI_HMEM ? forbid_copies_by_cuda(endpoint) : 0;
  if (error) return failed("reaching GPU memory without copies (FI_OPT_FI_HMEM_P2P)", *info_, error);
  in_order_ = ordered_writes ? ask_for_ordered_writes(endpoint)
                             : fail(Code::unsupported, "libfabric was not asked for it");
  error = fi_ep_bind(endpoint, &addresses_->fid, 0);
  if (error == 0) error = fi_ep_bind(endpoint, &queue_->fid, FI_TRANSMIT | FI_RECV);
  if (error == 0) error = fi_enable(endpoint);
  if (error) return failed("enabling the endpoint", *info_, error);
  size_t bytes = 256;
  do {
    name_.resize(bytes);
    error = fi_getname(&endpoint->fid, name_.data(), &bytes);
  } while (error == -FI_ETOOSMALL && bytes > name_.size());
  name_.resize(bytes);
  return error ? failed("fi_getname", *info_, error) : Status();
}

Status Rail::make_pools(size_t pool_bytes) {
  const size_t transmits = std::max<size_t>(info_->tx_attr->size, 4),
               receives = std::max<size_t>(info_->rx_attr->size, 4);
  const size_t buffers = std::clamp(pool_bytes / message_bytes_, kFewestBuffers, kMostBuffers);
  send_count_ = std::min(buffers, transmits / 2);
  write_count_ = std::min(transmits - send_count_, kMostBuffers);
  const size_t receive_count = std::min(buffers, receives);

  Result<Mapping> memory = Mapping::make((send_count_ + receive_count) * message_bytes_);
  if (!memory) return memory.status();
  buffers_ = memory.take();
  if (needs_local_registration()) {
    Result<Fid<fid_mr>> region =
        register_memory(registration_domain(), buffers_.data(), buffers_.bytes(), kKeyOfBuffers);
    if (!region) return region.status();
    region_ = region.take();
  }

  operations_.resize(send_count_ + write_count_ + receive_count);
  std::byte* buffer = buffers_.data();
  for (size_t i = 0; i < operations_.size(); ++i) {
    Operation& operation = operations_[i];
    const bool write = i >= send_count_ && i < send_count_ + write_count_;
    operation.kind = write             ? Operation::Kind::write
                     : i < send_count_ ? Operation::Kind::send
                                       : Operation::Kind::receive;
    if (!write) operation.buffer = std::exchange(buffer, buffer + message_bytes_);
    (write ? writes_ : i < send_count_ ? sends_ : unposted_).push_back(&operation);
  }
  return {};
}

Result<fi_addr_t> Rail::insert(std::span<const std::byte> name) {
  fi_addr_t address = FI_ADDR_UNSPEC;
  const int inserted = fi_av_insert(addresses_.get(), name.data(), 1, &address, 0, nullptr);
  if (inserted != 1) return failed("fi_av_insert", *info_, inserted < 0 ? inserted : -FI_EINVAL);
  return address;
}

Operation* Rail::take_send() {
  if (sends_.empty()) return nullptr;
  Operation* send = sends_.back();
  sends_.pop_back();
  return send;
}

Result<Progress> Rail::post_send(Operation* send, int peer, fi_addr_t to, size_t bytes) {
  send->peer = peer;
  void* descriptor = region_ ? fi_mr_desc(region_.get()) : nullptr;
  const ssize_t outcome = fi_send(endpoint_.get(), send->buffer, bytes, descriptor, to, &send->context);
  if (outcome != 0) give_back(send);
  return progress_of(outcome, "fi_send", *info_);
}

Result<Progress> Rail::post_write(const Write& write) {
  if (writes_.empty()) return Progress::busy;
  Operation* operation = writes_.back();
  operation->peer = write.peer;
  operation->put = write.put;
  const ssize_t outcome =
      fi_writedata(endpoint_.get(), write.source, write.bytes, write.descriptor, write.immediate, write.to,
                   write.address, write.key, &operation->context);
  if (outcome == 0) writes_.pop_back();
  return progress_of(outcome, "fi_writedata", *info_);
}

Status Rail::post_receive(Operation* receive) {
  unposted_.push_back(receive);
  return post_unposted();
}

Status Rail::post_unposted() {
  void* descriptor = region_ ? fi_mr_desc(region_.get()) : nullptr;
  while (!unposted_.empty()) {
    Operation* receive = unposted_.back();
    const ssize_t outcome = fi_recv(endpoint_.get(), receive->buffer, message_bytes_, descriptor,
                                    FI_ADDR_UNSPEC, &receive->context);
    if (outcome == -FI_EAGAIN) return {};
    if (outcome != 0) return failed("fi_recv", *info_, outcome);
    unposted_.pop_back();
  }
  return {};
}

Result<int> Rail::reap(std::vector<Event>& events) {
  if (!unposted_.empty()) WEFT_TRY(post_unposted());
  fi_cq_data_entry entries[16];
  int reaped = 0;
  while (reaped < kEntriesPerReap) {
    const ssize_t count = fi_cq_read(queue_.get(), entries, std::size(entries));
    if (count == -FI_EAGAIN || count == -FI_EINTR || count == 0) break;
    if (count == -FI_EAVAIL) {
      events.push_back(failure());
      ++reaped;
      continue;
    }
    if (count < 0) return failed("fi_cq_read", *info_, count);
    for (ssize_t i = 0; i < count; ++i) events.push_back(event_of(entries[i]));
    reaped += static_cast<int>(count);
    if (count < static_cast<ssize_t>(std::size(entries))) break;
  }
  if (reaped > 0 && !descriptor_stuck()) false_alarms_ = 0;
  return reaped;
}

Event Rail::event_of(const fi_cq_data_entry& entry) {
  if (is_from_peer(entry.flags))
    return {.kind = Event::Kind::remotely_written, .immediate = static_cast<uint32_t>(entry.data)};
  auto* operation = static_cast<Operation*>(entry.op_context);
  switch (operation->kind) {
    case Operation::Kind::receive:
      return {.kind = Event::Kind::received, .bytes = entry.len, .operation = operation};
    case Operation::Kind::send:
      sends_.push_back(operation);
      return {.kind = Event::Kind::sent, .number = operation->number};
    case Operation::Kind::write: break;
  }
  writes_.push_back(operation);
  return {.kind = Event::Kind::wrote, .peer = operation->peer, .put = operation->put};
}

Event Rail::failure() {
  char err_data[256] = {};
  fi_cq_err_entry entry{};
  entry.err_data = err_data;
  entry.err_data_size = sizeof(err_data);
  if (fi_cq_readerr(queue_.get(), &entry, 0) < 0) return {.kind = Event::Kind::failed};
  char detail[128] = {};
  const char* text = fi_cq_strerror(queue_.get(), entry.prov_errno, entry.err_data, detail, sizeof(detail));
  Event event{.kind = Event::Kind::failed,
              .why = fail(Code::remote_error, "libfabric {} ({}): {} ({}){}", info_->fabric_attr->prov_name,
                          info_->domain_attr->name, library().strerror(entry.err), text ? text : detail,
                          entry.err == EFAULT ? ": a buffer was freed or unmapped while it was in use" : "")};
  auto* operation = static_cast<Operation*>(entry.op_context);
  if (is_from_peer(entry.flags)) {
    event.kind = Event::Kind::cut_off;
    event.immediate = static_cast<uint32_t>(entry.data);
  }
  if (!operation || is_from_peer(entry.flags)) return event;
  switch (operation->kind) {
    case Operation::Kind::receive: unposted_.push_back(operation); break;
    case Operation::Kind::send:
      sends_.push_back(operation);
      event.peer = operation->may_fail ? -1 : operation->peer;
      event.number = operation->number;
      break;
    case Operation::Kind::write:
      writes_.push_back(operation);
      event.peer = operation->peer;
      event.put = operation->put;
      break;
  }
  return event;
}

bool Rail::may_sleep() {
  if (descriptor_ < 0) return true;
  fid* queue = &queue_->fid;
  if (fi_trywait(fabric_.get(), &queue, 1) != FI_SUCCESS) return false;
  if (descriptor_stuck()) return true;
  pollfd ready{.fd = descriptor_, .events = POLLIN, .revents = 0};
  if (poll(&ready, 1, 0) <= 0) return true;
  ++false_alarms_;  // unless reap() finds something now
  return descriptor_stuck();
}

}  // namespace weft::transport::ofi
