// SHA-256 (FIPS 180-4), the one primitive that the bootstrap derives from: the checksum of a unique id, a
// job's secret from a launcher's text, the acceptor's proof. It is not fast and does not need to be: at most
// a few hundred bytes.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace weft::bootstrap {

using Digest = std::array<std::byte, 32>;

/// The digest of `label` followed by `data`; the label keeps digests made for different ends apart.
Digest sha256(std::string_view label, std::span<const std::byte> data = {});

}  // namespace weft::bootstrap
