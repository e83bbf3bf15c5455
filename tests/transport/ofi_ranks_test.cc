// The exchange over every provider, as threads and as processes.
#include "transport/ofi_ranks.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace weft::transport::ofi_test {
namespace {

struct Case {
  std::string name;
  std::string provider;
  bool messages_only = false;
  std::string interface = "";
  int ranks = 3;
};

class OfiExchange : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!is_offered(GetParam().provider))
      GTEST_SKIP() << "libfabric offers no " << GetParam().provider << " here";
    options_.provider = GetParam().provider;
    options_.messages_only = GetParam().messages_only;
    options_.interface = GetParam().interface;
  }
  OfiOptions options_;
};

TEST_P(OfiExchange, Threads) {
  const Exchange exchange;
  run_threads(GetParam().ranks, options_, [&](OfiTransport& transport, int rank) {
    EXPECT_TRUE(exchange.run(transport, rank, GetParam().ranks));
  });
}

/// Where processes that are forked later wait for each other, as often as they like.
class MeetingPlace {
 public:
  explicit MeetingPlace(int processes)
      : processes_(processes),
        arrivals_(new (mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0)) std::atomic<int>(0)) {}
  ~MeetingPlace() { munmap(arrivals_, sizeof *arrivals_); }
  MeetingPlace(const MeetingPlace&) = delete;
  MeetingPlace& operator=(const MeetingPlace&) = delete;

  /// False if they do not all come.
  bool meet() {
    expected_ += processes_;
    ++*arrivals_;
    const Deadline deadline = Deadline::in_seconds(kPatienceS);
    while (*arrivals_ < expected_) {
      if (deadline.passed()) return false;
      usleep(1000);
    }
    return true;
  }

 private:
  const int processes_;
  int expected_ = 0;  // each process counts for itself
  std::atomic<int>* const arrivals_;
};

TEST_P(OfiExchange, Processes) {
  constexpr uint64_t kWorthMentioning = 64 << 10;
  Exchange exchange;
  const bool two_rails = GetParam().interface.find(',') != std::string::npos;
  if (two_rails) exchange.put_bytes = 2 << 20;  // long enough for stripes
  const int peers = GetParam().ranks - 1;
  MeetingPlace place(GetParam().ranks);
  run_processes(GetParam().ranks, options_, [&](OfiTransport& transport, int rank) {
    // The first time rails connect. One that has not yet is passed over, and may have to carry nothing.
    for (int time = 0; time < (two_rails ? 2 : 1); ++time) {
      if (time > 0 && !place.meet()) return std::string("not all ranks came to a second exchange");
      auto result = exchange.run(transport, rank, GetParam().ranks);
      if (!result) return std::string(result.message());
    }
    if (!two_rails) return std::string();
    // Who has everything may end, and libfabric closes the sockets to a peer that has: so all count first.
    const int busy = busy_sockets(kWorthMentioning);
    if (!place.meet()) return std::string("not all ranks came to count their sockets");
    if (busy != 2 * peers)  // a rail has a socket for each peer
      return fmt::format("{} sockets have sent something to {} peers over two rails", busy, peers);
    return std::string();
  });
}

/// Those of TCP and shared memory, or the ones that OFI_UNDER_TEST names.
std::vector<Case> cases() {
  if (std::getenv("OFI_UNDER_TEST") == nullptr)
    return {{"net", "net"},
            {"net_messages", "net", true},
            {"net_two_rails", "net", false, "lo,lo"},
            {"net_8_ranks", "net", false, "", 8},
            {"tcp", "tcp"},
            {"tcp_messages", "tcp", true},
            {"tcp_two_rails", "tcp", false, "lo,lo"},
            {"sockets", "sockets"},
            {"shm", "shm"} /* udp;ofi_rxd loses messages on a busy machine */};
  std::vector<Case> named;
  for (const std::string& provider : providers_under_test()) {
    named.push_back({provider, provider});
    named.push_back({provider + "_messages", provider, true});
    named.push_back({provider + "_8_ranks", provider, false, "", 8});
  }
  return named;
}

INSTANTIATE_TEST_SUITE_P(Providers, OfiExchange, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace weft::transport::ofi_test
