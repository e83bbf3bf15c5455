// Finding and loading.
#include "device/cuda/library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <glob.h>

#include <cstdlib>

namespace loom::cuda {
namespace {

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

/// Files that match a pattern of the shell.
std::vector<std::string> files_like(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> files;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0)
    files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  return files;
}

}  // namespace

Library::Library(const char* setting, const std::vector<std::string>& places) {
  const std::string set = environment(setting);
  for (const std::string& place : set.empty() ? places : std::vector<std::string>{set}) {
    handle_ = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) {
      path_ = place;
      return;
    }
    if (error_.empty()) error_ = dlerror();
  }
}

void* Library::find(const char* symbol) {
  void* const found = dlsym(handle_, symbol);
  if (found == nullptr && missing_.empty()) missing_ = symbol;
  return found;
}

std::vector<std::string> places_of(const std::string& file, int cuda_major, const std::string& in_wheels) {
  std::vector<std::string> places = {file, fmt::format("/usr/local/cuda-{}/lib64/{}", cuda_major, file),
                                     "/usr/local/cuda/lib64/" + file};
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const std::string prefix = environment(variable); !prefix.empty())
      for (std::string& found :
           files_like(fmt::format("{}/lib/python3*/site-packages/{}/{}", prefix, in_wheels, file)))
        places.push_back(std::move(found));
  return places;
}

}  // namespace loom::cuda
