#include "format/checkpoints.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "base/file.h"

namespace loom::format {
namespace {

constexpr char kManifest[] = "manifest.json";
constexpr char kPrefix[] = "step-";
constexpr char kFormat[] = "loom checkpoint";
constexpr int kVersion = 1;
constexpr int64_t kMostSteps = 4'000'000'000;  // no run has more

/// The step of a folder's name, if it is one of ours.
std::optional<uint64_t> step_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const char* const first = name.data() + sizeof(kPrefix) - 1;
  const char* const last = name.data() + name.size();
  uint64_t step = 0;
  const auto [end, error] = std::from_chars(first, last, step);
  if (error != std::errc() || end != last || last - first < 8) return std::nullopt;
  return step;
}

Result<uint64_t> file_size(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return fail_errno(errno, fmt::format("cannot look at {}", path));
  return static_cast<uint64_t>(info.st_size);
}

/// Takes the mark away before anything else, so that a removal that is interrupted leaves no checkpoint that
/// looks whole.
Status remove_checkpoint(const std::string& folder) {
  if (::unlink(join_path(folder, kManifest).c_str()) == 0) LOOM_TRY(sync_folder(folder));
  else if (errno != ENOENT)
    return fail_errno(errno, fmt::format("cannot remove {} of {}", kManifest, folder));
  return remove_folder(folder);
}

Status check_files(const Json& manifest, const std::string& folder) {
  const auto files = manifest.find("files");
  if (files == manifest.end() || !files->is_object()) {
    return fail(Code::invalid_data, "{} of {} has no object \"files\"", kManifest, folder);
  }
  for (const auto& [name, size] : files->items()) {
    if (name.find('/') != std::string::npos)
      return fail(Code::invalid_data, "{} of {} lists \"{}\", must list names of files in its folder",
                  kManifest, folder, name);
    const Result<uint64_t> found = file_size(join_path(folder, name));
    if (!found.ok()) {
      if (found.status().code() != Code::not_found) return found.status();
      return fail(Code::invalid_data, "{} has no file {}, which its manifest lists: {}", folder, name,
                  found.status().message());
    }
    if (size != *found) {
      return fail(Code::invalid_data, "{} of {} has {} bytes, must be {} as its manifest says", name, folder,
                  *found, size.dump());
    }
  }
  return {};
}

}  // namespace

Result<Json> read_manifest(const std::string& step_folder) {
  const std::string path = join_path(step_folder, kManifest);
  // What is there and cannot be looked at may be a whole one.
  const Result<uint64_t> there = file_size(path);
  if (!there.ok() && is_folder(step_folder) && there.status().code() != Code::not_found)
    return there.status();
  if (!is_file(path)) {
    return fail(Code::not_found, "{} has no {}: it is no checkpoint, or was not completed", step_folder,
                kManifest);
  }
  Result<Json> manifest = read_json(path);
  if (!manifest.ok()) return manifest.status();
  const Result<std::string> format = required<std::string>(*manifest, "format");
  if (!format.ok()) return format.status().in(path);
  if (*format != kFormat) return fail(Code::invalid_data, "{} is no manifest of a checkpoint", path);
  const Result<int> version = required<int>(*manifest, "version");
  if (!version.ok()) return version.status().in(path);
  if (*version != kVersion) {
    return fail(Code::unsupported, "{} is of version {}, this program reads version {}", path, *version,
                kVersion);
  }
  const Result<int64_t> step = required<int64_t>(*manifest, "step");
  if (!step.ok()) return step.status().in(path);
  if (*step < 0 || *step > kMostSteps)
    return fail(Code::invalid_data, "{}: \"step\" is {}, must be in [0, {}]", path, *step, kMostSteps);
  LOOM_TRY(check_files(*manifest, step_folder));
  return manifest;
}

std::string hash_text(uint64_t hash) { return fmt::format("{:016x}", hash); }

Status check_hashes(const Json& manifest, const std::string& step_folder, int first, int every) {
  const auto hashes = manifest.find(kHashes);
  if (hashes == manifest.end()) return {};
  if (!hashes->is_object())
    return fail(Code::invalid_data, "\"{}\" in {} of {} is no object", kHashes, kManifest, step_folder);
  const auto files = manifest.find("files");
  int index = 0;
  for (const auto& [name, hash] : hashes->items()) {
    if (index++ % every != first) continue;
    if (files == manifest.end() || !files->contains(name))
      return fail(Code::invalid_data, "{} of {} has a hash of \"{}\", which it does not list as a file",
                  kManifest, step_folder, name);
    const Result<uint64_t> found = hash_of_file(join_path(step_folder, name));
    LOOM_TRY(found.status());
    if (hash != hash_text(*found))
      return fail(Code::invalid_data, "{} is damaged: it does not have the hash that its manifest says",
                  join_path(step_folder, name));
  }
  return {};
}

