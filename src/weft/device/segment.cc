#include "device/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>

namespace weft::device {
namespace {

// Since Linux 6.3, where a memfd without it earns a warning in the kernel's log; older kernels answer EINVAL.
constexpr unsigned kNoExecSeal = 0x0008;
constexpr size_t kHugePage = 2 << 20;

size_t page_bytes() {
  static const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return page;
}

size_t round_to_pages(size_t bytes) { return (bytes + page_bytes() - 1) / page_bytes() * page_bytes(); }

UniqueFd make_memfd() {
  constexpr unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  UniqueFd fd(memfd_create("weft", flags | kNoExecSeal));
  if (!fd.valid() && errno == EINVAL) fd.reset(memfd_create("weft", flags));
  return fd;
}

// The limit counts for files in memory, too, and the signal at it would end the process.
Status check_file_limit(size_t bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || bytes <= limit.rlim_cur) return {};
  return fail(
      Code::system_error,
      "shared memory of {} bytes is above this process's limit of the size of a file, {} bytes: raise "
      "it (ulimit -f)",
      bytes, limit.rlim_cur);
}

}  // namespace

Result<Segment> Segment::create(size_t bytes) {
  if (bytes == 0 || bytes > PTRDIFF_MAX - kHugePage) {
    return fail(Code::out_of_memory, "cannot make shared memory of {} bytes: must be in [1, {}]", bytes,
                PTRDIFF_MAX - kHugePage);
  }
  bytes = round_to_pages(bytes);
  WEFT_TRY(check_file_limit(bytes));
  UniqueFd fd = make_memfd();
  if (!fd.valid()) return fail_errno(errno, "memfd_create, for shared memory");
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return fail(Code::out_of_memory, "cannot make shared memory of {} bytes: {}", bytes,
                std::strerror(errno));
  }
  // A peer that could shrink it could make us die of SIGBUS.
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return fail_errno(errno, "sealing shared memory");
  }
  return map(std::move(fd), bytes);
}

Result<Segment> Segment::map(UniqueFd fd, size_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) {
    return fail(Code::out_of_memory, "cannot map {} bytes of shared memory: {}", bytes, std::strerror(errno));
  }
  // A wish: whether shared memory gets huge pages is the administrator's choice (shmem_enabled).
  if (bytes >= kHugePage) (void)madvise(data, bytes, MADV_HUGEPAGE);
  Segment segment;
  segment.fd_ = std::move(fd);
  segment.data_ = static_cast<std::byte*>(data);
  segment.bytes_ = bytes;
  return segment;
}

Result<UniqueFd> open_peer_descriptor(pid_t pid, int fd) {
  std::array<char, 48> path;
  *fmt::format_to_n(path.data(), path.size() - 1, "/proc/{}/fd/{}", pid, fd).out = '\0';
  UniqueFd opened(::open(path.data(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (opened.valid()) return opened;
  const int error = errno;
  if (error == ENOENT || error == ESRCH) {
    return fail(Code::remote_error,
                "its process {} has ended, or has destroyed the communicator (descriptor {} is closed)", pid,
                fd);
  }
  if (error == EACCES || error == EPERM) {
    return fail(
        Code::system_error,
        "the kernel does not let this process open {}: ranks that share memory must run as one user, in one "
        "container, and be allowed to inspect each other",
        path.data());
  }
  return fail_errno(error, path.data());
}

Result<Segment> Segment::open(pid_t pid, const SegmentName& name) {
  Result<UniqueFd> fd = open_peer_descriptor(pid, name.fd);
  if (!fd) return fd.status();
  struct stat info;
  if (fstat(fd->get(), &info) != 0) return fail_errno(errno, "fstat of a peer's shared memory");
  const int seals = fcntl(fd->get(), F_GET_SEALS);
  if (info.st_ino != name.inode || static_cast<uint64_t>(info.st_size) != name.bytes || seals < 0 ||
      (seals & F_SEAL_SHRINK) == 0) {
    return fail(Code::remote_error,
                "descriptor {} of process {} is no longer the shared memory that it announced", name.fd, pid);
  }
  Result<Segment> segment = map(fd.take(), name.bytes);
  if (segment) segment->fd_.reset();  // the mapping keeps the pages; descriptors are scarce
  return segment;
}

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Segment::~Segment() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

Result<SegmentName> Segment::name() const {
  struct stat info;
  if (fstat(fd_.get(), &info) != 0) return fail_errno(errno, "fstat of shared memory");
  return SegmentName{.inode = info.st_ino, .bytes = bytes_, .fd = fd_.get()};
}

void Segment::discard(size_t offset, size_t bytes) const {
  const size_t first = round_to_pages(offset), end = (offset + bytes) / page_bytes() * page_bytes();
  if (first >= end) return;
  (void)fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(first),
                  static_cast<off_t>(end - first));
}

}  // namespace weft::device
