#include "engine/gpu/capture_sets.h"

namespace weft::engine {

// A rank that chooses knows every earlier choice: it has come to all of them. A rank whose peers have chosen
// long ago may take a set for new that has been given away since, but then its choice does not count.
Result<uint32_t> CaptureSets::find(uint32_t capture, const std::function<Status(uint32_t set)>& clear) {
  uint32_t as_new = 0;
  for (auto set = static_cast<uint32_t>(capture_of_.size()) - 1; set > 0; --set) {
    const uint32_t last = capture_of_[set];
    if (board_->wants_clearing(set, last)) {
      WEFT_TRY(clear(set));
      board_->note_set_cleared(set, last);
    }
    if (board_->is_set_as_new(set, last)) as_new = set;
  }
  auto agreed = board_->agree_on_set(capture, as_new);
  if (agreed && *agreed > 0) capture_of_[*agreed] = capture;
  return agreed;
}

}  // namespace weft::engine
