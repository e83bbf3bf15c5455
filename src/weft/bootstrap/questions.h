// Questions: asking ranks what they have started, and answering. Neighbours are asked over their links; to
// others a connection is opened at the first question and kept.
//
// Thread safety: an Inquiry is shared with the thread that waits for it; Questions itself is the agent's
// thread's only.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/connection.h"

namespace weft::bootstrap {

/// One call of ask(): its answers, as they come.
class Inquiry {
 public:
  explicit Inquiry(size_t ranks) : answers_(ranks), settled_(ranks), open_(ranks) {}
  /// Once for each slot; no answer means that none will come.
  void settle(size_t slot, std::optional<OpReport> answer);
  /// Waits until all slots are settled or the deadline has passed.
  std::vector<std::optional<OpReport>> wait(Deadline deadline);

 private:
  Mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<std::optional<OpReport>> answers_ WEFT_GUARDED_BY(mutex_);
  std::vector<bool> settled_ WEFT_GUARDED_BY(mutex_);
  size_t open_ WEFT_GUARDED_BY(mutex_);
};

class Questions {
 public:
  struct Ways {
    std::function<std::shared_ptr<Connection>(int rank)> link_to;  // null where there is no link
    std::function<SocketAddress(int rank)> address_of;
    std::function<bool(int rank)> gone;
    std::function<OpReport(int from, uint32_t comm, uint32_t op)> answer;  // for this rank
  };
  Questions(EventLoop& loop, const Job& job, int rank, Ways ways)
      : loop_(loop), job_(job), rank_(rank), ways_(std::move(ways)) {}

  void ask(std::span<const int> ranks, uint32_t comm, uint32_t op, Deadline deadline,
           std::shared_ptr<Inquiry> inquiry);
  /// A rank that is no neighbour wants to ask over this connection.
  void welcome(UniqueFd connection);
  /// Answers a question, or files an answer, that came over `way`.
  void on_frame(const std::shared_ptr<Connection>& way, const Frame& frame);
  /// No answers will come from this rank any more.
  void give_up(int rank);
  void close();

 private:
  struct Pending {
    int rank;
    size_t slot;
    Deadline deadline;
    std::shared_ptr<Inquiry> inquiry;
  };

  std::shared_ptr<Connection> way_to(int rank, Deadline deadline);
  void drop_overdue();

  EventLoop& loop_;
  const Job job_;
  const int rank_;
  const Ways ways_;
  uint64_t last_number_ = 0;
  std::map<uint64_t, Pending> pending_;
  std::map<int, std::shared_ptr<Connection>> opened_;          // by rank asked
  std::map<Connection*, std::shared_ptr<Connection>> asking_;  // others' connections to us
};

}  // namespace weft::bootstrap
