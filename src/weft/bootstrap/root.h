// The root of a job: registers its ranks, and answers them. It lives on the agent of the process that made
// the unique id, until all ranks have registered and know their parent in the tree, or until its deadline.
// That is the earliest of the ranks that have come; before the first one comes it is what serve() says.
//
// If connections were refused, the error of a waiting rank says how many, and why the last one was. A rank
// with another secret is refused before it says its number, so no error names it. A secret that is derived
// depends on the number of ranks (launch.cc): a rank that states another number has another secret.
//
// It refuses
// * ranks that disagree on the size of the job; all are told, since that job cannot meet
// * a rank that comes twice, and a rank out of range
// * all ranks, once a registered rank has gone or one rank's deadline has passed
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/acceptor.h"
#include "bootstrap/agent.h"

namespace weft::bootstrap {

/// Of a job. More cannot be a number of ranks, and nothing is reserved for them.
inline constexpr int kMostRanks = 1 << 20;

/// "0, 3-5, 9"; what is beyond `most` ranges is counted.
std::string rank_list(const std::vector<int>& ranks, size_t most = 16);

class Root : public std::enable_shared_from_this<Root> {
 public:
  /// Starts serving `listener`. After a failure the reason is told to late comers for `linger_s`.
  static Status serve(UniqueFd listener, const Job& job, Deadline deadline, double linger_s);

 private:
  struct Registration {
    UniqueFd connection;
    EventLoop::Id watch = 0;
    std::string address;
  };

  Root(AgentUse agent, double linger_s) : agent_(std::move(agent)), linger_s_(linger_s) {}
  void begin(UniqueFd listener, const Job& job, Deadline deadline);
  void welcome(AuthenticatedPeer peer);
  Status check(uint32_t rank, uint32_t ranks) const;
  void watch(int rank, Registration& registration);
  void expect_by(Deadline deadline);
  void release_all();
  void refuse_all(const Status& why);
  void end_after(double seconds);
  void note_refusal(int fd, const std::string& why);
  Status missing() const;

  AgentUse agent_;
  const double linger_s_;
  std::unique_ptr<Acceptor> acceptor_;
  EventLoop::Id timer_ = 0;  // holds this
  Deadline deadline_ = Deadline::never();
  int ranks_ = 0, first_rank_ = -1;  // of the first that came
  std::map<int, Registration> registered_;
  bool met_ = false;
  size_t refused_ = 0;        // connections
  std::string last_refusal_;  // "10.0.0.3: it gave another secret …"
  Status failure_;
};

}  // namespace weft::bootstrap
