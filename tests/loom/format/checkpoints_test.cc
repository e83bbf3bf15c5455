// Checkpoints are complete or not there, whenever the writer dies.
#include "format/checkpoints.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "support.h"

namespace loom::format {
namespace {

using testing::fails_with;
using testing::get_file;
using testing::put_file;
using testing::TemporaryFolder;

class CheckpointsTest : public ::testing::Test {
 protected:
  CheckpointsTest() : checkpoints_(Checkpoints::open(folder_ / "run", 2).take()) {}

  Status save(uint64_t step, std::string_view content = "weights") {
    LOOM_TRY(checkpoints_.begin(step));
    LOOM_TRY(write_file(join_path(checkpoints_.step_folder(step), "a.safetensors"), content));
    LOOM_TRY(checkpoints_.commit(step, {{"position", step * 2}}, {"a.safetensors"}));
    return checkpoints_.prune();
  }
  std::vector<uint64_t> complete() { return *checkpoints_.complete_steps(); }

  const TemporaryFolder folder_;
  Checkpoints checkpoints_;
};

TEST_F(CheckpointsTest, TheNewestIsFound) {
  EXPECT_FALSE(checkpoints_.latest()->has_value());  // not even a folder
  LOOM_ASSERT_OK(save(100));
  LOOM_ASSERT_OK(save(200));
  EXPECT_EQ(**checkpoints_.latest(), 200u);
  const Result<Json> manifest = read_manifest(checkpoints_.step_folder(200));
  LOOM_ASSERT_OK(manifest);
  EXPECT_EQ(manifest->at("step"), 200);
  EXPECT_EQ(manifest->at("position"), 400);
  EXPECT_EQ(manifest->at("files").at("a.safetensors"), 7);
}

TEST_F(CheckpointsTest, OnlySomeAreKept) {
  for (const uint64_t step : {8, 9, 10, 100'000'000}) LOOM_ASSERT_OK(save(step));
  EXPECT_EQ(complete(), (std::vector<uint64_t>{10, 100'000'000}));
  EXPECT_EQ(list_folder(folder_ / "run")->size(), 2u);
}

TEST_F(CheckpointsTest, PruningLeavesStrangersAndTheOneInTheMaking) {
  LOOM_ASSERT_OK(save(1));
  LOOM_ASSERT_OK(make_folders(folder_ / "run/notes"));
  LOOM_ASSERT_OK(make_folders(folder_ / "run/step-7"));         // not a name of ours
  LOOM_ASSERT_OK(make_folders(folder_ / "run/step-00000000"));  // interrupted, long ago
  LOOM_ASSERT_OK(checkpoints_.begin(2));
  LOOM_ASSERT_OK(checkpoints_.prune());
  EXPECT_EQ(*list_folder(folder_ / "run"),
            (std::vector<std::string>{"notes", "step-00000001", "step-00000002", "step-7"}));
}

TEST_F(CheckpointsTest, DamageIsNotComplete) {
  LOOM_ASSERT_OK(save(1));
  LOOM_ASSERT_OK(save(2));
  const std::string newest = checkpoints_.step_folder(2);
  put_file(join_path(newest, "a.safetensors"), "weight");
  EXPECT_TRUE(fails_with(read_manifest(newest), Code::invalid_data, "has 6 bytes, must be 7"));
  EXPECT_EQ(**checkpoints_.latest(), 1u);
  std::filesystem::remove(join_path(newest, "a.safetensors"));
  EXPECT_TRUE(fails_with(read_manifest(newest), Code::invalid_data, "has no file a.safetensors"));
  put_file(join_path(newest, "manifest.json"), R"({"format": "loom check)");
  EXPECT_TRUE(fails_with(read_manifest(newest), Code::invalid_data, "bad JSON"));
  put_file(join_path(newest, "manifest.json"), R"({"format": "loom checkpoint", "version": 2})");
  EXPECT_TRUE(
      fails_with(read_manifest(newest), Code::unsupported, "version 2, this program reads version 1"));
  std::filesystem::remove(join_path(newest, "manifest.json"));
  EXPECT_TRUE(fails_with(read_manifest(newest), Code::not_found, "was not completed"));
  EXPECT_EQ(complete(), std::vector<uint64_t>{1});
}

TEST_F(CheckpointsTest, WhatIsPassedOverIsTold) {
  LOOM_ASSERT_OK(save(1));
  LOOM_ASSERT_OK(save(2));
  const auto found = [&] {
    const Result<FoundCheckpoints> found = checkpoints_.find();
    EXPECT_TRUE(found.ok()) << found.status().message();
    return found.ok() ? *found : FoundCheckpoints();
  };
  LOOM_ASSERT_OK(checkpoints_.begin(3));  // and then it was killed
  EXPECT_EQ(found().newest, 2u);
  EXPECT_TRUE(found().damaged.empty());
  ASSERT_EQ(found().unfinished.size(), 1u);
  EXPECT_NE(found().unfinished[0].find(checkpoints_.step_folder(3) + " has no manifest.json"),
            std::string::npos)
      << found().unfinished[0];
  const std::string newest = checkpoints_.step_folder(2);
  put_file(join_path(newest, "a.safetensors"), "weight");
  EXPECT_EQ(found().newest, 1u);
  ASSERT_EQ(found().damaged.size(), 1u);
  EXPECT_NE(found().damaged[0].find("a.safetensors of " + newest + " has 6 bytes, must be 7"),
            std::string::npos)
      << found().damaged[0];
  put_file(join_path(checkpoints_.step_folder(1), "manifest.json"), "{");
  EXPECT_FALSE(found().newest.has_value());
  EXPECT_EQ(found().damaged.size(), 2u);
  EXPECT_EQ(found().unfinished.size(), 1u);
}

TEST_F(CheckpointsTest, WhatNobodyCanJudgeIsNeitherPassedOverNorRemoved) {
  for (const uint64_t step : {1, 2, 3}) LOOM_ASSERT_OK(save(step));
  const std::string newest = join_path(checkpoints_.step_folder(3), "manifest.json"),
                    before = join_path(checkpoints_.step_folder(2), "manifest.json");
  put_file(newest, R"({"format": "loom checkpoint", "version": 2})");
  EXPECT_TRUE(fails_with(checkpoints_.find(), Code::unsupported, "is of version 2"));
  std::filesystem::remove(newest);
  std::filesystem::create_symlink(newest, newest);  // nobody can open that, whoever it is
  EXPECT_TRUE(fails_with(checkpoints_.find(), Code::system_error, "cannot look at " + newest));
  put_file(before, R"({"format": "loom checkpoint", "version": 2})");
  std::filesystem::remove_all(checkpoints_.step_folder(3));
  for (const uint64_t step : {4, 5, 6}) LOOM_ASSERT_OK(save(step));
  EXPECT_EQ(complete(), (std::vector<uint64_t>{5, 6}));
  EXPECT_TRUE(is_file(before));
  std::filesystem::remove_all(folder_ / "run");
  std::filesystem::create_symlink(folder_ / "run", folder_ / "run");
  EXPECT_TRUE(fails_with(checkpoints_.find(), Code::system_error, "cannot look at"));
}

TEST_F(CheckpointsTest, HashesAreThoseOfTheFiles) {
  LOOM_ASSERT_OK(checkpoints_.begin(1));
  const std::string folder = checkpoints_.step_folder(1);
  Json hashes = Json::object();
  for (const std::string name : {"a", "b", "c"}) {
    put_file(join_path(folder, name), "weights of " + name);
    hashes[name] = hash_text(*hash_of_file(join_path(folder, name)));
  }
  LOOM_ASSERT_OK(checkpoints_.commit(1, {{kHashes, hashes}}, {"a", "b", "c"}));
  const Result<Json> manifest = read_manifest(folder);
  LOOM_ASSERT_OK(manifest);
  LOOM_ASSERT_OK(check_hashes(*manifest, folder));
  put_file(join_path(folder, "b"), "weights oF b");
  LOOM_ASSERT_OK(read_manifest(folder));
  EXPECT_TRUE(fails_with(check_hashes(*manifest, folder), Code::invalid_data, folder + "/b is damaged"));
  // Of two who share the work the second has it.
  LOOM_ASSERT_OK(check_hashes(*manifest, folder, 0, 2));
  EXPECT_TRUE(fails_with(check_hashes(*manifest, folder, 1, 2), Code::invalid_data, "/b is damaged"));
  LOOM_ASSERT_OK(check_hashes(Json::object(), folder));  // of an older version
  EXPECT_TRUE(fails_with(check_hashes({{kHashes, 3}}, folder), Code::invalid_data, "is no object"));
}

// A manifest could make a run read what is outside of the checkpoint, such as /dev/zero, which has no end.
TEST_F(CheckpointsTest, AManifestListsNothingOutsideOfItsFolder) {
  LOOM_ASSERT_OK(save(1));
  const std::string folder = checkpoints_.step_folder(1);
  Json manifest = *read_manifest(folder);
  manifest[kHashes] = {{"/dev/null", hash_text(*hash_of_file("/dev/null"))}};
  EXPECT_TRUE(fails_with(check_hashes(manifest, folder), Code::invalid_data, "hash of \"/dev/null\""));
  manifest["files"]["/dev/null"] = 0;
  put_file(join_path(folder, "manifest.json"), manifest.dump());
  EXPECT_TRUE(fails_with(read_manifest(folder), Code::invalid_data, "lists \"/dev/null\""));
}

// The number of sequences before such a step did not fit into 64 bits.
TEST_F(CheckpointsTest, AManifestHasAStepThatARunCanHave) {
  LOOM_ASSERT_OK(save(1));
  const std::string folder = checkpoints_.step_folder(1);
  Json manifest = *read_manifest(folder);
  for (const int64_t step : {int64_t{-1}, INT64_MAX}) {
    manifest["step"] = step;
    put_file(join_path(folder, "manifest.json"), manifest.dump());
    EXPECT_TRUE(fails_with(read_manifest(folder), Code::invalid_data, "\"step\" is"));
  }
}

TEST_F(CheckpointsTest, WhatAnInterruptedWriteLeftGoes) {
  LOOM_ASSERT_OK(save(1));
  LOOM_ASSERT_OK(checkpoints_.begin(2));
  put_file(join_path(checkpoints_.step_folder(2), "old.safetensors"), "x");
  LOOM_ASSERT_OK(save(2));
  EXPECT_EQ(*list_folder(checkpoints_.step_folder(2)),
            (std::vector<std::string>{"a.safetensors", "manifest.json"}));
  LOOM_ASSERT_OK(save(2, "better weights"));  // again, after going back to 1
  EXPECT_EQ(get_file(join_path(checkpoints_.step_folder(2), "a.safetensors")), "better weights");
}

TEST_F(CheckpointsTest, WhatARankHasWrittenElsewhereMakesNoCheckpoint) {
  LOOM_ASSERT_OK(checkpoints_.begin(1));
  put_file(join_path(checkpoints_.step_folder(1), "a"), "x");
  EXPECT_TRUE(fails_with(checkpoints_.commit(1, Json::object(), {"a", "b"}), Code::not_found, "lacks b"));
  EXPECT_FALSE(checkpoints_.latest()->has_value());
  LOOM_ASSERT_OK(checkpoints_.commit(1, Json::object(), {"a"}));
}

TEST_F(CheckpointsTest, FilesOfOtherProgramsComeAndGo) {
  LOOM_ASSERT_OK(checkpoints_.begin(1));
  const std::string step = checkpoints_.step_folder(1);
  for (const char* name : {"a", ".sync", ".sync.tmp"}) put_file(join_path(step, name), "x");
  LOOM_ASSERT_OK(checkpoints_.commit(1, Json::object(), {"a"}));
  for (const char* name : {".sync", ".sync.tmp"}) std::filesystem::remove(join_path(step, name));
  EXPECT_EQ(**checkpoints_.latest(), 1u);
}

TEST_F(CheckpointsTest, MistakesAreTold) {
  EXPECT_TRUE(fails_with(Checkpoints::open("x", 0), Code::invalid_argument, "at least 1"));
  LOOM_ASSERT_OK(checkpoints_.begin(1));
  EXPECT_TRUE(fails_with(checkpoints_.commit(1, Json::object(), {}), Code::invalid_argument, "gets no file"));
  put_file(join_path(checkpoints_.step_folder(1), "a"), "x");
  EXPECT_TRUE(fails_with(checkpoints_.commit(1, {{"files", 1}}, {"a"}), Code::invalid_argument,
                         "\"files\" is a key of the manifest"));
  LOOM_ASSERT_OK(checkpoints_.commit(1, Json::object(), {"a"}));
  EXPECT_TRUE(fails_with(checkpoints_.begin(1), Code::invalid_argument, "the only complete checkpoint"));
  put_file(folder_ / "file", "x");
  EXPECT_TRUE(fails_with(Checkpoints::open(folder_ / "file", 1)->begin(1), Code::invalid_argument,
                         "must be a folder"));
}

TEST_F(CheckpointsTest, AFullDiskLeavesTheOneBefore) {
  LOOM_ASSERT_OK(save(1));
  EXPECT_TRUE(testing::with_file_limit(
      1024, [&] { return save(2, std::string(10'000, 'x')).code() == Code::disk_full; }));
  EXPECT_EQ(**checkpoints_.latest(), 1u);
  EXPECT_TRUE(list_folder(checkpoints_.step_folder(2))->empty());
}

// A process saves step after step and is killed at random times: there is always a complete checkpoint, never
// older than the last that was told to be done.
TEST_F(CheckpointsTest, KilledWhileSaving) {
  LOOM_ASSERT_OK(save(1));
  uint64_t done = 1;
  for (int round = 0; round < 30; ++round) {
    int pipe[2];
    ASSERT_EQ(::pipe(pipe), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      for (uint64_t step = done + 1;; ++step) {
        if (!save(step, std::string(20'000, 'x')).ok()) ::_exit(1);
        if (::write(pipe[1], &step, sizeof(step)) != sizeof(step)) ::_exit(1);
      }
    }
    ::close(pipe[1]);
    uint64_t told = 0;
    // Let it finish one, then kill it somewhere inside the next.
    ASSERT_EQ(::read(pipe[0], &told, sizeof(told)), static_cast<ssize_t>(sizeof(told)));
    ::usleep(static_cast<useconds_t>(round) * 137);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    while (::read(pipe[0], &told, sizeof(told)) == static_cast<ssize_t>(sizeof(told))) {
    }
    ::close(pipe[0]);
    const std::optional<uint64_t> latest = *checkpoints_.latest();
    ASSERT_TRUE(latest.has_value());
    ASSERT_GE(*latest, told);
    LOOM_ASSERT_OK(read_manifest(checkpoints_.step_folder(*latest)));
    done = *latest;
  }
}

}  // namespace
}  // namespace loom::format
