#include "plan/staged_copies.h"

#include <algorithm>
#include <vector>

namespace weft::plan {
namespace {

constexpr uint64_t kAlign = 256;  // of the pieces of several rounds

/// Whether every reader gets other data.
bool to_each(const Request& request) {
  return request.collective == Collective::scatter || request.collective == Collective::all_to_all;
}

/// The longest piece of a block that is staged at a time.
uint64_t longest_piece(const Request& request, int ranks, uint64_t staging_bytes) {
  const uint64_t room = to_each(request) ? staging_bytes / static_cast<uint64_t>(ranks - 1) : staging_bytes;
  return request.bytes() <= room ? request.bytes() : room / kAlign * kAlign;
}

enum Notification : uint32_t { ready, done };  // of each round

class Maker {
 public:
  Maker(const Request& request, int ranks, int rank, uint64_t staging_bytes)
      : request_(request),
        ranks_(ranks),
        rank_(rank),
        piece_(longest_piece(request, ranks, staging_bytes)),
        b_(kStagedCopies, request, ranks, rank) {
    for (int k = 1; k < ranks; ++k) {
      const int peer = (rank + k) % ranks;
      if (gives(rank, peer)) readers_.push_back(peer);
      if (gives(peer, rank)) writers_.push_back(peer);
    }
    if (!readers_.empty())
      (void)b_.reserve(to_each(request) ? piece_ * static_cast<uint64_t>(ranks - 1) : piece_);
  }

  Plan make() {
    const uint64_t rounds = (request_.bytes() + piece_ - 1) / piece_;
    for (uint64_t round = 0; round < rounds; ++round) {
      if (round > 0) wait_for_readers(round - 1);
      do_round(round);
    }
    wait_for_readers(rounds - 1);
    return b_.finish();
  }

 private:
  bool gives(int from, int to) const {
    switch (request_.collective) {
      case Collective::broadcast:
      case Collective::scatter: return from == request_.root;
      case Collective::gather: return to == request_.root;
      default: return true;
    }
  }
  static uint32_t tag(uint64_t round, Notification what) { return static_cast<uint32_t>(2 * round) + what; }
  /// Where what a rank gives to another one begins in its input, and in its staging.
  uint64_t given_at(int to) const {
    return to_each(request_) ? static_cast<uint64_t>(to) * request_.bytes() : 0;
  }
  uint64_t staged_at(int from, int to) const {
    return to_each(request_) ? static_cast<uint64_t>(to < from ? to : to - 1) * piece_ : 0;
  }
  /// … and where it goes in the output.
  uint64_t taken_at(int from) const {
    const bool one =
        request_.collective == Collective::broadcast || request_.collective == Collective::scatter;
    return one ? 0 : static_cast<uint64_t>(from) * request_.bytes();
  }
  bool keeps_own() const { return gives(rank_, rank_); }

  void wait_for_readers(uint64_t round) {
    for (const int reader : readers_) b_.wait(0, reader, tag(round, done));
  }

  void do_round(uint64_t round) {
    const uint64_t at = round * piece_, bytes = std::min(piece_, request_.bytes() - at);
    stage(at, bytes);
    const Space scratch = round == 0 ? Space::scratch : Space::none;
    for (const int reader : readers_) b_.signal(0, reader, tag(round, ready), scratch);
    if (round == 0 && keeps_own())
      b_.copy(0, b_.input(given_at(rank_)), b_.output(taken_at(rank_)), request_.bytes());
    for (const int writer : writers_) b_.wait(0, writer, tag(round, ready), scratch);
    for (const int writer : writers_)
      b_.copy(0, {writer, Space::scratch, staged_at(writer, rank_)}, b_.output(taken_at(writer) + at), bytes);
    for (const int writer : writers_) b_.signal(0, writer, tag(round, done));
  }

  void stage(uint64_t at, uint64_t bytes) {
    if (readers_.empty()) return;
    if (!to_each(request_)) {
      b_.copy(0, b_.input(at), b_.scratch(), bytes);
    } else if (bytes == request_.bytes()) {  // blocks of both sides of the own one, as they lie
      stage_blocks(0, rank_);
      stage_blocks(rank_ + 1, ranks_);
    } else {
      for (const int reader : readers_)
        b_.copy(0, b_.input(given_at(reader) + at), b_.scratch(staged_at(rank_, reader)), bytes);
    }
  }
  void stage_blocks(int first, int end) {
    if (first >= end) return;
    b_.copy(0, b_.input(given_at(first)), b_.scratch(staged_at(rank_, first)),
            static_cast<uint64_t>(end - first) * request_.bytes());
  }

  const Request& request_;
  const int ranks_, rank_;
  const uint64_t piece_;
  std::vector<int> readers_, writers_;
  Builder b_;
};

}  // namespace

uint64_t staged_rounds(const Request& request, int ranks, uint64_t staging_bytes) {
  const uint64_t piece = longest_piece(request, ranks, staging_bytes);
  return piece == 0 ? UINT64_MAX : (request.bytes() + piece - 1) / piece;
}

Status staged_copies_fit(const Request& request, int ranks, uint64_t staging_bytes) {
  switch (request.collective) {
    case Collective::all_gather:
    case Collective::broadcast:
    case Collective::gather:
    case Collective::scatter:
    case Collective::all_to_all: break;
    default: return fail(Code::unsupported, "copy engines do no {}", name_of(request.collective));
  }
  if (request.uneven) return fail(Code::unsupported, "blocks of different sizes go step by step");
  if (ranks < 2 || request.bytes() == 0) return fail(Code::unsupported, "there is nothing to exchange");
  const uint64_t rounds = staged_rounds(request, ranks, staging_bytes);
  if (rounds > kMostStagedRounds)
    return fail(Code::unsupported,
                "{} bytes of staging (WEFT_CUDA_COPY_BYTES) hold less than a part in {} of it", staging_bytes,
                kMostStagedRounds);
  return {};
}

Plan make_staged_copies(const Request& request, int ranks, int rank, uint64_t staging_bytes) {
  return Maker(request, ranks, rank, staging_bytes).make();
}

}  // namespace weft::plan
