// What NCCL added after 2.28.9, on communicators of Weft: collectives with a configuration, windows,
// encryption and properties. And which of NCCL's functions are answered with an error there: those, and no
// others, that docs/reference/nccl-shim.md lists.
#include <array>
#include <cstddef>
#include <fstream>
#include <latch>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <thread>
#include <tuple>

#include "shim_host.h"

namespace weft::nccl_shim_test::newer_functions_test {
namespace {

const Environment kWeft = {{"WEFT_BACKEND", "weft"}, {"WEFT_NCCL_LIBRARY", "/nowhere/libnccl.so.2"}};

bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// As NCCL_COLLCONFIG_INITIALIZER makes it.
nccl::CollConfig coll_config() {
  nccl::CollConfig config{};
  config.size = sizeof config;
  config.magic = nccl::kConfigMagic;
  config.version = nccl::kVersionCode;
  for (int* member :
       {&config.min_ctas, &config.max_ctas, &config.nvls_ctas, &config.cga_cluster_size, &config.cta_policy})
    *member = nccl::kUndefined;
  config.force_algorithms = 1;
  return config;
}

nccl::EncryptionConfig encryption(int mode) {
  return {sizeof(nccl::EncryptionConfig), nccl::kConfigMagic, nccl::kVersionCode, mode, "a key"};
}

using Floats = std::vector<float>;

/// Every collective with a configuration, as one of two ranks.
void every_configured_collective(const Shim& shim, int rank, Comm_t comm, const nccl::CollConfig* config) {
  const float mine = static_cast<float>(rank + 1);
  Floats in(2, mine), pair{mine * 10, mine * 10 + 1}, out(2);
  NCCL_OK(shim->AllReduceConfig(in.data(), out.data(), 2, kFloat, kSum, comm, nullptr, config));
  EXPECT_EQ(out, Floats(2, 3.f));
  NCCL_OK(shim->BroadcastConfig(in.data(), out.data(), 2, kFloat, 1, comm, nullptr, config));
  EXPECT_EQ(out, Floats(2, 2.f));
  NCCL_OK(shim->ReduceConfig(in.data(), out.data(), 2, kFloat, kMax, 0, comm, nullptr, config));
  EXPECT_EQ(out, Floats(2, 2.f));
  NCCL_OK(shim->AllGatherConfig(in.data(), out.data(), 1, kFloat, comm, nullptr, config));
  EXPECT_EQ(out, (Floats{1, 2}));
  NCCL_OK(shim->ReduceScatterConfig(pair.data(), out.data(), 1, kFloat, kSum, comm, nullptr, config));
  EXPECT_EQ(out[0], 30 + 2 * static_cast<float>(rank));
  NCCL_OK(shim->AlltoAllConfig(pair.data(), out.data(), 1, kFloat, comm, nullptr, config));
  EXPECT_EQ(out, (Floats{10.f + static_cast<float>(rank), 20.f + static_cast<float>(rank)}));
  NCCL_OK(shim->GatherConfig(in.data(), out.data(), 1, kFloat, 1, comm, nullptr, config));
  if (rank == 1) {
    EXPECT_EQ(out, (Floats{1, 2}));
  }
  NCCL_OK(shim->ScatterConfig(pair.data(), out.data(), 1, kFloat, 1, comm, nullptr, config));
  EXPECT_EQ(out[0], 20 + static_cast<float>(rank));
}

TEST(NewerFunctions, ConfiguredCollectivesAreThoseWithoutAConfiguration) {
  in_process(kWeft, [] {
    const Shim shim;
    on_threads(shim, 2, [&](int rank, Comm_t comm) {
      every_configured_collective(shim, rank, comm, nullptr);
      nccl::CollConfig config = coll_config();
      config.max_ctas = 4;
      config.profiler_tag = 7;
      every_configured_collective(shim, rank, comm, &config);
      config.algorithms = "ring";
      config.force_algorithms = 0;
      config.size = offsetof(nccl::CollConfig, launch_completion_event);  // 2.31's
      config.launch_completion_event = &config;
      every_configured_collective(shim, rank, comm, &config);
    });
  });
}

TEST(NewerFunctions, AConfigurationThatWeftCannotFollowIsRefused) {
  in_process(kWeft, [] {
    const Shim shim;
    on_threads(shim, 1, [&](int, Comm_t comm) {
      float value = 1;
      const auto refused = [&](const nccl::CollConfig& config, Result_t code, const std::string& part) {
        EXPECT_EQ(shim->AllReduceConfig(&value, &value, 1, kFloat, kSum, comm, nullptr, &config), code);
        EXPECT_TRUE(mentions(shim.last_error(), "ncclAllReduceConfig: " + part)) << shim.last_error();
      };
      nccl::CollConfig config = coll_config();
      config.algorithms = "ring";
      refused(config, nccl::kInvalidUsage, "config.algSelection is 'ring' and forceAlgSelection is 1");
      config = coll_config();
      config.launch_completion_event = &value;
      refused(config, nccl::kInvalidUsage, "config.launchCompletionEvent is set");
      refused({}, nccl::kInvalidArgument, "config does not start as NCCL_COLLCONFIG_INITIALIZER");
    });
  });
}

/// A program that takes success at its word uses the window.
TEST(NewerFunctions, AWindowIsNeverNullWithSuccess) {
  in_process(kWeft, [] {
    const Shim shim;
    on_threads(shim, 2, [&](int, Comm_t comm) {
      Floats memory(1024, 1.f), expected(1024, 2.f);
      nccl::Window_t first = nullptr, second = nullptr;
      NCCL_OK(shim->CommWindowRegister(comm, memory.data(), 2048, &first, nccl::kWindowSymmetric));
      NCCL_OK(shim->CommWindowRegister(comm, memory.data() + 512, 2048, &second, 0));
      EXPECT_NE(first, nullptr);
      EXPECT_NE(first, second);
      NCCL_OK(shim->AllReduce(memory.data(), memory.data(), 1024, kFloat, kSum, comm, nullptr));
      EXPECT_EQ(memory, expected);
      void* pointer = nullptr;
      NCCL_OK(shim->WinGetUserPtr(comm, second, &pointer));
      EXPECT_EQ(pointer, memory.data() + 512);
      NCCL_OK(shim->CommWindowDeregister(comm, first));
      const auto refused = [&](Result_t result, Result_t code, const std::string& part) {
        EXPECT_EQ(result, code) << part;
        EXPECT_TRUE(mentions(shim.last_error(), part)) << shim.last_error();
      };
      refused(shim->CommWindowDeregister(comm, first), nccl::kInvalidArgument,
              "no window of this communicator");
      refused(shim->WinGetUserPtr(comm, first, &pointer), nccl::kInvalidArgument,
              "ncclWinGetUserPtr: win is");
      refused(shim->WinGetUserPtr(comm, nullptr, &pointer), nccl::kInvalidArgument, "no window of this");
      refused(shim->GetPeerDevicePointer(nullptr, 0, 0, &pointer), nccl::kInvalidArgument, "window is NULL");
      refused(shim->CommWindowRegister(comm, memory.data(), 4, nullptr, 0), nccl::kInvalidArgument,
              "win is NULL");
      refused(shim->CommWindowRegister(comm, memory.data(), 4, &first, 4), nccl::kInvalidUsage,
              "winFlags is 0x4");
      first = second;
      refused(shim->CommWindowRegister(comm, memory.data(), 0, &first, 0), nccl::kInvalidArgument,
              "size is 0");
      EXPECT_EQ(first, nullptr);
      first = second;
      refused(shim->CommWindowRegister(comm, nullptr, 4, &first, 0), nccl::kInvalidArgument, "buff is NULL");
      EXPECT_EQ(first, nullptr);
      NCCL_OK(shim->CommWindowDeregister(comm, nullptr));
    });  // the second window's registration goes with its communicator
    on_threads(shim, 1, [&](int, Comm_t comm) {
      EXPECT_EQ(shim->CommWindowDeregister(comm, reinterpret_cast<nccl::Window_t>(2)),
                nccl::kInvalidArgument);
    });
  });
}

/// Registrations of a group are made when it ends, which may be after the communicator's last call.
TEST(NewerFunctions, AWindowMayEndInTheGroupThatMakesIt) {
  in_process(kWeft, [] {
    const Shim shim;
    Floats memory(16);
    for (int ends = 0; ends < 2; ++ends)
      on_threads(shim, 2, [&](int, Comm_t comm) {
        nccl::Window_t window = nullptr;
        Comm_t child = nullptr;
        NCCL_OK(shim->CommSplit(comm, 0, 0, &child, nullptr));
        NCCL_OK(shim->GroupStart());
        NCCL_OK(shim->CommWindowRegister(child, memory.data(), 64, &window, 0));
        if (ends > 0) NCCL_OK(shim->CommDestroy(child));
        else {
          EXPECT_EQ(shim->CommWindowDeregister(child, window), nccl::kInvalidUsage);
          EXPECT_TRUE(mentions(shim.last_error(), "has not ended, or has failed")) << shim.last_error();
        }
        NCCL_OK(shim->GroupEnd());
        if (ends > 0) return;
        NCCL_OK(shim->CommWindowDeregister(child, window));
        NCCL_OK(shim->CommDestroy(child));
      });
  });
}

struct WaitDescriptor {
  int count, peer, signal, context;
};

TEST(NewerFunctions, ARankPutsIntoTheWindowOfAnother) {
  in_process(kWeft, [] {
    const Shim shim;
    on_threads(shim, 2, [&](int rank, Comm_t comm) {
      Floats memory(1024, 0.f);
      const Floats source(512, static_cast<float>(rank + 1));
      nccl::Window_t window = nullptr;
      NCCL_OK(shim->CommWindowRegister(comm, memory.data(), 4096, &window, nccl::kWindowSymmetric));
      NCCL_OK(shim->GroupStart());
      NCCL_OK(shim->PutSignal(source.data(), 512, kFloat, 1 - rank, window, 2048, 3, 1, 0, comm, nullptr));
      NCCL_OK(shim->Signal(1 - rank, 0, 0, 0, comm, nullptr));
      NCCL_OK(shim->GroupEnd());
      WaitDescriptor awaited[] = {{1, 1 - rank, 3, 1}, {1, 1 - rank, 0, 0}};
      NCCL_OK(shim->WaitSignal(2, awaited, comm, nullptr));
      EXPECT_EQ(memory[511], 0.f);
      EXPECT_EQ(memory[512], static_cast<float>(2 - rank));
      EXPECT_EQ(memory[1023], static_cast<float>(2 - rank));
      EXPECT_EQ(shim->PutSignal(source.data(), 512, kFloat, 1 - rank, window, 2052, 0, 0, 0, comm, nullptr),
                nccl::kInvalidArgument);
      EXPECT_TRUE(mentions(shim.last_error(), "which has 4096 bytes")) << shim.last_error();
      EXPECT_EQ(shim->PutSignal(source.data(), 1, kFloat, 1 - rank, nullptr, 0, 0, 0, 0, comm, nullptr),
                nccl::kInvalidArgument);
      NCCL_OK(shim->CommWindowDeregister(comm, window));
    });
  });
}

TEST(NewerFunctions, ACommunicatorGrows) {
  in_process(kWeft, [] {
    const Shim shim;
    UniqueId id;
    std::latch made(2);
    const auto use = [&](Comm_t grown, int expected) {
      int rank = -1;
      float value = 1;
      NCCL_OK(shim->CommUserRank(grown, &rank));
      EXPECT_EQ(rank, expected);
      NCCL_OK(shim->AllReduce(&value, &value, 1, kFloat, kSum, grown, nullptr));
      EXPECT_EQ(value, 3.f);
      NCCL_OK(shim->CommDestroy(grown));
    };
    std::thread joins([&] {
      made.arrive_and_wait();
      Comm_t grown = nullptr;
      NCCL_OK(shim->CommGrow(nullptr, 3, &id, 2, &grown, nullptr));
      use(grown, 2);
    });
    on_threads(shim, 2, [&](int rank, Comm_t comm) {
      Comm_t grown = nullptr;
      if (rank == 0) {
        NCCL_OK(shim->CommGetUniqueId(comm, &id));
        made.arrive_and_wait();
      }
      NCCL_OK(shim->CommGrow(comm, 3, rank == 0 ? &id : nullptr, -1, &grown, nullptr));
      use(grown, rank);
    });
    joins.join();
  });
}

TEST(NewerFunctions, EncryptionIsRefusedAndNoneIsNot) {
  in_process(kWeft, [] {
    const Shim shim;
    nccl::EncryptionConfig config = encryption(nccl::kNoEncryption);
    NCCL_OK(shim->SetEncryption(&config));
    config.size = 4;
    EXPECT_EQ(shim->SetEncryption(&config), nccl::kInvalidArgument);
    EXPECT_EQ(shim->SetEncryption(nullptr), nccl::kInvalidArgument);
  });
}

TEST(NewerFunctions, PropertiesAndTeamsSayThatThereIsNoDeviceApi) {
  in_process(kWeft, [] {
    const Shim shim;
    on_threads(shim, 2, [&](int rank, Comm_t comm) {
      nccl::CommProperties properties{};
      properties.size = offsetof(nccl::CommProperties, lsa_teams);
      properties.magic = nccl::kConfigMagic;
      properties.device_api = true;
      properties.lsa_teams = 42;  // beyond what a program of 2.29.2 has
      NCCL_OK(shim->CommQueryProperties(comm, &properties));
      EXPECT_EQ(properties.ranks, 2);
      EXPECT_EQ(properties.rank, rank);
      EXPECT_EQ(properties.cuda_device, -1);
      EXPECT_FALSE(properties.device_api);
      EXPECT_EQ(properties.lsa_teams, 42);
      properties.size = sizeof properties;
      NCCL_OK(shim->CommQueryProperties(comm, &properties));
      EXPECT_EQ(properties.lsa_teams, 2);
      properties.magic = 0;
      EXPECT_EQ(shim->CommQueryProperties(comm, &properties), nccl::kInvalidArgument);
      EXPECT_EQ(shim->TeamCft(comm, 0).ranks, 1);
      EXPECT_EQ(shim->TeamCftMultimem(comm).ranks, 1);
    });
    EXPECT_STREQ(shim->GetErrorString(nccl::kTimeout), "timeout");
  });
}

/// A function's answer on a communicator of Weft. A function that returns no code refuses by its sentence.
struct Answer {
  bool refused;
  std::string sentence;
};

/// Calls each function once, with arguments that let it come as far as asking whose the communicator is.
class Calls {
 public:
  explicit Calls(const Shim& shim) : shim_(shim) {}

