// The list of families, and what is asked of a family by its name.
#include "model/families.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "model/families/family.h"

namespace loom::model {
namespace {

constexpr std::array kFamilies = {&kGpt2, &kGptJ, &kGptNeoX, &kGptNeo, &kBloom, &kBert, &kRoberta};
constexpr std::array kTasks = {Task::causal, Task::masked, Task::classification};

/// "gpt2, bert or roberta", of those that `has`.
template <typename F>
std::string names_of(const char* last, F&& has) {
  std::vector<std::string> names;
  for (const FamilyDescription* one : kFamilies)
    if (has(*one)) names.push_back(one->name);
  const std::string final = names.back();
  names.pop_back();
  return fmt::format("{} {} {}", fmt::join(names, ", "), last, final);
}

}  // namespace

std::span<const FamilyDescription* const> descriptions() { return kFamilies; }

const FamilyDescription& description_of(Family family) {
  return **std::find_if(kFamilies.begin(), kFamilies.end(),
                        [&](const FamilyDescription* one) { return one->family == family; });
}

const char* family_name(Family family) { return description_of(family).name; }

const char* task_name(Task task) {
  switch (task) {
    case Task::causal: return "causal";
    case Task::masked: return "masked";
    case Task::classification: return "classification";
  }
  return "";
}

Result<Family> family_from(std::string_view name) {
  for (const FamilyDescription* one : kFamilies)
    if (name == one->name) return one->family;
  return fail(Code::unsupported, "the family \"{}\" is unknown, must be {}", name,
              names_of("or", [](const FamilyDescription&) { return true; }));
}

Result<Task> task_from(std::string_view name) {
  for (const Task task : kTasks)
    if (name == task_name(task)) return task;
  return fail(Code::invalid_argument, "the task \"{}\" is unknown, must be causal, masked or classification",
              name);
}

Task usual_task(Family family) { return description_of(family).usual_task; }

Result<ModelSpec> choices_of(Family family, Task task) {
  const FamilyDescription& own = description_of(family);
  const bool encoder = own.usual_task == Task::masked;
  if (task == Task::causal && encoder)
    return fail(Code::unsupported, "{} reads both ways and cannot be causal; masked or classification can",
                own.name);
  if (task == Task::masked && !encoder)
    return fail(Code::unsupported, "{} reads one way and has no masked task; {} have", own.name,
                names_of("and", [](const FamilyDescription& one) { return one.usual_task == Task::masked; }));
  if (task == Task::classification && !own.classifies)
    return fail(Code::unsupported, "{} has no classification head here; {} have", own.name,
                names_of("and", [](const FamilyDescription& one) { return one.classifies; }));
  ModelSpec spec;
  spec.family = family;
  spec.task = task;
  if (task == Task::classification) spec.tied = false;
  if (own.choose != nullptr) own.choose(spec);
  return spec;
}

void complete(ModelSpec& spec) {
  if (spec.feed_forward == 0 && spec.width <= kMostWidth) spec.feed_forward = 4 * spec.width;
  if (spec.rotary() && spec.rotary_dims == 0 && spec.heads > 0)
    spec.rotary_dims = std::max<int64_t>(2, spec.head_size() / 8 * 2);
  if (description_of(spec.family).complete != nullptr) description_of(spec.family).complete(spec);
}

}  // namespace loom::model
