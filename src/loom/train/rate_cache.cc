// rates-HASH.json: {"facts": …, "rates": …}.
#include "train/rate_cache.h"

#include <weft/weft.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>

#include "base/file.h"
#include "base/hash.h"
#include "ops/tables.h"

namespace loom::train {
namespace {

using format::Json;

std::string cpu_name() {
  std::ifstream lines("/proc/cpuinfo");
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("model name")) return line.substr(std::min(line.size(), line.find(':') + 2));
  return "unknown";
}

std::string file_of(const std::string& folder, const Json& facts) {
  Hash64 hash;
  hash.add(facts.dump());
  return join_path(folder, fmt::format("rates-{:016x}.json", hash.value()));
}

std::string instructions_of(program::Precision precision) {
  return program::with_type(precision, []<typename T>(T) { return ops::to_string(ops::instructions<T>()); });
}

struct Rate {
  const char* name;
  double program::Machine::*value;
};
constexpr Rate kOfMachine[] = {{"flops", &program::Machine::flops},
                               {"memory_bandwidth", &program::Machine::memory_bandwidth},
                               {"tier_bandwidth", &program::Machine::tier_bandwidth}};
struct DeviceRate {
  const char* name;
  double program::Device::*value;
};
constexpr DeviceRate kOfDevice[] = {{"fused_flops", &program::Device::fused_flops},
                                    {"pass_bandwidth", &program::Device::pass_bandwidth},
                                    {"operand_bandwidth", &program::Device::operand_bandwidth}};

}  // namespace

std::string rate_cache_folder() {
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  if (const std::string base = variable("XDG_CACHE_HOME"); !base.empty()) return join_path(base, "loom");
  if (const std::string home = variable("HOME"); !home.empty()) return join_path(home, ".cache/loom");
  return {};
}

Json rate_facts(const program::Job& job, const program::SharedCores& shared, const std::string& tier_folder) {
  Json facts = {{"version", fmt::format("{}.{}.{}", WEFT_MAJOR, WEFT_MINOR, WEFT_PATCH)},
                {"cpu", cpu_name()},
                {"cores", shared.cores},
                {"ranks", shared.ranks},
                {"threads", shared.threads},
                {"instructions", instructions_of(job.precision)},
                {"precision", program::precision_name(job.precision)},
                {"activation", model::activation_name(job.spec.activation)},
                {"residual_dropout", job.spec.residual_dropout},
                {"tokens", job.tokens},
                {"heads", job.spec.heads},
                {"key_value_heads", job.spec.attention().key_value_heads},
                {"head_size", job.spec.attention().head_size},
                {"causal", job.spec.causal}};
  if (job.offload) facts["offload_folder"] = tier_folder;
  return facts;
}

bool read_rates(const std::string& folder, const Json& facts, program::Machine& machine) {
  if (folder.empty()) return false;
  const Result<Json> file = format::read_json(file_of(folder, facts));
  if (!file.ok() || !file->is_object() || file->value("facts", Json()) != facts) return false;
  const Json rates = file->value("rates", Json());
  const Json kinds = rates.is_object() ? rates.value("kernels", Json()) : Json();
  if (!kinds.is_array() || kinds.size() != program::kKernelKinds) return false;
  program::Machine read = machine;
  bool whole = true;
  const auto take = [&](const char* name, double& into) {
    const Json value = rates.value(name, Json());
    whole = whole && value.is_number();
    if (whole) into = value.get<double>();
  };
  for (const Rate& rate : kOfMachine) take(rate.name, read.*rate.value);
  for (const DeviceRate& rate : kOfDevice) take(rate.name, read.device.*rate.value);
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    const Json& value = kinds[kind];
    whole = whole && (value.is_null() || value.is_number());
    if (whole)
      read.device.rates[kind] =
          value.is_null() ? std::numeric_limits<double>::infinity() : value.get<double>();
  }
  if (!whole || !(read.flops > 0)) return false;
  machine = read;
  return true;
}

Status keep_rates(const std::string& folder, const Json& facts, const program::Machine& machine) {
  if (folder.empty()) return {};
  Json rates;
  for (const Rate& rate : kOfMachine) rates[rate.name] = machine.*rate.value;
  for (const DeviceRate& rate : kOfDevice) rates[rate.name] = machine.device.*rate.value;
  Json kinds = Json::array();  // infinite: the device has no such kernel
  for (const double rate : machine.device.rates) kinds.push_back(std::isfinite(rate) ? Json(rate) : Json());
  rates["kernels"] = kinds;
  LOOM_TRY(make_folders(folder));
  return format::write_json(file_of(folder, facts), {{"facts", facts}, {"rates", rates}});
}

}  // namespace loom::train