  template <typename Value, typename... Parameters>
  Answer operator()(Value (*function)(Parameters...)) {
    memory_.fill(std::byte{0});
    UniqueId id;
    EXPECT_EQ(shim_->GetUniqueId(&id), nccl::kSuccess);
    EXPECT_EQ(shim_->CommInitRank(&comm_, 1, id, 0), nccl::kSuccess) << shim_.last_error();
    EXPECT_EQ(shim_->CommWindowRegister(comm_, memory_.data(), 8, &window_, 0), nccl::kSuccess);
    EXPECT_EQ(shim_->GetVersion(nullptr), nccl::kInvalidArgument);  // for a sentence that is known
    const std::string before = shim_.last_error();
    EXPECT_EQ(shim_->GroupStart(), nccl::kSuccess);
    const Result_t code = call(function, std::index_sequence_for<Parameters...>());
    const std::string after = shim_.last_error();
    while (shim_->GroupEnd() == nccl::kSuccess) {
    }  // the function may have been ncclGroupStart
    return {std::is_same_v<Value, Result_t> ? code == nccl::kInvalidUsage : after != before, after};
  }

 private:
  static constexpr size_t kRoom = 256;  // what an argument points to

  template <typename Value, typename... Parameters, size_t... places>
  Result_t call(Value (*function)(Parameters...), std::index_sequence<places...>) {
    if constexpr (std::is_same_v<Value, Result_t>) {
      return function(argument<Parameters>(places)...);
    } else {
      (void)function(argument<Parameters>(places)...);
      return nccl::kSuccess;
    }
  }
  template <typename Argument>
  Argument argument(size_t place) {
    if constexpr (std::is_same_v<Argument, Comm_t>) return comm_;
    else if constexpr (std::is_same_v<Argument, nccl::Window_t>) return window_;
    else if constexpr (std::is_same_v<Argument, const nccl::EncryptionConfig*>) return &encryption_;
    else if constexpr (std::is_same_v<Argument, nccl::Config*>) return nullptr;
    else if constexpr (std::is_same_v<Argument, const nccl::CollConfig*>) return nullptr;
    else if constexpr (std::is_pointer_v<Argument>)
      return reinterpret_cast<Argument>(memory_.data() + place * kRoom);
    else return Argument{};
  }

