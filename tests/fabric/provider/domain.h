// Domain: a card, that is a rail, with the memory that is registered with it. Keys are the provider's choice,
// addresses are virtual, and local memory has to be registered, too.
//
// Thread safety: as FI_THREAD_DOMAIN says: one thread at a time is in calls of a domain and of what belongs
// to it. Use checks that, and ends the process otherwise.
#pragma once

#include <rdma/fi_domain.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "chance.h"

namespace weft::fake_efa {

struct Domain;

struct Region : fid_mr {
  Domain* domain = nullptr;
  uint64_t number = 0;  // no other has it
  uintptr_t base = 0;
  size_t bytes = 0;
  uint64_t access = 0;

  bool covers(uint64_t address, size_t length) const {
    return address >= base && length <= bytes && address - base <= bytes - length;
  }
};

struct Domain : fid_domain {
  explicit Domain(int rail);
  int close();

  int add_region(const void* base, size_t bytes, uint64_t access, fid_mr** made);
  void remove_region(Region* region);
  /// The number of the registration that `descriptor` stands for; 0 if that does not cover the bytes.
  uint64_t check_local(const void* descriptor, const void* address, size_t bytes) const;
  bool is_registered(uint64_t number) const { return by_number_.contains(number); }
  /// Where a peer's write with this key goes; nothing if it is not allowed.
  std::optional<uint64_t> target(uint64_t key, uint64_t address, size_t bytes) const;

  const int rail;
  std::atomic<bool> in_use{false};

 private:
  Chance keys_;
  std::unordered_map<uint64_t, Region*> by_key_, by_number_;
  std::unordered_map<const void*, Region*> by_descriptor_;
};

/// Lives as long as a call.
class Use {
 public:
  explicit Use(Domain& domain);
  ~Use() { domain_.in_use = false; }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  Domain& domain_;
};

/// Bytes into the program's memory. Pages that are not there any more stay so: a card would write the pages
/// that it has pinned.
void place(uint64_t address, const void* bytes, size_t length);

}  // namespace weft::fake_efa
