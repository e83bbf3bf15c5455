#include "engine/failure/peer_losses.h"

#include <algorithm>

namespace weft::engine {

void PeerLosses::add(Kind kind, int rank, const Status& why, int64_t now_ns, uint64_t events) {
  Grace grace(now_ns);
  (void)grace.over(now_ns, events);
  reports_.push_back({kind, rank, why, grace});
  deaths_ += kind == Kind::death;
}

std::vector<PeerLosses::Report> PeerLosses::due(int64_t now_ns, uint64_t events) {
  std::vector<Report> over;
  bool waits = false;  // an earlier death does
  std::erase_if(reports_, [&](Report& report) {
    const bool death = report.kind == Kind::death;
    if ((death && waits) || !report.grace.over(now_ns, events)) {
      waits |= death;
      return false;
    }
    over.push_back(report);
    if (!death) return false;
    dead_.emplace(report.rank, report.why);
    --deaths_;
    return true;
  });
  std::stable_partition(over.begin(), over.end(), [](const Report& r) { return r.kind == Kind::death; });
  return over;
}

}  // namespace weft::engine
