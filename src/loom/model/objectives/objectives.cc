// The list of objectives.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/check.h"
#include "model/objectives/objective.h"

namespace loom::model {
namespace {

constexpr std::array kObjectives = {&kCausal, &kMasked, &kClassification};

}  // namespace

std::span<const Objective* const> objectives() { return kObjectives; }

const Objective& objective_of(Task task) { return **std::ranges::find(kObjectives, task, &Objective::task); }

Result<Task> task_from(std::string_view name) {
  std::vector<const char*> names;
  for (const Objective* one : kObjectives) {
    if (name == one->name) return one->task;
    names.push_back(one->name);
  }
  const std::span<const char*> all = names;
  return fail(Code::invalid_argument, "the task \"{}\" is unknown, must be {} or {}", name,
              fmt::join(all.first(all.size() - 1), ", "), all.back());
}

}  // namespace loom::model
