// Passing a unique id from rank 0 to all ranks through what an MPI launcher offers to its processes. Both may
// be used before, after or without MPI in the same program.
//
// Thread safety: one exchange at a time in a process. Every rank must make the same exchanges in the same
// order.
#pragma once

#include <functional>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "bootstrap/bootstrap.h"

namespace weft::bootstrap {

/// Over PMI version 1 on the descriptor that the launcher left open (PMI_FD).
Result<UniqueId> exchange_over_pmi(int pmi_fd, int rank, Deadline deadline);

/// Over PMIx, whose library is loaded when first needed. Errors: unsupported where the library was built
/// without it or there is none.
Result<UniqueId> exchange_over_pmix(int rank, Deadline deadline);
bool built_with_pmix();

/// What both do: rank 0 makes an id and puts its text under a key; after the fence all get it. When rank 0
/// cannot make one, its reason travels instead, so that nobody waits in vain.
struct KeyValueSpace {
  std::function<Status(const std::string& key, const std::string& value)> put;
  std::function<Status()> fence;
  std::function<Result<std::string>(const std::string& key)> get;
};
Result<UniqueId> exchange_id(const KeyValueSpace& space, int rank, const std::string& key);

/// Text to and from bytes: 256 lower-case hexadecimal digits. Errors: invalid_unique_id.
std::string id_to_text(const UniqueId& id);
Result<UniqueId> id_from_text(std::string_view text);

}  // namespace weft::bootstrap
