#include "text/replace_tokenizer.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <functional>

#include "base/file.h"

namespace loom::text {
namespace {

/// All that open_tokenizer() looks for.
constexpr std::array kFiles = {
    "loom-tokenizer.json",   "tokenizer.json",          "vocab.json",       "merges.txt", "vocab.txt",
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"};

/// All but `names`.
Status remove_others(const std::vector<std::string>& names, const std::string& folder) {
  for (const char* other : kFiles) {
    if (std::find(names.begin(), names.end(), other) != names.end()) continue;
    if (::unlink(join_path(folder, other).c_str()) != 0 && errno != ENOENT)
      return fail_errno(errno, fmt::format("cannot remove the old {} of {}", other, folder));
  }
  return sync_folder(folder);
}

Status move_files(const std::vector<std::string>& names, const std::string& from, const std::string& to) {
  for (const std::string& name : names)
    if (std::rename(join_path(from, name).c_str(), join_path(to, name).c_str()) != 0)
      return fail_errno(errno, fmt::format("cannot move {} to {}", join_path(from, name), to));
  return remove_others(names, to);
}

/// Files that `write` puts into the folder that it is given take the place of those in `folder`.
Status replace(const std::string& folder, const std::function<Status(const std::string&)>& write) {
  const std::string beside = join_path(folder, fmt::format("tokenizer.{}.tmp", ::getpid()));
  LOOM_TRY(remove_folder(beside));
  LOOM_TRY(make_folders(beside));
  Status status = write(beside);
  if (status.ok()) {
    const Result<std::vector<std::string>> names = list_folder(beside);
    status = names.ok() ? move_files(*names, beside, folder) : names.status();
  }
  const Status removed = remove_folder(beside);
  return status.ok() ? removed : status;
}

}  // namespace

bool is_tokenizer_file(std::string_view name) { return std::ranges::find(kFiles, name) != kFiles.end(); }

Status remove_tokenizer(const std::string& folder) { return remove_others({}, folder); }

Status replace_tokenizer(const Tokenizer& tokenizer, const std::string& folder) {
  return replace(folder, [&](const std::string& beside) { return tokenizer.save(beside); });
}

Status copy_tokenizer(const std::string& from, const std::string& folder) {
  return replace(folder, [&](const std::string& beside) -> Status {
    int copied = 0;
    for (const char* name : kFiles) {
      if (!is_file(join_path(from, name))) continue;
      LOOM_TRY(copy_file(join_path(from, name), join_path(beside, name)));
      ++copied;
    }
    if (copied == 0) return fail(Code::not_found, "{} has no tokenizer", from);
    return {};
  });
}

}  // namespace loom::text
