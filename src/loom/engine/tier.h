// Tier: a file without a name that holds what does not fit into memory for a while, and the thread that
// moves it there and back beside computing. Requests are done in the order in which they are made.
//
// Thread safety: one thread makes requests and waits.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "base/fd.h"
#include "base/status.h"

namespace loom::engine {

class Tier {
 public:
  /// `bytes` are reserved in `folder` ("" : TMPDIR, or /var/tmp) at once. Errors: disk_full, not_found,
  /// system_error; invalid_argument for a folder whose files are memory themselves.
  static Result<std::unique_ptr<Tier>> create(const std::string& folder, int64_t bytes);
  /// Waits for what was asked for.
  ~Tier();
  Tier(const Tier&) = delete;
  Tier& operator=(const Tier&) = delete;

  /// Copies memory to the file, or back; it is not to be touched until wait(ticket) has returned. They
  /// return at once, unless very many requests are open.
  uint64_t store(int64_t offset, const std::byte* from, int64_t bytes);
  uint64_t load(int64_t offset, std::byte* into, int64_t bytes);
  /// Waits until the request with this ticket and all before it are done. The first failure of any:
  /// disk_full, system_error.
  Status wait(uint64_t ticket);

 private:
  struct Request {
    int64_t offset = 0, bytes = 0;
    std::byte* memory = nullptr;
    bool stores = false;
  };
  static constexpr uint64_t kOpen = 64;  // requests

  explicit Tier(UniqueFd file);
  uint64_t submit(const Request& request);
  void serve();
  int perform(const Request& request) const;

  UniqueFd file_;
  std::array<Request, kOpen> requests_;
  std::atomic<uint64_t> submitted_{0}, done_{0};
  std::atomic<int> error_{0};  // errno of the first failure
  std::atomic<bool> stop_{false};
  std::thread thread_;  // joinable once create() is through
};

}  // namespace loom::engine
