// Library: a library of NVIDIA's that is loaded at run time, and its functions. No build needs it, and none
// carries it. A setting names the file; without that the loader's folders come first, then CUDA's folder,
// then the active Python environment's (VIRTUAL_ENV, CONDA_PREFIX).
//
// Thread safety: one thread at a time. It is never closed: such a library has state of the primary context.
#pragma once

#include <string>
#include <vector>

namespace loom::cuda {

class Library {
 public:
  /// Loads what the environment variable `setting` names, or else the first of `places` that can be loaded.
  Library(const char* setting, const std::vector<std::string>& places);

  bool is_loaded() const { return handle_ != nullptr; }
  /// Where it was found.
  const std::string& path() const { return path_; }
  /// Why the first place failed, in the loader's words.
  const std::string& error() const { return error_; }

  /// Takes a function, or null.
  template <typename Function>
  void bind(Function*& into, const char* symbol) {
    into = reinterpret_cast<Function*>(find(symbol));
  }
  /// The first function that was asked for and is missing; "": none.
  const std::string& missing() const { return missing_; }

 private:
  void* find(const char* symbol);

  void* handle_ = nullptr;
  std::string path_, error_, missing_;
};

/// Where the file may be, the first first. CUDA's folders are those of that major version and the one that is
/// installed; `in_wheels` is the folder of Python's packages that have the file: "nvidia/cublas/lib".
std::vector<std::string> places_of(const std::string& file, int cuda_major, const std::string& in_wheels);

}  // namespace loom::cuda
