// How a group's communicators come to be: over connections that the process has, or by a rendezvous through
// torch's store.
#ifndef WEFT_TORCH_MEMBERSHIP_H_
#define WEFT_TORCH_MEMBERSHIP_H_

#include <weft/weft.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace weft_torch {

// Lends the connections of a group's communicators to groups of some of its ranks. Nothing is sent, and no
// socket is opened (weftCommCreateGroup).
//
// Thread safety: any thread may call every function. After close() nothing is lent.
class Lender {
 public:
  Lender(int rank, int size) : rank_(rank), size_(size) {}
  // New groups of a process borrow from its default group. Ranks may be threads of one process, so `rank`
  // tells which default group that is. Null if there is none.
  static std::shared_ptr<Lender> of_the_process(int rank);
  static void set_of_the_process(const std::shared_ptr<Lender>& lender);
  int size() const { return size_; }
  // A name that no other group of these ranks has: with how many there have been of it. The ranks of a group
  // ask in the same order.
  std::string numbered(const std::string& name);

  // The communicator on host memory, or on a device. On a device only one that every rank is sure to have
  // when a group of some ranks is made: it was connected before the group was used.
  void lend(weftComm_t comm, int device);
  void close();

  // A communicator of the ranks `ranks` of the lender's group; null if it has none to lend. All these ranks
  // must call with the same name, groups of one name in the same order. Throws what Weft refuses.
  weftComm_t make(const std::vector<int>& ranks, const std::string& name, const weftConfig_t& config);

 private:
  const int rank_, size_;
  std::mutex mutex_;  // guards what follows
  weftComm_t host_ = nullptr;
  weftComm_t on_device_ = nullptr;
  std::map<std::string, uint64_t> made_;  // how many groups there have been, by name and ranks
};

// One rank's place in a group, and the ways to the others.
struct Membership {
  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0;
  int size = 1;
  std::string name;
  std::shared_ptr<Lender> lender;  // may be null
  std::vector<int> ranks;          // of this group, as the lender counts them
};

// The communicator of the group for memory of a device (WEFT_DEVICE_HOST: of the host). Over the lender's
// connections if it has such a communicator; else the ranks meet through the store, which holds nothing of it
// afterwards. Waits `timeout` for ranks to come, or until another thread sets `*cancelled` (null: none does)
// or a handler of signals in Python raises an exception. Throws that, or DistBackendError.
weftComm_t make_communicator(const Membership& group, std::chrono::milliseconds timeout, int device,
                             const std::atomic<bool>* cancelled = nullptr);

}  // namespace weft_torch

#endif  // WEFT_TORCH_MEMBERSHIP_H_
