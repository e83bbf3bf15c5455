#include "model/machine_cache.h"

#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/fd.h"
#include "base/hash.h"
#include "base/json_text.h"
#include "base/read_file.h"
#include "base/settings.h"
#include "model/sourced_json.h"
#include "weft/weft.h"

namespace weft::model {
namespace {

using Json = nlohmann::ordered_json;

// The version of the numbers' meaning and of how they are measured. Raise it when either changes.
constexpr int kFormat = 17;
constexpr uint64_t kMostBytes = 64 << 10;  // of a file: none of ours is longer

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

Json json_of(const Facts& facts) {
  Json json;
  for (const auto& [name, value] : facts.host) json["host"][name] = value;
  json["active"] = facts.active;
  json["crowding"] = facts.crowding;
  json["intra"] = facts.intra;
  json["threads"] = facts.threads;
  json["inter"] = facts.inter;
  json["one_machine"] = facts.one_machine;
  return json;
}

/// As they are kept: what is not UTF-8 is not kept as it is.
std::string text_of(const Facts& facts) { return json_text(json_of(facts)); }

/// Throws what the JSON library throws.
Facts facts_of(const Json& json) {
  Facts facts;
  for (const auto& [name, value] : json.at("host").items()) facts.host.emplace_back(name, value);
  json.at("active").get_to(facts.active);
  json.at("crowding").get_to(facts.crowding);
  json.at("intra").get_to(facts.intra);
  json.at("threads").get_to(facts.threads);
  json.at("inter").get_to(facts.inter);
  json.at("one_machine").get_to(facts.one_machine);
  return facts;
}

std::string now_text() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[40];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text;
}

std::string environment(const char* name) {
  const char* const value = getenv(name);
  return value != nullptr ? value : "";
}

Result<Cached> parse(const std::string& text) try {
  constexpr char kWhat[] = "it is damaged";
  const Result<Json> parsed = parse_object(text, kWhat);
  if (!parsed.ok()) return parsed.status();
  const Json& json = *parsed;
  if (json.at("format") != kFormat) {
    return fail(Code::invalid_argument, "it has format {}, this library reads {}", json.at("format").dump(),
                kFormat);
  }
  WEFT_TRY(check_keys(json, kWhat, "", {"format", "measured_at", "facts", "machine", "doubt"}));
  WEFT_TRY(check_keys(json.at("facts"), kWhat, "facts",
                      {"host", "active", "crowding", "intra", "threads", "inter", "one_machine"}));
  Cached cached;
  cached.facts = facts_of(json.at("facts"));
  json.at("measured_at").get_to(cached.measured_at);
  cached.doubt = json.value("doubt", "");
  Result<Machine> machine = machine_from_json(json.at("machine").dump());
  if (!machine.ok()) return machine.status();
  cached.machine = machine.take();
  return cached;
} catch (const nlohmann::json::exception& error) {
  return fail(Code::invalid_argument, "it is damaged: {}", error.what());
}

Status write_all(const std::string& path, const std::string& text) {
  UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!file.valid()) return fail_errno(errno, fmt::format("cannot write {}", path));
  for (size_t at = 0; at < text.size();) {
    const ssize_t written = write(file.get(), text.data() + at, text.size() - at);
    if (written < 0) return fail_errno(errno, fmt::format("cannot write {}", path));
    at += static_cast<size_t>(written);
  }
  return {};
}