  const Shim& shim_;
  Comm_t comm_ = nullptr;
  nccl::Window_t window_ = nullptr;
  nccl::EncryptionConfig encryption_ = encryption(1);
  alignas(64) std::array<std::byte, 11 * kRoom> memory_{};
};

/// The rows `| ncclName, … | code | "sentence" |` of the page: of each name a part of its sentence.
std::map<std::string, std::string> documented_refusals() {
  std::map<std::string, std::string> refusals;
  std::ifstream page(WEFT_NCCL_SHIM_PAGE);
  const std::regex row(R"(\| (`nccl.*`) \| `ncclInvalidUsage` \| (.*) \|)"), name("`nccl([A-Za-z0-9]+)`");
  std::smatch found;
  for (std::string line; std::getline(page, line);) {
    if (!std::regex_match(line, found, row)) continue;
    const std::string names = found[1], sentence = found[2];
    for (std::sregex_iterator each(names.begin(), names.end(), name), end; each != end; ++each)
      EXPECT_TRUE(refusals.emplace((*each)[1], sentence).second) << (*each)[1] << " stands there twice";
  }
  return refusals;
}

/// The functions of symbols.txt that only NCCL has, says its last column.
std::set<std::string> only_of_nccl() {
  std::set<std::string> names;
  std::ifstream file(WEFT_NCCL_SYMBOLS);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name, since, header, whose;
    words >> name >> since >> header >> whose;
    if (!line.starts_with("#") && whose != "weft") names.insert(name);
  }
  return names;
}

TEST(NewerFunctions, WhatWeftRefusesIsWhatThePageLists) {
  in_process(kWeft, [] {
    std::map<std::string, std::string> page = documented_refusals();
    std::set<std::string> listed = only_of_nccl();
    EXPECT_GT(page.size(), 20u) << "no table in " << WEFT_NCCL_SHIM_PAGE;
    const Shim shim;
    Calls calls(shim);
    const auto check = [&](const std::string& name, const Answer& answer) {
      EXPECT_EQ(answer.refused, page.count(name) == 1) << "nccl" << name << ": " << answer.sentence;
      if (!answer.refused) return;
      EXPECT_TRUE(mentions(answer.sentence, "nccl" + name + ": ")) << answer.sentence;
      EXPECT_TRUE(mentions(answer.sentence, page[name])) << answer.sentence << " lacks " << page[name];
      EXPECT_EQ(listed.count(name), name == "CommCuDevice" ? 0u : 1u) << name;  // with a GPU it answers
      page.erase(name);
      listed.erase(name);
    };
#define CHECK_ANSWER(name, returns, parameters) check(#name, calls(shim->name));
    WEFT_NCCL_FUNCTIONS(CHECK_ANSWER)
#undef CHECK_ANSWER
    for (const auto& [name, sentence] : page) ADD_FAILURE() << name << " is not refused";
    listed.erase("ParamDumpAll");  // prints nothing, and returns nothing
    for (const std::string& name : listed) ADD_FAILURE() << name << " is not refused";
  });
}

}  // namespace
}  // namespace weft::nccl_shim_test::newer_functions_test
