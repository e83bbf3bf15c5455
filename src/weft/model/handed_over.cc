#include "model/handed_over.h"

#include <algorithm>
#include <vector>

namespace weft::model {

HandedOver handed_over(const plan::Plan& plan, const topology::Layout& layout) {
  struct Extent {
    int rank;
    plan::Space space;
    uint64_t begin, end;
    uint64_t touched;  // bytes, each as often as it is
  };
  std::vector<Extent> extents;
  const auto touch = [&](const plan::Region& region, uint64_t bytes) {
    if (region.rank == plan.rank || !layout.same_node(plan.rank, region.rank)) return;
    const auto known = std::find_if(extents.begin(), extents.end(), [&](const Extent& extent) {
      return extent.rank == region.rank && extent.space == region.space;
    });
    if (known == extents.end()) {
      extents.push_back({region.rank, region.space, region.offset, region.offset + bytes, bytes});
    } else {
      known->begin = std::min(known->begin, region.offset);
      known->end = std::max(known->end, region.offset + bytes);
      known->touched += bytes;
    }
  };
  for (const plan::Step& step : plan.steps) {
    if (step.kind == plan::StepKind::put && step.dst.space == plan::Space::scratch)
      touch(step.dst, step.bytes);
    for (const plan::Region& source : plan.sources_of(step)) touch(source, step.bytes);
  }
  HandedOver result;
  for (const Extent& extent : extents) {
    const uint64_t bytes = std::min(extent.end - extent.begin, extent.touched);
    if (extent.space == plan::Space::scratch)
      result.scratch_bytes += extent.touched > bytes ? bytes / HandedOver::kTakenSooner : bytes;
    else if (extent.space == plan::Space::output) result.output_bytes += bytes;
  }
  return result;
}

}  // namespace weft::model
