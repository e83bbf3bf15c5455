// The list of families, and what is asked of a family by its name.
#include "model/families.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/round.h"
#include "model/families/family.h"
#include "model/objectives/objective.h"

namespace loom::model {
namespace {

constexpr std::array kFamilies = {&kGpt2,    &kGptJ,  &kGptNeoX, &kGptNeo, &kBloom,  &kLlama,
                                  &kMistral, &kQwen2, &kQwen3,   &kBert,   &kRoberta};

}  // namespace

std::span<const FamilyDescription* const> descriptions() { return kFamilies; }

const FamilyDescription& description_of(Family family) {
  return **std::find_if(kFamilies.begin(), kFamilies.end(),
                        [&](const FamilyDescription* one) { return one->family == family; });
}

const char* family_name(Family family) { return description_of(family).name; }

std::string families_that(const char* last, bool (*has)(const FamilyDescription& family)) {
  std::vector<std::string> names;
  for (const FamilyDescription* one : kFamilies)
    if (has(*one)) names.push_back(one->name);
  const std::string final = names.back();
  names.pop_back();
  return fmt::format("{} {} {}", fmt::join(names, ", "), last, final);
}

Result<Family> family_from(std::string_view name) {
  for (const FamilyDescription* one : kFamilies)
    if (name == one->name) return one->family;
  return fail(Code::unsupported, "the family \"{}\" is unknown, must be {}", name,
              families_that("or", [](const FamilyDescription&) { return true; }));
}

Task usual_task(Family family) {
  return (*std::ranges::find(objectives(), std::optional(description_of(family).reads),
                             [](const Objective* one) { return one->usual_of; }))
      ->task;
}

Result<ModelSpec> choices_of(Family family, Task task) {
  const FamilyDescription& own = description_of(family);
  LOOM_TRY(objective_of(task).check_family(own));
  ModelSpec spec;
  spec.family = family;
  spec.task = task;
  if (objective_of(task).predicts_classes) spec.tied = false;
  if (own.choose != nullptr) own.choose(spec);
  return spec;
}

void complete(ModelSpec& spec) {
  if (description_of(spec.family).complete != nullptr) description_of(spec.family).complete(spec);
  if (spec.feed_forward == 0 && spec.width <= kMostWidth)
    spec.feed_forward = spec.gated ? round_up(ceil_div(8 * spec.width, int64_t{3}), 256) : 4 * spec.width;
  if (spec.rotary() && spec.rotary_dims == 0 && spec.heads > 0)
    spec.rotary_dims = std::max<int64_t>(2, spec.attention().head_size / 8 * 2);
}

}  // namespace loom::model
