// Links that flows share: discrete events over a fluid model. A flow is something in flight. During its
// latency it is on no link. Then it has work to do on one or two links, and requests a share of each: all of
// it, less, or several times as much. If a link's requests exceed it, its flows get a proportional part. A
// flow on two links moves at the smaller part. Flows of one queue are carried out one after the other.
//
// Thread safety: none; one simulation's.
#pragma once

#include <cstddef>
#include <deque>
#include <limits>
#include <map>
#include <vector>

namespace loom::program {

class Links {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();
  static constexpr int kNone = -1;

  /// Adds a flow at `now` behind those of its queue. Returns its number: 0, 1, …
  int add(double now, int queue, double latency_us, double work_us, int link, int second_link = kNone,
          double share = 1);

  /// When the next flow begins its work or ends; kNever where none is in flight.
  double next_us() const;
  /// Goes on to next_us(). Returns the flows that end there, by number.
  std::vector<int> advance();

  double begin_us(int flow) const { return flows_[static_cast<size_t>(flow)].begin_us; }
  double end_us(int flow) const { return flows_[static_cast<size_t>(flow)].end_us; }

 private:
  struct Flow {
    int queue;
    int links[2];
    double begin_us = 0;  // of its latency
    double end_us = 0;    // of the latency, while it is on no link; then of all, at its present rate
    double latency_us, work_us;
    double since_us = 0;  // when work_us was what is left
    double slowness = 1;  // microseconds that one of work takes
    double share = 1;
    bool working = false;
  };

  void start(double now, int flow);
  void join(double now, Flow& flow);
  void leave(double now, Flow& flow);
  void share_again(double now, const int (&links)[2]);
  double& asked(int link);

  std::vector<Flow> flows_;
  std::vector<int> in_flight_;
  std::vector<double> asked_;              // of each link, by the flows on it
  std::map<int, std::deque<int>> queues_;  // by number; the first one of each is in flight
};

}  // namespace loom::program
