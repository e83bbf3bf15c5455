// Every function of the shim that hands its call to NCCL, called once: what reaches NCCL is what was given,
// each argument in its place, and what NCCL returns comes back. The NCCL is one that records. And the list of
// the functions itself, beside the versions of NCCL that brought them.
#include <algorithm>
#include <array>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string_view>
#include <tuple>

#include "recorded_call.h"
#include "shim_host.h"

namespace weft::nccl_shim_test {
namespace {

/// These do not hand on a call of their own: over_nccl_test.cc has them.
constexpr std::string_view kElsewhere[] = {"GetVersion", "GroupStart", "GroupEnd", "GroupSimulateEnd"};
constexpr int kFunctions = 96;

/// The recording NCCL, once the shim has loaded it.
template <typename Value>
Value recorded(const char* what) {
  void* const fake = dlopen(WEFT_FAKE_NCCL_RECORDER, RTLD_NOW | RTLD_NOLOAD);
  return fake ? reinterpret_cast<Value (*)()>(dlsym(fake, what))() : Value();
}

class Forwards {
 public:
  explicit Forwards(const Shim& shim) : shim_(shim) {
    config_.size = offsetof(nccl::Config, cga_cluster_size);
    config_.magic = nccl::kConfigMagic;
    config_.version = 22809;
    config_.blocking = 1;
  }

  template <typename Value, typename... Parameters>
  void check(const char* name, Value (*function)(Parameters...)) {
    if (std::find(std::begin(kElsewhere), std::end(kElsewhere), name) != std::end(kElsewhere)) return;
    ++checked_;
    memory_.fill(std::byte{0});
    UniqueId id{"not Weft's"};
    Comm_t comm = nullptr;
    EXPECT_EQ(shim_->CommInitRank(&comm, 1, id, 0), nccl::kSuccess) << shim_.last_error();
    const Comm_t real = recorded<Comm_t>("recordedComm");
    const int before = recorded<int>("recordedCalls");
    const auto given = arguments<Parameters...>(comm, std::index_sequence_for<Parameters...>());
    if constexpr (std::is_void_v<Value>) std::apply(function, given);
    else expect_same(name, std::apply(function, given), answer<Value>());
    EXPECT_EQ(recorded<int>("recordedCalls"), before + 1) << name;
    const auto as_received = arguments<Parameters...>(real, std::index_sequence_for<Parameters...>());
    EXPECT_EQ(recorded<const char*>("recordedCall"),
              std::apply([&](const auto&... each) { return call_text(name, each...); }, as_received));
    if constexpr ((std::is_same_v<Parameters, Comm_t*> || ...)) {
      EXPECT_NE(*std::get<Comm_t*>(given), nullptr) << name << " gave no communicator";
    }
  }
  int checked() const { return checked_; }

 private:
  static constexpr size_t kRoom = 1024;  // for what an argument points to: also as many things as counts say

  template <typename... Parameters, size_t... places>
  std::tuple<Parameters...> arguments([[maybe_unused]] Comm_t comm, std::index_sequence<places...>) {
    return {argument<Parameters>(static_cast<int>(places), comm)...};
  }

  /// Something else in every place.
  template <typename Argument>
  Argument argument(int place, Comm_t comm) {
    std::byte* const room = memory_.data() + static_cast<size_t>(place) * kRoom;
    if constexpr (std::is_same_v<Argument, Comm_t>) {
      return comm;
    } else if constexpr (std::is_same_v<Argument, nccl::Config*>) {
      return &config_;
    } else if constexpr (std::is_pointer_v<Argument>) {
      return reinterpret_cast<Argument>(room);
    } else if constexpr (std::is_same_v<Argument, UniqueId>) {
      UniqueId id;
      std::memset(id.internal, 'a' + place, sizeof id.internal);
      return id;
    } else if constexpr (std::is_same_v<Argument, nccl::Team>) {
      return {place + 1, place + 2, place + 3};
    } else if constexpr (std::is_same_v<Argument, nccl::MultimemHandle>) {
      return {room + 8};
    } else {
      return static_cast<Argument>(100 - 7 * place);
    }
  }

