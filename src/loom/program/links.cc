#include "program/links.h"

#include <algorithm>

namespace loom::program {

double& Links::asked(int link) {
  if (static_cast<size_t>(link) >= asked_.size()) asked_.resize(static_cast<size_t>(link) + 1, 0);
  return asked_[static_cast<size_t>(link)];
}

int Links::add(double now, int queue, double latency_us, double work_us, int link, int second_link,
               double share) {
  const int number = static_cast<int>(flows_.size());
  flows_.push_back({.queue = queue,
                    .links = {link, second_link},
                    .latency_us = latency_us,
                    .work_us = work_us,
                    .share = share});
  std::deque<int>& waiting = queues_[queue];
  waiting.push_back(number);
  if (waiting.size() == 1) start(now, number);
  return number;
}

void Links::start(double now, int number) {
  Flow& flow = flows_[static_cast<size_t>(number)];
  flow.begin_us = now;
  flow.end_us = now + flow.latency_us;
  in_flight_.push_back(number);
}

double Links::next_us() const {
  double next = kNever;
  for (const int number : in_flight_) next = std::min(next, end_us(number));
  return next;
}

void Links::share_again(double now, const int (&links)[2]) {
  for (const int number : in_flight_) {
    Flow& flow = flows_[static_cast<size_t>(number)];
    if (!flow.working) continue;
    bool concerned = false;
    double most = 1;
    for (const int link : flow.links) {
      if (link == kNone) continue;
      concerned |= link == links[0] || link == links[1];
      most = std::max(most, asked(link));
    }
    if (!concerned || flow.slowness == most) continue;
    flow.work_us = std::max(0.0, flow.work_us - (now - flow.since_us) / flow.slowness);
    flow.since_us = now;
    flow.slowness = most;
    flow.end_us = now + flow.work_us * most;
  }
}

void Links::join(double now, Flow& flow) {
  flow.working = true;
  flow.since_us = now;
  flow.end_us = now + flow.work_us;
  for (const int link : flow.links)
    if (link != kNone) asked(link) += flow.share;
  share_again(now, flow.links);
}

void Links::leave(double now, Flow& flow) {
  flow.working = false;
  for (const int link : flow.links)
    if (link != kNone) asked(link) -= flow.share;
  share_again(now, flow.links);
}

std::vector<int> Links::advance() {
  const double now = next_us();
  std::vector<int> due, over;
  for (const int number : in_flight_)
    if (end_us(number) <= now) due.push_back(number);
  for (const int number : due) {
    Flow& flow = flows_[static_cast<size_t>(number)];
    if (flow.working || flow.work_us == 0) {
      over.push_back(number);
      if (flow.working) leave(now, flow);
      in_flight_.erase(std::find(in_flight_.begin(), in_flight_.end(), number));
      std::deque<int>& waiting = queues_[flow.queue];
      waiting.pop_front();
      if (!waiting.empty()) start(now, waiting.front());
    } else {
      join(now, flow);
    }
  }
  std::sort(over.begin(), over.end());
  return over;
}

}  // namespace loom::program
