// Tree: all-gathers over the ranks of a job before there is any transport. Rank r's parent is (r - 1) / 16;
// what a subtree gives travels up in one frame, what everybody gave travels down in one.
//
// Thread safety: one thread at a time. Invariant: an all-gather that failed leaves the tree closed, so that
// the ranks around it fail too instead of waiting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"

namespace weft::bootstrap {

inline constexpr int kTreeFanout = 16;
int tree_parent(int rank);  // -1 for rank 0
std::vector<int> tree_children(int rank, int ranks);

/// What every rank gave, by rank.
struct Gathered {
  std::vector<std::byte> storage;
  std::vector<std::span<const std::byte>> of_rank;  // into storage
};

class Tree {
 public:
  Tree() = default;
  /// The connections are non-blocking; `parent` is invalid at rank 0.
  Tree(int rank, int ranks, UniqueFd parent, std::map<int, UniqueFd> children);

  /// A collective. Lengths may differ between ranks. Errors name the neighbour in the tree that did not keep
  /// up.
  Result<Gathered> all_gather(std::span<const std::byte> mine, Deadline deadline);
  void close();

 private:
  Result<Gathered> gather_and_spread(std::span<const std::byte> mine, Deadline deadline);
  Status receive(int from, int fd, std::vector<std::byte>* body, Deadline deadline);
  Status check_entries(int from, std::span<const std::byte> entries,
                       std::vector<std::span<const std::byte>>* of_rank);

  int rank_ = 0, ranks_ = 1;
  bool closed_ = false;
  uint32_t sequence_ = 0;
  UniqueFd parent_;
  std::map<int, UniqueFd> children_;
};

}  // namespace weft::bootstrap
