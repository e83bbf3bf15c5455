// Rail: one NIC as this transport uses it. It has a domain with an endpoint, a completion queue, an address
// vector, and the pools of buffers and contexts that operations need. It posts operations and reports their
// completions. It knows nothing of envelopes or puts.
//
// Invariants: an Operation is in its pool, or owned by libfabric, or by the caller that took it. Without
// room, posting returns `busy`, and the operation goes back to its pool; nothing here waits. Destroying a
// rail closes the endpoint first, so that nothing touches a buffer afterwards.
//
// Thread safety: none; as the transport's.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "transport/ofi_providers.h"
#include "transport/ofi_registration.h"
#include "transport/transport.h"

namespace weft::transport::ofi {

struct OutgoingPut;

/// A context that libfabric hands back when the operation is over.
struct Operation {
  enum class Kind : uint8_t { receive, send, write };

  fi_context2 context{};  // first: a completion's op_context points here
  Kind kind = Kind::receive;
  int peer = -1;
  std::byte* buffer = nullptr;  // of receive and send
  uint64_t number = 0;          // of send: the owner's
  bool may_fail = false;        // of send: its peer is not lost then
  OutgoingPut* put = nullptr;   // of write
};

/// An entry of a completion queue. A send that succeeds makes none.
struct Event {
  enum class Kind : uint8_t {
    received,          // `operation` holds `bytes`; give it back with post_receive()
    remotely_written,  // a peer's write with `immediate` is in our memory
    sent,
    wrote,    // of `put`
    failed,   // towards `peer`, -1 if that matters to nobody, for the reason `why`; of `put` if that is not
              // null, of a send if `number` is not 0
    cut_off,  // a peer's write with `immediate`, for the reason `why`
  };
  Kind kind = Kind::received;
  int peer = -1;
  uint32_t immediate = 0;
  uint64_t number = 0;  // of a send, also of one that failed
  size_t bytes = 0;
  Operation* operation = nullptr;
  OutgoingPut* put = nullptr;
  Status why{};
};

/// Anonymous memory of whole pages.
class Mapping {
 public:
  Mapping() = default;
  static Result<Mapping> make(size_t bytes);
  Mapping(Mapping&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)), bytes_(other.bytes_) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(memory_, other.memory_), std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping();
  std::byte* data() const { return memory_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* memory_ = nullptr;
  size_t bytes_ = 0;
};

class Rail {
 public:
  /// Makes room for `peers` at first; more may come. `message_bytes` is the size of a message's buffer, cut
  /// to the longest message of the endpoint. `ordered_writes`: asks the network for ordered writes
  /// (ofi_write_order.h).
  static Result<std::unique_ptr<Rail>> open(Info info, int peers, size_t message_bytes, size_t pool_bytes,
                                            bool ordered_writes = false);
  ~Rail();
  Rail(const Rail&) = delete;
  Rail& operator=(const Rail&) = delete;

  const fi_info& info() const { return *info_; }
  std::span<const std::byte> name() const { return name_; }  // what peers insert
  size_t message_bytes() const { return message_bytes_; }
  size_t longest_write() const { return info_->ep_attr->max_msg_size; }
  bool needs_local_registration() const { return info_->domain_attr->mr_mode & FI_MR_LOCAL; }
  bool virtual_addresses() const { return info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR; }
  RegistrationDomain registration_domain() const;
  /// Whether the endpoint takes in a write after what its sender had sent before it. EFA promises no such
  /// order.
  bool writes_follow_sends() const { return info_->rx_attr->msg_order & FI_ORDER_WAS; }
  /// Whether peers' writes show each aligned 128 bytes in order, or why not.
  const Status& writes_in_order() const { return in_order_; }
  /// Stops everything: the NIC touches no memory afterwards. Callers post nothing any more.
  void close_endpoint() { endpoint_.reset(); }
  bool idle() const { return sends_.size() == send_count_ && writes_.size() == write_count_; }

  Result<fi_addr_t> insert(std::span<const std::byte> name);

  /// A send buffer, or null if all are under way.
  Operation* take_send();
  void give_back(Operation* send) { sends_.push_back(send); }
  Result<Progress> post_send(Operation* send, int peer, fi_addr_t to, size_t bytes);

  struct Write {
    OutgoingPut* put = nullptr;
    int peer = -1;
    fi_addr_t to = FI_ADDR_UNSPEC;
    const void* source = nullptr;
    size_t bytes = 0;
    void* descriptor = nullptr;
    uint64_t address = 0;  // as the target's provider counts
    uint64_t key = 0;
    uint32_t immediate = 0;
  };
  Result<Progress> post_write(const Write& write);

  /// Makes a buffer available to peers (again). Without room, a later call or reap() posts it.
  Status post_receive(Operation* receive);

  /// Appends the completions, in no order. Returns their number.
  Result<int> reap(std::vector<Event>& events);

  /// The completion queue's descriptor, or -1.
  int descriptor() const { return descriptor_; }
  /// Whether a thread may sleep on the descriptor: false if something is there.
  bool may_sleep();
  /// Whether the descriptor stays readable while nothing happens.
  bool descriptor_stuck() const { return false_alarms_ >= kFalseAlarms; }
  bool waits_for_room() const { return !unposted_.empty(); }

 private:
  Rail() = default;
  Status open_objects(int peers, bool ordered_writes);
  Status open_queue();
  Status open_endpoint(bool ordered_writes);
  Status make_pools(size_t pool_bytes);
  Status post_unposted();
  Event event_of(const fi_cq_data_entry& entry);
  Event failure();

  Info info_;
  size_t message_bytes_ = 0;
  size_t send_count_ = 0;
  size_t write_count_ = 0;
  Status in_order_;
  int descriptor_ = -1;
  int false_alarms_ = 0;  // consecutive ones
  static constexpr int kFalseAlarms = 3;
  std::vector<std::byte> name_;
  std::vector<Operation> operations_;
  std::vector<Operation*> sends_, writes_;  // free ones
  std::vector<Operation*> unposted_;        // receives that found no room
  // Destroyed from the last to the first: the endpoint before the objects that it uses, the memory after all
  // others.
  Mapping buffers_;
  Fid<fid_fabric> fabric_;
  Fid<fid_domain> domain_;
  Fid<fid_av> addresses_;
  Fid<fid_cq> queue_;
  Fid<fid_mr> region_;  // of the buffers, if the provider asks for it
  Fid<fid_ep> endpoint_;
};

}  // namespace weft::transport::ofi
