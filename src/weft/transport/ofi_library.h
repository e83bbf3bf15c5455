// libfabric, opened at its first use. Loading it takes a fifth of a second, since libraries under some of its
// providers measure the processor's clock when they are loaded. Most ranks, tools and tests never need it.
//
// Thread safety: all functions.
#pragma once

#include <rdma/fabric.h>

#include "base/status.h"

namespace weft::transport::ofi {

/// The functions that libfabric exports. All its other functions are inline, and go through tables of the
/// objects that these make. fi_allocinfo() is inline, too, but calls fi_dupinfo() by name: use
/// dupinfo(nullptr).
struct Library {
  decltype(&::fi_version) version;
  decltype(&::fi_getinfo) getinfo;
  decltype(&::fi_dupinfo) dupinfo;
  decltype(&::fi_freeinfo) freeinfo;
  decltype(&::fi_fabric) fabric;
  decltype(&::fi_strerror) strerror;
};

/// The interface that Weft asks for, and so the oldest libfabric that serves.
inline constexpr uint32_t kInterface = FI_VERSION(1, 17);

/// Opens libfabric.so.1 at the first call. It stays loaded. Error: unsupported (it is not there, or too old).
Result<const Library*> open_library();
/// Valid only after open_library() has succeeded.
const Library& library();
/// For tests, before the first transport: library()'s table, in which they replace functions. Null without
/// libfabric.
Library* library_to_change();

}  // namespace weft::transport::ofi
