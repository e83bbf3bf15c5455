// Programs of NCCL whose communicators are the real NCCL's, of which a fake stands here: what reaches it,
// what comes back, and which NCCL is found. Who gets a communicator is decisions_test.cc's.
#include <algorithm>
#include <filesystem>

#include "shim_host.h"

namespace weft::nccl_shim_test::over_nccl_test {
namespace {

using Floats = std::vector<float>;

const Environment kNccl = {{"WEFT_BACKEND", "nccl"}, {"WEFT_NCCL_LIBRARY", kFakeNccl}};

bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(OverNccl, CallsReachNcclAndResultsComeBack) {
  in_process(kNccl, [] {
    const Shim shim;
    on_threads(shim, 3, [&](int rank, Comm_t comm) {
      int value = -1;
      NCCL_OK(shim->CommCount(comm, &value));
      EXPECT_EQ(value, 3);
      NCCL_OK(shim->CommUserRank(comm, &value));
      EXPECT_EQ(value, rank);
      NCCL_OK(shim->CommCuDevice(comm, &value));
      EXPECT_EQ(value, rank);
      Floats in(2, static_cast<float>(rank + 1)), out(2), all(6);
      NCCL_OK(shim->AllReduce(in.data(), out.data(), 2, kFloat, kSum, comm, nullptr));
      EXPECT_EQ(out, Floats(2, 6.f));
      NCCL_OK(shim->AllGather(in.data(), all.data(), 2, kFloat, comm, nullptr));
      EXPECT_EQ(all, (Floats{1, 1, 2, 2, 3, 3}));
      NCCL_OK(shim->ReduceScatter(all.data(), out.data(), 2, kFloat, kSum, comm, nullptr));
      EXPECT_EQ(out[0], 3.f * static_cast<float>(rank + 1));
      NCCL_OK(shim->Reduce(in.data(), out.data(), 2, kFloat, kAvg, 0, comm, nullptr));
      if (rank == 0) {
        EXPECT_EQ(out, Floats(2, 2.f));
      }
      NCCL_OK(shim->Bcast(in.data(), 2, kFloat, 2, comm, nullptr));
      EXPECT_EQ(in, Floats(2, 3.f));
      const int next = (rank + 1) % 3, previous = (rank + 2) % 3;
      in.assign(2, static_cast<float>(rank));
      NCCL_OK(shim->GroupStart());
      NCCL_OK(shim->Send(in.data(), 2, kFloat, next, comm, nullptr));
      NCCL_OK(shim->Recv(out.data(), 2, kFloat, previous, comm, nullptr));
      NCCL_OK(shim->GroupEnd());
      EXPECT_EQ(out, Floats(2, static_cast<float>(previous)));
      float scalar = 2;
      int op = -1;
      NCCL_OK(shim->RedOpCreatePreMulSum(&op, &scalar, kFloat, 1, comm));
      in.assign(2, 1.f);
      NCCL_OK(shim->AllReduce(in.data(), out.data(), 2, kFloat, op, comm, nullptr));
      EXPECT_EQ(out, Floats(2, 6.f));
      NCCL_OK(shim->RedOpDestroy(op, comm));
      Comm_t pair = nullptr;
      NCCL_OK(shim->CommSplit(comm, rank == 1 ? nccl::kNoColor : 0, rank, &pair, nullptr));
      EXPECT_EQ(pair == nullptr, rank == 1);
      if (pair) {
        NCCL_OK(shim->CommDestroy(pair));
      }
      if (rank == 2) return;
      int excluded = 2;
      Comm_t smaller = nullptr;
      NCCL_OK(shim->CommShrink(comm, &excluded, 1, &smaller, nullptr, 0));
      NCCL_OK(shim->CommCount(smaller, &value));
      EXPECT_EQ(value, 2);
      NCCL_OK(shim->CommFinalize(smaller));
      NCCL_OK(shim->CommDestroy(smaller));
    });
    EXPECT_EQ(calls_of_fake("CommSplit"), 3);
    EXPECT_EQ(calls_of_fake("AllReduce"), 6);
    // NCCL's calls of itself stay in NCCL: each ncclBcast of the fake calls ncclBroadcast.
    EXPECT_EQ(calls_of_fake("Bcast"), 3);
    EXPECT_EQ(calls_of_fake("Broadcast"), 3);
  });
}

using Doubles = std::vector<double>;

/// What goes out of place, with roots, types and counts that are all different; three ranks.
void every_rooted_call(const Shim& shim, int rank, Comm_t comm) {
  const double own = 10 * rank;
  const Doubles mine = {own, own + 1}, of_all = {0, 1, 10, 11, 20, 21};
  const Doubles to_each = {own, own + 1, own + 2, own + 3, own + 4, own + 5};
  Doubles pair(2), all(6);
  NCCL_OK(shim->Broadcast(mine.data(), pair.data(), 2, kDouble, 1, comm, nullptr));
  EXPECT_EQ(pair, (Doubles{10, 11}));
  NCCL_OK(shim->AlltoAll(to_each.data(), all.data(), 2, kDouble, comm, nullptr));
  const double from = 2 * rank;
  EXPECT_EQ(all, (Doubles{from, from + 1, from + 10, from + 11, from + 20, from + 21}));
  all.assign(6, -1.);
  NCCL_OK(shim->Gather(mine.data(), rank == 1 ? all.data() : nullptr, 2, kDouble, 1, comm, nullptr));
  EXPECT_EQ(all, rank == 1 ? of_all : Doubles(6, -1.));
  NCCL_OK(shim->Scatter(rank == 2 ? to_each.data() : nullptr, pair.data(), 2, kDouble, 2, comm, nullptr));
  EXPECT_EQ(pair, (Doubles{20 + from, 21 + from}));
  // In place at the root, and all in one group.
  all.assign(6, -1.);
  all[2] = 10;
  all[3] = 11;
  Doubles out = to_each;
  NCCL_OK(shim->GroupStart());
  NCCL_OK(shim->Gather(rank == 1 ? all.data() + 2 : mine.data(), rank == 1 ? all.data() : nullptr, 2, kDouble,
                       1, comm, nullptr));
  NCCL_OK(shim->Scatter(out.data(), rank == 2 ? out.data() + 4 : pair.data(), 2, kDouble, 2, comm, nullptr));
  NCCL_OK(shim->GroupEnd());
  if (rank == 1) {
    EXPECT_EQ(all, of_all);
  }
  EXPECT_EQ(out, to_each);
  if (rank != 2) {
    EXPECT_EQ(pair, (Doubles{20 + from, 21 + from}));
  }
}

TEST(OverNccl, RootsTypesAndCountsKeepTheirPlaces) {
  in_process(kNccl, [] {
    const Shim shim;
    on_threads(shim, 3, [&](int rank, Comm_t comm) { every_rooted_call(shim, rank, comm); });
    EXPECT_EQ(calls_of_fake("AlltoAll"), 3);
    EXPECT_EQ(calls_of_fake("Gather"), 6);
    EXPECT_EQ(calls_of_fake("Scatter"), 6);
    EXPECT_EQ(calls_of_fake("Send"), 0);
  });
}

/// NCCL has had AlltoAll, Gather and Scatter since 2.28.3; they were once refused with an older one.
TEST(OverNccl, AnOlderOneIsGivenTransfersForWhatItLacks) {
  in_process({{"WEFT_BACKEND", "nccl"}, {"WEFT_NCCL_LIBRARY", WEFT_FAKE_NCCL_OLD}}, [] {
    const Shim shim;
    on_threads(shim, 3, [&](int rank, Comm_t comm) {
      every_rooted_call(shim, rank, comm);
      Floats values(3, 1.f);
      EXPECT_EQ(shim->AlltoAll(values.data(), values.data(), 1, kFloat, comm, nullptr), nccl::kInvalidUsage);
      EXPECT_TRUE(mentions(shim.last_error(), "ncclAlltoAll: sendbuff is recvbuff")) << shim.last_error();
      EXPECT_EQ(shim->Gather(values.data(), values.data(), 1, kFloat, 3, comm, nullptr),
                nccl::kInvalidArgument);
      EXPECT_TRUE(mentions(shim.last_error(), "root is 3, must be in [0, 3)")) << shim.last_error();
      EXPECT_EQ(shim->Scatter(values.data(), values.data(), 1, 99, 0, comm, nullptr), nccl::kInvalidArgument);
      EXPECT_TRUE(mentions(shim.last_error(), "datatype is 99")) << shim.last_error();
      NCCL_OK(shim->AlltoAll(values.data(), values.data() + 1, 0, kFloat, comm, nullptr));
    });
    // AlltoAll: 9. Gather and Scatter: 3 each, and 2 where the root's part stays.
    EXPECT_EQ(calls_of_fake("Send", WEFT_FAKE_NCCL_OLD), 9 + 3 + 3 + 2 + 2);
    EXPECT_EQ(calls_of_fake("Recv", WEFT_FAKE_NCCL_OLD), 9 + 3 + 3 + 2 + 2);
    on_threads(shim, 1, [&](int, Comm_t comm) {
      float value = 5;
      NCCL_OK(shim->AlltoAll(&value, &value, 1, kFloat, comm, nullptr));
      EXPECT_EQ(value, 5.f);
    });
  });
  in_process(
      {{"WEFT_BACKEND", "nccl"}, {"WEFT_NCCL_LIBRARY", WEFT_FAKE_NCCL_OLD}, {"FAKE_NCCL_FAIL", "Send"}}, [] {
        const Shim shim;
        on_threads(shim, 1, [&](int, Comm_t comm) {
          float value = 5, other = 0;
          EXPECT_EQ(shim->AlltoAll(&value, &other, 1, kFloat, comm, nullptr), nccl::kInternalError);
          EXPECT_TRUE(mentions(shim.last_error(), "ncclAlltoAll: ncclSend of NCCL 2.18.5 failed"))
              << shim.last_error();
          EXPECT_EQ(calls_of_fake("GroupStart", WEFT_FAKE_NCCL_OLD),
                    calls_of_fake("GroupEnd", WEFT_FAKE_NCCL_OLD))
              << "the group stayed open";
        });
      });
}

TEST(OverNccl, OneThreadWithAllRanks) {
  in_process(kNccl, [] {
    const Shim shim;
    Comm_t comms[2];
    NCCL_OK(shim->CommInitAll(comms, 2, nullptr));
    Floats in(4, 1.f), out[2] = {Floats(4), Floats(4)};
    NCCL_OK(shim->GroupStart());
    for (int rank = 0; rank < 2; ++rank)
      NCCL_OK(shim->AllReduce(in.data(), out[rank].data(), 4, kFloat, kSum, comms[rank], nullptr));
    NCCL_OK(shim->GroupEnd());
    EXPECT_EQ(out[0], Floats(4, 2.f));
    EXPECT_EQ(out[1], Floats(4, 2.f));
    nccl::SimInfo info{sizeof(nccl::SimInfo), nccl::kSimInfoMagic, 22809, -1.f};
    NCCL_OK(shim->GroupStart());
    NCCL_OK(shim->AllReduce(in.data(), out[0].data(), 4, kFloat, kSum, comms[0], nullptr));
    NCCL_OK(shim->GroupSimulateEnd(&info));
    EXPECT_EQ(info.estimated_time, 7);
    void* memory = nullptr;
    NCCL_OK(shim->MemAlloc(&memory, 64));
    void* registration = nullptr;
    NCCL_OK(shim->CommRegister(comms[0], memory, 64, &registration));
    NCCL_OK(shim->CommDeregister(comms[0], registration));
    nccl::Window_t window = nullptr;
    NCCL_OK(shim->CommWindowRegister(comms[0], memory, 64, &window, 1));
    EXPECT_NE(window, nullptr);
    NCCL_OK(shim->CommWindowDeregister(comms[0], window));
    NCCL_OK(shim->MemFree(memory));
    EXPECT_EQ(calls_of_fake("MemFree"), 1);
    NCCL_OK(shim->DevCommCreate(comms[0], nullptr, nullptr));
    EXPECT_EQ(shim->TeamWorld(comms[1]).rank, 1);
    EXPECT_EQ(shim->LLA2ACalcSlots(12, 8), 12);
    Comm_t again[2];
    UniqueId ids[2];
    NCCL_OK(shim->GetUniqueId(&ids[0]));
    for (int rank = 0; rank < 2; ++rank)
      NCCL_OK(shim->CommInitRankScalable(&again[rank], 2, rank, 1, ids, nullptr));
    EXPECT_EQ(calls_of_fake("CommInitRankScalable"), 2);
    NCCL_OK(shim->CommAbort(again[0]));
    NCCL_OK(shim->CommDestroy(again[1]));
    for (Comm_t comm : comms) NCCL_OK(shim->CommDestroy(comm));
  });
}

TEST(OverNccl, CommunicatorsEndInItsGroups) {
  in_process(kNccl, [] {
    const Shim shim;
    Comm_t comms[3];
    NCCL_OK(shim->CommInitAll(comms, 3, nullptr));
    NCCL_OK(shim->GroupStart());
    NCCL_OK(shim->CommFinalize(comms[0]));
    NCCL_OK(shim->CommDestroy(comms[0]));
    NCCL_OK(shim->CommDestroy(comms[1]));
    NCCL_OK(shim->CommAbort(comms[2]));
    NCCL_OK(shim->CommAbort(nullptr));
    NCCL_OK(shim->GroupEnd());
    EXPECT_EQ(calls_of_fake("CommFinalize in a group"), 1);
    EXPECT_EQ(calls_of_fake("CommDestroy in a group"), 2);
    EXPECT_EQ(calls_of_fake("CommAbort in a group"), 1);
    EXPECT_EQ(shim->CommDestroy(comms[2]), nccl::kInvalidArgument);
  });
}

TEST(OverNccl, NewerFunctionsReachANewerNccl) {
  in_process({{"WEFT_BACKEND", "nccl"}, {"WEFT_NCCL_LIBRARY", WEFT_FAKE_NCCL_NEW}}, [] {
    const Shim shim;
    on_threads(shim, 1, [&](int, Comm_t comm) {
      float value = 1;
      NCCL_OK(shim->PutSignal(&value, 1, kFloat, 0, nullptr, 24, 3, 4, 5, comm, &value));
      UniqueId id;
      NCCL_OK(shim->CommGetUniqueId(comm, &id));
      EXPECT_STREQ(id.internal, "fake 2");
      Comm_t grown = nullptr, joined = nullptr;
      NCCL_OK(shim->CommGrow(comm, 2, &id, -1, &grown, nullptr));
      NCCL_OK(shim->CommGrow(nullptr, 2, &id, 1, &joined, nullptr));
      int ranks = 0;
      NCCL_OK(shim->CommCount(joined, &ranks));
      EXPECT_EQ(ranks, 2);
      NCCL_OK(shim->CommDestroy(grown));
      NCCL_OK(shim->CommDestroy(joined));
      nccl::Param_t parameter = nullptr;
      int32_t number = 0;
      NCCL_OK(shim->ParamBind(&parameter, "NCCL_FAKE"));
      NCCL_OK(shim->ParamGetI32(parameter, &number));
      EXPECT_EQ(number, 32);
    });
  });
  in_process(kNccl, [] {
    const Shim shim;
    on_threads(shim, 1, [&](int, Comm_t comm) {
      EXPECT_EQ(shim->CommSuspend(comm, 1), nccl::kInvalidUsage);
      EXPECT_TRUE(mentions(shim.last_error(), "is NCCL 2.28.9, which has no ncclCommSuspend"))
          << shim.last_error();
    });
  });
}

TEST(OverNccl, AnOlderOneTakesAConfigurationThatIsNull) {
  in_process(kNccl, [] {
    const Shim shim;
    on_threads(shim, 1, [&](int, Comm_t comm) {
      float in = 3, out = 0;
      NCCL_OK(shim->AllReduceConfig(&in, &out, 1, kFloat, kSum, comm, nullptr, nullptr));
      EXPECT_EQ(out, 3.f);
      const nccl::CollConfig config{};
      EXPECT_EQ(shim->AllReduceConfig(&in, &out, 1, kFloat, kSum, comm, nullptr, &config),
                nccl::kInvalidUsage);
      EXPECT_TRUE(mentions(shim.last_error(), "is NCCL 2.28.9, which has no ncclAllReduceConfig"))
          << shim.last_error();
    });
  });
}

TEST(OverNccl, ItsFailuresKeepTheirCodeAndSentence) {
  Environment failing = kNccl;
  failing.push_back({"FAKE_NCCL_FAIL", "AllReduce"});
  in_process(failing, [] {
    const Shim shim;
    on_threads(shim, 1, [&](int, Comm_t comm) {
      float value = 1;
      EXPECT_EQ(shim->AllReduce(&value, &value, 1, kFloat, kSum, comm, nullptr), nccl::kInternalError);
      EXPECT_EQ(shim.last_error(comm), "the fake was told to fail");
      void* fake = dlopen(kFakeNccl.c_str(), RTLD_NOW | RTLD_NOLOAD);
      reinterpret_cast<void (*)(Result_t)>(dlsym(fake, "fakeNcclSetAsyncError"))(nccl::kRemoteError);
      Result_t state = nccl::kSuccess;
      EXPECT_EQ(shim->AllReduce(&value, &value, 1, kFloat, kSum, nullptr, nullptr), nccl::kInvalidArgument);
      EXPECT_TRUE(mentions(shim.last_error(comm), "comm is NULL")) << shim.last_error(comm);
      NCCL_OK(shim->CommGetAsyncError(comm, &state));
      EXPECT_EQ(state, nccl::kRemoteError);
      EXPECT_EQ(shim.last_error(comm), "the fake was told to fail") << "the state's reason, not an older one";
      EXPECT_EQ(shim.last_error(), "the fake was told to fail");
    });
  });
  failing.back().second = "CommInitRank";
  in_process(failing, [] {
    const Shim shim;
    UniqueId id;
    NCCL_OK(shim->GetUniqueId(&id));
    Comm_t comm = reinterpret_cast<Comm_t>(&id);
    EXPECT_EQ(shim->CommInitRank(&comm, 1, id, 0), nccl::kInternalError);
    EXPECT_EQ(comm, nullptr);
  });
}

TEST(OverNccl, ItsVersionAndWordsAreHandedOnWhereItHasAllCommunicators) {
  const Environment newer = {{"WEFT_NCCL_LIBRARY", WEFT_FAKE_NCCL_NEW}};
  for (const bool all_to_nccl : {true, false}) {
    Environment environment = newer;
    environment.push_back({"WEFT_BACKEND", all_to_nccl ? "nccl" : "auto"});
    in_process(environment, [&] {
      const Shim shim;
      int version = 0;
      NCCL_OK(shim->GetVersion(&version));
      EXPECT_EQ(version, all_to_nccl ? 23007 : nccl::kVersionCode);
      EXPECT_STREQ(shim->GetErrorString(nccl::kRemoteError), all_to_nccl ? "fake error" : "remote error");
    });
  }
}

// ---- Which NCCL

std::string refusal(const std::string& library) {
  const Result<const nccl::Library*> opened = nccl::Library::open(library);
  return opened.ok() ? "opened" : opened.status().message();
}

TEST(TheLibrary, IsCheckedBeforeItIsUsed) {
  EXPECT_EQ(refusal(kFakeNccl), "opened");
  EXPECT_TRUE(mentions(refusal(WEFT_FAKE_NCCL_3), "is NCCL 3.1.0, but Weft knows how to call NCCL 2 only"))
      << refusal(WEFT_FAKE_NCCL_3);
  EXPECT_TRUE(mentions(refusal("/nowhere/libnccl.so.2"), "/nowhere/libnccl.so.2 cannot be opened"));
  EXPECT_TRUE(mentions(refusal("libm.so.6"), "is no NCCL: it lacks ncclGetVersion")) << refusal("libm.so.6");
  EXPECT_TRUE(mentions(refusal(kShim), "is Weft's own shim, not NCCL")) << refusal(kShim);
  EXPECT_EQ(nccl::version_text(2804), "2.8.4");
  EXPECT_EQ(nccl::version_text(22809), "2.28.9");
}

TEST(TheLibrary, OfAnotherMajorVersionIsRefusedThroughTheShim) {
  in_process({{"WEFT_BACKEND", "nccl"}, {"WEFT_NCCL_LIBRARY", WEFT_FAKE_NCCL_3}}, [] {
    const Shim shim;
    UniqueId id;
    EXPECT_EQ(shim->GetUniqueId(&id), nccl::kInvalidUsage);
    EXPECT_TRUE(mentions(shim.last_error(), "WEFT_NCCL_LIBRARY")) << shim.last_error();
    EXPECT_TRUE(mentions(shim.last_error(), "NCCL 3.1.0")) << shim.last_error();
  });
}

TEST(TheLibrary, ThatIsOlderLacksFunctionsByName) {
  in_process({{"WEFT_BACKEND", "nccl"}, {"WEFT_NCCL_LIBRARY", WEFT_FAKE_NCCL_OLD}}, [] {
    const Shim shim;
    on_threads(shim, 1, [&](int, Comm_t comm) {
      float value = 1;
      NCCL_OK(shim->AllReduce(&value, &value, 1, kFloat, kSum, comm, nullptr));
      nccl::Window_t window = nullptr;
      EXPECT_EQ(shim->CommWindowRegister(comm, &value, 4, &window, 0), nccl::kInvalidUsage);
      EXPECT_TRUE(mentions(shim.last_error(), "is NCCL 2.18.5, which has no ncclCommWindowRegister"))
          << shim.last_error();
      EXPECT_EQ(shim->TeamWorld(comm).ranks, 0);
      nccl::SimInfo info{sizeof(nccl::SimInfo), nccl::kSimInfoMagic, 22809, -1.f};
      NCCL_OK(shim->GroupStart());
      NCCL_OK(shim->AllReduce(&value, &value, 1, kFloat, kSum, comm, nullptr));
      EXPECT_EQ(shim->GroupSimulateEnd(&info), nccl::kInvalidUsage);
      EXPECT_EQ(shim->GroupEnd(), nccl::kInvalidUsage) << "the group is closed";
    });
  });
}

TEST(TheLibrary, IsFoundBehindTheShimItself) {
  const std::string folders = std::filesystem::path(kShim).parent_path().string() + ":" +
                              std::filesystem::path(kFakeNccl).parent_path().string();
  in_process({{"WEFT_BACKEND", "nccl"}, {"LD_LIBRARY_PATH", folders}}, [] {
    const Shim shim;
    on_threads(shim, 1, [&](int, Comm_t comm) {
      int count = 0;
      NCCL_OK(shim->CommCount(comm, &count));
    });
    EXPECT_EQ(calls_of_fake("CommInitRank"), 1);
  });
}

TEST(TheLibrary, KeepsItsOwnCallsBesideAnotherNccl) {
  in_process({}, [] {
    ASSERT_NE(dlopen(WEFT_FAKE_NCCL_NEW, RTLD_NOW | RTLD_GLOBAL), nullptr) << dlerror();
    const Result<const nccl::Library*> opened = nccl::Library::open(kFakeNccl);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    const Functions& own = (*opened)->functions();
    UniqueId id;
    Comm_t comm = nullptr;
    float value = 1;
    ASSERT_EQ(own.GetUniqueId(&id), nccl::kSuccess);
    ASSERT_EQ(own.CommInitRank(&comm, 1, id, 0), nccl::kSuccess);
    EXPECT_EQ(own.Bcast(&value, 1, kFloat, 0, comm, nullptr), nccl::kSuccess);
    EXPECT_EQ(own.CommDestroy(comm), nccl::kSuccess);
    EXPECT_EQ(calls_of_fake("Broadcast"), 1);
    EXPECT_EQ(calls_of_fake("Broadcast", WEFT_FAKE_NCCL_NEW), 0);
  });
}

/// NCCL and libc have the program's allocator, so that NCCL can free what libc gave it.
TEST(TheLibrary, HasTheAllocatorOfTheProgram) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer wants to be the first library of a program";
#endif
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command = "LD_PRELOAD=" WEFT_FOREIGN_ALLOCATOR " " + self +
                              " --gtest_filter=TheLibrary.IsFoundBehindTheShimItself:OverNccl.Calls* > "
                              "/dev/null 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
}

/// A folder that goes with the test.
struct Tree {
  std::filesystem::path path;
  Tree() {
    char name[] = "/tmp/weft_shim_test_XXXXXX";
    path = mkdtemp(name);
  }
  ~Tree() { std::filesystem::remove_all(path); }
  /// A file of the tree that is another one.
  std::string link(const std::string& file, const std::string& to) const {
    std::filesystem::create_directories((path / file).parent_path());
    std::filesystem::create_symlink(to, path / file);
    return path / file;
  }
};

/// PyTorch's wheels bring an NCCL that only PyTorch's own libraries find.
TEST(TheLibrary, IsFoundBesideALoadedPyTorch) {
  const Tree tree;
  const std::string torch = tree.link("site-packages/torch/lib/libtorch_cuda.so", WEFT_FAKE_TORCH);
  tree.link("site-packages/nvidia/nccl/lib/libnccl.so.2", kFakeNccl);
  for (const bool is_loaded : {false, true}) {
    in_process({{"WEFT_BACKEND", "nccl"}}, [&] {
      unsetenv("LD_LIBRARY_PATH");
      if (is_loaded) {
        ASSERT_NE(dlopen(torch.c_str(), RTLD_NOW | RTLD_LOCAL), nullptr) << dlerror();
      }
      const std::vector<std::string> places = nccl::Library::candidates();
      const auto beside =
          std::find(places.begin(), places.end(), tree.path / "site-packages/nvidia/nccl/lib/libnccl.so.2");
      EXPECT_EQ(beside != places.end(), is_loaded);
      if (!is_loaded) return;
      EXPECT_LT(beside, std::find(places.begin(), places.end(), "/usr/local/lib/libnccl.so.2"));
      const Shim shim;
      on_threads(shim, 1, [&](int, Comm_t comm) {
        int count = 0;
        NCCL_OK(shim->CommCount(comm, &count));
      });
      EXPECT_EQ(calls_of_fake("CommInitRank"), 1);
    });
  }
}

TEST(TheLibrary, IsTheFirstThatIsRightOfTheUsualFolders) {
  const Tree tree;
  const std::string none = tree.path / "none/libnccl.so.2";
  const std::string shim = tree.link("a/libnccl.so.2", kShim);
  const std::string wrong = tree.link("b/libnccl.so.2", WEFT_FAKE_NCCL_3);
  const std::string right = tree.link("c/libnccl.so.2", kFakeNccl);
  in_process({{"LD_LIBRARY_PATH", "/first:/second"}}, [&] {
    const auto found = nccl::Library::find_among({none, shim, wrong, right});
    ASSERT_TRUE(found.ok()) << found.status().message();
    EXPECT_EQ((*found)->version_code(), 22809);
    const auto no_better = nccl::Library::find_among({none, wrong, shim});
    ASSERT_FALSE(no_better.ok());
    EXPECT_TRUE(mentions(no_better.status().message(), wrong + " is NCCL 3.1.0"))
        << "what was there is named";
    EXPECT_TRUE(mentions(nccl::Library::find_among({none, shim}).status().message(),
                         "there is no libnccl.so.2 where the dynamic linker looks"));
    const std::vector<std::string> places = nccl::Library::candidates();
    ASSERT_GE(places.size(), 5u);
    EXPECT_EQ(places[0], "libnccl.so.2");
    EXPECT_EQ(places[1], "/first/libnccl.so.2");
    EXPECT_EQ(places[2], "/second/libnccl.so.2");
    EXPECT_NE(std::find(places.begin() + 3, places.end(), "/usr/lib/x86_64-linux-gnu/libnccl.so.2"),
              places.end());
  });
}

TEST(TheLibrary, ThatIsMissingIsSaid) {
  in_process({{"WEFT_BACKEND", "nccl"}, {"WEFT_NCCL_LIBRARY", "/nowhere/libnccl.so.2"}}, [] {
    const Shim shim;
    UniqueId id;
    EXPECT_EQ(shim->GetUniqueId(&id), nccl::kInvalidUsage);
    EXPECT_TRUE(mentions(shim.last_error(), "WEFT_NCCL_LIBRARY: /nowhere/libnccl.so.2 cannot be opened"))
        << shim.last_error();
    EXPECT_EQ(shim->LLA2ACalcSlots(1, 8), 0);
  });
}

// ---- The real one, where there is one

TEST(TheRealNccl, IsReachedWithoutAGpu) {
  const char* real = std::getenv("NCCL_UNDER_TEST");
  if (!real) GTEST_SKIP() << "NCCL_UNDER_TEST names no libnccl.so.2 of NVIDIA's";
  in_process({{"WEFT_BACKEND", "nccl"}, {"WEFT_NCCL_LIBRARY", real}, {"NCCL_SOCKET_IFNAME", "lo"}}, [] {
    const Shim shim;
    UniqueId id{};
    NCCL_OK(shim->GetUniqueId(&id));
    EXPECT_NE(std::string(id.internal, sizeof id.internal), std::string(sizeof id.internal, '\0'));
    EXPECT_NE(std::string(id.internal, 4), "WEFT");
    NCCL_OK(shim->GroupStart());
    NCCL_OK(shim->GroupEnd());
    // Without a GPU it cannot make a communicator, and says so itself.
    Comm_t comm = nullptr;
    if (shim->CommInitRank(&comm, 1, id, 0) != nccl::kSuccess) {
      EXPECT_EQ(comm, nullptr);
      EXPECT_NE(shim.last_error(), "");
    } else {
      NCCL_OK(shim->CommDestroy(comm));
    }
  });
}

}  // namespace
}  // namespace weft::nccl_shim_test::over_nccl_test
