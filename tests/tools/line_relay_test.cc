// One rank's output among that of others: what a turn takes of it, and what becomes of it when it is given
// up.
#include "run/line_relay.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace weft::run {
namespace {

constexpr int kMuch = 1 << 20;  // what a pipe can be made to hold without privileges

/// A rank that has written as much as its pipe takes.
class Writer {
 public:
  Writer() {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    source.reset(ends[0]);
    sink_.reset(ends[1]);
    EXPECT_GE(fcntl(sink_.get(), F_SETPIPE_SZ, kMuch), kMuch);
    const std::string lines(kMuch, '\n');
    EXPECT_EQ(write(sink_.get(), lines.data(), lines.size()), kMuch);
  }
  UniqueFd source;

 private:
  UniqueFd sink_;
};

int left_in(int fd) {
  int bytes = -1;
  EXPECT_EQ(ioctl(fd, FIONREAD, &bytes), 0);
  return bytes;
}

TEST(LineRelay, LeavesTheOthersTheirTurn) {
  Writer writer;
  const UniqueFd nowhere(open("/dev/null", O_WRONLY | O_CLOEXEC));
  LineRelay relay(std::move(writer.source), nowhere.get(), "", [](int) { return true; });
  relay.pump();
  const int left = left_in(relay.fd());
  EXPECT_GT(left, 0);
  EXPECT_LT(left, kMuch);
}

TEST(LineRelay, GivesUpWhereItsSinkTakesNothing) {
  Writer writer;
  const UniqueFd nowhere(open("/dev/null", O_WRONLY | O_CLOEXEC));
  LineRelay relay(std::move(writer.source), nowhere.get(), "", [](int) { return false; });
  relay.pump();
  EXPECT_TRUE(relay.done());
}

}  // namespace
}  // namespace weft::run
