// Memory that a test unmaps in the middle of something, for what happens when somebody touches it then.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstring>

namespace weft::testing {

/// Zeroed pages that can be taken away. They lie at the low end of a range of 1 GiB which goes with them, and
/// the kernel gives out a hole from its high end on: nothing else comes to lie where they were.
class TakenAway {
 public:
  explicit TakenAway(size_t bytes)
      : bytes_(bytes),
        data_(mmap(nullptr, kRange, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                   0)) {
    EXPECT_NE(data_, MAP_FAILED);
    EXPECT_LE(bytes, kRange / 2);
    std::memset(data_, 0, bytes_);
  }
  ~TakenAway() {
    if (!gone_) munmap(data_, kRange);
  }
  TakenAway(const TakenAway&) = delete;
  TakenAway& operator=(const TakenAway&) = delete;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  void unmap() {
    EXPECT_EQ(munmap(data_, kRange), 0);
    gone_ = true;
  }
  /// Whether nothing is mapped where its first page was.
  bool is_gone() const {
    unsigned char in_core;
    return mincore(data_, 1, &in_core) != 0;
  }

 private:
  static constexpr size_t kRange = size_t{1} << 30;
  const size_t bytes_;
  void* const data_;
  bool gone_ = false;
};

}  // namespace weft::testing