std::vector<std::string> files_of(const std::string& directory) {
  std::vector<std::string> paths;
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator(directory, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (name.starts_with("machine-") && name.ends_with(".json")) paths.push_back(entry->path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> host_facts(const topology::Host& host) {
  utsname kernel{};
  uname(&kernel);
  uint64_t memory = 0;
  for (const topology::NumaNode& node : host.numa_nodes) memory += node.bytes;
  std::string caches, interfaces;
  for (const topology::Cache& cache : host.caches) {
    caches += fmt::format("{}L{} {} KiB x {}", caches.empty() ? "" : ", ", cache.level, cache.bytes >> 10,
                          cache.count);
  }
  for (const topology::Interface& interface : host.interfaces) {
    if (!interface.up || interface.loopback) continue;
    interfaces +=
        fmt::format("{}{} {:g} Gbit/s", interfaces.empty() ? "" : ", ", interface.name, interface.gbit_per_s);
  }
  return {{"cpu", cpu_model()},
          {"cpus", fmt::format("{}", host.cpus.size())},
          {"cpu_quota", fmt::format("{:g}", host.cpu_quota)},
          {"memory", fmt::format("{} GiB", (memory + (512 << 20)) >> 30)},
          {"caches", caches},
          {"kernel", kernel.release},
          {"interfaces", interfaces},
          {"library", fmt::format("{}.{}.{}", WEFT_MAJOR, WEFT_MINOR, WEFT_PATCH)}};
}

std::string cache_directory() {
  const std::string& set = settings().tune_cache;
  if (set == "none") return "";
  if (!set.empty()) return set;
  if (const std::string base = environment("XDG_CACHE_HOME"); !base.empty()) return base + "/weft";
  if (const std::string home = environment("HOME"); !home.empty()) return home + "/.cache/weft";
  return "";
}

std::string cache_file(const std::string& directory, const Facts& facts) {
  return fmt::format("{}/machine-{:016x}.json", directory, hash_64(text_of(facts)));
}

bool is_cached(const std::string& text) {
  const Result<Json> json = parse_object(text, "");
  return json.ok() && json->contains("format") && json->contains("facts");
}

Result<std::optional<Cached>> read_cache(const std::string& path) {
  const auto wrong = [&](const Status& why) { return why.in(fmt::format("tuning cache {}", path)); };
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) {
    if (errno == ENOENT || errno == ENOTDIR) return std::optional<Cached>();
    return wrong(fail_errno(errno, "it cannot be opened"));
  }
  const Result<std::string> text = read_rest(file.get(), "it", kMostBytes);
  if (!text.ok()) return wrong(text.status());
  Result<Cached> cached = parse(*text);
  if (!cached.ok()) return wrong(cached.status());
  cached->path = path;
  return std::optional<Cached>(cached.take());
}

Result<std::optional<Cached>> find_cached(const std::string& directory, const Facts& facts) {
  const std::string path = cache_file(directory, facts);
  Result<std::optional<Cached>> cached = read_cache(path);
  if (cached.ok() && cached->has_value() && text_of((*cached)->facts) != text_of(facts)) {
    return fail(Code::invalid_argument, "tuning cache {}: it was measured on another machine", path);
  }
  if (cached.ok() && cached->has_value() && !(*cached)->doubt.empty()) return std::optional<Cached>();
  return cached;
}

std::vector<std::string> damaged_files(const std::string& directory) {
  std::vector<std::string> problems;
  for (const std::string& path : files_of(directory)) {
    if (const auto cached = read_cache(path); !cached.ok()) problems.push_back(cached.status().message());
  }
  return problems;
}

std::vector<Cached> list_cached(const std::string& directory, const topology::Host& host) {
  std::vector<Cached> found;
  const auto facts = host_facts(host);
  for (const std::string& path : files_of(directory)) {
    Result<std::optional<Cached>> cached = read_cache(path);
    if (cached.ok() && cached->has_value() && (*cached)->facts.host == facts) found.push_back(**cached);
  }
  std::sort(found.begin(), found.end(), [](const Cached& a, const Cached& b) {
    return a.measured_at != b.measured_at ? a.measured_at > b.measured_at : a.path < b.path;
  });
  return found;
}

Status keep(const std::string& directory, const Facts& facts, const Machine& machine,
            const std::string& doubt) {
  if (!doubt.empty()) {
    const Result<std::optional<Cached>> better = find_cached(directory, facts);
    if (better.ok() && better->has_value()) return {};
  }
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return fail(Code::system_error, "cannot make {}: {}", directory, error.message());
  Json json{{"format", kFormat},
            {"measured_at", now_text()},
            {"facts", json_of(facts)},
            {"machine", Json::parse(to_json(machine))}};
  if (!doubt.empty()) json["doubt"] = doubt;
  const std::string path = cache_file(directory, facts);
  static std::atomic<uint32_t> count{0};
  const std::string fresh = fmt::format("{}.{}.{}.new", path, getpid(), count++);
  Status status = write_all(fresh, json_text(json, 2) + "\n");
  if (status.ok() && rename(fresh.c_str(), path.c_str()) != 0)
    status = fail_errno(errno, fmt::format("cannot write {}", path));
  if (!status.ok()) unlink(fresh.c_str());
  return status;
}

}  // namespace weft::model
