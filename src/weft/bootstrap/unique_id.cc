// The layout of a unique id, little-endian:
//
//   0 "WEFT"   4 version   6 family (4 or 6)   8 address (16 bytes)   24 port   28 scope
//
//   32 secret (32 bytes)   64 zero   120 checksum: the first 8 bytes of the SHA-256 of the rest
#include "bootstrap/unique_id.h"

#include <sys/random.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "bootstrap/sha256.h"

namespace weft::bootstrap {
namespace {

static_assert(std::endian::native == std::endian::little, "ids and frames are little-endian");

constexpr uint16_t kVersion = 1;
constexpr size_t kChecksumAt = 120;

struct Layout {
  char magic[4];
  uint16_t version;
  uint8_t family;
  uint8_t zero1;
  uint8_t address[16];
  uint16_t port;
  uint16_t zero2;
  uint32_t scope;
  std::byte secret[32];
  std::byte zero3[56];
  std::byte checksum[8];
};
static_assert(sizeof(Layout) == sizeof(UniqueId) && offsetof(Layout, checksum) == kChecksumAt);

Digest checksum_of(const UniqueId& id) {
  return sha256("weft unique id", std::span(id.bytes).first(kChecksumAt));
}

/// What a wrong checksum most likely means.
Status describe_damage(const UniqueId& id) {
  const auto last =
      std::find_if(id.bytes.rbegin(), id.bytes.rend(), [](std::byte b) { return b != std::byte{0}; });
  const auto used = static_cast<size_t>(id.bytes.rend() - last);
  if (used <= kChecksumAt) {
    return fail(Code::invalid_unique_id,
                "the unique id is truncated: its last {} bytes are zero; all {} bytes of what "
                "weftGetUniqueId returned "
                "must be sent to every rank, not up to a zero byte",
                id.bytes.size() - used, id.bytes.size());
  }
  return fail(Code::invalid_unique_id,
              "the unique id is damaged: its checksum is wrong; send the bytes of weftGetUniqueId unchanged, "
              "not as text");
}

}  // namespace

UniqueId write_unique_id(const SocketAddress& root, const Secret& secret) {
  Layout layout{};
  std::memcpy(layout.magic, "WEFT", 4);
  layout.version = kVersion;
  layout.port = root.port();
  if (root.family() == AF_INET) {
    layout.family = 4;
    std::memcpy(layout.address, &root.as_v4().sin_addr, 4);
  } else {
    layout.family = 6;
    std::memcpy(layout.address, &root.as_v6().sin6_addr, 16);
    layout.scope = root.as_v6().sin6_scope_id;
  }
  std::memcpy(layout.secret, secret.data(), secret.size());
  UniqueId id;
  std::memcpy(id.bytes.data(), &layout, sizeof layout);
  std::memcpy(id.bytes.data() + kChecksumAt, checksum_of(id).data(), sizeof layout.checksum);
  return id;
}

Result<Job> read_unique_id(const UniqueId& id) {
  Layout layout;
  std::memcpy(&layout, id.bytes.data(), sizeof layout);
  if (std::all_of(id.bytes.begin(), id.bytes.end(), [](std::byte b) { return b == std::byte{0}; })) {
    return fail(
        Code::invalid_unique_id,
        "the unique id is all zero: weftGetUniqueId was not called, or its result did not reach this rank");
  }
  if (std::memcmp(layout.magic, "WEFT", 4) != 0) {
    return fail(Code::invalid_unique_id, "this is no unique id of Weft: it does not begin with \"WEFT\"");
  }
  if (layout.version != kVersion) {
    return fail(Code::invalid_unique_id,
                "the unique id is of version {}, this library understands version {}: all ranks must use the "
                "same Weft",
                layout.version, kVersion);
  }
  if (std::memcmp(layout.checksum, checksum_of(id).data(), sizeof layout.checksum) != 0)
    return describe_damage(id);

  Job job;
  if (layout.family == 4) {
    in_addr four;
    std::memcpy(&four, layout.address, sizeof four);
    job.root = SocketAddress::v4(four, layout.port);
  } else if (layout.family == 6) {
    in6_addr six;
    std::memcpy(&six, layout.address, sizeof six);
    job.root = SocketAddress::v6(six, layout.port, layout.scope);
  }
  if (!job.root.valid() || job.root.port() == 0) {
    return fail(Code::invalid_unique_id, "the unique id names no address: family {}, port {}", layout.family,
                layout.port);
  }
  std::memcpy(job.secret.data(), layout.secret, job.secret.size());
  const Digest proof = sha256("weft acceptor", job.secret);
  std::copy_n(proof.begin(), job.proof.size(), job.proof.begin());
  return job;
}

Result<Secret> random_secret() {
  Secret secret;
  size_t have = 0;
  while (have < secret.size()) {
    const ssize_t got = getrandom(secret.data() + have, secret.size() - have, 0);
    if (got < 0 && errno != EINTR) return fail_errno(errno, "getrandom");
    if (got > 0) have += static_cast<size_t>(got);
  }
  return secret;
}

Secret derive_secret(std::string_view text) {
  return sha256("weft job secret", std::as_bytes(std::span(text)));
}

bool equal_secrets(const Secret& a, const Secret& b) {
  volatile unsigned difference = 0;  // volatile: no early way out
  for (size_t i = 0; i < a.size(); ++i) difference = difference | std::to_integer<unsigned>(a[i] ^ b[i]);
  return difference == 0;
}

Status check_unique_id(const UniqueId& id) { return read_unique_id(id).status(); }

}  // namespace weft::bootstrap
