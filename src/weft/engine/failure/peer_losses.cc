#include "engine/failure/peer_losses.h"

#include <algorithm>

namespace weft::engine {

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
    if (!death) return report.kind == Kind::operation;
    dead_.emplace(report.rank, report.why);
    --deaths_;
    return true;
  });
  std::stable_partition(over.begin(), over.end(), [](const Report& r) { return r.kind == Kind::death; });
  return over;
}

}  // namespace weft::engine
