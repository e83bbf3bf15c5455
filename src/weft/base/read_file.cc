#include "base/read_file.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "base/fd.h"

namespace weft {

Result<std::string> read_file(const std::string& path, uint64_t most_bytes) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return fail_errno(errno, fmt::format("cannot open {}", path));
  return read_rest(fd.get(), path, most_bytes);
}

Result<std::string> read_rest(int fd, const std::string& name, uint64_t most_bytes) {
  constexpr uint64_t kPiece = 64 << 10;
  std::string content;
  for (;;) {
    // One byte beyond the limit is enough to know.
    const uint64_t most = std::min(kPiece, most_bytes + 1 - content.size());
    const size_t before = content.size();
    content.resize(before + most);
    const ssize_t got = read(fd, content.data() + before, most);
    const int error = errno;
    content.resize(before + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && error == EINTR) continue;
    if (got < 0) return fail_errno(error, fmt::format("cannot read {}", name));
    if (got == 0) return content;
    if (content.size() > most_bytes) {
      return fail(Code::invalid_argument, "{} is longer than {} bytes, which is the most for such a file",
                  name, most_bytes);
    }
  }
}

}  // namespace weft