  template <typename Value>
  static void expect_same(const char* name, const Value& got, const Value& expected) {
    if constexpr (std::is_same_v<Value, const char*>) EXPECT_STREQ(got, expected) << name;
    else EXPECT_EQ(text_of(got), text_of(expected)) << name;
  }

  const Shim& shim_;
  int checked_ = 0;
  alignas(64) std::array<std::byte, 11 * kRoom> memory_{};
  nccl::Config config_{};
};

TEST(Forwards, EveryFunctionHandsOnWhatItWasGiven) {
  in_process({{"WEFT_BACKEND", "nccl"}, {"WEFT_NCCL_LIBRARY", WEFT_FAKE_NCCL_RECORDER}}, [] {
    const Shim shim;
    Forwards forwards(shim);
#define CHECK_FORWARD(name, returns, parameters) forwards.check(#name, shim->name);
    WEFT_NCCL_FUNCTIONS(CHECK_FORWARD)
#undef CHECK_FORWARD
    EXPECT_EQ(forwards.checked(), kFunctions - static_cast<int>(std::size(kElsewhere)));
  });
}

/// 23007 of "2.30.7".
int code_of(const std::string& version) {
  int major = 0, minor = 0, patch = 0;
  EXPECT_EQ(std::sscanf(version.c_str(), "%d.%d.%d", &major, &minor, &patch), 3) << version;
  return major * 10000 + minor * 100 + patch;
}

/// Also where there is no header of NCCL to compare with.
TEST(TheList, HasEveryFunctionWithTheVersionsThatHaveIt) {
  std::map<std::string, std::pair<int, std::string>> known;  // when it came, and in which header
  std::ifstream file(WEFT_NCCL_SYMBOLS);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream words(line);
    std::string name, since, header;
    words >> name >> since >> header;
    known[name] = {code_of(since), header};
  }
  EXPECT_EQ(known.size(), static_cast<size_t>(kFunctions));
  size_t listed = 0;
  const auto check = [&](const std::string& name, int after, int until, const std::string& header) {
    ++listed;
    EXPECT_EQ(known.count(name), 1u) << name;
    EXPECT_GT(known[name].first, after) << name;
    EXPECT_LE(known[name].first, until) << name;
    EXPECT_EQ(known[name].second, header) << name;
  };
#define CHECK_HOST(name, returns, parameters) check(#name, 0, 22899, "nccl.h");
#define CHECK_HOST_2_29(name, returns, parameters) check(#name, 22899, 22999, "nccl.h");
#define CHECK_HOST_2_30(name, returns, parameters) check(#name, 22999, 23099, "nccl.h");
#define CHECK_HOST_2_31(name, returns, parameters) check(#name, 23099, 23199, "nccl.h");
#define CHECK_HOST_2_32(name, returns, parameters) check(#name, 23199, nccl::kVersionCode, "nccl.h");
#define CHECK_DEVICE(name, returns, parameters) check(#name, 0, 22899, "nccl_device.h");
#define CHECK_DEVICE_2_29(name, returns, parameters) check(#name, 22899, 23099, "nccl_device.h");
#define CHECK_DEVICE_2_31(name, returns, parameters) check(#name, 23099, 23199, "nccl_device.h");
  WEFT_NCCL_HOST_FUNCTIONS(CHECK_HOST)
  WEFT_NCCL_HOST_FUNCTIONS_2_29(CHECK_HOST_2_29)
  WEFT_NCCL_HOST_FUNCTIONS_2_30(CHECK_HOST_2_30)
  WEFT_NCCL_HOST_FUNCTIONS_2_31(CHECK_HOST_2_31)
  WEFT_NCCL_HOST_FUNCTIONS_2_32(CHECK_HOST_2_32)
  WEFT_NCCL_DEVICE_FUNCTIONS(CHECK_DEVICE)
  WEFT_NCCL_DEVICE_FUNCTIONS_2_29(CHECK_DEVICE_2_29)
  WEFT_NCCL_DEVICE_FUNCTIONS_2_31(CHECK_DEVICE_2_31)
  EXPECT_EQ(listed, known.size());
}

}  // namespace
}  // namespace weft::nccl_shim_test
