#include "engine/failure/peer_losses.h"

#include <algorithm>

namespace weft::engine {
namespace {

bool grace_is_over(PeerLosses::Report& report, int64_t now_ns, uint64_t events) {
  if (now_ns < report.look_ns) return false;
  if (now_ns >= report.latest_ns || report.events == events) return true;
  report.events = events;
  report.look_ns = now_ns + PeerLosses::kGraceNs;
  return false;
}

}  // namespace

void PeerLosses::add(Kind kind, int rank, const Status& why, int64_t now_ns, uint64_t events) {
  reports_.push_back({kind, rank, why, now_ns + kGraceNs, now_ns + kLongestGraceNs, events});
  deaths_ += kind == Kind::death;
}

std::vector<PeerLosses::Report> PeerLosses::due(int64_t now_ns, uint64_t events) {
  std::vector<Report> over;
  std::erase_if(reports_, [&](Report& report) {
    if (!grace_is_over(report, now_ns, events)) return false;
    over.push_back(report);
    if (report.kind == Kind::connection) return false;
    dead_.emplace(report.rank, report.why);
    --deaths_;
    return true;
  });
  std::stable_partition(over.begin(), over.end(), [](const Report& r) { return r.kind == Kind::death; });
  return over;
}

}  // namespace weft::engine
