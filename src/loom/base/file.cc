#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "base/hash.h"

namespace loom {
namespace {

namespace fs = std::filesystem;

/// Writes all of it, whatever the kernel takes at a time.
Status write_all(int fd, uint64_t position, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t wrote =
        ::pwrite(fd, bytes.data(), std::min(bytes.size(), size_t{1} << 30), static_cast<off_t>(position));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return fail_errno(errno, fmt::format("cannot write {}", path));
    position += static_cast<uint64_t>(wrote);
    bytes = bytes.subspan(static_cast<size_t>(wrote));
  }
  return {};
}

}  // namespace

AtomicFile::AtomicFile(std::string path, std::string temporary, UniqueFd fd)
    : path_(std::move(path)), temporary_(std::move(temporary)), fd_(std::move(fd)) {}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  if (this != &other) {
    discard();
    path_ = std::move(other.path_);
    temporary_ = std::move(other.temporary_);
    fd_ = std::move(other.fd_);
    end_ = other.end_;
  }
  return *this;
}

AtomicFile::~AtomicFile() { discard(); }

Result<AtomicFile> AtomicFile::create(const std::string& path, uint64_t bytes) {
  // Writers of one path, threads or processes, do not meet in one temporary file; what a killed one has left
  // is passed by.
  static std::atomic<uint64_t> last = 0;
  std::string temporary;
  UniqueFd fd;
  do {
    temporary = fmt::format("{}.{}-{}.tmp", path, ::getpid(), ++last);
    fd.reset(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  } while (!fd.valid() && errno == EEXIST);
  if (!fd.valid()) return fail_errno(errno, fmt::format("cannot create {}", path));
  AtomicFile file(path, std::move(temporary), std::move(fd));
  // Not every file system can reserve; those that cannot find out while writing.
  if (bytes > 0 && ::fallocate(file.fd_.get(), 0, 0, static_cast<off_t>(bytes)) != 0 && errno != EOPNOTSUPP &&
      errno != ENOSYS) {
    return fail_errno(errno, fmt::format("cannot reserve {} bytes for {}", bytes, path));
  }
  return file;
}

void AtomicFile::discard() {
  if (!fd_.valid()) return;
  ::unlink(temporary_.c_str());
  fd_.reset();
}

Status AtomicFile::write_at(uint64_t position, std::span<const std::byte> bytes) {
  if (!fd_.valid())
    return fail(Code::invalid_argument, "{} was finished or given up, nothing can be written", path_);
  Status wrote = write_all(fd_.get(), position, bytes, path_);
  if (!wrote.ok()) discard();  // what is not whole is never committed, and its space is free at once
  return wrote;
}

Status AtomicFile::append(std::span<const std::byte> bytes) {
  LOOM_TRY(write_at(end_, bytes));
  end_ += bytes.size();
  return {};
}

Status AtomicFile::commit() {
  if (!fd_.valid()) return fail(Code::invalid_argument, "{} was finished or given up already", path_);
  if (::fsync(fd_.get()) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    discard();
    return fail_errno(error, fmt::format("cannot finish {}", path_));
  }
  fd_.reset();
  return sync_folder(folder_of(path_));
}

std::string_view final_name(std::string_view name) {
  constexpr std::string_view kEnd = ".tmp", kDigits = "0123456789";
  if (!name.ends_with(kEnd)) return name;
  std::string_view rest = name.substr(0, name.size() - kEnd.size());
  for (const char before : {'-', '.'}) {
    const size_t at = rest.find_last_not_of(kDigits);
    if (at == std::string_view::npos || at + 1 == rest.size() || rest[at] != before) return name;
    rest = rest.substr(0, at);
  }
  return rest;
}

Result<std::string> read_file(const std::string& path, uint64_t limit) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return fail_errno(errno, fmt::format("cannot open {}", path));
  std::string content;
  for (;;) {
    // One byte beyond the limit is enough to know.
    const uint64_t most = std::min<uint64_t>(uint64_t{1} << 20, limit + 1 - content.size());
    const size_t before = content.size();
    content.resize(before + most);
    const ssize_t got = ::read(fd.get(), content.data() + before, most);
    content.resize(before + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno(errno, fmt::format("cannot read {}", path));
    if (got == 0) return content;
    if (content.size() > limit) {
      return fail(Code::invalid_data, "{} is longer than {} bytes, which is the most for such a file", path,
                  limit);
    }
  }
}

Result<uint64_t> hash_of_file(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return fail_errno(errno, fmt::format("cannot open {}", path));
  std::vector<std::byte> piece(size_t{1} << 20);
  Hash64 hash;
  for (size_t filled = piece.size(); filled == piece.size();) {
    for (filled = 0; filled < piece.size();) {
      const ssize_t got = ::read(fd.get(), piece.data() + filled, piece.size() - filled);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return fail_errno(errno, fmt::format("cannot read {}", path));
      if (got == 0) break;
      filled += static_cast<size_t>(got);
    }
    hash.add(hash_of(std::span(piece).first(filled)));
  }
  return hash.value();
}

Status write_file(const std::string& path, std::string_view content) {
  Result<AtomicFile> file = AtomicFile::create(path);
  if (!file.ok()) return file.status();
  LOOM_TRY(file->append(std::as_bytes(std::span(content.data(), content.size()))));
  return file->commit();
}

Status copy_file(const std::string& from, const std::string& to) {
  const Result<std::string> content = read_file(from);
  LOOM_TRY(content.status());
  return write_file(to, *content);
}

Status make_folders(const std::string& path) {
  if (is_file(path)) return fail(Code::invalid_argument, "{} is a file, must be a folder", path);
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return fail_errno(error.value(), fmt::format("cannot create the folder {}", path));
  return {};
}

Status remove_folder(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) return fail_errno(error.value(), fmt::format("cannot remove {}", path));
  return {};
}

Status sync_folder(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return fail_errno(errno, fmt::format("cannot open the folder {}", path));
  // Some network file systems do not know the call for folders, and need none.
  if (::fsync(fd.get()) != 0 && errno != EINVAL) {
    return fail_errno(errno, fmt::format("cannot write the folder {} to disk", path));
  }
  return {};
}

Result<std::vector<std::string>> list_folder(const std::string& path) {
  std::error_code error;
  std::vector<std::string> names;
  fs::directory_iterator entry(path, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) return fail_errno(error.value(), fmt::format("cannot list {}", path));
  std::sort(names.begin(), names.end());
  return names;
}

bool is_folder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool is_file(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

std::string folder_of(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

std::string join_path(const std::string& folder, std::string_view name) {
  return (fs::path(folder) / name).string();
}

}  // namespace loom
