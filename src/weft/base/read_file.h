// Reading a whole file, for all that Weft takes from files at once: descriptions of machines and clusters,
// measurements that were kept. It does not use std::ifstream, which opens a folder without an error and then
// throws.
//
// Thread safety: every function.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace weft {

/// What `path` holds. Errors: system_error ("cannot open PATH: No such file or directory (errno 2)", "cannot
/// read PATH: Is a directory (errno 21)"), invalid_argument where it is longer than `most_bytes`.
Result<std::string> read_file(const std::string& path, uint64_t most_bytes = uint64_t{64} << 20);

/// The rest of an open file, which sentences call `name`. Errors as read_file().
Result<std::string> read_rest(int fd, const std::string& name, uint64_t most_bytes);

}  // namespace weft
