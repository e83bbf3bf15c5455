#include "plan/verify.h"

#include "plan/uneven.h"
#include "plan/verify_world.h"

namespace weft::plan {
namespace {

Status verify_world(verifier::World& world) {
  WEFT_TRY(world.check_structure());
  verifier::Timeline timeline;
  WEFT_TRY(order_events(world, timeline));
  WEFT_TRY(check_exposures(world, timeline));
  WEFT_TRY(check_races(world, timeline));
  return check_result(world, timeline);
}

}  // namespace

Status verify(std::span<const Plan> plans, const topology::Layout& layout, const Limits& limits,
              bool in_place) {
  if (plans.empty() || static_cast<int>(plans.size()) != layout.ranks()) {
    return fail(Code::invalid_argument, "{} plans for {}", plans.size(), layout.to_string());
  }
  std::vector<const Plan*> pointers;
  for (const Plan& plan : plans) {
    if (!plan.request.uneven && plan.request != plans[0].request) {
      return fail(Code::mismatch, "rank {}'s plan is for another request than rank 0's", plan.rank);
    }
    pointers.push_back(&plan);
  }
  for (size_t a = 0; plans[0].request.uneven && a < plans.size(); ++a)
    for (size_t b = 0; b < plans.size(); ++b)
      WEFT_TRY(check_uneven(plans[a].request, static_cast<int>(a), plans[b].request, static_cast<int>(b)));
  const Collective collective = plans[0].request.collective;
  if (is_transfer(collective)) {
    return fail(Code::invalid_argument, "{} is verified with the plan that it meets", name_of(collective));
  }
  verifier::World world(std::move(pointers), layout, limits, in_place);
  return verify_world(world);
}

Status verify_pair(const Plan& send, const Plan& recv, const topology::Layout& layout, const Limits& limits) {
  Request expected = send.request;
  expected.collective = Collective::recv;
  expected.root = send.rank;
  if (send.request.collective != Collective::send || send.request.root != recv.rank ||
      recv.request != expected || send.rank == recv.rank) {
    return fail(Code::mismatch, "rank {}'s {} to rank {} does not meet rank {}'s {} from rank {}", send.rank,
                name_of(send.request.collective), send.request.root, recv.rank,
                name_of(recv.request.collective), recv.request.root);
  }
  std::vector<const Plan*> pointers(static_cast<size_t>(layout.ranks()), nullptr);
  for (const Plan* plan : {&send, &recv}) {
    if (plan->rank < 0 || plan->rank >= layout.ranks()) {
      return fail(Code::invalid_argument, "a plan of rank {} for {}", plan->rank, layout.to_string());
    }
    pointers[plan->rank] = plan;
  }
  verifier::World world(std::move(pointers), layout, limits, false);
  return verify_world(world);
}

}  // namespace weft::plan
