// The tuning cache: what is kept comes back, what is damaged is told and never believed.
#include "model/machine_cache.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

namespace weft::model {
namespace {

class MachineCache : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "weft-cache-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
    facts_.host = {{"cpu", "a \"quoted\" one"}, {"kernel", "6.1"}};
    facts_.active = 2;
    facts_.intra = "shared memory";
    machine_.name = "measured";
    machine_.intra.alpha_us = 0.125;
    machine_.memory.peer_us = 0.75;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string file() const { return cache_file(directory_, facts_); }
  void write(const std::string& text) const { std::ofstream(file()) << text; }
  std::string read() const {
    std::ifstream in(file());
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::string problem() const {
    const auto cached = find_cached(directory_, facts_);
    return cached.ok() ? "none" : cached.status().message();
  }

  std::string directory_;
  Facts facts_;
  Machine machine_;
};

TEST_F(MachineCache, GivesBackWhatWasKept) {
  ASSERT_TRUE(keep(directory_, facts_, machine_).ok());
  const auto cached = find_cached(directory_, facts_);
  ASSERT_TRUE(cached.ok()) << cached.status().message();
  ASSERT_TRUE(cached->has_value());
  EXPECT_EQ(to_json((*cached)->machine), to_json(machine_));
  EXPECT_EQ((*cached)->facts, facts_);
  EXPECT_FALSE((*cached)->measured_at.empty());
  for (const auto& entry : std::filesystem::directory_iterator(directory_))
    EXPECT_EQ(entry.path(), file()) << "nothing else is left behind";
}

TEST_F(MachineCache, DoesNotGiveBackWhatIsDoubtful) {
  topology::Host host;
  facts_.host = host_facts(host);
  ASSERT_TRUE(keep(directory_, facts_, machine_, "rows of messages took 4 to 3000 µs").ok());
  auto cached = find_cached(directory_, facts_);
  ASSERT_TRUE(cached.ok()) << cached.status().message();
  EXPECT_FALSE(cached->has_value());
  const std::vector<Cached> listed = list_cached(directory_, host);
  ASSERT_EQ(listed.size(), 1u) << "it is there to be looked at";
  EXPECT_EQ(listed[0].doubt, "rows of messages took 4 to 3000 µs");

  ASSERT_TRUE(keep(directory_, facts_, machine_).ok());
  machine_.intra.alpha_us = 99;
  ASSERT_TRUE(keep(directory_, facts_, machine_, "a doubt").ok());
  cached = find_cached(directory_, facts_);
  ASSERT_TRUE(cached.ok() && cached->has_value()) << "a doubtful one took its place";
  EXPECT_EQ((*cached)->machine.intra.alpha_us, 0.125);
}

TEST_F(MachineCache, GivesBackWhatWasKeptForFactsThatAreNotUtf8) {
  facts_.intra = "shared \xff memory";
  ASSERT_TRUE(keep(directory_, facts_, machine_).ok());
  const auto cached = find_cached(directory_, facts_);
  ASSERT_TRUE(cached.ok()) << cached.status().message();
  EXPECT_TRUE(cached->has_value());
}

TEST_F(MachineCache, HasNothingForOtherFacts) {
  ASSERT_TRUE(keep(directory_, facts_, machine_).ok());
  for (const auto& change : std::vector<std::function<void(Facts&)>>{
           [](Facts& f) { f.active = 1; }, [](Facts& f) { f.inter = "tcp"; },
           [](Facts& f) { f.threads = true; }, [](Facts& f) { f.host[1].second = "6.2"; },
           [](Facts& f) { f.one_machine = false; }}) {
    Facts other = facts_;
    change(other);
    const auto cached = find_cached(directory_, other);
    ASSERT_TRUE(cached.ok()) << cached.status().message();
    EXPECT_FALSE(cached->has_value());
  }
}

TEST_F(MachineCache, HasNothingWhereThereIsNoDirectory) {
  const auto cached = find_cached(directory_ + "/none", facts_);
  ASSERT_TRUE(cached.ok());
  EXPECT_FALSE(cached->has_value());
}

TEST_F(MachineCache, SaysWhatIsDamaged) {
  ASSERT_TRUE(keep(directory_, facts_, machine_).ok());
  const std::string good = read();
  for (size_t length = 0; length + 2 < good.size(); length += 37) {
    write(good.substr(0, length));
    EXPECT_NE(problem().find(file() + ": it is damaged: "), std::string::npos) << length << ": " << problem();
  }
  write(std::string(good.size(), '\xff'));
  EXPECT_NE(problem().find("it is damaged"), std::string::npos) << problem();
  write(good + std::string(100 << 10, ' '));
  EXPECT_NE(problem().find("longer than 65536 bytes"), std::string::npos) << problem();
  write("[]");
  EXPECT_NE(problem().find("it is damaged"), std::string::npos) << problem();

  const auto replaced = [&](std::string_view from, std::string_view to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  write(replaced("\"format\": 17", "\"format\": 99"));
  EXPECT_NE(problem().find("it has format 99, this library reads 17"), std::string::npos) << problem();
  write(replaced("\"alpha_us\": 0.125", "\"alpha_us\": -1"));
  EXPECT_NE(problem().find("intra.alpha_us is -1"), std::string::npos) << problem();
  write(replaced("\"kernel\": \"6.1\"", "\"kernel\": \"5.0\""));
  EXPECT_NE(problem().find("another machine"), std::string::npos) << problem();
  write(replaced("\"kernel\": \"6.1\"", "\"kernel\": 6"));
  EXPECT_NE(problem().find("it is damaged"), std::string::npos) << problem();
  write(replaced("\"measured_at\"", "\"doubts\": \"\",\n  \"measured_at\""));
  EXPECT_NE(problem().find("unknown key \"doubts\"; did you mean \"doubt\"?"), std::string::npos)
      << problem();
  write(replaced("\"active\"", "\"activ\": 2, \"active\""));
  EXPECT_NE(problem().find("unknown key \"facts.activ\"; did you mean \"facts.active\"?"), std::string::npos)
      << problem();
  write(replaced("\"rails\"", "\"rails\": 1, \"rails\""));
  EXPECT_NE(problem().find("the key \"machine.rails\" is there twice"), std::string::npos) << problem();
  EXPECT_EQ(damaged_files(directory_).size(), 1u);

  ASSERT_TRUE(keep(directory_, facts_, machine_).ok());
  EXPECT_EQ(problem(), "none") << "a new measurement takes its place";
}

TEST_F(MachineCache, SaysWhyItCannotKeep) {
  std::ofstream(directory_ + "/file") << "not a directory";
  const Status kept = keep(directory_ + "/file", facts_, machine_);
  EXPECT_FALSE(kept.ok());
  EXPECT_NE(kept.message().find(directory_ + "/file"), std::string::npos) << kept.message();
  std::filesystem::create_directory(file());
  EXPECT_FALSE(keep(directory_, facts_, machine_).ok());
  EXPECT_NE(problem().find("tuning cache"), std::string::npos)
      << "a directory in the file's place: " << problem();
}

TEST_F(MachineCache, LetsWritersAndReadersMeet) {
  std::atomic<bool> stop = false;
  std::vector<std::thread> writers;
  for (int i = 0; i < 3; ++i)
    writers.emplace_back([&] {
      while (!stop) EXPECT_TRUE(keep(directory_, facts_, machine_).ok());
    });
  for (int i = 0; i < 300; ++i) EXPECT_EQ(problem(), "none");
  stop = true;
  for (auto& writer : writers) writer.join();
}

TEST_F(MachineCache, ListsThisHostsMeasurementsOnly) {
  const topology::Host host = [] {
    topology::Host h;
    h.cpus.resize(4);
    return h;
  }();
  ASSERT_TRUE(keep(directory_, facts_, machine_).ok());
  EXPECT_TRUE(list_cached(directory_, host).empty());
  facts_.host = host_facts(host);
  ASSERT_TRUE(keep(directory_, facts_, machine_).ok());
  EXPECT_EQ(list_cached(directory_, host).size(), 1u);
  EXPECT_TRUE(list_cached(directory_ + "/none", host).empty());
}

}  // namespace
}  // namespace weft::model