Result<Checkpoints> Checkpoints::open(const std::string& root, int keep) {
  if (keep < 1) return fail(Code::invalid_argument, "{} checkpoints to keep, must be at least 1", keep);
  return Checkpoints(root, keep);
}

std::string Checkpoints::step_folder(uint64_t step) const {
  return join_path(root_, fmt::format("{}{:08}", kPrefix, step));
}

Status Checkpoints::begin(uint64_t step) {
  const std::string folder = step_folder(step);
  LOOM_TRY(make_folders(root_));
  const Result<std::vector<uint64_t>> complete = complete_steps();
  if (!complete.ok()) return complete.status();
  if (complete->size() == 1 && complete->front() == step) {
    return fail(Code::invalid_argument,
                "{} is the only complete checkpoint, it cannot be written again: remove it first", folder);
  }
  LOOM_TRY(remove_checkpoint(folder));
  LOOM_TRY(make_folders(folder));
  return sync_folder(root_);
}

Status Checkpoints::commit(uint64_t step, const Json& content, const std::vector<std::string>& files) {
  if (!content.is_object())
    return fail(Code::invalid_argument, "a manifest is an object, not {}", content.dump());
  const std::string folder = step_folder(step);
  if (files.empty())
    return fail(Code::invalid_argument, "{} gets no file, there is nothing to commit", folder);
  Json manifest;
  manifest["format"] = kFormat;
  manifest["version"] = kVersion;
  manifest["step"] = step;
  for (const std::string& file : files) {
    const Result<uint64_t> size = file_size(join_path(folder, file));
    if (size.status().code() == Code::not_found)
      return fail(Code::not_found,
                  "{} lacks {}, which a rank has written: it must be a folder that all nodes share", folder,
                  file);
    LOOM_TRY(size.status());
    manifest["files"][file] = *size;
  }
  for (const auto& [key, value] : content.items()) {
    if (!manifest.contains(key)) {
      manifest[key] = value;
      continue;
    }
    return fail(Code::invalid_argument, "\"{}\" is a key of the manifest itself, use another one", key);
  }
  LOOM_TRY(sync_folder(folder));
  return write_json(join_path(folder, kManifest), manifest);
}

Status Checkpoints::prune() {
  const Result<std::vector<uint64_t>> complete = complete_steps();
  if (!complete.ok()) return complete.status();
  if (complete->empty()) return {};
  const Result<std::vector<uint64_t>> all = all_steps();
  if (!all.ok()) return all.status();
  const size_t kept = std::min(complete->size(), static_cast<size_t>(keep_));
  const std::vector<uint64_t> keep(complete->end() - static_cast<std::ptrdiff_t>(kept), complete->end());
  for (const uint64_t step : *all) {
    // A newer one without a manifest may be in the making.
    if (step > complete->back() || std::binary_search(keep.begin(), keep.end(), step)) continue;
    const Code code = read_manifest(step_folder(step)).status().code();
    if (code == Code::unsupported || code == Code::system_error) continue;
    LOOM_TRY(remove_checkpoint(step_folder(step)));
  }
  return sync_folder(root_);
}

Result<std::vector<uint64_t>> Checkpoints::all_steps() const {
  std::vector<uint64_t> steps;
  const Status there = file_size(root_).status();
  if (there.code() == Code::not_found) return steps;
  LOOM_TRY(there);
  if (!is_folder(root_)) return steps;
  const Result<std::vector<std::string>> names = list_folder(root_);
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    const std::optional<uint64_t> step = step_of(name);
    if (step && step_folder(*step) == join_path(root_, name)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

Result<std::vector<uint64_t>> Checkpoints::complete_steps() const {
  Result<std::vector<uint64_t>> steps = all_steps();
  if (!steps.ok()) return steps;
  std::erase_if(*steps, [&](uint64_t step) { return !read_manifest(step_folder(step)).ok(); });
  return steps;
}

Result<FoundCheckpoints> Checkpoints::find() const {
  const Result<std::vector<uint64_t>> steps = all_steps();
  if (!steps.ok()) return steps.status();
  FoundCheckpoints found;
  for (auto step = steps->rbegin(); step != steps->rend() && !found.newest; ++step) {
    const Status status = read_manifest(step_folder(*step)).status();
    if (status.ok()) found.newest = *step;
    else if (status.code() == Code::invalid_data) found.damaged.push_back(status.message());
    else if (status.code() == Code::not_found) found.unfinished.push_back(status.message());
    else return status;
  }
  return found;
}

Result<std::optional<uint64_t>> Checkpoints::latest() const {
  const Result<FoundCheckpoints> found = find();
  if (!found.ok()) return found.status();
  return found->newest;
}

}  // namespace loom::format
