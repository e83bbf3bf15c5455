// OfiPair: two ranks of this process over each provider under test, polled by hand.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "transport/ofi.h"
#include "transport/ofi_ranks.h"

namespace weft::transport::ofi_test {

inline Envelope envelope_of(uint32_t op, size_t bytes) {
  Envelope e;
  e.op = op, e.bytes = static_cast<uint32_t>(bytes);
  return e;
}

class OfiPair : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!is_offered(GetParam())) GTEST_SKIP() << "libfabric offers no " << GetParam() << " here";
    options_.provider = GetParam();
  }
  void open() {
    auto pair = introduced(2, options_);
    ASSERT_TRUE(pair.ok()) << pair.status().message();
    a_ = std::move((*pair)[0]), b_ = std::move((*pair)[1]);
  }
  /// Polls both until `over`.
  ::testing::AssertionResult until(const std::function<bool()>& over) {
    const Deadline deadline = Deadline::in_seconds(kPatienceS);
    while (!over()) {
      Result<int> at_a = a_->poll(a_sink_), at_b = b_->poll(b_sink_);
      if (!at_a || !at_b)
        return ::testing::AssertionFailure() << at_a.status().message() << at_b.status().message();
      if (deadline.passed()) return ::testing::AssertionFailure() << "nothing happens any more";
    }
    return ::testing::AssertionSuccess();
  }
  Result<Progress> put(const std::vector<char>& source, const RemoteBuffer& target, uint32_t op,
                       Completion* done) {
    return a_->put(1, envelope_of(op, source.size()), source.data(), source.size(), target, 0, done);
  }

  /// The same, polling both while there is no room.
  ::testing::AssertionResult put_both(const std::vector<char>& source, const RemoteBuffer& target,
                                      uint32_t op, Completion* done) {
    Result<Progress> outcome = Progress::busy;
    auto result = until([&] {
      outcome = put(source, target, op, done);
      return !outcome || *outcome == Progress::accepted;
    });
    return outcome ? result : ::testing::AssertionFailure() << outcome.status().message();
  }

  OfiOptions options_;
  std::unique_ptr<OfiTransport> a_, b_;
  FunctionSink a_sink_, b_sink_;
};

}  // namespace weft::transport::ofi_test
