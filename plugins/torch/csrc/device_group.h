// The device half of a group: its communicators on an accelerator, its streams, and the operations that are
// in flight on them. It uses what torch gives all accelerators: c10::Stream, c10::Event, VirtualGuardImpl. It
// includes no header of CUDA, so a build beside torch's CPU wheel serves the CUDA wheel of that version. Weft
// takes a stream's native handle.
//
// Weft does the operation in the stream: after what is in it, before what follows. An asynchronous operation
// is on a stream of the group that waits for the current one, a synchronous one on the current stream.
#ifndef WEFT_TORCH_DEVICE_GROUP_H_
#define WEFT_TORCH_DEVICE_GROUP_H_

#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "device_work.h"
#include "membership.h"
#include "operation.h"

namespace weft_torch {

using DeviceWorkPtr = c10::intrusive_ptr<DeviceWork>;

// Thread safety: any thread may call every function; threads agree on the order of their operations, as Weft
// says. end() is the last call.
class DeviceGroup {
 public:
  // `group` outlives it.
  DeviceGroup(at::DeviceType type, const Membership& group, std::chrono::milliseconds timeout);

  at::DeviceType type() const { return impl_.type(); }
  std::optional<c10::Device> device() const;

  // Makes the communicator now, as all ranks do, so that groups of some ranks can borrow from `lender`.
  void connect_now(c10::Device device, Lender& lender);
  // The group's communicator. The first call is a collective, which meets through the store, unless
  // connect_now() came before. Throws ValueError if the group is on another device of this rank, and
  // DistBackendError after end().
  std::shared_ptr<DeviceComm> communicator(c10::Device device, const char* what);
  // For messages that are no part of coalesced calls: without connect_now() a communicator of the two ranks,
  // since the others may have nothing to do. `*peer_in_it` is what it calls the peer.
  std::shared_ptr<DeviceComm> communicator_with(c10::Device device, int peer, const char* what,
                                                int* peer_in_it);

  // Puts operations on one stream together. `works` are theirs, and may have one of all of them. Throws
  // ValueError unless all are on one device.
  void issue(std::vector<Operation> operations, const std::vector<DeviceWorkPtr>& works, bool async);

  // Blocks until this rank's collectives are complete, and what is in the current stream.
  void synchronize();
  bool any_in_flight();
  weftResult_t result();
  void set_timeout(std::chrono::milliseconds timeout);
  // A group that shrinks keeps its communicator: null if it was not made by connect_now().
  std::shared_ptr<DeviceComm> connected() const;
  void take(c10::Device device, weftComm_t comm, Lender& lender);
  void end(const char* reason_to_abort);

 private:
  struct Queue {
    c10::Stream stream;
    std::deque<std::shared_ptr<InFlight>> in_flight;  // what may be
  };

  // A communicator, which one thread makes without mutex_, since ranks may come late.
  struct Slot {
    bool being_made = false;
    std::shared_ptr<DeviceComm> comm;  // null until it is made
  };

  void use(c10::Device device, const char* what);  // holding mutex_
  // Makes it unless it is there, or waits for the thread that does. `lock` holds mutex_, also afterwards.
  std::shared_ptr<DeviceComm> made(std::unique_lock<std::mutex>& lock, Slot& slot, const Membership& group);
  Queue& queue(const QueueKey& key);  // holding mutex_
  // Lets go of operations that are over.
  void sweep();
  // Those that are made.
  std::vector<std::shared_ptr<DeviceComm>> all() const;

  const c10::impl::VirtualGuardImpl impl_;
  const Membership& group_;
  mutable std::mutex mutex_;  // guards what follows
  std::chrono::milliseconds timeout_;
  std::optional<c10::Device> device_;
  bool connected_at_once_ = false;
  std::atomic<bool> ended_{false};
  const char* reason_to_abort_ = nullptr;  // what end() was given
  Slot comm_;
  std::map<int, Slot> pairs_;  // by the peer's rank
  std::map<QueueKey, Queue> queues_;
  std::condition_variable made_;  // a Slot is not being made any more
};

}  // namespace weft_torch

#endif  // WEFT_TORCH_DEVICE_GROUP_H_
