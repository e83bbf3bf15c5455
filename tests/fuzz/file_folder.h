// FileFolder: a folder whose files an input names and fills. A folder of the input is a list of files: a line
// with the number of a name, then the content up to the next record separator (0x1e).
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <span>
#include <string>

#include "fuzz.h"

namespace fuzz {

class FileFolder {
 public:
  using Mend = std::function<void(const std::string& name, std::string& content)>;

  /// `names`: of the files that there may be, "model.safetensors" or "step-5/manifest.json". `mend` may
  /// change what is written.
  FileFolder(Input& input, std::span<const char* const> names, const Mend& mend = {}) {
    std::filesystem::create_directories(path());
    while (!input.empty()) {
      const std::string number = input.take_until('\n');
      std::string content = input.take_until('\x1e');
      const auto index = static_cast<size_t>(std::strtoul(number.c_str(), nullptr, 10)) % names.size();
      const std::filesystem::path file = std::filesystem::path(path()) / names[index];
      if (mend) mend(names[index], content);
      std::filesystem::create_directories(file.parent_path());
      std::ofstream(file, std::ios::binary)
          .write(content.data(), static_cast<std::streamsize>(content.size()));
    }
  }
  ~FileFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path(), ignored);
  }
  FileFolder(const FileFolder&) = delete;

  /// In memory, one for each process.
  static const std::string& path() {
    static const std::string path = [] {
      std::string name = "/dev/shm/weft-fuzz-XXXXXX";
      if (::mkdtemp(name.data()) == nullptr) std::abort();
      return name;
    }();
    return path;
  }
};

}  // namespace fuzz
