// What NCCL shows of what plugins tell its logger, written from what its src/debug.cc does: a level, and a
// mask of subsystems that holds for every level, errors included.
#pragma once

#include <cstdint>
#include <map>
#include <sstream>
#include <string>

namespace weft::nccl_net_test {

class NcclLogFilter {
 public:
  /// As NCCL_DEBUG and NCCL_DEBUG_SUBSYS say; empty: not set.
  NcclLogFilter(const std::string& debug, const std::string& subsystems)
      : level_(level_of(debug)), mask_(mask_of(subsystems)) {}
  bool shows(int level, unsigned long subsystems) const {
    return level <= level_ && (subsystems & mask_) != 0;
  }

 private:
  static int level_of(const std::string& name) {
    static const std::map<std::string, int> levels = {
        {"VERSION", 1}, {"WARN", 2}, {"INFO", 3}, {"ABORT", 4}, {"TRACE", 5}};
    const auto found = levels.find(name);
    return found == levels.end() ? 0 : found->second;
  }
  static uint64_t mask_of(const std::string& list) {
    static const std::map<std::string, uint64_t> bits = {
        {"INIT", 0x1},    {"COLL", 0x2},         {"P2P", 0x4},    {"SHM", 0x8},
        {"NET", 0x10},    {"GRAPH", 0x20},       {"ENV", 0x80},   {"CALL", 0x200},
        {"PROXY", 0x400}, {"BOOTSTRAP", 0x1000}, {"REG", 0x2000}, {"ALL", ~0ull}};
    if (list.empty()) return bits.at("INIT") | bits.at("BOOTSTRAP") | bits.at("ENV");
    const bool excludes = list.front() == '^';
    std::istringstream names(list.substr(excludes ? 1 : 0));
    uint64_t mask = excludes ? ~0ull : 0;
    for (std::string name; std::getline(names, name, ',');)
      mask = excludes ? mask & ~bits.at(name) : mask | bits.at(name);
    return mask;
  }

  const int level_;
  const uint64_t mask_;
};

}  // namespace weft::nccl_net_test
