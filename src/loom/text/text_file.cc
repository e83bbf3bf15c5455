#include "text/text_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/fd.h"
#include "base/file.h"
#include "text/utf8.h"

namespace loom::text {
namespace {

constexpr std::string_view kMark = "\xef\xbb\xbf";
/// A process has so many mappings (vm.max_map_count, 65530), and may be given more files. Smaller ones are
/// read.
constexpr off_t kLeastMapped = 64 << 10;

Result<std::string> read_to_end(int fd, const std::string& name) {
  constexpr size_t kAtOnce = size_t{1} << 20;
  std::string all;
  for (size_t size = 0;;) {
    all.resize(size + kAtOnce);
    const ssize_t some = ::read(fd, all.data() + size, kAtOnce);
    if (some < 0 && errno == EINTR) continue;
    if (some < 0) return fail_errno(errno, fmt::format("cannot read {}", name));
    size += static_cast<size_t>(some);
    if (some > 0) continue;
    all.resize(size);
    return all;
  }
}

}  // namespace

std::string_view without_mark(std::string_view bytes) {
  return bytes.starts_with(kMark) ? bytes.substr(kMark.size()) : bytes;
}

Status check_text(std::string_view bytes) {
  if (without_mark(bytes).empty()) return fail(Code::invalid_data, "it is empty, must be a text");
  if (bytes.starts_with("\xff\xfe") || bytes.starts_with("\xfe\xff"))
    return fail(Code::invalid_data,
                "it begins with the byte order mark of UTF-16, must be UTF-8: `iconv -f UTF-16 -t UTF-8` "
                "converts it");
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Char c = utf8_at(bytes, at);
    if (!c.valid || c.value == 0) {
      return fail(Code::invalid_data, "byte {} is {:#04x}, which is {}: must be a text in UTF-8", at,
                  static_cast<unsigned char>(bytes[at]), c.valid ? "in no text" : "no UTF-8 there");
    }
    at += c.bytes;
  }
  return {};
}

std::string_view TextFile::text() const { return without_mark(read_.empty() ? mapped_.text() : read_); }

Result<TextFile> TextFile::open(const std::string& path) {
  TextFile file;
  file.path_ = path;
  const bool standard = path == kStandardInput;
  // A copy, so that closing it leaves standard input to others.
  const UniqueFd fd(standard ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                             : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return fail_errno(errno, fmt::format("cannot open {}", file.name()));
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return fail_errno(errno, fmt::format("cannot look at {}", file.name()));
  // Of the devices only a terminal ends.
  if (standard || S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode) || ::isatty(fd.get()) == 1) {
    Result<std::string> content = read_to_end(fd.get(), file.name());
    LOOM_TRY(content.status());
    file.read_ = content.take();
  } else if (S_ISREG(info.st_mode) && info.st_size > 0 && info.st_size < kLeastMapped) {
    Result<std::string> content = read_file(path, static_cast<uint64_t>(info.st_size));
    LOOM_TRY(content.status());
    file.read_ = content.take();
  } else {
    Result<MappedFile> mapped = MappedFile::open(path);
    LOOM_TRY(mapped.status());
    file.mapped_ = mapped.take();
  }
  LOOM_TRY(check_text(file.read_.empty() ? file.mapped_.text() : file.read_).in(file.name()));
  return file;
}

}  // namespace loom::text
