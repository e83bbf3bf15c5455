#include "engine/run/plan_cache.h"

#include <utility>

#include "base/log.h"
#include "base/settings.h"
#include "engine/context/fabric.h"
#include "model/estimate.h"
#include "plan/uneven.h"

namespace weft::engine {
namespace {

// Plans are kept until their steps together would take about 64 MiB.
constexpr size_t kKeptSteps = 512 << 10;

}  // namespace

PlanCache::PlanCache(const Fabric& fabric, const Membership& members, bool strict)
    : layout_(members.layout()), rank_(members.rank()), strict_(strict) {
  limits_.eager_intra_bytes = fabric.eager_intra_bytes();
  limits_.eager_inter_bytes = fabric.eager_inter_bytes();
  pins_ = *model::parse_pins(settings().algo);
  pins_.slice_bytes = static_cast<uint64_t>(settings().slice_bytes);
}

plan::Request PlanCache::request_for(const Call& call) const {
  plan::Request request;
  request.collective = call.collective;
  request.count = call.count;
  request.element_bytes = static_cast<uint32_t>(device::size_of(call.type));
  request.root = call.root;
  request.strict = strict_ && plan::reduces(call.collective);
  request.uneven = call.uneven;
  request.announced = call.purpose == Purpose::put && plan::is_transfer(call.collective);
  request.disjoint = call.collective == plan::Collective::all_to_all &&
                     (call.uneven || !overlap(call.send, call.recv,
                                              request.bytes() * static_cast<uint64_t>(layout_.ranks())));
  return request;
}

size_t PlanCache::KeyHash::operator()(const Key& key) const {
  const plan::Request& r = key.request;
  uint64_t h = r.count * 0x9e3779b97f4a7c15ull;
  h ^= (uint64_t{static_cast<uint8_t>(r.collective)} << 56) ^ (uint64_t{r.element_bytes} << 40) ^
       (uint64_t{r.strict} << 39) ^ (uint64_t{r.disjoint} << 38) ^ (uint64_t{r.announced} << 37) ^
       (uint64_t{static_cast<uint32_t>(r.root)} * 0xff51afd7ed558ccdull) ^
       (uint64_t{static_cast<uint32_t>(key.streak)} << 17);
  return static_cast<size_t>(h ^ (h >> 29));
}

std::shared_ptr<const PlanTables> PlanCache::make_self_copy(Call call) const {
  call.collective = plan::Collective::all_gather;  // both buffers, of the same size
  plan::Builder builder("self", request_for(call), 1, 0);
  builder.copy(0, builder.input(), builder.output(), call.count * device::size_of(call.type));
  return PlanTables::make(builder.finish(), topology::Layout({0}));
}

Result<const std::shared_ptr<const PlanTables>*> PlanCache::find_or_make(const plan::Request& request,
                                                                         int streak,
                                                                         const model::Machine& machine) {
  if (request.uneven) return &make_uneven(request, machine);
  if (last_ && last_key_.streak == streak && last_key_.request == request) return &last_;
  const Key key{request, streak};
  auto found = plans_.find(key);
  if (found == plans_.end()) {
    model::Estimates* const known =
        plan::has_root(request.collective) ? &estimates_[{.request = request}] : nullptr;
    auto choice = model::choose(machine, request, layout_, limits_, pins_, streak, known);
    if (!choice) return choice.status();
    auto tables = PlanTables::make(choice->algorithm->make(request, layout_, choice->limits, rank_), layout_,
                                   streak, choice->predicted_us);
    if (steps_ + tables->plan.steps.size() > kKeptSteps) clear();
    steps_ += tables->plan.steps.size();
    log::trace("{} of {} bytes: {}", plan::name_of(request.collective), request.bytes(), choice->why);
    found = plans_.emplace(key, std::move(tables)).first;
  }
  last_key_ = key;
  last_ = found->second;
  return &last_;
}

// Counts of AlltoAlls seldom come again, and a plan takes less to make than they take to compare with many.
const std::shared_ptr<const PlanTables>& PlanCache::make_uneven(const plan::Request& request,
                                                                const model::Machine& machine) {
  if (uneven_ && uneven_->plan.request == request) return uneven_;
  plan::Limits limits = model::limits_on(machine, limits_);
  if (pins_.slice_bytes != 0) limits.slice_bytes = pins_.slice_bytes;
  return uneven_ = PlanTables::make(plan::make_uneven(request, layout_, limits, rank_), layout_);
}

void PlanCache::clear() {
  plans_.clear();
  estimates_.clear();
  steps_ = 0;
}

void PlanCache::pin(const model::Pins& pins) {
  const uint64_t slice_bytes = pins_.slice_bytes;
  pins_ = pins;
  pins_.slice_bytes = slice_bytes;
  clear();
  last_.reset();
}

Result<double> PlanCache::predict_us(const plan::Request& request, int streak,
                                     const model::Machine& machine) const {
  auto choice = model::choose(machine, request.uneven ? plan::even_like(request) : request, layout_, limits_,
                              pins_, streak);
  if (!choice) return choice.status();
  return choice->predicted_us;
}

bool PlanCache::can(const plan::Request& request, std::string_view algorithm) const {
  const plan::Algorithm* const found = plan::find_algorithm(request.collective, algorithm);
  return found && found->fits(request, layout_, limits_).ok();
}

Result<model::Choice> PlanCache::choose_on(const model::Machine& machine, const plan::Request& request,
                                           const model::Pins& pins) const {
  return model::choose(machine, request, layout_, limits_, pins);
}

double PlanCache::streak_us_on(const model::Machine& machine, const plan::Request& request,
                               std::string_view algorithm) const {
  const plan::Algorithm* const found = plan::find_algorithm(request.collective, algorithm);
  const Result<model::Estimate> streak =
      model::estimate(*found, request, layout_, machine, limits_, model::Calls::streak);
  return streak.ok() ? streak->us : 0;
}

}  // namespace weft::engine
