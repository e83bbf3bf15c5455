// The descriptions of clusters that come with Weft, which tools know by name.
//
// Thread safety: every function.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace weft::model {

/// Where they are: share/weft/clusters beside the program's folder, in the build as where it is installed.
std::string clusters_folder();
/// Their names, sorted.
std::vector<std::string> known_clusters();
/// The path of a description: `name` itself if there is such a file, else that of a known one. Errors:
/// invalid_argument, with the names that are known.
Result<std::string> find_description(const std::string& name);

}  // namespace weft::model
