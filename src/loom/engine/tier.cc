// A ring of requests between two threads.
#include "engine/tier.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "base/thread.h"

namespace loom::engine {

Result<std::unique_ptr<Tier>> Tier::create(const std::string& folder, int64_t bytes) {
  const char* temporary = std::getenv("TMPDIR");
  const bool told = temporary != nullptr && *temporary != '\0';
  const std::string place = !folder.empty() ? folder : told ? temporary : "/var/tmp";
  std::string path = place + "/loom-tier-XXXXXX";
  UniqueFd file(::mkostemp(path.data(), O_CLOEXEC));
  if (!file.valid()) return fail_errno(errno, "cannot make a file for offloaded activations in " + place);
  (void)::unlink(path.c_str());  // it ends with the process, however that ends
  struct statfs system {};
  if (::fstatfs(file.get(), &system) == 0 && system.f_type == TMPFS_MAGIC)
    return fail(
        Code::invalid_argument,
        "{} is memory (tmpfs): offloading to it saves none; parallel.offload_folder must be on a disk",
        place);
  if (const int error = ::posix_fallocate(file.get(), 0, bytes); error != 0)
    return fail_errno(error,
                      fmt::format("cannot reserve {} bytes for offloaded activations in {}", bytes, place));
  std::unique_ptr<Tier> tier(new Tier(std::move(file)));
  Result<std::thread> thread = start_thread([own = tier.get()] { own->serve(); });
  LOOM_TRY(thread.status());
  tier->thread_ = thread.take();
  return tier;
}

Tier::Tier(UniqueFd file) : file_(std::move(file)) {}

Tier::~Tier() {
  if (!thread_.joinable()) return;
  stop_.store(true);
  submitted_.fetch_add(1, std::memory_order_release);  // no request: what it wakes sees stop_ first
  submitted_.notify_one();
  thread_.join();
}

uint64_t Tier::store(int64_t offset, const std::byte* from, int64_t bytes) {
  return submit({offset, bytes, const_cast<std::byte*>(from), true});
}

uint64_t Tier::load(int64_t offset, std::byte* into, int64_t bytes) {
  return submit({offset, bytes, into, false});
}

uint64_t Tier::submit(const Request& request) {
  const uint64_t number = submitted_.load(std::memory_order_relaxed);
  for (uint64_t done; number - (done = done_.load(std::memory_order_acquire)) >= kOpen;)
    done_.wait(done, std::memory_order_acquire);
  requests_[number % kOpen] = request;
  submitted_.store(number + 1, std::memory_order_release);
  submitted_.notify_one();
  return number + 1;
}

Status Tier::wait(uint64_t ticket) {
  for (uint64_t done; (done = done_.load(std::memory_order_acquire)) < ticket;)
    done_.wait(done, std::memory_order_acquire);
  if (const int error = error_.load(); error != 0)
    return fail_errno(error, "offloaded activations cannot be written or read");
  return {};
}

void Tier::serve() {
  uint64_t next = 0;
  while (true) {
    submitted_.wait(next, std::memory_order_acquire);
    const uint64_t submitted = submitted_.load(std::memory_order_acquire);
    const bool stop = stop_.load();
    for (const uint64_t end = submitted - (stop ? 1 : 0); next < end; ++next) {
      const int error = perform(requests_[next % kOpen]);
      int none = 0;
      if (error != 0) error_.compare_exchange_strong(none, error);
      done_.store(next + 1, std::memory_order_release);
      done_.notify_one();
    }
    if (stop) return;
  }
}

int Tier::perform(const Request& request) const {
  for (int64_t moved = 0; moved < request.bytes;) {
    std::byte* const memory = request.memory + moved;
    const auto left = static_cast<size_t>(request.bytes - moved);
    const off_t at = request.offset + moved;
    const ssize_t n =
        request.stores ? ::pwrite(file_.get(), memory, left, at) : ::pread(file_.get(), memory, left, at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) return EIO;  // the file is shorter than was reserved
    moved += n;
  }
  return 0;
}

}  // namespace loom::engine
