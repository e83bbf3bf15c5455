// Where files go that nobody named a place for.
//
// Thread safety: a pure function of the environment.
#pragma once

#include <filesystem>
#include <string>

namespace weft {

/// TMPDIR, or what the system uses instead; /tmp where that is no folder.
inline std::string temporary_folder() {
  std::error_code error;
  const std::string folder = std::filesystem::temp_directory_path(error).string();
  return error ? "/tmp" : folder;
}

}  // namespace weft
