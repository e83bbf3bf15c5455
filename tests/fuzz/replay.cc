// Runs a target on each file of its corpus, and on files that are damaged by a fixed seed: replay NAME
// FOLDER. No fuzzer is needed. A target that fails ends the process; the name of the file, and of the damage,
// stands above that.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "fuzz.h"

namespace fuzz {
namespace {

constexpr int kDamaged = 60;  // runs of each file

std::map<std::string, Target>& targets() {
  static std::map<std::string, Target> targets;
  return targets;
}

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

/// Cuts the text, or changes, takes out or repeats a few bytes of it.
std::string damaged(std::string text, std::minstd_rand& random) {
  const auto below = [&](size_t count) { return count == 0 ? 0 : random() % count; };
  if (random() % 4 == 0) return text.substr(0, below(text.size()));
  for (int changes = 1 + static_cast<int>(random() % 4); changes > 0 && !text.empty(); --changes) {
    const size_t at = below(text.size()), length = below(std::min<size_t>(text.size() - at, 16) + 1);
    switch (random() % 4) {
      case 0: text[at] = static_cast<char>(random()); break;
      case 1: text[at] = static_cast<char>(text[at] ^ 1 << random() % 8); break;
      case 2: text.erase(at, length); break;
      default: text.insert(at, text.substr(at, length)); break;
    }
  }
  return text;
}

void run(Target target, const std::string& text) {
  target(Input(std::as_bytes(std::span(text.data(), text.size()))));
}

int replay(const std::string& name, const std::string& folder) {
  const auto target = targets().find(name);
  if (target == targets().end()) return std::fprintf(stderr, "there is no target %s\n", name.c_str()), 2;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  if (files.empty()) return std::fprintf(stderr, "%s has no files\n", folder.c_str()), 2;
  for (const std::filesystem::path& file : files) {
    const std::string text = read(file);
    std::minstd_rand random(1);
    for (int i = 0; i <= kDamaged; ++i) {
      std::fprintf(stderr, "%s, damage %d\n", file.filename().c_str(), i);
      run(target->second, i == 0 ? text : damaged(text, random));
    }
  }
  return 0;
}

}  // namespace

Registered::Registered(const char* name, Target target) { targets()[name] = target; }

}  // namespace fuzz

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "replay NAME FOLDER\n"), 2;
  return fuzz::replay(argv[1], argv[2]);
}
