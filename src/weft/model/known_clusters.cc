#include "model/known_clusters.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

namespace weft::model {

std::string clusters_folder() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  return (program.parent_path().parent_path() / "share/weft/clusters").string();
}

std::vector<std::string> known_clusters() {
  std::vector<std::string> names;
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator(clusters_folder(), error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (entry->path().extension() == ".json") names.push_back(entry->path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::string> find_description(const std::string& name) {
  std::error_code error;
  if (std::filesystem::exists(name, error)) return name;
  const std::filesystem::path shipped = std::filesystem::path(clusters_folder()) / (name + ".json");
  if (name.find('/') == std::string::npos && std::filesystem::exists(shipped, error)) return shipped.string();
  return fail(Code::invalid_argument,
              "there is no file {}, nor a description of that name in {}; known are {}", name,
              clusters_folder(), fmt::join(known_clusters(), ", "));
}

}  // namespace weft::model
