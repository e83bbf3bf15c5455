// The inside of a UniqueId: where the root listens and the job's secret. How ids are made and served: root.h.
#pragma once

#include <array>
#include <cstddef>

#include "bootstrap/address.h"
#include "bootstrap/bootstrap.h"

namespace weft::bootstrap {

using Secret = std::array<std::byte, 32>;
/// What the accepting side of a connection answers to the right secret; derived from it, so that only a Weft
/// rank that was given the secret can know it.
using Proof = std::array<std::byte, 16>;

/// What a valid unique id says.
struct Job {
  SocketAddress root;
  Secret secret{};
  Proof proof{};
};

UniqueId write_unique_id(const SocketAddress& root, const Secret& secret);
/// Errors: invalid_unique_id, with what is wrong.
Result<Job> read_unique_id(const UniqueId& id);

/// 32 bytes from the kernel's generator.
Result<Secret> random_secret();
/// The secret that is derived from a text: anyone who knows the text knows it.
Secret derive_secret(std::string_view text);
/// In a time that does not depend on where they differ.
bool equal_secrets(const Secret& a, const Secret& b);

}  // namespace weft::bootstrap
