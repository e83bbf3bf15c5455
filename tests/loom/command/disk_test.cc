// A full disk: a small file system that only the processes of the test see. Nothing that was whole is lost,
// and the error says what did not fit. With room again, work goes on. (crash_test.cc limits the size of
// files, so that each kind of file meets its end.)
#include <regex>

#include "command/processes.h"

namespace loom::testing {
namespace {

class Disk : public Command {
 protected:
  static constexpr char kAlone[] = "unshare --user --map-root-user --mount ";

  void SetUp() override {
    const Outcome allowed = shell(fmt::format("{}mount -t tmpfs tmpfs '{}'", kAlone, folder_.path()));
    if (allowed.code != 0) GTEST_SKIP() << "no mounts in a namespace of one's own here: " << allowed.text;
    Command::SetUp();
    std::filesystem::create_directory(disk());
  }
  std::string disk() const { return folder_ / "disk"; }
  /// Runs a script that finds 8 MiB at disk(), with `leave N`, which fills all but N KiB of it.
  Outcome on_disk(const std::string& script) const {
    put_file(folder_ / "script.sh", fmt::format("mount -t tmpfs -o size=8m tmpfs '{0}' || exit 99\n"
                                                "leave() {{\n"
                                                "  rm -f '{0}/filler'\n"
                                                "  free=$(df --output=avail -k '{0}' | tail -1)\n"
                                                "  head -c $(((free - $1) * 1024)) /dev/zero > '{0}/filler'\n"
                                                "}}\n{1}",
                                                disk(), script));
    return shell(fmt::format("{}sh '{}'", kAlone, folder_ / "script.sh"));
  }
};

/// A checkpoint has some 200 KiB from each of two ranks, and there is room for one file. A file
/// takes its room page by page, so one rank fails, or both do. A rank that has room ends with the other's
/// error.
TEST_F(Disk, ThatIsFullInTheMiddleOfACheckpointLeavesTheOneBefore) {
  const std::string run =
      WEFT_RUN " -n 2 --no-label --keep-going --timeout 120 " +
      train("--parallel.sharded_data_parallel_degree=2 --run.checkpoint_every=4 --run.out=" + disk() +
            "/run ");
  const Outcome outcome =
      on_disk(fmt::format("{0} --run.steps=4 || exit 98\n"
                          "leave 330\n"
                          "{0} --run.steps=12; echo \"full: $?\"\n"
                          "{1} inspect '{2}/run/checkpoints/step-00000004' || exit 97\n"
                          "test ! -e '{2}/run/checkpoints/step-00000008/manifest.json' || exit 96\n"
                          "find '{2}' -name '*.tmp' | grep . && exit 95\n"
                          "rm '{2}/filler'\n"
                          "{0} --run.steps=8; echo \"again: $?\"\n",
                          run, LOOM_PROGRAM, disk()));
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_NE(outcome.text.find("full: 1\n"), std::string::npos) << outcome.text;
  EXPECT_NE(outcome.text.find("No space left on device"), std::string::npos) << outcome.text;
  EXPECT_NE(outcome.text.find("step-00000008/state-0000"), std::string::npos) << outcome.text;
  const std::regex sentence("loom: (rank [01]: )?cannot reserve ");
  EXPECT_EQ(std::distance(std::sregex_iterator(outcome.text.begin(), outcome.text.end(), sentence), {}), 2)
      << "each rank ends with its own sentence or with the other's: " << outcome.text;
  EXPECT_NE(outcome.text.find("a complete checkpoint, with the hashes of its 2 files\n"), std::string::npos)
      << outcome.text;
  EXPECT_NE(outcome.text.find("resumed after step 4\n"), std::string::npos) << outcome.text;
  EXPECT_NE(outcome.text.find("again: 0\n"), std::string::npos) << outcome.text;
}

TEST_F(Disk, ThatIsFullEndsTokenizingWithoutHalfADataset) {
  std::string text;
  for (int i = 0; i < 60'000; ++i) text += fmt::format("line {} of many\n", i);
  put_file(folder_ / "long.txt", text);  // 2 MB of tokens
  const std::string tokenize =
      fmt::format("{} tokenize '{}' --out '{}/data'", LOOM_PROGRAM, folder_ / "long.txt", disk());
  const Outcome outcome =
      on_disk(fmt::format("leave 500\n"
                          "timeout 60 {0}; echo \"full: $?\"\n"
                          "test ! -e '{2}/data/dataset.json' || exit 98\n"
                          "find '{2}' -name '*.tmp' | grep . && exit 97\n"
                          "{1} inspect '{2}/data'; echo \"inspected: $?\"\n"
                          "rm '{2}/filler'\n"
                          "{0} && {1} inspect '{2}/data'; echo \"again: $?\"\n",
                          tokenize, LOOM_PROGRAM, disk()));
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_NE(outcome.text.find("full: 1\n"), std::string::npos) << outcome.text;
  EXPECT_NE(outcome.text.find(".tokens: No space left on device"), std::string::npos) << outcome.text;
  EXPECT_NE(outcome.text.find("inspected: 1\n"), std::string::npos) << outcome.text;
  EXPECT_NE(outcome.text.find("again: 0\n"), std::string::npos) << outcome.text;
}

}  // namespace
}  // namespace loom::testing
