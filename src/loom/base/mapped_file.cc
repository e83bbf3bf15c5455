#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/fd.h"

namespace loom {

Result<MappedFile> MappedFile::open(const std::string& path) {
  // A pipe would block the open for ever.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return fail_errno(errno, fmt::format("cannot open {}", path));
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return fail_errno(errno, fmt::format("cannot look at {}", path));
  if (!S_ISREG(info.st_mode)) {
    return fail(Code::invalid_argument, "{} is {}, must be a file", path,
                S_ISDIR(info.st_mode) ? "a folder" : "no plain file");
  }
  MappedFile file;
  if (info.st_size == 0) return file;  // the kernel maps nothing of no length
  const size_t size = static_cast<size_t>(info.st_size);
  void* const data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return fail_errno(errno, fmt::format("cannot map {}", path));
  file.data_ = static_cast<const std::byte*>(data);
  file.size_ = size;
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace loom
