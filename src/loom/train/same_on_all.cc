// Rank 0 tells the others what it has; each compares.
#include "train/same_on_all.h"

#include <algorithm>

#include "base/hash.h"
#include "engine/groups.h"
#include "engine/weft_call.h"

namespace loom::train {
namespace {

/// What rank 0 has as `own`.
Result<std::string> of_rank_0(std::string own, weftComm_t comm) {
  uint64_t bytes = own.size();
  LOOM_TRY_WEFT(weftBroadcast(&bytes, &bytes, 1, weftUint64, 0, comm, nullptr));
  own.resize(bytes);
  LOOM_TRY_WEFT(weftBroadcast(own.data(), own.data(), bytes, weftChar, 0, comm, nullptr));
  return own;
}

std::string text_of(const format::Json& json) {
  return json.dump(-1, ' ', false, format::Json::error_handler_t::replace);
}

bool may_differ(const std::string& key) {
  const char* const free[] = {"data.folder", "model.from", "run.resume_from", "parallel.offload_folder",
                              "parallel.threads"};
  return std::find(std::begin(free), std::end(free), key) != std::end(free);
}

Status compare(const format::Json& own, const format::Json& first) {
  for (const auto& [section, keys] : own.items())
    for (const auto& [name, value] : keys.items()) {
      const std::string key = section + "." + name, here = text_of(value),
                        there =
                            text_of(first.value(section, format::Json::object()).value(name, format::Json()));
      if (here != there && !may_differ(key))
        return fail(Code::invalid_argument, "{} is {} here and {} on rank 0, must be the same on all ranks",
                    key, here, there);
    }
  return {};
}

std::string description(const Beginning& beginning) {
  if (beginning.checkpoint.empty()) return "finds no checkpoint to begin with";
  return fmt::format("begins with {}, step {}", beginning.checkpoint, beginning.step);
}

}  // namespace

Status same_config(const Config& config, weftComm_t comm) {
  if (comm == nullptr) return {};
  const std::string own = text_of(to_json(config));
  const Result<std::string> told = of_rank_0(own, comm);
  LOOM_TRY(told.status());
  const Result<format::Json> here = format::parse_json(own), first = format::parse_json(*told);
  LOOM_TRY(engine::agree(comm, here.ok() ? first.status() : here.status()));
  return engine::agree(comm, compare(*here, *first));
}

Result<std::string> same_instructions(const ops::Instructions& own, bool strict, weftComm_t comm) {
  if (comm == nullptr) return std::string();
  int ranks = 1;
  LOOM_TRY_WEFT(weftCommCount(comm, &ranks));
  std::vector<ops::Instructions> all(static_cast<size_t>(ranks));
  LOOM_TRY_WEFT(weftAllGather(&own, all.data(), sizeof own, weftUint8, comm, nullptr));
  const auto other = std::find_if(all.begin(), all.end(), [&](const auto& each) { return each != all[0]; });
  if (other == all.end()) return std::string();
  ops::InstructionSet common = all[0].operators;
  for (const ops::Instructions& each : all) common = std::min({common, each.operators, each.products});
  std::string sentence = fmt::format(
      "rank 0 computes with {}, rank {} with {}, which rounds otherwise, so that copies of the same state do "
      "not stay the same to the last bit; LOOM_INSTRUCTIONS={} in every rank's environment makes them equal",
      to_string(all[0]), other - all.begin(), to_string(*other), ops::name_of(common));
  if (!strict) return sentence;
  return fail(Code::invalid_argument, "parallel.strict: {}", sentence);
}

Status same_data(const std::string& folder, const std::string& key, weftComm_t comm) {
  if (comm == nullptr) return {};
  const Result<std::string> key_of_first = of_rank_0(key, comm), first = of_rank_0(folder, comm);
  LOOM_TRY(key_of_first.status());
  LOOM_TRY(first.status());
  if (key == *key_of_first) return engine::agree(comm, {});
  return engine::agree(comm,
                       fail(Code::invalid_data,
                            "the data in {} are not those that rank 0 has in {}: every rank's "
                            "data.folder must have the same in it, made by one `loom tokenize` or copied",
                            folder, *first));
}

Status same_beginning(const Beginning& own, const engine::Groups& groups) {
  Hash64 manifest;
  manifest.add(own.manifest);
  const std::string key = fmt::format("{} {:016x}", own.step, manifest.value());
  const Result<std::string> key_of_first = groups.of_first(key);
  LOOM_TRY(key_of_first.status());
  const Result<std::string> first = groups.of_first(description(own));
  LOOM_TRY(first.status());
  if (key == *key_of_first) return groups.agree({});
  return groups.agree(
      fail(Code::invalid_data,
           "this rank {}, but rank 0 {}: all must begin with the same checkpoint, so run.out, or "
           "run.resume_from, must be a folder that all nodes share, or have the same in it on each",
           description(own), *first));
}

}  // namespace loom::train
