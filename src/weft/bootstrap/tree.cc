// All-gathers up and down the tree.
#include "bootstrap/tree.h"

#include <algorithm>

#include "bootstrap/socket.h"
#include "bootstrap/wire.h"

namespace weft::bootstrap {
namespace {

bool in_subtree(int rank, int top) {
  while (rank > top) rank = tree_parent(rank);
  return rank == top;
}

}  // namespace

int tree_parent(int rank) { return rank == 0 ? -1 : (rank - 1) / kTreeFanout; }

std::vector<int> tree_children(int rank, int ranks) {
  std::vector<int> children;
  const int64_t first = int64_t{rank} * kTreeFanout + 1;
  for (int64_t child = first; child < std::min<int64_t>(first + kTreeFanout, ranks); ++child) {
    children.push_back(static_cast<int>(child));
  }
  return children;
}

Tree::Tree(int rank, int ranks, UniqueFd parent, std::map<int, UniqueFd> children)
    : rank_(rank), ranks_(ranks), parent_(std::move(parent)), children_(std::move(children)) {}

void Tree::close() {
  closed_ = true;
  parent_.reset();
  children_.clear();
}

Result<Gathered> Tree::all_gather(std::span<const std::byte> mine, Deadline deadline) {
  if (closed_)
    return fail(Code::invalid_usage,
                "the tree for all-gathers is closed: an earlier one failed, or start() was called");
  ++sequence_;
  Result<Gathered> result = gather_and_spread(mine, deadline);
  if (result.ok()) return result;
  close();
  return result.status().in(fmt::format("all-gather {} of rank {}", sequence_, rank_));
}

Result<Gathered> Tree::gather_and_spread(std::span<const std::byte> mine, Deadline deadline) {
  FrameWriter up(FrameKind::gather);
  up.u32(sequence_).u32(static_cast<uint32_t>(rank_)).u32(static_cast<uint32_t>(mine.size())).bytes(mine);
  std::vector<std::span<const std::byte>> seen(static_cast<size_t>(ranks_));
  for (const auto& [child, fd] : children_) {
    std::vector<std::byte> body;
    WEFT_TRY(receive(child, fd.get(), &body, deadline));
    const auto entries = std::span<const std::byte>(body).subspan(sizeof sequence_);
    WEFT_TRY(check_entries(child, entries, &seen));
    up.bytes(entries);
  }
  std::vector<std::byte> frame = up.take();
  Gathered all;
  if (rank_ == 0) {
    all.storage.assign(frame.begin() + kFrameHeaderBytes, frame.end());
  } else {
    WEFT_TRY(send_all(parent_.get(), frame, deadline)
                 .in(fmt::format("to rank {}, the parent", tree_parent(rank_))));
    WEFT_TRY(receive(tree_parent(rank_), parent_.get(), &all.storage, deadline));
    frame = FrameWriter(FrameKind::gather).bytes(all.storage).take();
  }
  all.of_rank.resize(static_cast<size_t>(ranks_));
  WEFT_TRY(check_entries(0, std::span<const std::byte>(all.storage).subspan(sizeof sequence_), &all.of_rank));
  for (const auto& [child, fd] : children_) {
    WEFT_TRY(send_all(fd.get(), frame, deadline).in(fmt::format("to rank {}, a child", child)));
  }
  return all;
}

Status Tree::receive(int from, int fd, std::vector<std::byte>* body, Deadline deadline) {
  const std::string where = fmt::format("from rank {}, {}", from, from < rank_ ? "the parent" : "a child");
  Result<Frame> frame = recv_frame(fd, kMaxGatherBytes, deadline);
  if (!frame.ok()) return frame.status().in(where);
  const uint32_t sequence = FrameReader(frame->body).u32();
  if (frame->kind != FrameKind::gather || frame->body.size() < sizeof sequence || sequence != sequence_) {
    return fail(Code::protocol_error, "{}: frame of kind {}, {} bytes, all-gather {}; expected all-gather {}",
                where, static_cast<int>(frame->kind), frame->body.size(), sequence, sequence_);
  }
  *body = std::move(frame->body);
  return {};
}

/// Checks that `entries` are those of the whole subtree under `top`, each rank's once, and notes where they
/// are.
Status Tree::check_entries(int top, std::span<const std::byte> entries,
                           std::vector<std::span<const std::byte>>* of_rank) {
  FrameReader reader(entries);
  std::vector<bool> came(static_cast<size_t>(ranks_));
  int expected = 0, count = 0;
  for (int rank = top; rank < ranks_; ++rank) expected += in_subtree(rank, top);
  for (; !reader.at_end(); ++count) {
    const uint32_t rank = reader.u32(), length = reader.u32();
    const auto bytes = reader.bytes(length);
    const bool fits = reader.ok() && rank < static_cast<uint32_t>(ranks_) && !came[rank] &&
                      in_subtree(static_cast<int>(rank), top);
    if (!fits)
      return fail(Code::protocol_error, "the contributions of the tree under rank {} are malformed", top);
    came[rank] = true;
    (*of_rank)[rank] = bytes;
  }
  if (count == expected) return {};
  return fail(Code::protocol_error, "{} contributions came from the tree under rank {}, which has {} ranks",
              count, top, expected);
}

}  // namespace weft::bootstrap
